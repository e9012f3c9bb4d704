"""All that talks to CUDA: streams, captures, and the graphs that come of them. CudaCapture is a nimble.graphs.backend.Backend.

A graph is captured twice: once to learn from, in memory that is never used twice, and once more in memory that libnimble.so has
placed by what it has learned. Then it is replayed until the library has decided which of the two executables is the faster one. A
backward is captured from the autograd graph that the forward's capture has made, so that it reads what replays of the forward write.
A step may be captured as two graphs, one behind the other (parts.py).

CudaCapture has no state of its own. Captures are made under one lock, since PyTorch allows one at a time with its allocator
in stream order. A CudaGraph is used by one thread at a time; its owner sees to that.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import itertools
import threading
import warnings
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from nimble import shim
from nimble.errors import CaptureError, GoesPastError, NimbleError
from nimble.graphs.backend import EAGER_RUNS, Captured, Part, RecordedWork, TrainingWork, Watch, Work
from nimble.graphs.other_data import other_data
from nimble.guards import switches
from nimble.objects.memory import storage_bytes

DECISION_REPLAYS = 100  # at most, until libnimble.so has timed both executables
BOTH_LAUNCHED = 8  # of these behind which each of them was launched: a turn is four (replayer/tune/tuner.h)
_nobodys_seeds = itertools.count(0x2545F4914F6CDD1D)
_raw_stream: "Callable[[int], int]" = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)  # not without CUDA
_GRANULE = 512  # bytes: no two allocations of the driver's pools lie in one


class CudaGraph:
    """A captured function on the GPU."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", outputs: Any, stream: "torch.cuda.Stream", handle: Optional[int]) -> None:
        self.stream = stream
        self._kept: List[Any] = [outputs]
        self._graph = graph
        self._device = stream.device
        self._handle = handle
        self._index = stream.device.index
        self._launch = shim.launcher(handle) if handle is not None else None
        self._last: Optional[torch.cuda.Stream] = None
        self._last_handle: Optional[int] = None
        self._at_end = weakref.finalize(self, _let_go, self._kept)
        self._at_end.atexit = False
        _alive.add(self)

    @property
    def outputs(self) -> Any:
        return self._kept[0]

    def follow(self) -> None:
        # The current stream is the one that replay() takes, whatever device is the current one. Its handle is had sooner.
        handle = _raw_stream(self._index)
        if handle == self._last_handle:
            return
        current = torch.cuda.current_stream(self._device)
        if self._last is not None and self._last != current:
            current.wait_stream(self._last)
        self._last, self._last_handle = current, handle

    def replay(self) -> None:
        self._graph.replay()

    def launch(self, ahead: Watch) -> bool:
        stream = _raw_stream(self._index)
        return stream == self._last_handle and self._launch is not None and self._launch(stream, ahead.word) == 0

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self._device)
        self.stream.wait_stream(current)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            current.wait_stream(self.stream)

    def wait(self) -> None:
        if self._last is not None:
            self._last.synchronize()

    def close(self) -> None:
        self.wait()

    def end(self) -> None:
        """It is not replayed any more, and its outputs are not used."""
        self._graph.reset()
        self._at_end()

    def status(self) -> Optional[shim.GraphStatus]:
        return None if self._handle is None else shim.get_graph(self._handle)

    def keep(self) -> None:
        """It is launched as PyTorch has made it."""
        if self._handle is not None:
            shim.keep_graph(self._handle)

    def writes_only(self, tensors: List[torch.Tensor]) -> bool:
        """Whether it is known to write to nothing but memory of its own capture, and to these."""
        sizes = [min(t.numel() * t.element_size(), storage_bytes(t) - t.storage_offset() * t.element_size()) for t in tensors]
        ranges = [(t.data_ptr(), -(-size // _GRANULE) * _GRANULE) for t, size in zip(tensors, sizes)]
        return self._handle is not None and shim.writes_only(self._handle, ranges)


class CudaCapture:
    """Captures by torch.cuda.graph, with libnimble.so rewriting what it makes."""

    device_type = "cuda"
    draws_on_host = False

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

    def watch(self, tensors: List[torch.Tensor]) -> shim.MemoryWatch:
        here = [tensor for tensor in tensors if tensor.is_cuda]
        with torch.cuda.device(here[0].device) if here else contextlib.nullcontext():
            return shim.MemoryWatch(tensor.data_ptr() for tensor in here)

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool,
                beside: Optional[Captured] = None) -> CudaGraph:
        def run() -> None:
            work.run()
            work.reset()

        with self._on_a_stream(device, beside) as stream:
            with torch.cuda.stream(stream):
                self._run(run, multi_stream, work.data)
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
                self._run(run, multi_stream, work.data)
                work.before_capture()
            with _seeds_of_its_own(device):
                (forward,) = self._captured(lambda _: work.forward(), stream, multi_stream, relaxed)
                (backward,) = self._captured(lambda _: work.backward(forward.outputs), stream, multi_stream, relaxed)
            self._decide([forward, backward], work.reset)
            return forward, backward

    def capture_copies(self, copies: Callable[[], None], device: torch.device, relaxed: bool, beside: Captured) -> CudaGraph:
        with self._on_a_stream(device, beside) as stream:
            with _seeds_of_its_own(device):
                (captured,) = self._graphs_of(lambda _: copies(), stream, "relaxed" if relaxed else "global", False)
            captured.keep()  # there is nothing to put in another order
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
        _quietly(function)

    def is_idle(self, device: torch.device) -> bool:
        return shim.is_idle(_raw_stream(device.index))

    def record(self, work: RecordedWork, stream: Any, multi_stream: bool, relaxed: bool, in_parts: bool) -> "List[Captured]":
        with self._on_the_stream(stream):
            with _seeds_of_its_own(stream.device):
                # With PyTorch's own allocator nobody can tell what is whose.
                if in_parts and torch.cuda.get_allocator_backend() != "native":
                    graphs = (self._captured_in_parts(work, stream, multi_stream, relaxed)
                              or self._captured_apart(work, stream, multi_stream, relaxed, False))
                else:
                    graphs = self._captured(work.run, stream, multi_stream, relaxed, work.put_back)
            _settle()
            return [*graphs]

    @contextlib.contextmanager
    def _on_a_stream(self, device: torch.device, beside: Optional[Captured] = None) -> "Iterator[torch.cuda.Stream]":
        stream = beside.stream if isinstance(beside, CudaGraph) else self.stream(device)
        with self._on_the_stream(stream):
            yield stream

    @staticmethod
    @contextlib.contextmanager
    def _on_the_stream(stream: "torch.cuda.Stream") -> Iterator[None]:
        """It follows the current one, which follows it then. There is one such thread at a time."""
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

    def _captured_in_parts(self, work: RecordedWork, stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool) -> List[CudaGraph]:
        """None of them where it is better not in parts."""
        graphs: List[CudaGraph] = []
        try:
            graphs = self._captured_apart(work, stream, multi_stream, relaxed, True)
        except GoesPastError:
            raise  # what went past has been done, and would be once more
        except CaptureError:
            pass  # its parts may be the reason
        if len(graphs) == 1 or graphs and graphs[0].writes_only(work.may_write()):
            return graphs
        for graph in graphs:
            graph.end()
        _quietly(work.put_back)
        return []

    def _captured_apart(self, work: RecordedWork, stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool,
                        in_parts: bool) -> List[CudaGraph]:
        """With memory for cuBLAS that is each capture's own: all of them allocate the same, and nobody else's work is done there."""
        def between() -> None:
            _forget_workspaces()
            _quietly(work.put_back)

        _forget_workspaces()
        try:
            return self._captured(work.run, stream, multi_stream, relaxed, between, in_parts)
        finally:
            _forget_workspaces()

    def _captured(self, function: "Callable[[Optional[Part]], Any]", stream: "torch.cuda.Stream", multi_stream: bool, relaxed: bool,
                  between: Callable[[], None] = lambda: None, in_parts: bool = False) -> List[CudaGraph]:
        """Twice also where it is to have one stream: memory by a plan takes less room in the caches than memory that is used again
        by its size. in_parts: the function gets what it is to call where a second graph begins."""
        errors = "relaxed" if relaxed else "global"
        with shim.learning():
            first = self._graphs_of(function, stream, errors, in_parts)
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
        """Replays them, one after the other, until libnimble.so has decided what to launch for each."""
        with torch.cuda.stream(graphs[0].stream):
            for number in range(DECISION_REPLAYS):
                if number == BOTH_LAUNCHED:
                    _settle()  # most times are taken as launches will be from here on
                for graph in graphs:
                    graph.follow()
                    graph.replay()
                reset()
                torch.cuda.synchronize()
                states = [status.state for status in (graph.status() for graph in graphs) if status is not None]
                if shim.GraphState.TRYING not in states:
                    break
        _settle()

    @staticmethod
    def _graphs_of(function: "Callable[[Optional[Part]], Any]", stream: "torch.cuda.Stream", errors: str,
                   in_parts: bool) -> List[CudaGraph]:
        """The outputs are the last one's. Within _seeds_of_its_own()."""
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
                outputs = function(part if in_parts else None)
        except Exception as error:
            _recover(stream, capture.pool[0])
            raise CaptureError(first_reason(error)) from error
        finally:
            _let_go(alive)
        add(outputs)
        if strays > 0:
            _wait_for_all()  # before anybody puts back what such work writes to
            outputs = None
            for graph in made:
                graph.end()
            raise GoesPastError(strays)
        return made


_alive: "weakref.WeakSet[CudaGraph]" = weakref.WeakSet()


@atexit.register
def _keep_for_good() -> None:
    """What is still captured when the interpreter ends stays until the process does, whoever else has it: nobody sees to it any more
    that it goes quietly (_let_go())."""
    for graph in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph._kept))


