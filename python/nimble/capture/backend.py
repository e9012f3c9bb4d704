"""The interfaces between preparing and the GPU: the work to capture, and the resulting graphs. capture.py implements them for
CUDA; tests have a fake.

One thread at a time uses a graph; its owner ensures that."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, List, Optional, Protocol, Tuple

import torch

from nimble import shim

EAGER_RUNS = 2  # to learn from, where that counts (Backend.observes)


class Captured(Protocol):
    """A captured function. `outputs` is what it returned, in memory that each replay overwrites."""

    @property
    def outputs(self) -> Any: ...

    def follow(self) -> None:
        """Makes the current stream wait for the graph's earlier work."""

    def replay(self) -> None:
        """Launches the graph on the current stream."""

    def launch(self, ahead: "MemoryWatch") -> bool:
        """follow() and replay() in as little time as possible, for a graph that draws no random numbers. Returns False, and does
        nothing, where the memory of `ahead` is gone, or the current stream captures or differs from the last one."""

    def writes_only(self, tensors: List[torch.Tensor]) -> bool:
        """Whether the graph is known to write only to memory of its own capture and to these tensors."""

    def on_its_stream(self) -> ContextManager[None]:
        """While inside, work goes to the stream that the graph was captured on: after all earlier work of the current stream, and before
        all later work there."""

    def status(self) -> Optional[shim.GraphStatus]:
        """libnimble.so's status of the graph."""

    def wait(self) -> None:
        """Blocks until the GPU has finished with the graph."""

    def close(self) -> None:
        """Waits until the GPU has finished with the graph. The graph is not replayed after that, and its memory may be freed."""


class MemoryWatch(Protocol):
    """bool() says, at any time, whether some memory still exists on the device."""

    def __bool__(self) -> bool: ...

    @property
    def word(self) -> int:
        """The address for shim.launcher()."""

    def close(self) -> None:
        """Ends the watch; it is not queried after that."""


class Work(Protocol):
    """A function to capture. It behaves the same each time, except for the values that it writes over."""

    def run(self) -> Any: ...

    def reset(self) -> None:
        """Called after each run and replay: restores what it has written to, so that each run starts from the same state."""

    def before_capture(self) -> None:
        """Called after at least two runs, before the capture."""

    def data(self) -> List[torch.Tensor]:
        """Its own input memory, which may hold other values in runs that Nimble learns from, from the third run on. Called after the
        first run."""


class TrainingWork(Protocol):
    """A forward and its backward to capture."""

    def forward(self) -> Any:
        """Runs the forward; the result holds autograd's graph."""

    def backward(self, outputs: Any) -> Any:
        """Runs the backward of a forward's result, any number of times."""

    def reset(self) -> None:
        """Called after each forward, and its backward where there is one."""

    def before_capture(self) -> None: ...

    def data(self) -> List[torch.Tensor]: ...


# Ends the first part and begins the second. Called with all tensors that the first has made and that are still referenced, so that
# none is freed while the second is captured: PyTorch ends the process where one was used on a stream that is not captured then.
Split = Callable[[List[torch.Tensor]], None]


class RecordedWork(Protocol):
    """A function to capture that must not run an extra time, such as a step."""

    def run(self, part: "Optional[Split]") -> Any:
        """Calls `part` where a second part begins, if there is such a place; None: one part only. Each call allocates the same."""

    def may_write(self) -> List[torch.Tensor]:
        """The memory that a first part may write to, besides its own."""

    def put_back(self) -> None:
        """Undoes a capture's changes on the host, before the next one."""

    def tensors(self) -> List[torch.Tensor]:
        """The tensors that it may write to, for a backend that has to run it."""


class Backend(Protocol):
    """Captures for one type of device: CudaCapture, and a fake in tests."""

    device_type: str
    draws_on_host: bool  # the device's random numbers are the host's

    @property
    def observes(self) -> bool:
        """Whether it counts what kernels are seen to write in eager runs: only then does libnimble.so learn from them."""

    def check(self) -> None:
        """Raises NotLoadedError where this process can prepare nothing."""

    def is_capturing(self) -> bool:
        """Whether the current stream captures."""

    def wait(self, device: torch.device) -> None:
        """Blocks until the device is idle. Does nothing while anything is captured in this process: that could invalidate the
        capture."""

    def random_state(self, device: torch.device) -> Any: ...

    def set_random_state(self, device: torch.device, state: Any) -> None: ...

    def watch_memory(self, tensors: List[torch.Tensor]) -> MemoryWatch:
        """Watches the memory of these tensors."""

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool,
                same_stream_as: Optional[Captured] = None) -> Captured:
        """Runs the work, then captures it, on the stream of another captured function if one is given. Errors of the runs pass
        through; raises CaptureError where the work cannot be captured."""

    def capture_training(self, work: TrainingWork, device: torch.device, multi_stream: bool,
                         relaxed: bool) -> Tuple[Captured, Captured]:
        """capture() of a forward and its backward. The backward's outputs are the gradients."""

    def capture_copies(self, copies: Callable[[], None], device: torch.device, relaxed: bool, same_stream_as: Captured) -> Captured:
        """Captures copies between tensors that do not move. One launch takes a tenth of the host's time for a hundred copies (10 us
        instead of 100, on an H100's host; more where the host's caches are full of other things)."""

    def stream(self, device: torch.device) -> Any:
        """A new stream for run() and record()."""

    def run(self, function: Callable[[], Any], stream: Any, learns: bool, rehearses: bool) -> Tuple[Any, shim.Rehearsed]:
        """Runs the function once on the stream. learns: libnimble.so learns from it. Returns its result, and what a capture would
        have seen if it rehearses."""

    def rehearse_part(self) -> None:
        """Within a function that run() rehearses: a second capture would begin here (Rehearsed.after_split)."""

    def hand_over(self, tensors: List[torch.Tensor]) -> None:
        """Tells the allocator that these tensors, which run() has made, are used on the current stream."""

    def let_go(self, function: Callable[[], None]) -> None:
        """Calls a function that may drop tensors of a capture. Its errors pass through."""

    def is_idle(self, device: torch.device) -> bool:
        """Whether the current stream has no work left."""

    def record(self, work: RecordedWork, stream: Any, multi_stream: bool, relaxed: bool, is_split: bool) -> List[Captured]:
        """Captures the work without running it. is_split: as two graphs, where the work has a place to split, and the first
        provably writes only to allowed memory. Raises CaptureError where the work cannot be captured."""
