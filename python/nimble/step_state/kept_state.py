"""Saves the host's side of a step's state before a capture, to restore it afterwards: a capture runs nothing on the
device, but all of the step's Python.

Belongs to one capture, and one thread.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, List, Sequence, Tuple

import torch

from nimble.guards.tensor_memory import attribute_tensors, is_same
from nimble.objects import containers
from nimble.objects.host_random import HostRandom
from nimble.objects.memory import unique
from nimble.objects.module_contents import find
from nimble.step_state.closure_inputs import ClosureInputs
from nimble.step_state.library_objects import Positions
from nimble.step_state.placement import Placement

Scaling = List[Tuple[Any, Dict[Any, Dict[str, Any]]]]  # each gradient scaler, and its state by optimizer


def scaling(inputs: ClosureInputs) -> Scaling:
    return [(s, {key: dict(value) for key, value in s._per_optimizer_states.items()}) for s in inputs.scalers]


def host_random(inputs: ClosureInputs) -> HostRandom:
    """The host's random numbers, also of generators in modules, which only their forward may name."""
    held = (each for module in inputs.modules for each in find(module).generators)
    return HostRandom({id(each): each for each in chain(inputs.generators, held)}.values())


class KeptState:
    """tensors: all that the step may write to. put_back() may be called several times."""

    def __init__(self, inputs: ClosureInputs, parameters: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor],
                 device_type: str) -> None:
        self._slots = [(slot, slot.get()) for slot in inputs.slots]
        attributes = [each for each in map(containers.attributes, inputs.containers) if each is not None]
        self._containers = [(value, containers.content(value)) for value in (*inputs.containers, *attributes)]
        self._arrays = [(array, array.copy()) for array in inputs.arrays]
        self._states = [(o.state, {key: dict(value) if isinstance(value, dict) else value for key, value in o.state.items()})
                        for o in inputs.optimizers]
        self._scalers = [(s, dict(s.__dict__), noted) for s, noted in scaling(inputs)]
        self._attributes = [each for module in inputs.modules for each in attribute_tensors(module)]
        self._training = [(m, m.training) for module in inputs.modules for m in module.modules()]
        self._grads = [(p, p.grad) for p in parameters]
        self._placement = Placement(inputs.modules, inputs.optimizers,
                                    unique(chain(tensors, (t for _, _, t, _ in self._attributes))), parameters)
        self._host = [(t, t.clone()) for t in tensors if t.device.type != device_type and t.layout is torch.strided]
        self._random, self._positions = host_random(inputs), Positions(inputs.files)

    def put_back(self) -> None:
        self._random.put_back()
        self._positions.put_back()
        self._placement.put_back()  # so that parameters match their gradients
        for parameter, grad in self._grads:
            if parameter.grad is not grad:
                parameter.grad = grad
        self._put_back_values()
        self._put_back_optimizers()
        for attributes, name, tensor, _ in self._attributes:
            if attributes.get(name) is not tensor:
                attributes[name] = tensor
        for module, flag in self._training:
            module.training = flag
        with torch.no_grad():
            for tensor, copy in self._host:
                if not is_same(tensor, copy):
                    tensor.copy_(copy)

    def _put_back_values(self) -> None:
        for slot, value in self._slots:
            if slot.get() is not value:
                slot.set(value)
        for where, content in self._containers:
            if not containers.has(where, content):
                containers.fill(where, content)
        for array, before in self._arrays:
            if array.tobytes() != before.tobytes() and array.flags.writeable:
                array[...] = before

    def _put_back_optimizers(self) -> None:
        for state, kept in self._states:
            for key in [key for key in state if key not in kept]:
                del state[key]
            for key, value in kept.items():
                if isinstance(value, dict):
                    state[key].clear()
                    state[key].update(value)
        for scaler, attributes, noted in self._scalers:
            scaler.__dict__.update(attributes)
            scaler._per_optimizer_states.clear()
            scaler._per_optimizer_states.update(noted)
