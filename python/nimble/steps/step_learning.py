"""Learns from an eager run of a step, for its graph: what the step writes to, and whether it does so before its backward.

An EagerRun belongs to one run, and one thread.
"""

from __future__ import annotations

from typing import List, Tuple

import torch

from nimble.capture.backend import Backend
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.guards.tensor_memory import is_same
from nimble.objects.memory import unique, version_of, versions
from nimble.objects.module_contents import tensors_of
from nimble.shim import Rehearsed
from nimble.step_state.iterators import Iterators
from nimble.step_state.step_state import StepState
from nimble.steps import split_step
from nimble.steps.step_graph import Kind
from nimble.steps.step_ops import is_unchanged


class EagerRun:
    """Made before the run, with the step's state; tell() is called after it."""

    def __init__(self, call: Call, state: StepState, backend: Backend) -> None:
        self._backend = backend
        held = (t for m in state.modules for t in tensors_of(m).values())
        self._known = [t for t in unique((*state.parameters, *state.buffers, *state.found, *held)) if not t.is_inference()]
        self._parameters = state.parameters if split_step.is_worth_it(state.parameters) else []
        self._versions, self._parameter_versions = versions(self._known), versions(self._parameters)
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in state.buffers if buffer.device.type == backend.device_type]
        self._arguments = [(number, version_of(call.leaves[number]), call.leaves[number].detach().clone()) for number in call.tensors]
        self._values = [p.detach().clone() for p in self._parameters]
        self._early: List[Tuple[List[int], List[torch.Tensor]]] = []  # of parameters, before the first backward
        self._iterators, self._switches = Iterators(state.modules), switches.kernels_and_modes()

    def before_backward(self) -> None:
        """Called in the run, before its first backward."""
        self._backend.rehearse_part()
        self._early.append((versions(self._parameters), [p.detach().clone() for p in self._parameters]))

    def tell(self, call: Call, kind: Kind, rehearsed: Rehearsed) -> None:
        """Adds the run's findings to the state of its kind of call."""
        kind.takes = kind.takes or self._iterators.have_moved()
        kind.switches = kind.switches or self._switches != switches.kernels_and_modes()
        kind.eager -= 1
        kind.has_run = True
        had_strays, kind.rehearsed = kind.rehearsed.strays > 0, rehearsed
        if kind.eager == 0 and rehearsed.strays > 0 and not had_strays:
            kind.eager = 1  # this run may have been an exception
        seen = set(map(id, kind.buffers))
        kind.versions = [t for t, version in zip(self._known, self._versions) if t._version != version]
        raised = set(map(id, kind.versions))  # includes those that hold the same values again, which may differ in other calls
        kind.buffers += [buffer for buffer, value in self._buffers
                         if id(buffer) not in seen and (id(buffer) in raised or not is_same(buffer, value))]
        kind.writes_early = kind.writes_early or any(
            numbers != self._parameter_versions or not all(map(is_unchanged, now, self._values)) for numbers, now in self._early)
        for number, version, value in self._arguments:
            argument = call.leaves[number]
            if version_of(argument) != version or not is_unchanged(argument, value):
                kind.written.add(number)
