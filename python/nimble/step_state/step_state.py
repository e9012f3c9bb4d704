"""Reads, compares and restores the state that a step uses besides its arguments.

StepState reads everything that a graph has frozen or refers to by address, compares it, and undoes a capture's changes on
the host, since nothing has run. StepGuard says whether that state is still the same as at a capture. nimble.steps.step_grads
handles p.grad before and after the capture.

Not to be used by two threads at once."""

from __future__ import annotations

import collections
import marshal
from itertools import chain
from operator import is_
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.utils.hooks import RemovableHandle

from nimble.errors import NimbleError
from nimble.guards.guard import Guard
from nimble.guards.metadata import Metadata
from nimble.guards.module_guard import ModuleGuard
from nimble.guards.tensor_memory import strided_parts
from nimble.objects import containers
from nimble.objects.hooks import accumulate_hooks, backward_hooks, hooks_of, hooks_of_all_optimizers
from nimble.objects.host_random import HostRandom
from nimble.objects.memory import is_array, unique, version_of
from nimble.objects.plain import SCALARS
from nimble.step_state.closure_inputs import ClosureInputs, Values
from nimble.step_state.closure_search import MOST_ELEMENTS
from nimble.step_state.kept_state import KeptState, Scaling, host_random, scaling
from nimble.step_state.library_objects import Positions

_SCALER = ("_enabled", "_growth_factor", "_backoff_factor", "_growth_interval", "_scale", "_growth_tracker")

Look = Tuple[Any, ...]
_NOTED = 8  # the index of the scalers' notes in a look
_MOST_NUMBERS = 16  # of a tensor on the host that is compared by its values


