"""Captures work as CUDA graphs: streams, captures and their failures. CudaCapture is a nimble.capture.backend.Backend.

Where observations are believed, libnimble.so first sees what kernels write in eager runs. Work is captured twice: once to learn
from, in memory that is never reused, and again in memory that libnimble.so has placed by what it learned. The graph is then replayed
until the library has decided which of its two executables is faster. A backward is captured from the autograd graph that the
forward's capture has made, so that it reads what replays of the forward write. A step may be captured as two graphs, the second
after the first (steps/split_step.py).

CudaCapture has no state of its own. Captures are made under one lock, since PyTorch allows one at a time with its stream-ordered
allocator."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from nimble import settings, shim
from nimble.errors import CaptureError, GoesPastError, NimbleError
from nimble.capture.backend import EAGER_RUNS, Captured, RecordedWork, Split, TrainingWork, Work
from nimble.capture import cuda_graph
from nimble.capture.cuda_graph import CudaGraph, let_go, quietly
from nimble.capture.other_data import other_data
from nimble.guards import switches

DECISION_REPLAYS = 100  # at most, until libnimble.so has timed both executables
BOTH_LAUNCHED = 8  # replays after which each executable was launched: a turn is four (replayer/tune/tuner.h)
_nobodys_seeds = itertools.count(0x2545F4914F6CDD1D)



class CudaCapture:
    """Captures by torch.cuda.graph, while libnimble.so rewrites the graphs."""

    device_type = "cuda"
    draws_on_host = False

    @property
    def observes(self) -> bool:
        return settings.observes()

    def check(self) -> None:
        shim.check()

    def is_capturing(self) -> bool:
        return switches.is_capturing(self.device_type)

    def wait(self, device: torch.device) -> None:
        if shim.captures() == 0:
            torch.cuda.synchronize(device)

    def random_state(self, device: torch.device) -> Any:
        return torch.cuda.get_rng_state(device)

    def set_random_state(self, device: torch.device, state: Any) -> None:
        torch.cuda.set_rng_state(state, device)

    def watch_memory(self, tensors: List[torch.Tensor]) -> shim.MemoryWatch:
        here = [tensor for tensor in tensors if tensor.is_cuda]
        with torch.cuda.device(here[0].device) if here else contextlib.nullcontext():
            return shim.MemoryWatch(tensor.data_ptr() for tensor in here)

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool,
                same_stream_as: Optional[Captured] = None) -> CudaGraph:
        def run() -> None:
            work.run()
            work.reset()

        with self._on_a_stream(device, same_stream_as) as stream:
            with torch.cuda.stream(stream):
                self._run(run, multi_stream and self.observes, work.data)
                work.before_capture()
            with _seeds_of_its_own(device):
                (captured,) = self._captured(lambda _: work.run(), stream, multi_stream, relaxed)
            self._decide([captured], work.reset)
            return captured

    def capture_training(self, work: TrainingWork, device: torch.device, multi_stream: bool,
                         relaxed: bool) -> Tuple[CudaGraph, CudaGraph]:
        def run() -> None:
            work.backward(work.forward())
            work.reset()

        with self._on_a_stream(device) as stream:
            with torch.cuda.stream(stream):
                self._run(run, multi_stream and self.observes, work.data)
                work.before_capture()
            with _seeds_of_its_own(device):
                (forward,) = self._captured(lambda _: work.forward(), stream, multi_stream, relaxed)
                (backward,) = self._captured(lambda _: work.backward(forward.outputs), stream, multi_stream, relaxed)
            self._decide([forward, backward], work.reset)
            return forward, backward

    def capture_copies(self, copies: Callable[[], None], device: torch.device, relaxed: bool, same_stream_as: Captured) -> CudaGraph:
        with self._on_a_stream(device, same_stream_as) as stream:
            with _seeds_of_its_own(device):
                (captured,) = self._graphs_of(lambda _: copies(), stream, "relaxed" if relaxed else "global", False)
            captured.keep()  # there is nothing to reorder
            _settle()
            return captured

    def stream(self, device: torch.device) -> Any:
        with torch.cuda.device(device):
            return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def run(self, function: Callable[[], Any], stream: Any, learns: bool, rehearses: bool) -> Tuple[Any, shim.Rehearsed]:
        with self._on_the_stream(stream), torch.cuda.stream(stream):
            if learns:
                torch.cuda.synchronize()
            with _learning() if learns else contextlib.nullcontext():
                return shim.rehearse(stream.cuda_stream, function) if rehearses else (function(), shim.Rehearsed())

    def rehearse_part(self) -> None:
        shim.rehearse_part()

    def hand_over(self, tensors: List[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def let_go(self, function: Callable[[], None]) -> None:
        quietly(function)

    def is_idle(self, device: torch.device) -> bool:
        return shim.is_idle(cuda_graph.raw_stream(device.index))

    def record(self, work: RecordedWork, stream: Any, multi_stream: bool, relaxed: bool, is_split: bool) -> "List[Captured]":
        with self._on_the_stream(stream):
            with _seeds_of_its_own(stream.device):
                # PyTorch's own allocator does not tell which part an allocation belongs to.
                if is_split and torch.cuda.get_allocator_backend() != "native":
                    graphs = (self._captured_split(work, stream, multi_stream, relaxed)
                              or self._captured_apart(work, stream, multi_stream, relaxed, False))
                else:
                    graphs = self._captured(work.run, stream, multi_stream, relaxed, work.put_back)
            _settle()
            return [*graphs]

    @contextlib.contextmanager
    def _on_a_stream(self, device: torch.device, same_stream_as: Optional[Captured] = None) -> "Iterator[torch.cuda.Stream]":
        stream = same_stream_as.stream if isinstance(same_stream_as, CudaGraph) else self.stream(device)
        with self._on_the_stream(stream):
            yield stream

    @staticmethod
    @contextlib.contextmanager
    def _on_the_stream(stream: "torch.cuda.Stream") -> Iterator[None]:
        """While inside, one thread at a time works on this stream; it waits for the current stream, and the current one waits for it."""
        with _captures, torch.cuda.device(stream.device):
            if torch.cuda.is_current_stream_capturing():
                raise NimbleError("a graph is being captured on the current stream: prepare before that")
            stream.wait_stream(torch.cuda.current_stream())
            try:
                yield
            finally:
                torch.cuda.current_stream().wait_stream(stream)

    @staticmethod
    def _run(run: Callable[[], None], learns: bool, data: Callable[[], List[torch.Tensor]]) -> None:
        run()  # libraries choose their kernels now
        torch.cuda.synchronize()
        for number in range(EAGER_RUNS if learns else 1):
            with other_data(data()) if learns and number % 2 else contextlib.nullcontext():
                with _learning() if learns else contextlib.nullcontext():
                    run()
                    torch.cuda.synchronize()

    def _captured_split(self, work: RecordedWork, stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool) -> List[CudaGraph]:
        """Two graphs, or one; none where the work must be captured in one part after all."""
        graphs: List[CudaGraph] = []
        try:
            graphs = self._captured_apart(work, stream, multi_stream, relaxed, True)
        except GoesPastError:
            raise  # work that was not captured has run, and would run again
        except CaptureError:
            pass  # splitting it may be the reason
        if len(graphs) == 1 or graphs and graphs[0].writes_only(work.may_write()):
            return graphs
        for graph in graphs:
            graph.end()
        quietly(work.put_back)
        return []

    def _captured_apart(self, work: RecordedWork, stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool,
                        is_split: bool) -> List[CudaGraph]:
        """_captured() with separate cuBLAS workspaces for each capture: all captures allocate the same, and share none with other
        work."""
        def between() -> None:
            _forget_workspaces()
            quietly(work.put_back)

        _forget_workspaces()
        try:
            return self._captured(work.run, stream, multi_stream, relaxed, between, is_split)
        finally:
            _forget_workspaces()

    def _captured(self, function: "Callable[[Optional[Split]], Any]", stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool,
                  between: Callable[[], None] = lambda: None, is_split: bool = False) -> List[CudaGraph]:
        """Captures twice, even where the graph is to have one stream: planned memory takes less room in the caches than memory
        reused by size. is_split: the function gets a callback that begins a second graph."""
        errors = "relaxed" if relaxed else "global"
        with shim.learning():
            first = self._graphs_of(function, stream, errors, is_split)
        between()
        for graph in first:
            graph.end()  # what was learned stays
        shim.capture_again()
        graphs = self._graphs_of(function, stream, errors, len(first) > 1)
        if not multi_stream:
            for graph in graphs:
                graph.keep()  # as PyTorch has made it
        return graphs

    @staticmethod
    def _decide(graphs: List[CudaGraph], reset: Callable[[], None]) -> None:
        """Replays the graphs in turn until libnimble.so has decided what to launch for each."""
        has_settled = False
        with torch.cuda.stream(graphs[0].stream):
            for number in range(DECISION_REPLAYS):
                if number == BOTH_LAUNCHED:
                    _settle()  # so that most timings reflect later launches, which use no more streams than these
                    has_settled = True
                for graph in graphs:
                    graph.follow()
                    graph.replay()
                reset()
                torch.cuda.synchronize()
                states = [status.state for status in (graph.status() for graph in graphs) if status is not None]
                if shim.GraphState.TRYING not in states:
                    break
        if not has_settled:
            _settle()

    @staticmethod
    def _graphs_of(function: "Callable[[Optional[Split]], Any]", stream: "torch.cuda.Stream", errors: str,
                   is_split: bool) -> List[CudaGraph]:
        """Captures one graph, or two. The outputs belong to the last one. Within _seeds_of_its_own()."""
        made: List[CudaGraph] = []
        strays = 0
        alive: List[torch.Tensor] = []
        capture: Any = torch.cuda.graph(torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), stream, errors)

        def add(outputs: Any) -> None:
            nonlocal strays
            status = shim.get_graph()
            strays += status.strays if status is not None else 0
            made.append(CudaGraph(capture.cuda_graph, outputs, stream, status.exec if status is not None else None))

        def part(tensors: List[torch.Tensor]) -> None:
            alive.extend(tensors)
            with torch.cuda.stream(stream):
                capture.cuda_graph.capture_end()
                add(None)
                capture.pool = (torch.cuda.graph_pool_handle(),)
                capture.cuda_graph = torch.cuda.CUDAGraph()
                _take_seed(stream.device)
                capture.cuda_graph.capture_begin(*capture.pool, capture_error_mode=errors)

        try:
            _take_seed(stream.device)
            with no_collection(), torch.cuda.stream(stream), capture:
                outputs = function(part if is_split else None)
        except Exception as error:
            _recover(stream, capture.pool[0])
            raise CaptureError(first_reason(error)) from error
        finally:
            let_go(alive)
        add(outputs)
        if strays > 0:
            _wait_for_all()  # before the memory that such work writes is restored
            outputs = None
            for graph in made:
                graph.end()
            raise GoesPastError(strays)
        return made


# Held while capturing. Reentrant: a module may hold another Nimble, which is prepared in its first run.
_captures = threading.RLock()


def _forget_workspaces() -> None:
    """Makes PyTorch reallocate cuBLAS workspaces: within a capture, memory of that capture alone."""
    quietly(getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None))


@contextlib.contextmanager
def _learning() -> Iterator[None]:
    """shim.learning() for runs. Stores show only in new memory, so PyTorch's own allocator must release what it caches."""
    if torch.cuda.get_allocator_backend() == "native":
        torch.cuda.empty_cache()
    with shim.learning():
        yield


