"""The state that a step works on, beyond its arguments: what a graph of it was captured with, and gradients as it leaves them.

StepState reads all that the graph has frozen or refers to by address, compares it, and puts back what the host's side of a
capture has changed, where nothing has run. What p.grad was before and behind the capture is step_grads.Grads' to know.

Not to be used by two threads at once.
"""

from __future__ import annotations

import collections
import marshal
from itertools import chain
from operator import is_
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.utils.hooks import RemovableHandle

from nimble.errors import NimbleError
from nimble.guards.metadata import Metadata
from nimble.guards.state import ModuleGuard, is_same, parts_of, plain_tensors
from nimble.objects import containers
from nimble.objects.hooks import accumulate_hooks, backward_hooks, hooks_of, hooks_of_all_optimizers
from nimble.objects.host_random import HostRandom
from nimble.objects.memory import is_array, unique, version_of
from nimble.objects.module_contents import find as find_held
from nimble.steps.closure_inputs import MOST_ELEMENTS, Reached, Values
from nimble.steps.library_objects import Positions
from nimble.steps.step_places import Places

_SCALER = ("_enabled", "_growth_factor", "_backoff_factor", "_growth_interval", "_scale", "_growth_tracker")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

Look = Tuple[Any, ...]
_NOTED = 8  # where in a look what scalers have noted is
_MOST_NUMBERS = 16  # of a tensor on the host, whose values are compared


