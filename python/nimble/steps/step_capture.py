"""One capture of a step, which runs nothing: its preparations, the state that it must leave unchanged, and the resulting graph.

A StepCapture belongs to one thread. If it fails, it changes nothing. """

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from nimble.errors import CaptureError, NimbleError
from nimble.graphs.autograd_leaves import one_thread
from nimble.capture.backend import Backend, Captured
from nimble.graphs.graph_io import Input, Options, check_outputs, device_of, with_inputs
from nimble.graphs.module_work import check_caches
from nimble.guards import switches
from nimble.guards.kept_parameters import where_of
from nimble.guards.signatures import Call
from nimble.objects.memory import version_of
from nimble.step_state.assignments import Assignments
from nimble.step_state.placement import have_moved
from nimble.step_state.step_state import StepGuard, StepState, check_unchanged
from nimble.steps import split_step, step_autocast
from nimble.steps.split_step import Ahead, SplitGraph, can_be_kept
from nimble.steps.step_errors import OfTheFunction, check_arguments, check_leaves, explaining, is_of_captures
from nimble.steps.step_grads import Grads, check_layouts
from nimble.steps.step_graph import Kind, StepGraph, StepWork
from nimble.steps.step_ops import cannot_be_looked_at, tensors_on


class StepCapture:
    """function(args, kwargs) is the step's, and returns its outputs. `guard`: for the state that the capture found."""

    def __init__(self, call: Call, kind: Kind, state: StepState, backend: Backend, options: Options,
                 function: Callable[[Tuple[Any, ...], Dict[str, Any]], Any]) -> None:
        self._began = time.perf_counter()
        self._call, self._kind, self._state, self._backend, self._options, self._function = call, kind, state, backend, options, function
        check_layouts(state.parameters)
        self._device = device_of([*state.parameters, *state.buffers], call, backend)
        with torch.inference_mode(False):  # the caller may be in inference mode
            self._inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        self._leaves = with_inputs(call, self._inputs)
        self._args, self._kwargs = call.rebuilt(self._leaves)
        self._own_errors: List[BaseException] = []  # that the function has raised
        self.guard = StepGuard(state)
        self._random, self._positions = state.host_random(), state.positions()

    def run(self, stream: Any) -> StepGraph:
        """The graph. Raises OfTheFunction where the function has raised, and NimbleError where there can be no graph."""
        state = self._state
        found = _FoundGradients(state.parameters)  # a local: a backend may keep this object through its function
        own = [buffer for buffer in state.buffers if any(buffer is each for each in self._kind.buffers)]
        is_split = self._can_be_split(own)
        assignments = Assignments(state.modules)
        with torch.inference_mode(False):
            work = StepWork(self._captured_function, state, assignments, self._inputs, own if is_split else [], self._backend.device_type)
        try:
            with torch.inference_mode(False), torch.set_grad_enabled(self._call.trains), one_thread(), explaining(state):
                graphs = self._recorded(work, stream, is_split)
            captured = SplitGraph(*graphs) if len(graphs) > 1 else graphs[0]
            self._check(work, assignments, found, captured.outputs[0])
        except BaseException as error:
            self._backend.let_go(work.put_back)
            are_own = bool(self._own_errors)
            self._own_errors.clear()  # they hold this frame
            if are_own and isinstance(error, CaptureError):
                raise OfTheFunction(error.reason, error.place) from error
            raise
        grads = found.put_back(work)
        work.end()
        ahead = None
        if isinstance(captured, SplitGraph) and not work.is_bound:  # otherwise nothing would keep its memory
            reads = [*state.memory(), *tensors_on(work.found_elsewhere)]
            ahead = Ahead(captured, work.keeps, reads, self._backend, self._device)
        return StepGraph(self._call, self._inputs, self._kind, captured, grads, state, time.perf_counter() - self._began, ahead,
                         work.found_elsewhere)

    def _can_be_split(self, own: List[torch.Tensor]) -> bool:
        """own: buffers that the step writes to."""
        parameters = self._state.parameters
        # A stream that waits only for something in the first part is not part of the second, and its later work would run
        # outside of it.
        return (self._options.use_multi_stream and split_step.is_worth_it(parameters) and not self._kind.written
                and not self._kind.writes_early and can_be_kept(own) and not switches.has_other_ranks()
                and self._kind.rehearsed.after_split == 0)

    def _captured_function(self) -> Any:
        state = self._state
        found = [p.grad for p in state.parameters]
        self._own_errors.clear()
        step_autocast.forget()  # a graph may not use earlier casts, nor leave any in the cache
        try:
            outputs = self._function(self._args, self._kwargs)
        except Exception as error:
            self._own_errors.extend([] if is_of_captures(error) else [error])
            raise
        finally:
            step_autocast.forget()
        own = [p.grad for p, grad in zip(state.parameters, found) if p.grad is not None and p.grad is not grad]
        return outputs, own, state.scaling()

    def _recorded(self, work: StepWork, stream: Any, is_split: bool) -> List[Captured]:
        try:
            return self._backend.record(work, stream, self._options.use_multi_stream, self._options.relaxed, is_split)
        except CaptureError as error:
            if not (work.looks and cannot_be_looked_at(error)):
                raise
        self._backend.let_go(work.put_back)
        work.looks = False
        return self._backend.record(work, stream, self._options.use_multi_stream, self._options.relaxed, is_split)

    def _check(self, work: StepWork, assignments: Assignments, found: "_FoundGradients", outputs: Any) -> None:
        """Raises NimbleError where the capture has had effects that a replay would not have."""
        state = self._state
        check_caches(work.found_elsewhere)
        check_unchanged(self.guard, self._random, self._positions, self._backend.draws_on_host)
        if have_moved(found.grads, found.places):
            raise NimbleError("the step gives a gradient other memory (p.grad.data = ...), which a graph would not do: write to it "
                              "in place")
        assignments.check(self._inputs)
        check_layouts(state.parameters)
        check_outputs(outputs, self._backend.device_type, [*state.parameters, *state.buffers, *(i.tensor for i in self._inputs)])
        check_leaves(outputs, state)
        check_arguments(self._call, self._inputs, self._leaves, self._args, self._kwargs)


class _FoundGradients:
    """Saves the gradients of parameters before a capture."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self.grads: "List[Optional[torch.Tensor]]" = [p.grad for p in parameters]
        self.places = [None if grad is None else where_of(grad) for grad in self.grads]
        self._versions = [0 if grad is None else version_of(grad) for grad in self.grads]

    def put_back(self, work: StepWork) -> Grads:
        """Restores the parameters' gradients, after the capture."""
        left: "List[Optional[torch.Tensor]]" = [p.grad for p in self._parameters]
        for parameter, grad in zip(self._parameters, self.grads):
            parameter.grad = grad
        return Grads(self._parameters, self.grads, left, work.touched(self.grads, left), self._versions)
