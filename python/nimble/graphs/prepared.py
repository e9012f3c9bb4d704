"""A prepared graph: a module's run for one signature, captured, with inputs and outputs in its own memory.

prepare() makes it, and leaves the module as it was. Any thread may call a PreparedGraph: a lock keeps a call's copies and its replay
together. Calls on different streams are ordered."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from nimble.errors import CaptureError
from nimble.graphs.autograd_leaves import mark_written
from nimble.capture.backend import Backend, Captured, MemoryWatch
from nimble.capture.eager_answers import Answers, with_eager_answers_if_needed
from nimble.graphs.first_replay import RunResult, check_first_replay
from nimble.graphs.graph_io import (GraphReport, Options, Results, InputCopier, check_apart, check_no_gradients, check_outputs, device_of,
                                    report, with_inputs)
from nimble.graphs.module_work import ModuleWork
from nimble.graphs.restore import restored_afterwards
from nimble.guards import switches
from nimble.guards.signatures import Call, Repeated
from nimble.guards.module_guard import ModuleGuard
from nimble.nesting import one_at_a_time, preparing
from nimble.objects.memory import storage_address

__all__ = ["CHANGED", "GraphReport", "Options", "PreparedGraph", "is_same_state", "naming_the_place", "prepare", "with_place"]


CHANGED = object()  # instead of outputs


class PreparedGraph:
    """A captured call of a module; made by prepare(). `ahead` watches the memory that the graph reads, where the graph writes only to
    its own: then a call launches the graph first, and checks that it still fits the module while it runs. The graph keeps the memory
    of parameters and buffers for that, although the module may have dropped it."""

    def __init__(self, call: Call, work: ModuleWork, captured: Captured, guard: ModuleGuard, options: Options, seconds: float,
                 own: List[torch.Tensor], own_written: List[torch.Tensor], ahead: Optional[MemoryWatch] = None) -> None:
        inputs, written = work.inputs, work.written
        self.options = options
        self.guard = guard
        self._ahead = ahead
        self._knows_module = True
        self._read = guard.memory() if ahead is not None else []
        self.calls = 0
        self.short_lived = 0  # how many graphs in a row before it, for the same signature, served few calls
        self.static_arguments = call.rebuilt(with_inputs(call, inputs))
        """(args, kwargs): a call with these copies nothing."""
        self._signature = str(call.signature)
        self._kernels = call.key[1]
        self._inputs = inputs
        self._take = InputCopier(inputs)
        self._own = [each.tensor for each in inputs]
        self._written = written  # written by the module, in place
        self._raised = work.raised  # versions that eager runs raise
        self._as_eager = work.answers.as_eager
        self._also_read = work.found_elsewhere  # memory that the module finds outside of itself
        self._of_module = frozenset(map(storage_address, guard.memory())) if written else frozenset()
        self._own_written = frozenset(map(storage_address, own_written))
        self._seconds = seconds
        self._lock = threading.Lock()
        self._results = Results(captured.outputs, inputs, zip(own, own))
        self._captured = captured  # the last attribute, so it is freed last

    @property
    def runs_ahead(self) -> bool:
        return self._ahead is not None

    @property
    def writes(self) -> bool:
        """Whether it writes to arguments, or to the module's tensors."""
        return bool(self._written or self._own_written)

    def __call__(self, call: Call, static_outputs: bool, fits: "Optional[Callable[[], bool]]" = None) -> Any:
        """Runs the graph with the arguments of a call of its key. The outputs are the caller's own, unless static_outputs asks for the
        graph's, which the next run overwrites. Returns CHANGED where the graph runs ahead and no longer fits the module. `fits` says
        so where the owner guards the module (forget_module())."""
        if self._written or self._own_written:
            check_apart(call, self._inputs, self._written, self._of_module, self._own_written)
        if fits is None and self._knows_module:
            fits = self._fits_module
        return self.run(call.leaves, static_outputs, fits)

    def run(self, leaves: Sequence[Any], static_outputs: bool, fits: "Optional[Callable[[], bool]]" = None) -> Any:
        """The same for the leaves of a call of its signature, where the graph writes to none of them. CHANGED also where PyTorch's
        switches have changed."""
        with self._lock:
            if fits is None and self._knows_module:
                fits = self._fits
            ahead = self._ahead if fits is not None else None
            checks_after = bool(ahead)  # a tensor that is held can also lose its memory
            if ahead is not None and fits is not None and not checks_after and not fits():
                return CHANGED
            self._captured.follow()
            self._take(leaves)
            self._captured.replay()
            if self._raised:
                mark_written(self._raised)
            for each in self._written:
                if leaves[each.number] is not each.tensor:
                    leaves[each.number].copy_(each.tensor)
            if checks_after and fits is not None and not fits():
                self._captured.wait()  # the memory that it reads may be freed now
                return CHANGED
            self.calls += 1
            return self._returned(leaves, static_outputs)

    def _fits(self) -> bool:
        return switches.kernels() == self._kernels and self._fits_module()

    def _fits_module(self) -> bool:
        return self.guard.difference() is None

    def run_own(self, args: Tuple[Any, ...], static_outputs: bool, is_again: Callable[[Repeated, Tuple[Any, ...]], bool],
                repeated: Repeated) -> Any:
        """The same for a call with the graph's own inputs: launches first, and then checks by is_again(repeated, args) that it is
        such a call. CHANGED also where it is not, where the arguments differ, or where the graph does not run ahead."""
        own = self._own
        if len(args) != len(own):
            return CHANGED
        for argument, mine in zip(args, own):
            if argument is not mine:
                return CHANGED
        with self._lock:
            ahead = self._ahead
            if ahead is None or not self._captured.launch(ahead) or not is_again(repeated, args) or not self._fits():
                return CHANGED
            self.calls += 1
            return self._returned(args, static_outputs)

    def _returned(self, leaves: Sequence[Any], static_outputs: bool) -> Any:
        return self._results.returned(self._results.made if static_outputs else self._results.copied(), leaves)

    def forget_module(self, may_run_ahead: bool = False) -> None:
        """From now on the graph holds only those buffers of the module that it writes to, and its owner checks whether it fits:
        during the call, where the graph still runs ahead, else before. may_run_ahead: the graph reads only memory of the module's
        tensors."""
        if self._ahead is not None and not may_run_ahead:
            self._ahead.close()
            self._ahead = None
        self._read.clear()  # the watch still sees the driver free some of it
        self._knows_module = False
        del self.guard

    def close(self) -> None:
        """Waits until the GPU has finished with the graph, so that its memory may be freed."""
        with self._lock:
            self._captured.close()
            if self._ahead is not None:
                self._ahead.close()

    def reports(self) -> List[GraphReport]:
        tensors = [*(i.tensor for i in self._inputs), *self._results.made, *self._results.kept]
        return [report("inference", self._signature, self._captured.status(), self._seconds, tensors, self.runs_ahead,
                       self._as_eager)]