class StepState:
    """Of what a step was found to refer to."""

    def __init__(self, reached: Reached, device_type: str) -> None:
        self._reached, self._device_type = reached, device_type
        self.modules, self.optimizers = reached.modules, reached.optimizers
        self._guards = [ModuleGuard(module, device_type, trains=True) for module in reached.modules]
        self.parameters = unique(chain(
            (p for m in reached.modules for p in m.parameters()),
            (p for o in reached.optimizers for group in o.param_groups for p in group["params"]),
            (t for t in reached.tensors if t.requires_grad and t.is_leaf)))
        self.found = reached.tensors
        self.buffers = unique(b for m in reached.modules for b in m.buffers())
        # Of those on the host their values count, which the modules' guards do not compare.
        guarded = {id(p) for m in reached.modules for p in m.parameters() if p.device.type == device_type}
        self._others = [p for p in self.parameters if id(p) not in guarded]
        self._known: Dict[int, _Known] = {}  # states of optimizers, by their number
        self._slots, self._known_slots = Values(reached.slots), _KnownSlots([], [])
        self._metadata = Metadata((*self._others, *reached.tensors), trains=True)
        self._hooks_at, self._has_hooks = -1, True  # how many hooks had been made when there were none on parameters
        self._held: List[Any] = []  # what a look tells by its id

    def tensors(self) -> List[torch.Tensor]:
        """All that it knows of which a step may write to."""
        reached = self._reached
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return unique(chain(self.parameters, self.buffers, reached.tensors, grads,
                             (t for o in reached.optimizers for t in _tensors_of(o)),
                             (t for s in reached.scalers for t in (s._scale, s._growth_tracker) if t is not None),
                             (t for s in reached.scalers for t in _found_by(s))))

    def kept_by_optimizers(self) -> List[torch.Tensor]:
        """What they and gradient scalers keep, which a step writes to."""
        reached = self._reached
        states = (value for o in reached.optimizers for state in o.state.values() if isinstance(state, dict)
                  for value in state.values())
        scales = (value for s in reached.scalers for value in (s._scale, s._growth_tracker))
        return unique(value for value in chain(states, scales) if isinstance(value, torch.Tensor))

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the memory that it may read, but for that of gradients which it does not add to."""
        return [*(t for guard in self._guards for t in guard.memory()), *self.parameters, *self.buffers, *self._reached.tensors,
                *(t for o in self.optimizers for t in _tensors_of(o))]

    def scaling(self) -> List[Tuple[Any, Dict[Any, Dict[str, Any]]]]:
        """What each gradient scaler has noted of the optimizers."""
        return [(s, {key: dict(value) for key, value in s._per_optimizer_states.items()}) for s in self._reached.scalers]

    def look(self, holds: bool = False) -> Look:
        """Equal as long as a graph that was captured at the time of one may be replayed at that of the other. holds: this one's ids are
        not used again as long as this is there."""
        reached = self._reached
        values = self._slots.now()
        hooks = [*map(hooks_of, reached.optimizers), self._hooks_of_parameters(), hooks_of_all_optimizers()]
        groups = [[[v for k, v in group.items() if k != "params"] for group in o.param_groups] for o in reached.optimizers]
        noted = [[value for state in s._per_optimizer_states.values() for value in _noted(state)] for s in reached.scalers]
        if holds:
            states = [list(o.state.values()) for o in reached.optimizers]
            scales = [getattr(s, name, None) for s in reached.scalers for name in _SCALER]
            self._held = [_with_elements(values), hooks, _with_elements(groups), noted, states, scales]
        return (
            [guard.difference() for guard in self._guards],
            [self._in_slots(values)],
            [[self._values(each) for each in group] for group in groups],
            [[list(map(id, group["params"])) for group in o.param_groups] for o in reached.optimizers],
            [self._state_of(number, o) for number, o in enumerate(reached.optimizers)],
            [self._values(getattr(s, name) for name in _SCALER if hasattr(s, name)) for s in reached.scalers],
            self._values(self._others),
            [list(map(id, each)) for each in hooks],
            [self._values(each) for each in noted],
            self._metadata.difference(),
        )

    def difference(self, before: Look, now: Look) -> Optional[str]:
        """What is another, for people."""
        if before == now:
            return None
        for guard in now[0]:
            if guard is not None:
                return str(guard)
        for slot, one, other in zip(self._slots.slots, before[1][0], now[1][0]):
            if one != other:
                return f"{slot.name!r} has changed"
        what = ("", "", "a hyperparameter of an optimizer (its learning rate, say) has changed",
                "an optimizer has other parameters", "the state of an optimizer is another, or is kept on the host",
                "a gradient scaler has changed", "a parameter has other storage",
                "a hook of a parameter or an optimizer was added or removed",
                "a gradient scaler has been told something else of an optimizer", str(now[-1]))
        return next(text for text, one, other in zip(what, before, now) if one != other)

    def _hooks_of_parameters(self) -> List[Any]:
        """As long as no hook is made anywhere, none is on a parameter that had none."""
        made = getattr(RemovableHandle, "next_id", None)
        if made is not None and made == self._hooks_at and not self._has_hooks:
            return []
        found = [hook for hooks in (*map(backward_hooks, self.parameters), *map(accumulate_hooks, self.parameters))
                 for hook in (hooks or {}).values()]
        self._hooks_at, self._has_hooks = -1 if made is None else made, bool(found)
        return found

    def _state_of(self, number: int, optimizer: torch.optim.Optimizer) -> List[Any]:
        """Values of what the optimizer keeps for each parameter: some tensors for each, so what was made of them is used again."""
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
        """_values() of those that slots hold: hundreds, of which few can change and stay the same object."""
        known = self._known_slots
        if len(values) == len(known.values) and all(map(is_, values, known.values)):
            now = self._values([values[i] for i in known.changing], 2)
            if now == known.now:
                return known.made
        made = self._values(values, 2)
        self._known_slots = _KnownSlots(values, made)
        return made

    def _values(self, values: Iterable[Any], depth: int = 1) -> List[Any]:
        """Of each its value where it has one for the host, else where it is. Of lists in lists so many of them deep."""
        result: List[Any] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                result.append((id(value), _address(value)) if value.device.type == self._device_type
                              else (id(value), value.tolist() if value.numel() <= _MOST_NUMBERS else version_of(value)))
            elif isinstance(value, float):
                result.append(value.hex())
            elif isinstance(value, _PLAIN):
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

    def keep(self) -> Callable[[], None]:
        """A function that puts back what the host has of it: for a capture, which runs nothing on the device."""
        reached = self._reached
        slots = [(slot, slot.get()) for slot in reached.slots]
        attributes = [each for each in map(containers.attributes, reached.containers) if each is not None]
        held = [(value, containers.content(value)) for value in (*reached.containers, *attributes)]
        arrays = [(array, array.copy()) for array in reached.arrays]
        states = [(o.state, {key: dict(value) if isinstance(value, dict) else value for key, value in o.state.items()})
                  for o in reached.optimizers]
        scalers = [(s, dict(s.__dict__), noted) for s, noted in self.scaling()]
        plain = [each for module in reached.modules for each in plain_tensors(module)]
        training = [(m, m.training) for module in reached.modules for m in module.modules()]
        grads = [(p, p.grad) for p in self.parameters]
        places = Places(reached.modules, reached.optimizers, unique(chain(self.tensors(), (t for _, _, t, _ in plain))),
                        self.parameters)
        host = [(t, t.clone()) for t in self.tensors() if t.device.type != self._device_type and t.layout is torch.strided]
        numbers, positions = self.host_random(), self.positions()

        def put_back() -> None:
            numbers.put_back()
            positions.put_back()
            places.put_back()  # parameters are as their gradients are, then
            for parameter, grad in grads:
                if parameter.grad is not grad:
                    parameter.grad = grad
            for slot, value in slots:
                if slot.get() is not value:
                    slot.set(value)
            for where, content in held:
                if not containers.has(where, content):
                    containers.fill(where, content)
            for array, before in arrays:
                if array.tobytes() != before.tobytes() and array.flags.writeable:
                    array[...] = before
            for state, kept in states:
                for key in [key for key in state if key not in kept]:
                    del state[key]
                for key, value in kept.items():
                    if isinstance(value, dict):
                        state[key].clear()
                        state[key].update(value)
            for scaler, attributes, per_optimizer in scalers:
                scaler.__dict__.update(attributes)
                scaler._per_optimizer_states.clear()
                scaler._per_optimizer_states.update(per_optimizer)
            for attributes, name, tensor, _ in plain:
                if attributes.get(name) is not tensor:
                    attributes[name] = tensor
            for module, flag in training:
                module.training = flag
            with torch.no_grad():
                for tensor, copy in host:
                    if not is_same(tensor, copy):
                        tensor.copy_(copy)

        return put_back

    def host_random(self) -> HostRandom:
        """Also of generators that modules hold, which only their forward may name."""
        held = (each for module in self.modules for each in find_held(module).generators)
        return HostRandom({id(each): each for each in chain(self._reached.generators, held)}.values())

    def positions(self) -> Positions:
        return Positions(self._reached.files)


class _KnownSlots:
    """Values that a look has found in slots, what it has `made` of them, and of those that can change and stay the same object: at
    `changing`, and `now` this."""

    def __init__(self, values: List[Any], made: List[Any]) -> None:
        self.values, self.made = values, made
        self.changing = [i for i, value in enumerate(values) if _can_change(value)]
        self.now = [made[i] for i in self.changing]


def _can_change(value: Any) -> bool:
    """Whether StepState._values() may tell something else of the same object later."""
    return isinstance(value, (torch.Tensor, tuple, *containers.KINDS)) or is_array(value)


class _Known:
    """Values that a look has been at, and what it has `made` of them."""

    def __init__(self, sizes: List[int], values: List[Any], made: List[Any], device_type: str) -> None:
        self.sizes, self.made = sizes, made
        self._values = values
        self._tensors = [value for value in values if isinstance(value, torch.Tensor)]
        self._addresses = list(map(torch.Tensor.data_ptr, self._tensors))
        # None of which changes and stays the same object, but for a tensor that is given other memory.
        self._is_constant = (all(isinstance(value, (torch.Tensor, *_PLAIN)) for value in values)
                             and all(tensor.device.type == device_type for tensor in self._tensors))

    def are_the_same(self, values: List[Any]) -> bool:
        """Whether a look at these would make the same of them. No where only a look can tell."""
        return (self._is_constant and len(values) == len(self._values) and all(map(is_, values, self._values))
                and list(map(torch.Tensor.data_ptr, self._tensors)) == self._addresses)


def check_unchanged(state: StepState, before: Look, random_before: HostRandom, positions: Positions, draws_on_host: bool) -> None:
    """NimbleError where a capture has changed what its replays would not. draws_on_host: the device's random numbers are the host's."""
    who = random_before.who_has_drawn(but_torch=draws_on_host)
    if who is not None:
        raise NimbleError(f"the step draws random numbers on the host ({who}), which a graph would never draw anew")
    positions.check()
    now = list(state.look())
    now[_NOTED] = before[_NOTED]  # of which replays leave the same
    what = state.difference(before, tuple(now))
    if what is not None:
        raise NimbleError(f"the step changes what its graph would not change: {what}. Optimizers that count their steps on the "
                          "host need capturable=True; learning rates are to be changed, and counters to be counted, outside of "
                          "the step")


def is_as_left(state: StepState, before: Look) -> bool:
    """Whether nothing has changed since, but for what a program tells a gradient scaler between its steps."""
    now = list(state.look())
    now[_NOTED] = before[_NOTED]
    return tuple(now) == before


def _address(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr() if tensor.layout is torch.strided else [part.data_ptr() for part in parts_of(tensor)]


def _content_of(value: Any) -> Any:
    """Of a container what its elements' own slots do not tell: of a dictionary the order of its keys, of others what is in it, where
    that is plain values and there are no slots."""
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_key, containers.elements(value)))
    if isinstance(value, dict) and containers.size(value) <= MOST_ELEMENTS:
        return list(map(_key, containers.elements(value)))
    if containers.size(value) <= MOST_ELEMENTS:
        return None
    elements = list(containers.items(value)) if isinstance(value, dict) else containers.elements(value)
    try:
        return marshal.dumps(elements, 2)  # a version that tells alike values alike
    except ValueError:
        return repr(elements)


def _key(value: Any) -> Any:
    return (type(value), value) if isinstance(value, _PLAIN) else id(value)


def _noted(state: Dict[str, Any]) -> Iterator[Any]:
    """What a gradient scaler has noted of an optimizer: how far it is, and where it has found infinities."""
    stage = state.get("stage")
    yield getattr(stage, "value", stage)
    yield from state.get("found_inf_per_device", {}).values()


def _found_by(scaler: Any) -> Iterator[torch.Tensor]:
    return (value for state in scaler._per_optimizer_states.values() for value in _noted(state) if isinstance(value, torch.Tensor))


def _with_elements(values: Iterable[Any], depth: int = 3) -> List[Any]:
    """The same, and what is in lists and tuples as it is now."""
    return [(value, _with_elements(value, depth - 1)) if depth and isinstance(value, (list, tuple)) else value for value in values]


def _tensors_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    states = [value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values()]
    settings = [value for group in optimizer.param_groups for key, value in group.items() if key != "params"]
    return [value for value in (*states, *settings) if isinstance(value, torch.Tensor)]