class StepState:
    """The state of the objects that a step refers to."""

    def __init__(self, inputs: ClosureInputs, device_type: str) -> None:
        self._inputs, self._device_type = inputs, device_type
        self.modules, self.optimizers = inputs.modules, inputs.optimizers
        self._guards = [ModuleGuard(module, device_type, trains=True) for module in inputs.modules]
        self.parameters = unique(chain(
            (p for m in inputs.modules for p in m.parameters()),
            (p for o in inputs.optimizers for group in o.param_groups for p in group["params"]),
            (t for t in inputs.tensors if t.requires_grad and t.is_leaf)))
        self.found = inputs.tensors
        self.buffers = unique(b for m in inputs.modules for b in m.buffers())
        # Parameters on the host are compared by value, which the modules' guards do not do.
        guarded = {id(p) for m in inputs.modules for p in m.parameters() if p.device.type == device_type}
        self._others = [p for p in self.parameters if id(p) not in guarded]
        self._known: Dict[int, _Known] = {}  # states of optimizers, by their index
        self._slots, self._known_slots = Values(inputs.slots), _KnownSlots([], [])
        self._metadata = Metadata((*self._others, *inputs.tensors), trains=True)
        self._hooks_at, self._has_hooks = -1, True  # how many hooks had been made when there were none on parameters
        self._held: List[Any] = []  # objects that a look identifies by id

    def tensors(self) -> List[torch.Tensor]:
        """All known tensors that a step may write to."""
        inputs = self._inputs
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return unique(chain(self.parameters, self.buffers, inputs.tensors, grads,
                             (t for o in inputs.optimizers for t in _tensors_of(o)),
                             (t for s in inputs.scalers for t in (s._scale, s._growth_tracker) if t is not None),
                             (t for s in inputs.scalers for t in _found_by(s))))

    def kept_by_optimizers(self) -> List[torch.Tensor]:
        """The tensors that optimizers and gradient scalers keep, and a step writes to."""
        inputs = self._inputs
        states = (value for o in inputs.optimizers for state in o.state.values() if isinstance(state, dict)
                  for value in state.values())
        scales = (value for s in inputs.scalers for value in (s._scale, s._growth_tracker))
        return unique(value for value in chain(states, scales) if isinstance(value, torch.Tensor))

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the memory that the step may read, except gradients that it does not add to."""
        return [*(t for guard in self._guards for t in guard.memory()), *self.parameters, *self.buffers, *self._inputs.tensors,
                *(t for o in self.optimizers for t in _tensors_of(o))]

    def scaling(self) -> Scaling:
        """Each gradient scaler's state by optimizer."""
        return scaling(self._inputs)

    def look(self, holds: bool = False) -> Look:
        """The present state. A graph that was captured at one look may be replayed at another if both are equal. holds: the ids
        in this look are not reused while the StepState lives."""
        inputs = self._inputs
        values = self._slots.now()
        hooks = [*map(hooks_of, inputs.optimizers), self._hooks_of_parameters(), hooks_of_all_optimizers()]
        groups = [[[v for k, v in group.items() if k != "params"] for group in o.param_groups] for o in inputs.optimizers]
        noted = [[value for state in s._per_optimizer_states.values() for value in _noted(state)] for s in inputs.scalers]
        if holds:
            states = [list(o.state.values()) for o in inputs.optimizers]
            scales = [getattr(s, name, None) for s in inputs.scalers for name in _SCALER]
            self._held = [_with_elements(values), hooks, _with_elements(groups), noted, states, scales]
        return (
            [guard.difference() for guard in self._guards],
            [self._in_slots(values)],
            [[self._values(each) for each in group] for group in groups],
            [[list(map(id, group["params"])) for group in o.param_groups] for o in inputs.optimizers],
            [self._state_of(number, o) for number, o in enumerate(inputs.optimizers)],
            [self._values(getattr(s, name) for name in _SCALER if hasattr(s, name)) for s in inputs.scalers],
            self._values(self._others),
            [list(map(id, each)) for each in hooks],
            [self._values(each) for each in noted],
            self._metadata.difference(),
        )

    def difference(self, before: Look, now: Look) -> Optional[str]:
        """The difference between two looks, as a phrase for a message; None where there is none."""
        if before == now:
            return None
        for guard in now[0]:
            if guard is not None:
                return str(guard)
        for slot, one, other in zip(self._slots.slots, before[1][0], now[1][0]):
            if one != other:
                return f"{slot.name!r} has changed"
        what = ("", "", "a hyperparameter of an optimizer (its learning rate, say) has changed",
                "an optimizer has other parameters", "the state of an optimizer was replaced, or is kept on the host",
                "a gradient scaler has changed", "a parameter has other storage",
                "a hook of a parameter or an optimizer was added or removed",
                "a gradient scaler has other state for an optimizer", str(now[-1]))
        return next(text for text, one, other in zip(what, before, now) if one != other)

    def _hooks_of_parameters(self) -> List[Any]:
        """Hooks of parameters. While no hook is created anywhere, parameters without hooks still have none."""
        made = getattr(RemovableHandle, "next_id", None)
        if made is not None and made == self._hooks_at and not self._has_hooks:
            return []
        found = [hook for hooks in (*map(backward_hooks, self.parameters), *map(accumulate_hooks, self.parameters))
                 for hook in (hooks or {}).values()]
        self._hooks_at, self._has_hooks = -1 if made is None else made, bool(found)
        return found

    def _state_of(self, number: int, optimizer: torch.optim.Optimizer) -> List[Any]:
        """Values of the optimizer's state of each parameter. There are many tensors, so earlier results are reused."""
        states = list(optimizer.state.values())
        if not all(isinstance(state, dict) for state in states):
            return [self._values(state.values()) if isinstance(state, dict) else id(state) for state in states]
        values = list(chain.from_iterable(map(dict.values, states)))
        sizes = list(map(len, states))
        known = self._known.get(number)
        if known is None or known.sizes != sizes or not known.are_the_same(values):
            made = [self._values(state.values()) for state in states]
            known = self._known[number] = _Known(sizes, values, made, self._device_type)
        return known.made

    def _in_slots(self, values: List[Any]) -> List[Any]:
        """_values() of the slots: there are hundreds, and few hold mutable objects."""
        known = self._known_slots
        if len(values) == len(known.values) and all(map(is_, values, known.values)):
            now = self._values([values[i] for i in known.changing], 2)
            if now == known.now:
                return known.made
        made = self._values(values, 2)
        self._known_slots = _KnownSlots(values, made)
        return made

    def _values(self, values: Iterable[Any], depth: int = 1) -> List[Any]:
        """The value of each where the host has one, else its address or id. Nested lists up to `depth`."""
        result: List[Any] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                result.append((id(value), _address(value)) if value.device.type == self._device_type
                              else (id(value), value.tolist() if value.numel() <= _MOST_NUMBERS else version_of(value)))
            elif isinstance(value, float):
                result.append(value.hex())
            elif isinstance(value, SCALARS):
                result.append((type(value), value))
            elif isinstance(value, (tuple, list, collections.deque)) and depth and containers.size(value) <= MOST_ELEMENTS:
                result.append(self._values(containers.elements(value), depth - 1))
            elif isinstance(value, containers.KINDS):
                result.append((id(value), containers.size(value), _content_of(value)))
            elif isinstance(value, (tuple, frozenset)):
                result.append(_content_of(value) or id(value))
            elif is_array(value):
                result.append((str(value.dtype), value.shape, value.tobytes()))
            else:
                result.append(id(value))
        return result

    def keep(self) -> "KeptState":
        """Saves the host's side of the state, to restore it after a capture, which runs nothing on the device."""
        return KeptState(self._inputs, self.parameters, self.tensors(), self._device_type)

    def host_random(self) -> HostRandom:
        return host_random(self._inputs)

    def positions(self) -> Positions:
        return Positions(self._inputs.files)


