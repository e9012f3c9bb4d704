"""A captured step (StepGraph), the state of calls of its kind (Kind), and the work to capture (StepWork).

Not to be used by two threads at once."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, List, Optional, Set

import torch

from nimble.errors import GoesPastError, NimbleError
from nimble.graphs.autograd_leaves import copy_all, mark_written
from nimble.capture.backend import Captured, Split
from nimble.graphs.graph_io import GraphReport, Input, Results, check_apart, eager_report, report
from nimble.guards import switches
from nimble.guards.op_watch import tensors_in
from nimble.guards.signatures import Call
from nimble.guards.tensor_memory import has_memory
from nimble.objects.memory import storage_address
from nimble.shim import Rehearsed
from nimble.steps.split_step import Ahead, alive_now, at_first_backward
from nimble.steps.step_grads import Grads
from nimble.steps.step_ops import StepOps, goes_by_ops
from nimble.step_state.step_state import StepGuard, StepState
from nimble.step_state.assignments import Assignments


class Kind:
    """The state of the calls of one signature."""

    def __init__(self, signature: str, eager: int) -> None:
        self._signature = signature
        self.eager = eager  # calls that are still to run eagerly
        self.has_run = False
        self.written: Set[int] = set()  # arguments that it writes to, by leaf index
        self.buffers: List[torch.Tensor] = []  # those that it was seen to write to
        self.versions: List[torch.Tensor] = []  # other tensors that it writes to in a way that autograd sees
        self.takes = False  # from an iterator that a module holds
        self.switches = False  # does not restore PyTorch's switches
        self.writes_early = False  # to parameters, before its first backward
        self.rehearsed = Rehearsed()  # of its last eager run
        self.left: Optional[StepGuard] = None  # the state that this run left
        self.disturbed = 0  # how many times in a row it had changed before a capture
        self.graphs: List[StepGraph] = []  # the least recently used first
        self._why: Optional[NimbleError] = None  # never raised itself

    @property
    def is_unsupported(self) -> bool:
        return self._why is not None

    def mark_unsupported(self, why: NimbleError) -> None:
        """From now on there is no graph, and none is tried."""
        self._why, self.left = why.again(), None

    def reports(self) -> List[GraphReport]:
        """Reports of its graphs, and of why there can be none."""
        unsupported = [] if self._why is None else [eager_report("step", self._signature, str(self._why))]
        return [*(graph.report() for graph in self.graphs), *unsupported]

    def check_capturable(self) -> None:
        """NimbleError where eager runs have shown that there can be no graph."""
        if self.takes:
            self.mark_unsupported(NimbleError("a module of the step takes from an iterator that it holds, from which a graph would take "
                                              "nothing: pass what it gives as an argument"))
        if self.switches:
            self.mark_unsupported(NimbleError(f"the step {switches.CHANGES_SWITCHES}"))
        if self.rehearsed.strays > 0:
            self.mark_unsupported(GoesPastError(self.rehearsed.strays))  # a capture would repeat that work
        self.check()

    def check(self) -> None:
        """Raises the reason why there can be no graph, if known."""
        if self._why is not None:
            raise self._why.again()


class StepGraph:
    """One captured step."""

    def __init__(self, call: Call, inputs: List[Input], kind: Kind, captured: Captured, grads: Grads, state: StepState,
                 seconds: float, ahead: Optional[Ahead], also_read: List[Any]) -> None:
        self.calls = 0
        self.grads = grads
        self._ahead = ahead
        self._also_read = also_read  # memory that only something else holds, such as a cache
        self._signature, self._seconds = str(call.signature), seconds
        self._inputs = inputs
        self._written = [i for i in inputs if i.number in kind.written]
        self._versions = kind.versions
        # Memory that a call's arguments must not be on: see check().
        written = [*kind.buffers, *kind.versions, *state.kept_by_optimizers(), *grads.found()]
        self._writes = set(map(storage_address, written)) - {0}
        self._reads = set(map(storage_address, state.memory())) - {0} if self._written else set()
        outputs, _, self._scalers = captured.outputs
        own = [*state.parameters, *state.buffers]
        self._results = Results(outputs, inputs, zip(own, own))
        self._captured = captured  # the last attribute, so it is freed last
        weakref.finalize(self, grads.leave)

    def take(self, call: Call) -> None:
        """Copies the arguments into the graph's own memory. Writes nothing else."""
        self._captured.follow()
        with torch.no_grad():
            for each in self._inputs:
                each.take(call.leaves[each.number])

    def begin(self, call: Call) -> None:
        """take(), and the part of the call that can be undone, if the GPU would be idle otherwise."""
        ahead = self._ahead if self._ahead is not None and self._ahead.is_awaited() else None
        self.take(call)
        if ahead is not None:
            ahead.begin()

    def take_back(self) -> None:
        """Undoes the part of a call that has begun. Does nothing after a complete call."""
        if self._ahead is not None:
            self._ahead.take_back()

    def check(self, call: Call) -> None:
        """Raises NimbleError where arguments share memory that the step writes, or arguments that it writes share memory that it
        reads: the graph has copies of them, which would not change with it."""
        if self._written:
            check_apart(call, self._inputs, self._written)
        for each in self._inputs:
            where = storage_address(call.leaves[each.number])
            if where in self._writes or where in self._reads and each in self._written:
                raise NimbleError(f"{call.place(each.number)} shares memory with the step's state, and one of both is "
                                  "written to: pass a copy")

    def __call__(self, call: Call) -> Any:
        """Runs a call after take() or begin()."""
        self.calls += 1
        with torch.no_grad():
            if self._ahead is not None and self._ahead.has_begun:
                self._ahead.finish()
            else:
                self._captured.replay()
            for each in self._written:
                call.leaves[each.number].copy_(each.tensor)
            made = self._results.copied()
        self.grads.put()
        for scaler, states in self._scalers:
            scaler._per_optimizer_states.clear()
            scaler._per_optimizer_states.update({key: dict(value) for key, value in states.items()})
        mark_written(self._versions)  # an earlier backward has lost its saved tensors
        return self._results.returned(made, call.leaves)

    def close(self) -> None:
        """Frees the graph. A begun part may still be undone."""
        self._captured.close()
        if self._ahead is not None:
            self._ahead.close()

    def report(self) -> GraphReport:
        tensors = [*(i.tensor for i in self._inputs), *self._results.made]
        return report("step", self._signature, self._captured.status(), self._seconds, tensors, self._ahead is not None)