# Taken by whoever captures. The thread that has it may take it again: a module may hold another Nimble, which is prepared in its
# first run.
_captures = threading.RLock()


def _forget_workspaces() -> None:
    """Has PyTorch take memory anew for cuBLAS to work in: within a capture, memory of that capture, which is nobody else's."""
    _quietly(getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None))


@contextlib.contextmanager
def _learning() -> Iterator[None]:
    """shim.learning() of runs. New memory shows what is stored there; so PyTorch's own allocator, which keeps memory, has to let go
    of it."""
    if torch.cuda.get_allocator_backend() == "native":
        torch.cuda.empty_cache()
    with shim.learning():
        yield


def _wait_for_all() -> None:
    """On all devices that this process has used."""
    for index in range(torch.cuda.device_count()):
        if getattr(torch._C, "_cuda_hasPrimaryContext", lambda index: True)(index):
            torch.cuda.synchronize(index)


def _settle() -> None:
    """Once all is captured, which makes use of new streams. Not where there are other ranks: who knows what they are waiting for, and
    what a new context would wait for."""
    if not switches.has_other_ranks():
        shim.settle()


@contextlib.contextmanager
def _seeds_of_its_own(device: torch.device) -> Iterator[None]:
    """While it captures PyTorch lets a seed be set that is the one before, and no replay would set it; and with it a place among the
    random numbers, which counts from the beginning of the graph that is captured. It may have been read in another graph: a checkpoint
    does so in the forward, and draws the same numbers in the backward. So each graph is captured with a seed that nobody has, and no
    other graph: what is of one graph can be put back, and all else raises, but for who sets the seed that it has just read."""
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
    """Python's collector waits, in all threads: what it would end (a graph, or a tensor of an earlier capture that an exception's frames
    hold) asks the driver for what it refuses while anything is captured, which is lost then. Who calls gc.collect() has it run."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _let_go(kept: List[Any]) -> None:
    """Drops tensors that were made while a graph was captured. PyTorch's allocator in stream order warns of each that goes while
    nothing is captured, on stderr, and of what a backward needs there are hundreds. Within a function of PyTorch's that Python
    calls its warnings become Python's, which can be left out; and Tensor.apply_ is one that calls any function. (To drop them while
    something is captured is no way: where autograd has used one on another stream, PyTorch ends the process.)"""

    _quietly(kept.clear)


def _quietly(function: "Callable[[], Any]") -> None:
    """Called within a function of PyTorch's, if that can be: see _let_go(). What it raises passes through."""
    errors: List[BaseException] = []
    done = False

    def call(_: float) -> float:
        nonlocal done
        done = True
        try:
            function()
        except BaseException as error:
            errors.append(error)
        return 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.zeros(1, device="cpu").apply_(call)
        except Exception:
            pass  # as under somebody's mode for functions
    if not done:
        function()
    if errors:
        raise errors.pop()  # and no frame holds it