def _wait_for_all() -> None:
    """Synchronizes with all devices that this process has used."""
    for index in range(torch.cuda.device_count()):
        if getattr(torch._C, "_cuda_hasPrimaryContext", lambda index: True)(index):
            torch.cuda.synchronize(index)


def _settle() -> None:
    """Called once all is captured, since captures use new streams. Does nothing where there are other ranks: a new context might
    deadlock with them."""
    if not switches.has_other_ranks():
        shim.settle()


@contextlib.contextmanager
def _seeds_of_its_own(device: torch.device) -> Iterator[None]:
    """Captures with a unique seed for each graph, so that a wrong use of random numbers raises.

    While it captures, PyTorch accepts the seed that is already set, which no replay would set again, and with it an offset that counts
    from the beginning of the graph. The offset may come from another graph: a checkpoint reads it in the forward and draws the same
    numbers in the backward. With a seed for each graph, the graph's own state can be restored, and all else raises, except where
    code sets the seed that it has just read."""
    generator = torch.cuda.default_generators[device.index]
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)


def _take_seed(device: torch.device) -> None:
    torch.cuda.default_generators[device.index].manual_seed(next(_nobodys_seeds))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """While inside, Python's collector does not run in any thread, unless gc.collect() is called. What it would free (a graph, or a
    tensor of an earlier capture that an exception's frames hold) makes calls that the driver refuses during a capture, which then
    fails."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _recover(stream: "torch.cuda.Stream", pool: Any) -> None:
    """Called after a capture that has failed. PyTorch 2 gives up at the driver's error when it ends one; its allocator and its random
    number generators then believe for good that a capture goes on. A capture that succeeds corrects the generators."""
    end = getattr(torch._C, "_cuda_endAllocateToPool", None) or getattr(torch._C, "_cuda_endAllocateCurrentStreamToPool")  # 2.1 to 2.8
    try:
        end(stream.device.index, pool)
    except RuntimeError:
        pass  # already reported
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            something = torch.zeros(1, device=stream.device)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
                something.zero_()
    except RuntimeError:
        pass  # the first failure is reported, and not this one


def first_reason(error: BaseException) -> str:
    """What went wrong first, in a line: ending a failed capture raises again, about the ending. CUDA's errors add advice that does
    not apply to Nimble's captures."""
    while error.__context__ is not None:
        error = error.__context__
    words = str(error).strip()
    hint = _OF_GENERATORS if "CUDAGeneratorImpl::" in words else ""
    return f"{type(error).__name__}: {words.splitlines()[0]}{hint}" if words else type(error).__name__


_OF_GENERATORS = (" (It sets the seed of the GPU's random numbers, or restores their state from another graph. Where "
                  "torch.utils.checkpoint does: give it preserve_rng_state=False, if nothing inside draws any.)")