class StepWork:
    """A step as work to capture (nimble.capture.backend.RecordedWork).

    `buffers`: those that its first part may write to after it has copied them. `looks`: whether to watch the run op by op. After the
    last run `found_elsewhere` has the storages that it read and that belong neither to the step nor to the run. `is_bound`: the
    first part cannot be undone, since it reads or writes gradients, or writes to parameters, or to buffers other than `buffers`:
    eager steps may have written the same values there."""

    def __init__(self, run: Callable[[], Any], state: StepState, assignments: Assignments, inputs: List[Input], buffers: List[torch.Tensor],
                 device_type: str) -> None:
        self._run, self._state, self._inputs, self._device_type = run, state, inputs, device_type
        self._puts_back: "List[Callable[[], None]]" = [assignments.put_back, state.keep().put_back]
        self.keeps = [(buffer, torch.empty_like(buffer)) for buffer in buffers]
        self.looks = True
        self.found_elsewhere: List[Any] = []
        self.is_bound = False
        self._seen: Optional[StepOps] = None

    def run(self, part: Optional[Split]) -> Any:
        if not self.looks:
            self._seen, self.found_elsewhere = None, []
            return self._split_run(part)
        grads = [p.grad for p in self._state.parameters if p.grad is not None]
        seen = self._seen = StepOps([*self.tensors(), *self._state.memory(), *(i.memory for i in self._inputs)], grads, self._device_type)
        with seen.on():
            result = self._split_run(part)
        left = [p.grad for p in self._state.parameters if p.grad is not None]
        self.found_elsewhere = [*seen.still_there(but=[*tensors_in(result), *left]).values()]
        return result

    def _split_run(self, part: Optional[Split]) -> Any:
        self.is_bound = False
        if part is None:
            return self._run()

        grads = [p.grad for p in self._state.parameters]
        kept = {id(buffer) for buffer, _ in self.keeps}
        apart = set(map(storage_address, (t for t in (*self._state.parameters, *self._state.buffers)
                                  if id(t) not in kept and t.layout is torch.strided and has_memory(t)))) - {0}

        def switch() -> None:
            # The graph's own gradients would overwrite those of the previous step, which the program may still read.
            has_own = any(p.grad is not None and p.grad is not grad for p, grad in zip(self._state.parameters, grads))
            with self._seen.off() if self._seen is not None else contextlib.nullcontext():  # querying saved tensors runs ops
                alive = None if has_own else alive_now(self._device_type)
            if alive is not None:
                self.is_bound = self._seen is not None and (self._seen.has_touched_any() or not apart.isdisjoint(self._seen.written))
                part(alive)

        copy_all([copy for _, copy in self.keeps], [buffer for buffer, _ in self.keeps])
        with at_first_backward(switch):
            return self._run()

    def touched(self, before: "List[Optional[torch.Tensor]]", after: "List[Optional[torch.Tensor]]") -> List[bool]:
        """For each parameter whether the last run may have read or written its earlier gradient. An optimizer that bypasses the
        dispatcher may read any that still exists."""
        seen, optimizers = self._seen, [o for o in self._state.optimizers if not goes_by_ops(o)]
        apart = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
        return [b is not None and (b is a and (seen is None or id(p) in apart) or seen is not None and seen.has_touched(b))
                for p, b, a in zip(self._state.parameters, before, after)]

    def put_back(self) -> None:
        for each in self._puts_back:
            each()

    def end(self) -> None:
        """Called after the last run: drops gradients."""
        self._puts_back.clear()

    def may_write(self) -> List[torch.Tensor]:
        """Buffers, which are restored if the first part's launch is undone; their copies, and the memory of the inputs, which
        each call overwrites; parameters, and the other buffers. The last two only as memory that a kernel reads and that may look
        written with the same values. Eager steps have compared these values, and a step that writes to parameters before its
        first backward is not split."""
        here = [t for t in (*self._state.parameters, *self._state.buffers) if t.device.type == self._device_type]
        return [*(tensor for pair in self.keeps for tensor in pair), *(each.memory for each in self._inputs), *here]

    def tensors(self) -> List[torch.Tensor]:
        return [*self._state.tensors(), *(copy for _, copy in self.keeps)]