def _recover(stream: "torch.cuda.Stream", pool: Any) -> None:
    """Behind a capture that has failed. PyTorch 2 gives up at the driver's error when it ends one, and then its allocator and its
    random numbers believe for good that something is captured. Of the latter a capture that succeeds convinces them."""
    end = getattr(torch._C, "_cuda_endAllocateToPool", None) or getattr(torch._C, "_cuda_endAllocateCurrentStreamToPool")  # 2.1 to 2.8
    try:
        end(stream.device.index, pool)
    except RuntimeError:
        pass  # it has been told
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            something = torch.zeros(1, device=stream.device)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
                something.zero_()
    except RuntimeError:
        pass  # what has failed is told, and not this


def first_reason(error: BaseException) -> str:
    """What went wrong first, in a line: ending a capture that has failed raises again, about the ending. CUDA's errors go on with
    advice, which is none for who has Nimble capture something."""
    while error.__context__ is not None:
        error = error.__context__
    words = str(error).strip()
    hint = _OF_GENERATORS if "CUDAGeneratorImpl::" in words else ""
    return f"{type(error).__name__}: {words.splitlines()[0]}{hint}" if words else type(error).__name__


_OF_GENERATORS = (" (It sets the seed of the GPU's random numbers, or puts them back to what they were in another graph. Where "
                  "torch.utils.checkpoint does: give it preserve_rng_state=False, if nothing inside draws any.)")
