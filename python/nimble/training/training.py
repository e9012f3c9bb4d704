"""A prepared module that trains: its forward and its backward as graphs. Autograd sees one function.

The backward is captured from the autograd graph that the forward's capture has made, and reads what replays of the forward leave in its
memory. So there is one forward at a time: until its backward has run, or can no longer be requested, calls are not served (and run
eagerly). A backward returns gradients in their own memory. Gradients of only some outputs, or with other strides, take another path
through the autograd graph: the first time eagerly, over the same memory, and from the next call on by their own graph.

Any thread may use a TrainingGraph, including autograd's: a lock serializes the replays."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from typing import Any, Callable, FrozenSet, List, Optional, Tuple, Union

import torch
from torch.utils import _pytree

from nimble.errors import CaptureError, NimbleError
from nimble.graphs.autograd_leaves import CopiesAll, one_thread
from nimble.capture.backend import Backend, Captured, MemoryWatch
from nimble.graphs.differences import same_bytes
from nimble.capture.eager_answers import Answers, with_eager_answers_if_needed
from nimble.graphs.first_replay import RunResult, check_first_replay
from nimble.graphs.graph_io import GraphReport, Options, Results, check_attributes, device_of, report
from nimble.graphs.prepared import CHANGED, PreparedGraph, is_same_state, naming_the_place, prepare
from nimble.graphs.restore import restored_afterwards
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.guards.module_guard import ModuleGuard
from nimble.nesting import one_at_a_time, preparing
from nimble.objects.memory import storage_address, versions
from nimble.training.backward_entries import are_batched, pattern_of
from nimble.training.backward_replays import BackwardReplays
from nimble.training.forward_replay import ForwardReplay
from nimble.training.training_nodes import Gradients, Paths, Run, this_backward
from nimble.training.training_outputs import TrainingOutputs
from nimble.training.training_work import ForwardWork

_MANY = 8  # this many buffers are worth a graph for their copies: PyTorch launches up to three kernels for a graph (seed and offset, to 2.4)


class TrainingGraph:
    """A captured forward and its backwards; made by prepare_training().

    `ahead`: the forward writes only to its own memory, so a call launches it first, as with a PreparedGraph. Buffers that the module
    writes to are written once it is known that the graph fits. `draws_on`: the device that the forward draws random numbers from."""

    def __init__(self, call: Call, work: ForwardWork, forward: Captured, backward: Captured, copies: CopiesAll,
                 copies_back: Optional[Captured], guard: ModuleGuard, options: Options, seconds: float, backend: Backend,
                 ahead: Optional[MemoryWatch], draws_on: Optional[torch.device], own_written: FrozenSet[int]) -> None:
        self.options = options
        self.guard = guard
        self._ahead = ahead
        self._draws_on = draws_on
        self._read = guard.memory() if ahead is not None else []
        self.calls = 0
        self.short_lived = 0
        self.static_arguments = call.rebuilt(work.leaves_of_call)
        self._signature = str(call.signature)
        self._backend, self._seconds = backend, seconds
        self._as_eager = work.watch.answers.as_eager
        self._results = Results(forward.outputs, work.inputs, work.own)
        self._wanted = [t.requires_grad for t in self._results.made]
        self._copies = TrainingOutputs(self._results.made, self._wanted, work.paths.aliases)
        self._paths = Paths(work.paths.reachable)
        self._arguments, self._parameters = work.paths.argument_numbers, work.paths.parameters  # which receive gradients
        self._watched = work.paths.watched  # tensors that must not be written to between forward and backward
        self._pending = work.paths.pending
        self._forward = ForwardReplay(work, forward, copies, copies_back, own_written)
        self._backwards = BackwardReplays(work, forward, backward, [t for t in self._results.made if t.requires_grad], backend, options)
        self._last: "Optional[weakref.ref[Run]]" = None
        self._lock = threading.RLock()  # reentrant: a module's backward may run another's
        self._again: "Optional[Callable[[Call], Any]]" = None

    @property
    def runs_ahead(self) -> bool:
        return self._ahead is not None

    @property
    def difference(self) -> Optional[str]:
        """The difference that comparing a backward has found."""
        return self._backwards.difference

    @property
    def towards(self) -> "Tuple[List[int], List[torch.Tensor]]":
        """Where gradients go: which of a call's leaves, and which parameters."""
        return self._arguments, self._parameters

    def distrust(self, times: int, again: "Callable[[Call], Any]") -> None:
        """For graphs that the user has not requested. The first `times` backwards of each kind run both ways, by the graph and by
        autograd over the same memory, and autograd's result is used: see `difference`. again(call) runs the module eagerly, for
        gradients that are to be differentiated themselves."""
        self._backwards.compared_first, self._backwards.is_distrusted, self._again = times, True, again

    def __call__(self, call: Call, _static_outputs: bool) -> Any:
        """Runs the forward, and returns outputs with autograd's node of the backward. Returns NotImplemented where the previous
        forward's backward is outstanding, and CHANGED where the graph runs ahead and no longer fits the module."""
        leaves = call.leaves
        self._backwards.capture_what_came()
        with self._lock:
            if self._is_awaited():
                return NotImplemented
            ahead = self._ahead
            checks_after = bool(ahead)  # a tensor that is held can also lose its memory
            if ahead is not None and not checks_after and self.guard.difference() is not None:
                return CHANGED
            run = Run()
            if self._again is not None:
                run.call, run.call_versions = call, versions([leaves[number] for number in call.tensors])
            draws_on = self._draws_on if checks_after else None
            numbers = self._backend.random_state(draws_on) if draws_on is not None else None
            with torch.no_grad():
                self._begin(call, run)  # the GPU works while the host checks the rest
                if checks_after and self.guard.difference() is not None:
                    if draws_on is not None:
                        self._backend.set_random_state(draws_on, numbers)
                    return CHANGED
                self._forward.publish()
                run.versions = versions(self._watched)
                made = self._copies.made()
            self.calls += 1
            towards = [*(leaves[number] for number in self._arguments), *self._parameters]
            made = self._paths.connect(self, run, made, towards)
            self._last = weakref.ref(run)
            outputs = self._copies.with_others(made)
        return self._results.returned(outputs, leaves)

    def is_awaited(self) -> bool:
        """Whether a backward is outstanding, so that calls are not served."""
        with self._lock:
            return self._is_awaited()

    def _is_awaited(self) -> bool:
        last = self._last() if self._last is not None else None
        return last is not None and not last.is_over

    def _begin(self, call: Call, run: Run) -> None:
        self._forward.begin(call, run)

    def gradients(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        """The gradients of a run; called by autograd's nodes."""
        if torch.is_grad_enabled() or (self._again is not None and are_batched(grads)):
            return self._run_again(run, grads)
        return self._replayed(run, grads)

    def _replayed(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        pattern = pattern_of(grads)
        if not any(strides is not None for strides in pattern):
            return [None] * (len(self._arguments) + len(self._parameters))
        with self._lock:
            if run.number != self._forward.number:
                raise NimbleError("the graph of this forward has run another one since, so that what this backward needs is "
                                  "gone: run all backwards of a forward before the next forward")
            came = [number for number, strides in enumerate(pattern) if strides is not None]
            now = versions(self._watched)
            if run.versions != now and self._pending.has_changed(came, self._watched, run.versions, now):
                raise NimbleError("a parameter, a buffer or one of static_inputs() that this backward needs was written to since its "
                                  "forward")
            task = this_backward()
            if _tells_kept and self._pending.is_second(came, run.ran, task):
                raise NimbleError("a backward comes a second time for an output, and its graph was not kept: give the first one "
                                  "retain_graph=True")
            result = self._backwards.run(pattern, grads)
            if not graph_is_kept():
                run.ran.update(dict.fromkeys(came, task))
                run.is_over = self._pending.is_over(run.ran)
        return result

    def run_detached(self, call: Call, given: "List[torch.Tensor]") -> "List[Optional[torch.Tensor]]":
        """Runs a forward and its backward outside of autograd, with these gradients of the outputs that require some. Not while a
        backward is outstanding."""
        with self._lock, torch.no_grad():
            self._begin(call, Run())
            self._forward.publish()
            return self._backwards.run(pattern_of(given), given, is_compared=True)

    def _run_again(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        """Gradients with a history, or of several backwards at once: runs the module again, eagerly."""
        call = run.call
        if self._again is None or call is None:
            raise NimbleError("a graph's backward cannot be differentiated itself (create_graph=True): run the module eagerly "
                              "for that")
        tensors = [call.leaves[number] for number in call.tensors]
        if run.versions != versions(self._watched) or run.call_versions != versions(tensors):
            raise NimbleError("an argument, a parameter or a buffer was written to since the forward that has to run again for gradients "
                              "with a history, or several at once")
        keeps = torch.is_grad_enabled()
        with torch.enable_grad():
            made = self._again(call)
        outputs = _differentiable(made, known=[*tensors, *self._parameters])
        before = [t for t, is_wanted in zip(self._results.made, self._wanted) if is_wanted]
        if run.number != self._forward.number or len(outputs) != len(before) or not all(map(same_bytes, outputs, before)):
            raise NimbleError("a forward cannot be run again as it was, for gradients with a history, or several at once: run the module "
                              "eagerly for that")
        used = [(output, grad) for output, grad in zip(outputs, grads) if grad is not None]
        return list(torch.autograd.grad([output for output, _ in used],
                                        [*(call.leaves[number] for number in self._arguments), *self._parameters],
                                        [grad for _, grad in used], create_graph=keeps, allow_unused=True))

    def forget_module(self) -> None:
        """From now on the graph holds only the module's parameters and the buffers that it writes to, and its owner checks before each call
        whether it fits."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        self._read.clear()
        del self.guard

    def close(self) -> None:
        """Waits until the GPU has finished with the graph. Its memory is freed with the last reference; an outstanding backward has
        one."""
        with self._lock:
            if self._ahead is not None:
                self._ahead.close()
            if not self._is_awaited():
                self._forward.close()
                self._backwards.close()

    def reports(self) -> List[GraphReport]:
        with self._lock:
            tensors = [*(i.tensor for i in self._forward.inputs), *self._results.made, *self._results.kept]
            status = self._forward.captured.status()
            return [report("forward", self._signature, status, self._seconds, tensors, self.runs_ahead,
                           self._as_eager),
                    *self._backwards.reports(self._signature, self._seconds)]


@one_at_a_time
def prepare_training(module: torch.nn.Module, call: Call, backend: Backend, options: Options,
                     accept: "Callable[[ForwardWork], None]" = lambda _: None,
                     is_compared: bool = True) -> "Union[TrainingGraph, PreparedGraph]":
    """Captures a module's forward and backward for a call, as nimble.graphs.prepared.prepare does for a forward alone; is_compared
    likewise. Returns a PreparedGraph where there can be no gradients. accept() gets the work about to be captured, and may raise."""
    began = time.perf_counter()
    return with_eager_answers_if_needed(lambda answers: _prepared(module, call, backend, options, accept, is_compared, answers, began),
                                        backend.device_type, type(module).__name__)


def _prepared(module: torch.nn.Module, call: Call, backend: Backend, options: Options, accept: "Callable[[ForwardWork], None]",
              is_compared: bool, answers: Answers, began: float) -> "Union[TrainingGraph, PreparedGraph]":
    device = device_of([*module.parameters(), *module.buffers()], call, backend)
    with restored_afterwards(module, backend, device) as keeper:
        device_random = backend.random_state(device)
        with preparing(), torch.inference_mode(False), torch.enable_grad(), one_thread():
            work = ForwardWork(module, call, keeper, backend.device_type, lambda: backend.random_state(device), is_compared, answers)
            has_gradients = work.look()
            if has_gradients:
                accept(work)

                def begin_again() -> None:
                    keeper.restore()
                    backend.set_random_state(device, device_random)

                begin_again()
                if keeper.has_flags():
                    work.look_again()
                work.check_stand_ins(begin_again)
                begin_again()
                work.set_apart()
                with naming_the_place(module):
                    forward, backward = backend.capture_training(work, device, options.use_multi_stream, options.relaxed)
                keeper.check_module()
                work.check()
                keeper.check_random(but_torch=backend.draws_on_host)
                keeper.check_elsewhere(backend.device_type)
                check_attributes(work.attributes, module, work.inputs)
                draws = keeper.has_drawn() or not is_same_state(backend.random_state(device), device_random)
                own_written = frozenset(map(storage_address, (*(given for _, given in work.apart), *keeper.may_write())))
                runs_ahead = (work.writes_nothing_else() and not switches.has_other_ranks()
                              and forward.writes_only([given for _, given in work.apart]))
                if work.runs.eager is not None:
                    _compare(module, work, forward, backward, backend, device)
                # As separate tensors, since batch norm does not raise the versions of its buffers.
                copies = CopiesAll([given.data for _, given in work.apart], [mine.data for mine, _ in work.apart])
                copies_back = None
                if len(work.apart) >= _MANY:
                    with contextlib.suppress(CaptureError):  # for example another thread broke the capture
                        copies_back = backend.capture_copies(copies, device, options.relaxed, forward)
    if not has_gradients:
        return prepare(module, call, backend, options, is_compared)
    guard = ModuleGuard(module, backend.device_type, trains=True)
    ahead = backend.watch_memory(guard.memory()) if runs_ahead else None
    return TrainingGraph(call, work, forward, backward, copies, copies_back, guard, options, time.perf_counter() - began, backend, ahead,
                         device if draws else None, own_written)


def _compare(module: torch.nn.Module, work: ForwardWork, forward: Captured, backward: Captured, backend: Backend,
             device: torch.device) -> None:
    def replay() -> RunResult:
        forward.follow()
        forward.replay()
        backward.follow()
        backward.replay()
        return work.left_by(forward.outputs, backward.outputs)

    def again() -> RunResult:
        work.reset()
        with forward.on_its_stream():
            outputs = work.forward()
            return work.left_by(outputs, work.backward(outputs))

    assert work.runs.eager is not None
    try:
        check_first_replay(work.runs.eager, replay, again, type(module).__name__, backend, device)
    finally:
        work.reset()


def _differentiable(outputs: Any, known: List[torch.Tensor]) -> List[torch.Tensor]:
    """The outputs that require gradients, each once and except the known tensors."""
    apart = set(map(id, known))
    return list({id(t): t for t in _pytree.tree_flatten(outputs)[0]
                 if isinstance(t, torch.Tensor) and t.requires_grad and id(t) not in apart}.values())


def graph_is_kept() -> bool:
    """Whether the running backward was asked to keep autograd's graph, so that it may run again. Old releases do not show that;
    there a backward that runs too late raises."""
    return bool(_ask_kept()) if _tells_kept else False


_ask_kept: Any = getattr(getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None)
_tells_kept = _ask_kept is not None