@one_at_a_time
def prepare(module: torch.nn.Module, call: Call, backend: Backend, options: Options, is_compared: bool = True) -> PreparedGraph:
    """Captures the module's run for a call, without gradients. Runs the module a few times with copies of the arguments, and restores
    the module, random numbers and PyTorch's modes. is_compared: the graph is compared with one of these runs; a caller that compares
    its first calls leaves that out. Raises NimbleError where the call cannot be captured, or the graph differs; the module's own
    errors pass through."""
    began = time.perf_counter()
    return with_eager_answers_if_needed(lambda answers: _prepared(module, call, backend, options, is_compared, answers, began),
                                        backend.device_type, type(module).__name__)


def _prepared(module: torch.nn.Module, call: Call, backend: Backend, options: Options, is_compared: bool, answers: Answers,
              began: float) -> PreparedGraph:
    device = device_of([*module.parameters(), *module.buffers()], call, backend)
    with restored_afterwards(module, backend, device) as keeper:
        device_random = backend.random_state(device)
        with preparing(), _inference():
            work = ModuleWork(module, call, keeper, backend.device_type, lambda: backend.random_state(device), is_compared, answers)
            with naming_the_place(module):
                captured = backend.capture(work, device, options.use_multi_stream, options.relaxed)
        keeper.check_module()
        keeper.check_random(but_torch=backend.draws_on_host)
        keeper.check_elsewhere(backend.device_type)
        work.check()
        own = [*module.parameters(), *module.buffers()]
        check_outputs(captured.outputs, backend.device_type, [*own, *(each.tensor for each in work.inputs)])
        check_no_gradients(captured.outputs, [*own, *(each.tensor for each in work.inputs)])
        draws = not is_same_state(backend.random_state(device), device_random)
        # Messages to other ranks cannot be discarded. What runs have not been seen to write its kernels may write all the same: past
        # the dispatcher, and this time with the values that were there.
        runs_ahead = not (work.written or draws or keeper.has_written() or any(m.training for m in module.modules())
                          or switches.has_other_ranks()) and captured.writes_only([])
        if work.eager is not None:
            with preparing(), _inference():
                _compare(module, work, captured, backend, device)
    guard = ModuleGuard(module, backend.device_type, call.trains)
    ahead = backend.watch_memory(guard.memory()) if runs_ahead else None
    return PreparedGraph(call, work, captured, guard, options, time.perf_counter() - began, own, keeper.may_write(), ahead)


def _compare(module: torch.nn.Module, work: ModuleWork, captured: Captured, backend: Backend, device: torch.device) -> None:
    def replay() -> RunResult:
        captured.follow()
        captured.replay()
        return work.left_by(captured.outputs)

    def again() -> RunResult:
        work.reset()
        with captured.on_its_stream():
            return work.left_by(work.run())

    assert work.eager is not None
    try:
        check_first_replay(work.eager, replay, again, type(module).__name__, backend, device)
    finally:
        work.reset()


def is_same_state(one: Any, other: Any) -> bool:
    """Whether two states of random numbers are the same."""
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@contextlib.contextmanager
def _inference() -> Iterator[None]:
    """While inside, gradients are off, and new tensors can be written anywhere."""
    with torch.inference_mode(False), torch.no_grad():
        yield


class naming_the_place:
    """Makes a CaptureError from inside name the submodule that was running. (Not by contextlib: with Python 3.13 an error that
    replaces another is then part of a cycle, which keeps the run's tensors until the collector runs.)"""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: Optional[BaseException], trace: object) -> None:
        if isinstance(error, CaptureError):
            raise with_place(error, [self._module]) from error.__cause__


def with_place(error: CaptureError, modules: Iterable[torch.nn.Module]) -> CaptureError:
    """The error, naming the submodule that was running, where it is one of these modules'."""
    if error.place is None and error.__cause__ is not None:
        for module in modules:
            place = _module_at(module, error.__cause__)
            if place is not None:
                return CaptureError(error.reason, place)
    return error


def _module_at(module: torch.nn.Module, error: BaseException) -> Optional[str]:
    """The path of the innermost module with a method running when the first of a chain of errors was raised."""
    while error.__context__ is not None:
        error = error.__context__
    names = {id(child): name for name, child in module.named_modules()}
    place: Optional[str] = None
    trace: Optional[TracebackType] = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        place = names.get(id(owner), place)
        trace = trace.tb_next
    return place
