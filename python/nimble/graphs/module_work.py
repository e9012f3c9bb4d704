"""What is captured of a module without gradients, as nimble.graphs.backend's work: its run, and what is looked at in runs.

It belongs to one preparation, and one thread.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn.utils import parametrize

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import own_casts
from nimble.graphs.effects import Rises
from nimble.graphs.graph_io import Input, attributes_of, check_attributes, with_inputs
from nimble.guards.op_watch import Reads, tensors_in
from nimble.guards.signatures import Call, taken_apart
from nimble.guards.state import StateKeeper, is_same
from nimble.objects.memory import storage


class ModuleWork:
    """nimble.graphs.backend.Work of the module with arguments of the graph's own."""

    def __init__(self, module: torch.nn.Module, call: Call, keeper: StateKeeper, device_type: str) -> None:
        self._module, self._call, self._keeper, self._device_type = module, call, keeper, device_type
        self.inputs = [Input(number, call.leaves[number]) for number in call.tensors]
        self.written: List[Input] = []
        self.found_elsewhere: List[Any] = []
        """Storages that the last captured run has read, and that are neither the module's nor its own."""
        self.raised: List[torch.Tensor] = []  # by each run: versions that others see
        self._leaves = with_inputs(call, self.inputs)
        self._versions = [i.tensor._version for i in self.inputs]
        self._attributes: Dict[str, torch.Tensor] = {}  # as they are before each captured run
        self._runs = 0
        self._captures = self._is_over = False
        self._sees_ops = True
        self._problem: Optional[NimbleError] = None

    def run(self) -> Any:
        with own_casts():
            return self._run()

    def _run(self) -> Any:
        args, kwargs = self._call.rebuilt(self._leaves)  # a module may put something into a list
        if self._is_over:
            return self._module(*args, **kwargs)
        self._runs += 1
        if self._captures:
            outputs = self._captured_run(args, kwargs)
        else:
            outputs = self._watched_run(args, kwargs) if self._runs == 1 else self._module(*args, **kwargs)
        self._note(lambda: check_arguments(self._call, self._leaves, args, kwargs))
        return outputs

    def _watched_run(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        writes = self._keeper.watch()
        try:
            with writes.on():
                return self._module(*args, **kwargs)
        except NotImplementedError:  # as of ops that take functions, for which nobody can be told what they do
            self._sees_ops, writes.has_backward = False, True  # for all that is known
        self._keeper.restore()
        for each in self.inputs:
            each.take(self._call.leaves[each.number])
        args, kwargs = self._call.rebuilt(self._leaves)
        return self._module(*args, **kwargs)

    def _captured_run(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        known = [*(each.memory for each in self.inputs), *self._keeper.tensors()]
        reads, rises = Reads(known, self._device_type), Rises((t, t) for t in self._keeper.kept())
        with reads.on() if self._sees_ops else contextlib.nullcontext():
            outputs = self._module(*args, **kwargs)
        self.raised = rises.found()
        self.found_elsewhere = [*reads.still_there(but=tensors_in(outputs)).values()]
        self._note(lambda: check_caches(self.found_elsewhere))
        self._note(lambda: check_attributes(self._attributes, self._module, self.inputs))
        return outputs

    def _note(self, check: Callable[[], None]) -> None:
        """For behind the run: within a capture an error would be taken for one of the capture's."""
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
        """Behind the capture. NimbleError where a run was seen to do what a graph would not."""
        self._is_over = True
        if self._problem is not None:
            raise self._problem.again()

    def data(self) -> List[torch.Tensor]:
        return [each.memory for each in self.inputs]


def check_arguments(call: Call, leaves: List[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Behind a run with call.rebuilt(leaves), which may have put something into one of the lists and dictionaries in it. NimbleError
    where it has: the caller's would stay as they are."""
    now, structure = taken_apart((args, kwargs))
    if structure != call.structure or len(now) != len(leaves) or any(
            one is not other and (isinstance(one, torch.Tensor) or type(one) is not type(other) or one != other)
            for one, other in zip(now, leaves)):
        raise NimbleError("the module changes a list, a dictionary or the like that is an argument, or in one, which a graph would "
                          "not do: have it return what it puts there")


def check_caches(storages: List[Any]) -> None:
    """Of what runs have read. NimbleError where one is of parametrizations that are cached."""
    found = {each.data_ptr() for each in storages}
    cached = [tensor for tensor in getattr(parametrize, "_cache", {}).values() if isinstance(tensor, torch.Tensor)]
    if any(storage(tensor) in found for tensor in cached if tensor.layout is torch.strided):
        raise NimbleError("the module reads what torch.nn.utils.parametrize.cached() keeps of its weights, which a graph would go "
                          "on to read: call, or prepare, outside of it")


def written_by(inputs: List[Input], versions: List[int], call: Call) -> List[Input]:
    """Those inputs that the first run has written to. NimbleError where it has made another kind of tensor of one."""
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