class _KnownSlots:
    """Values that a look has found in slots, and the `made` results. `changing`: the indices of mutable values; `now`: their
    results."""

    def __init__(self, values: List[Any], made: List[Any]) -> None:
        self.values, self.made = values, made
        self.changing = [i for i, value in enumerate(values) if _can_change(value)]
        self.now = [made[i] for i in self.changing]


def _can_change(value: Any) -> bool:
    """Whether StepState._values() may return something else for the same object later."""
    return isinstance(value, (torch.Tensor, tuple, *containers.KINDS)) or is_array(value)


class _Known:
    """Values that a look has read, and the `made` results."""

    def __init__(self, sizes: List[int], values: List[Any], made: List[Any], device_type: str) -> None:
        self.sizes, self.made = sizes, made
        self._values = values
        self._tensors = [value for value in values if isinstance(value, torch.Tensor)]
        self._addresses = list(map(torch.Tensor.data_ptr, self._tensors))
        # None of them is mutable, except that a tensor can get other memory.
        self._is_constant = (all(isinstance(value, (torch.Tensor, *SCALARS)) for value in values)
                             and all(tensor.device.type == device_type for tensor in self._tensors))

    def are_the_same(self, values: List[Any]) -> bool:
        """Whether a look would make the same of these values. False where only a look can tell."""
        return (self._is_constant and len(values) == len(self._values) and all(map(is_, values, self._values))
                and list(map(torch.Tensor.data_ptr, self._tensors)) == self._addresses)


class StepGuard(Guard):
    """The state of a step at construction."""

    def __init__(self, state: StepState) -> None:
        self.state = state
        self._seen = state.look(True)

    def difference(self) -> Optional[str]:
        return self.state.difference(self._seen, self.state.look())

    def difference_of_step(self) -> Optional[str]:
        """The same, except the scaler state that a program sets between its steps, which each replay sets again."""
        now = list(self.state.look())
        now[_NOTED] = self._seen[_NOTED]
        return self.state.difference(self._seen, tuple(now))


def check_unchanged(guard: StepGuard, random_before: HostRandom, positions: Positions, draws_on_host: bool) -> None:
    """Raises NimbleError where a capture has changed something that its replays would not change. draws_on_host: the device's
    random numbers are the host's."""
    who = random_before.who_has_drawn(but_torch=draws_on_host)
    if who is not None:
        raise NimbleError(f"the step draws random numbers on the host ({who}), which a graph would never draw again")
    positions.check()
    what = guard.difference_of_step()
    if what is not None:
        raise NimbleError(f"the step changes something that its graph would not: {what}. Optimizers that count their steps on the "
                          "host need capturable=True; learning rates are to be changed, and counters to be counted, outside of "
                          "the step")


def _address(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr() if tensor.layout is torch.strided else [part.data_ptr() for part in strided_parts(tensor)]


def _content_of(value: Any) -> Any:
    """The part of a container's content that its elements' slots do not show: the order of a dictionary's keys, and the
    content of others that have only plain values and no slots."""
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_key, containers.elements(value)))
    if isinstance(value, dict) and containers.size(value) <= MOST_ELEMENTS:
        return list(map(_key, containers.elements(value)))
    if containers.size(value) <= MOST_ELEMENTS:
        return None
    elements = list(containers.items(value)) if isinstance(value, dict) else containers.elements(value)
    try:
        return marshal.dumps(elements, 2)  # a version with equal bytes for equal values
    except ValueError:
        return repr(elements)


def _key(value: Any) -> Any:
    return (type(value), value) if isinstance(value, SCALARS) else id(value)


def _noted(state: Dict[str, Any]) -> Iterator[Any]:
    """A gradient scaler's state for an optimizer: its stage, and where it has found infinities."""
    stage = state.get("stage")
    yield getattr(stage, "value", stage)
    yield from state.get("found_inf_per_device", {}).values()


def _found_by(scaler: Any) -> Iterator[torch.Tensor]:
    return (value for state in scaler._per_optimizer_states.values() for value in _noted(state) if isinstance(value, torch.Tensor))


def _with_elements(values: Iterable[Any], depth: int = 3) -> List[Any]:
    """The values, with the present elements of lists and tuples."""
    return [(value, _with_elements(value, depth - 1)) if depth and isinstance(value, (list, tuple)) else value for value in values]


def _tensors_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    states = [value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values()]
    settings = [value for group in optimizer.param_groups for key, value in group.items() if key != "params"]
    return [value for value in (*states, *settings) if isinstance(value, torch.Tensor)]
