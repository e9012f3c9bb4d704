"""All that talks to CUDA: streams, captures, and the graphs that come of them. Tests put a fake of CudaCapture in its place.

A graph is captured twice where it may use several streams: once to learn from, in memory that is never used twice, and once
more in memory that libnimble.so has placed by what it has learned. Then it is replayed until the library has decided which of
the two executables is the faster one.

CudaCapture has no state of its own. Captures are made under one lock, since PyTorch allows one at a time with its allocator
in stream order. A CudaGraph is used by one thread at a time; its owner sees to that.
"""

from __future__ import annotations

import threading
from typing import Any, Optional, Protocol

import torch

from nimble import shim
from nimble.errors import CaptureError, NimbleError

EAGER_RUNS = 2  # that are learned from
DECISION_REPLAYS = 100  # at most, until libnimble.so has timed both executables


class Captured(Protocol):
    """A captured function. `outputs` is what it returned, in memory that each replay writes anew."""

    outputs: Any

    def follow(self) -> None:
        """Has what the current stream does next come behind all that was done with the graph before."""

    def replay(self) -> None:
        """Runs on the current stream."""

    def status(self) -> Optional[shim.GraphStatus]:
        """What libnimble.so knows of it."""


    def close(self) -> None:
        """Waits until the GPU has done with it. It is not replayed any more, and its memory may go."""


class Work(Protocol):
    """What is to be captured. It does the same each time, but for what it writes to."""

    def run(self) -> Any: ...

    def reset(self) -> None:
        """Called behind each run and replay: puts back what it has written to, so that no run sees what it would never see."""

    def before_capture(self) -> None:
        """Called when it has run at least twice, and is about to be captured."""


class Backend(Protocol):
    """What CudaCapture offers, and a fake of it in tests."""

    device_type: str
    draws_on_host: bool  # the device's random numbers are the host's

    def check(self) -> None:
        """Raises NotLoadedError where nothing can be prepared in this process."""

    def random_state(self, device: torch.device) -> Any: ...

    def set_random_state(self, device: torch.device, state: Any) -> None: ...

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool) -> Captured:
        """Runs the work, and captures it. What it raises when it runs by itself passes through; CaptureError where it cannot be
        captured."""


class CudaGraph:
    """A captured function on the GPU."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", outputs: Any, device: torch.device, handle: Optional[int]) -> None:
        self.outputs = outputs
        self._graph = graph
        self._device = device
        self._handle = handle
        self._last: Optional[torch.cuda.Stream] = None

    def follow(self) -> None:
        current = torch.cuda.current_stream(self._device)  # which replay() takes, whatever device is the current one
        if self._last is not None and self._last != current:
            current.wait_stream(self._last)
        self._last = current

    def replay(self) -> None:
        self._graph.replay()

    def close(self) -> None:
        if self._last is not None:
            self._last.synchronize()

    def status(self) -> Optional[shim.GraphStatus]:
        return None if self._handle is None else shim.get_graph(self._handle)


class CudaCapture:
    """Captures by torch.cuda.graph, with libnimble.so rewriting what it makes."""

    device_type = "cuda"
    draws_on_host = False
    _lock = threading.RLock()  # a module may hold another Nimble, which is prepared in its first run

    def check(self) -> None:
        shim.check()

    def random_state(self, device: torch.device) -> Any:
        return torch.cuda.get_rng_state(device)

    def set_random_state(self, device: torch.device, state: Any) -> None:
        torch.cuda.set_rng_state(state, device)

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool) -> CudaGraph:
        with self._lock, torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise NimbleError("a graph is being captured on the current stream: prepare before that")
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            try:
                return self._capture(work, stream, multi_stream, "relaxed" if relaxed else "global")
            finally:
                torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, work: Work, stream: "torch.cuda.Stream", multi_stream: bool, errors: str) -> CudaGraph:
        self._run(work, stream)  # libraries choose their kernels now
        if multi_stream:
            with shim.learning():
                for _ in range(EAGER_RUNS):
                    self._run(work, stream)
                work.before_capture()
                first = self._graph_of(work, stream, errors)
            del first  # what was learned stays
            shim.capture_again()
        else:
            self._run(work, stream)
            work.before_capture()
        captured = self._graph_of(work, stream, errors)
        with torch.cuda.stream(stream):
            for _ in range(DECISION_REPLAYS):
                captured.follow()
                captured.replay()
                work.reset()
                torch.cuda.synchronize()
                status = captured.status()
                if status is None or status.state != shim.GraphState.TRYING:
                    break
        return captured

    @staticmethod
    def _run(work: Work, stream: "torch.cuda.Stream") -> None:
        with torch.cuda.stream(stream):
            work.run()
            work.reset()
        torch.cuda.synchronize()

    @staticmethod
    def _graph_of(work: Work, stream: "torch.cuda.Stream", errors: str) -> CudaGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode=errors):
                outputs = work.run()
        except Exception as error:
            raise CaptureError(first_reason(error)) from error
        status = shim.get_graph()
        return CudaGraph(graph, outputs, stream.device, status.exec if status is not None else None)


def first_reason(error: BaseException) -> str:
    """The text of what went wrong first: ending a capture that has failed raises again, about the ending."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}"
