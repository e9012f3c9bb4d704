"""The state that a step works on, beyond its arguments: what a graph of it was captured with, and gradients as it leaves them.

StepState reads all that the graph has frozen or refers to by address, compares it, and puts back what the host's side of a
capture has changed, where nothing has run. Grads knows what p.grad was before and behind the capture.

Not to be used by two threads at once.
"""

from __future__ import annotations

import random
import sys
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from nimble.errors import NimbleError
from nimble.reach import MOST_ELEMENTS, Reached
from nimble.state import ModuleGuard, is_same

_SCALER = ("_enabled", "_growth_factor", "_backoff_factor", "_growth_interval", "_scale", "_growth_tracker")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

Look = Tuple[Any, ...]
_grad = attrgetter("grad")


class StepState:
    """Of what a step was found to refer to."""

    def __init__(self, reached: Reached, device_type: str) -> None:
        self._reached, self._device_type = reached, device_type
        self.modules, self.optimizers = reached.modules, reached.optimizers
        self._guards = [ModuleGuard(module, device_type, trains=True) for module in reached.modules]
        self.parameters = _unique(chain(
            (p for m in reached.modules for p in m.parameters()),
            (p for o in reached.optimizers for group in o.param_groups for p in group["params"]),
            (t for t in reached.tensors if t.requires_grad and t.is_leaf)))
        self.buffers = _unique(b for m in reached.modules for b in m.buffers())
        # Of those on the host their values count, which the modules' guards do not compare.
        guarded = {id(p) for m in reached.modules for p in m.parameters() if p.device.type == device_type}
        self._others = [p for p in self.parameters if id(p) not in guarded]
        self._known: Dict[int, _Known] = {}  # states of optimizers, by their number

    def tensors(self) -> List[torch.Tensor]:
        """All that it knows of which a step may write to."""
        reached = self._reached
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return _unique(chain(self.parameters, self.buffers, reached.tensors, grads,
                             (t for o in reached.optimizers for t in _tensors_of(o)),
                             (t for s in reached.scalers for t in (s._scale, s._growth_tracker) if t is not None)))

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the memory that it may read, but for that of gradients and optimizers."""
        return [*(t for guard in self._guards for t in guard.memory()), *self.parameters, *self.buffers, *self._reached.tensors]

    def scaling(self) -> List[Tuple[Any, Dict[Any, Dict[str, Any]]]]:
        """What each gradient scaler has noted of the optimizers."""
        return [(s, {key: dict(value) for key, value in s._per_optimizer_states.items()}) for s in self._reached.scalers]

    def look(self) -> Look:
        """Equal as long as a graph that was captured at the time of one may be replayed at that of the other."""
        reached = self._reached
        return (
            [guard.difference() for guard in self._guards],
            [self._values((slot.get() for slot in reached.slots), 2)],
            [[self._values(v for k, v in group.items() if k != "params") for group in o.param_groups]
             for o in reached.optimizers],
            [[list(map(id, group["params"])) for group in o.param_groups] for o in reached.optimizers],
            [self._state_of(number, o) for number, o in enumerate(reached.optimizers)],
            [self._values(getattr(s, name) for name in _SCALER if hasattr(s, name)) for s in reached.scalers],
            self._values(self._others),
        )

    def difference(self, before: Look, now: Look) -> Optional[str]:
        """What is another, for people."""
        if before == now:
            return None
        for guard in now[0]:
            if guard is not None:
                return str(guard)
        for slot, one, other in zip(self._reached.slots, before[1][0], now[1][0]):
            if one != other:
                return f"{slot.name!r} has changed"
        what = ("", "", "a hyperparameter of an optimizer (its learning rate, say) has changed",
                "an optimizer has other parameters", "the state of an optimizer is another, or is kept on the host",
                "a gradient scaler has changed",
                "a parameter has other storage")
        return next(text for text, one, other in zip(what, before, now) if one != other)

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

    def _values(self, values: Iterable[Any], depth: int = 1) -> List[Any]:
        """Of each its value where it has one for the host, else where it is. Of lists in lists so many of them deep."""
        result: List[Any] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                result.append((id(value), value.data_ptr()) if value.device.type == self._device_type
                              else (id(value), value.tolist() if value.numel() <= 16 else value._version))
            elif isinstance(value, float):
                result.append(value.hex())
            elif isinstance(value, _PLAIN):
                result.append((type(value), value))
            elif isinstance(value, (tuple, list)) and depth and len(value) <= MOST_ELEMENTS:
                result.append(self._values(value, depth - 1))
            elif isinstance(value, (list, dict, set)):
                result.append((id(value), len(value)))
            else:
                result.append(id(value))
        return result

    def keep(self) -> Callable[[], None]:
        """A function that puts back what the host has of it: for a capture, which runs nothing on the device."""
        reached = self._reached
        slots = [(slot, slot.get()) for slot in reached.slots]
        lists = [(value, list(value)) for _, value in slots if isinstance(value, list)]
        groups = [(group, dict(group)) for o in reached.optimizers for group in o.param_groups]
        states = [(o.state, {key: dict(value) if isinstance(value, dict) else value for key, value in o.state.items()})
                  for o in reached.optimizers]
        scalers = [(s, dict(s.__dict__), noted) for s, noted in self.scaling()]
        buffers = [(m._buffers, dict(m._buffers)) for module in reached.modules for m in module.modules()]
        training = [(m, m.training) for module in reached.modules for m in module.modules()]
        grads = [(p, p.grad) for p in self.parameters]
        host = [(t, t.clone()) for t in self.tensors() if t.device.type != self._device_type]
        python, numbers = random.getstate(), torch.get_rng_state()

        def put_back() -> None:
            random.setstate(python)
            torch.set_rng_state(numbers)
            for slot, value in slots:
                if slot.get() is not value:
                    slot.set(value)
            for where, elements in lists:
                if list(map(id, where)) != list(map(id, elements)):
                    where[:] = elements
            for group, values in groups:
                group.update(values)
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
            for now, before in buffers:
                if list(now) != list(before) or list(map(id, now.values())) != list(map(id, before.values())):
                    now.clear()
                    now.update(before)
            for module, flag in training:
                module.training = flag
            for parameter, grad in grads:
                parameter.grad = grad
            with torch.no_grad():
                for tensor, copy in host:
                    if not is_same(tensor, copy):
                        tensor.copy_(copy)

        return put_back

    @staticmethod
    def host_random() -> Tuple[Any, List[int]]:
        return random.getstate(), torch.get_rng_state().tolist()


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


class Grads:
    """p.grad of each parameter before and behind the capture."""

    def __init__(self, parameters: Sequence[torch.Tensor], before: "List[Optional[torch.Tensor]]",
                 behind: "List[Optional[torch.Tensor]]") -> None:
        self._parameters, self._behind = parameters, list(behind)
        self._there = [grad is not None for grad in before]
        # Those that are written in place have to be the same memory then. What a step drops may be anything.
        same = [(p, b) for p, b, a in zip(parameters, before, behind) if b is not None and b is a]
        self._wearers, self._same = [p for p, _ in same], [b for _, b in same]
        self._addresses = list(map(torch.Tensor.data_ptr, self._same))
        # The others are the graph's own.
        own = [(p, a) for p, b, a in zip(parameters, before, behind) if a is not None and a is not b]
        self._owners, self._own = [p for p, _ in own], [a for _, a in own]
        self._storages = [a.untyped_storage()._cdata for a in self._own] if hasattr(torch._C, "_storage_Use_Count") else []
        self._counts: Dict[bool, List[int]] = {}
        self._fits_as_left = [a is not None for a in behind] == self._there
        self._is_as_left = False  # all is what put() has left there, as fit() has seen it

    def fit(self) -> bool:
        """Whether the graph may be replayed with the gradients that there are."""
        now = list(map(_grad, self._parameters))
        self._is_as_left = len(now) == len(self._behind) and all(map(is_, now, self._behind))
        if not (self._is_as_left and self._fits_as_left):
            if [grad is not None for grad in now] != self._there:
                return False
            if not all(p.grad is grad for p, grad in zip(self._wearers, self._same)):
                return False
        return list(map(torch.Tensor.data_ptr, self._same)) == self._addresses

    def put(self) -> None:
        """Behind a replay."""
        if not all(map(is_, map(_grad, self._parameters), self._behind)):
            for i in range(len(self._behind)):  # no name is left for one of them, which would count as a use
                self._parameters[i].grad = self._behind[i]
        if not self._counts:  # nobody else can have them yet
            for is_there in (False, True):
                for i in range(len(self._own)):
                    self._owners[i].grad = self._own[i] if is_there else None
                self._counts[is_there] = self.uses()

    def leave(self) -> None:
        """Has the parameters' gradients in memory of their own: the graph goes."""
        for i in range(len(self._own)):
            if self._owners[i].grad is self._own[i]:
                self._owners[i].grad = self._own[i].clone()
        for each in (self._own, self._behind, self._same, self._storages):
            each.clear()

    def are_held(self) -> bool:
        """Whether somebody has kept a gradient of an earlier step, which a replay would write to. Asked behind fit()."""
        if not self._counts or not self._own:
            return False
        there, gone, now = self._counts[True], self._counts[False], self.uses()
        if now == gone or self._is_as_left and now == there:  # each is the graph's alone, as behind zero_grad(), or a parameter's
            return False
        worn = [self._owners[i].grad is self._own[i] for i in range(len(self._own))]
        return any(count > (there if worn[i % len(worn)] else gone)[i] for i, count in enumerate(now))

    def count_again(self, before: List[int]) -> None:
        """Another graph refers to them, too, since their uses were counted last."""
        more = [now - then for now, then in zip(self.uses(), before)]
        self._counts = {is_there: [c + m for c, m in zip(counts, more)] for is_there, counts in self._counts.items()}

    def uses(self) -> List[int]:
        """How many references there are to each of the graph's own; then to the memory of each, where PyTorch tells."""
        references = list(map(sys.getrefcount, self._own))
        if self._storages:
            references += map(torch._C._storage_Use_Count, self._storages)
        return references


def check_unchanged(state: StepState, before: Look, random_before: Any) -> None:
    """NimbleError where a capture has changed what its replays would not. The host's random numbers are the step's own where
    nothing is given of them."""
    if random_before is not None and state.host_random() != random_before:
        raise NimbleError("the step draws random numbers on the host (the CPU, or Python's `random`), which a graph would never "
                          "draw anew")
    what = state.difference(before, state.look())
    if what is not None:
        raise NimbleError(f"the step changes what its graph would not change: {what}. Optimizers that count their steps on the "
                          "host need capturable=True; learning rates are to be changed, and counters to be counted, outside of "
                          "the step")


def _unique(tensors: Iterable[torch.Tensor]) -> List[torch.Tensor]:
    return list({id(t): t for t in tensors}.values())


def _tensors_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    states = [value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values()]
    settings = [value for group in optimizer.param_groups for key, value in group.items() if key != "params"]
    return [value for value in (*states, *settings) if isinstance(value, torch.Tensor)]
