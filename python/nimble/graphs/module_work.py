"""A module's run without gradients, as work to capture (nimble.capture.backend.Work), and the checks on its runs.

It belongs to one preparation, and one thread."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn.utils import parametrize

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import own_autocast_cache
from nimble.capture.eager_answers import Answers
from nimble.graphs.effects import VersionRises
from nimble.graphs.first_replay import COMPARED_RUN, ComparedRun, RunResult
from nimble.graphs.graph_io import Input, Results, attributes_of, check_attributes, with_inputs
from nimble.guards.op_watch import OpReads, tensors_in
from nimble.guards.signatures import Call, taken_apart
from nimble.guards.state_keeper import StateKeeper
from nimble.guards.tensor_memory import is_same
from nimble.objects.memory import storage_address


class ModuleWork:
    """The run of a module with the graph's own arguments."""

    def __init__(self, module: torch.nn.Module, call: Call, keeper: StateKeeper, device_type: str, random_state: Callable[[], Any],
                 is_compared: bool, answers: Answers) -> None:
        self._module, self._call, self._keeper, self._device_type = module, call, keeper, device_type
        self._random_state, self._is_compared = random_state, is_compared
        self.answers = answers
        self.eager: Optional[ComparedRun] = None
        """The run to compare the graph with, if it is compared."""
        self.inputs = [Input(number, call.leaves[number]) for number in call.tensors]
        self.written: List[Input] = []
        self.found_elsewhere: List[Any] = []
        """Storages that the last captured run has read, and that belong neither to the module nor to the run."""
        self.raised: List[torch.Tensor] = []  # in each run: versions that others see
        self._leaves = with_inputs(call, self.inputs)
        self._versions = [i.tensor._version for i in self.inputs]
        self._attributes: Dict[str, torch.Tensor] = {}  # as they are before each captured run
        self._runs = 0
        self._captures = self._is_over = False
        self._sees_ops = True
        self._problem: Optional[NimbleError] = None

    def run(self) -> Any:
        with own_autocast_cache():
            return self._run()

    def _run(self) -> Any:
        args, kwargs = self._call.rebuilt(self._leaves)  # a module may modify a list
        if self._is_over:
            return self._module(*args, **kwargs)
        self._runs += 1
        if self._captures:
            outputs = self._captured_run(args, kwargs)
        else:
            outputs = self._watched_run(args, kwargs) if self._runs == 1 else self._compared_run(args, kwargs)
        self._note(lambda: check_arguments(self._call, self._leaves, args, kwargs))
        return outputs

    def _watched_run(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        writes = self._keeper.watch_writes()
        try:
            with writes.on():
                return self._module(*args, **kwargs)
        except NotImplementedError:  # from ops that take functions, which hide what these do
            self._sees_ops, writes.has_backward = False, True  # to be safe
        self._keeper.restore()
        for each in self.inputs:
            each.take(self._call.leaves[each.number])
        args, kwargs = self._call.rebuilt(self._leaves)
        return self._module(*args, **kwargs)

    def _compared_run(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        if not self._is_compared or self._runs != COMPARED_RUN:
            return self._module(*args, **kwargs)
        random = self._random_state()
        outputs = self._module(*args, **kwargs)
        self.eager = ComparedRun(random, self.left_by(outputs).keep())
        return outputs

    def left_by(self, outputs: Any) -> RunResult:
        """What a run with these outputs has left. Called before reset()."""
        own = [*self._module.parameters(), *self._module.buffers()]
        results = Results(outputs, self.inputs, zip(own, own))
        written: "List[Tuple[Callable[[], str], Optional[torch.Tensor]]]" = [
            (functools.partial(self._keeper.name_of, t), t) for t in self._keeper.written()]
        written += [(functools.partial(self._call.place, each.number), each.tensor) for each in self.written]
        return RunResult(results.returned(results.copied(), self._call.leaves), written)

    def _captured_run(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        known = [*(each.memory for each in self.inputs), *self._keeper.tensors()]
        reads, rises = OpReads(known, self._device_type), VersionRises((t, t) for t in self._keeper.kept())
        with reads.on() if self._sees_ops else contextlib.nullcontext(), self.answers.given(self._sees_ops):
            outputs = self._module(*args, **kwargs)
        self.raised = rises.found()
        self.found_elsewhere = [*reads.still_there(but=tensors_in(outputs)).values()]
        self._note(lambda: check_caches(self.found_elsewhere))
        self._note(lambda: check_attributes(self._attributes, self._module, self.inputs))
        return outputs

    def _note(self, check: Callable[[], None]) -> None:
        """Defers a check's error until after the run: within a capture it would look like the capture's own."""
        try:
            check()
        except NimbleError as error:
            self._problem = self._problem or error.again()

    def reset(self) -> None:
        if self._problem is not None and not self._captures:
            raise self._problem.again()
        self._keeper.restore_buffers()
        if self._runs == 1:  # with what was written to in place
            self.written = written_by(self.inputs, self._versions, self._call)
        for each in self.written:
            each.take(self._call.leaves[each.number])

    def before_capture(self) -> None:
        self._attributes = attributes_of(self._module)
        self._captures = True

    def check(self) -> None:
        """Called after the capture. Raises NimbleError where a run had effects that a graph would not have."""
        self._is_over = True
        if self._problem is not None:
            raise self._problem.again()

    def data(self) -> List[torch.Tensor]:
        return [each.memory for each in self.inputs]


def check_arguments(call: Call, leaves: List[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Called after a run with call.rebuilt(leaves). Raises NimbleError where it has put something into a list or dictionary there: the
    caller's would stay as they are."""
    now, structure = taken_apart((args, kwargs))
    if structure != call.structure or len(now) != len(leaves) or any(
            one is not other and (isinstance(one, torch.Tensor) or type(one) is not type(other) or one != other)
            for one, other in zip(now, leaves)):
        raise NimbleError("the module changes a list, a dictionary or the like that is an argument, or in one, which a graph would "
                          "not do: have it return what it puts there")


def check_caches(storages: List[Any]) -> None:
    """Raises NimbleError where one of the storages that runs have read belongs to a cached parametrization."""
    found = {each.data_ptr() for each in storages}
    cached = [tensor for tensor in getattr(parametrize, "_cache", {}).values() if isinstance(tensor, torch.Tensor)]
    if any(storage_address(tensor) in found for tensor in cached if tensor.layout is torch.strided):
        raise NimbleError("the module reads what torch.nn.utils.parametrize.cached() keeps of its weights, which a graph would go "
                          "on to read: call, or prepare, outside of it")


def written_by(inputs: List[Input], versions: List[int], call: Call) -> List[Input]:
    """The inputs that the first run has written to. Raises NimbleError where it has changed the shape, strides or requires_grad of one."""
    for each in inputs:
        leaf = call.leaves[each.number]
        if each.tensor.requires_grad != leaf.requires_grad:
            raise NimbleError(f"the module changes whether {call.place(each.number)} requires gradients, which a graph would not "
                              "do: do so before the call")
        if each.tensor.shape != leaf.shape or each.tensor.stride() != leaf.stride():
            raise NimbleError(f"the module gives {call.place(each.number)} another shape or other strides, which a graph would not "
                              "do: have it work on a view")
    return [i for i, version in zip(inputs, versions)
            if i.tensor._version != version or not is_same(i.tensor, call.leaves[i.number])]
