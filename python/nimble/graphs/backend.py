"""What preparing asks of a GPU, and a GPU of what is prepared: interfaces. capture.py is CUDA's side of them, and tests have a fake.

Graphs are used by one thread at a time; their owners see to that.
"""

from __future__ import annotations

from typing import Any, Callable, ContextManager, List, Optional, Protocol, Tuple

import torch

from nimble import shim

EAGER_RUNS = 2  # that are learned from


class Captured(Protocol):
    """A captured function. `outputs` is what it returned, in memory that each replay writes anew."""

    @property
    def outputs(self) -> Any: ...

    def follow(self) -> None:
        """Has what the current stream does next come behind all that was done with the graph before."""

    def replay(self) -> None:
        """Runs on the current stream."""

    def launch(self, ahead: "Watch") -> bool:
        """follow() and replay() of what draws no random numbers, in as little time as can be. False where nothing was done, since a
        longer look is needed: the memory of `ahead` is gone, the current stream captures, or it is another one than before."""

    def beside(self) -> ContextManager[None]:
        """What is done inside is done on the stream that it was captured on: behind what was put on the current stream before,
        and before what follows there."""

    def status(self) -> Optional[shim.GraphStatus]:
        """What libnimble.so knows of it."""

    def wait(self) -> None:
        """Until the GPU has done with it."""

    def close(self) -> None:
        """Waits until the GPU has done with it. It is not replayed any more, and its memory may go."""


class Watch(Protocol):
    """Whether the device still has some memory: bool() of it, at any time."""

    def __bool__(self) -> bool: ...

    @property
    def word(self) -> int:
        """For shim.launcher()."""

    def close(self) -> None:
        """Nobody asks any more."""


class Work(Protocol):
    """What is to be captured. It does the same each time, but for what it writes to."""

    def run(self) -> Any: ...

    def reset(self) -> None:
        """Called behind each run and replay: puts back what it has written to, so that no run sees what it would never see."""

    def before_capture(self) -> None:
        """Called when it has run at least twice, and is about to be captured."""

    def data(self) -> List[torch.Tensor]:
        """What it runs on, of its own: while it is learned from, other values may be there. Asked when it has run."""


class TrainingWork(Protocol):
    """The same of what has a backward."""

    def forward(self) -> Any:
        """Its result holds autograd's graph."""

    def backward(self, outputs: Any) -> Any:
        """Of a forward's result, any number of times."""

    def reset(self) -> None:
        """Behind each forward, and its backward where there is one."""

    def before_capture(self) -> None: ...

    def data(self) -> List[torch.Tensor]: ...


# Ends a part, and begins the next. It is told of all tensors that the first has made, as long as anybody has them, so that none goes
# while the second is captured: PyTorch ends the process where one was used on a stream that is not captured then.
Part = Callable[[List[torch.Tensor]], None]


class RecordedWork(Protocol):
    """The same of what must not run but for good."""

    def run(self, part: "Optional[Part]") -> Any:
        """`part` is to be called where a second part begins, if there is such a place; None: it is to have one part."""

    def may_write(self) -> List[torch.Tensor]:
        """What a first part may write to, beyond memory of its own."""

    def put_back(self) -> None:
        """Behind a capture that another one follows: what the host's side of it has changed."""

    def tensors(self) -> List[torch.Tensor]:
        """Those that it may write to: for who cannot but run it."""


class Backend(Protocol):
    """What CudaCapture offers, and a fake of it in tests."""

    device_type: str
    draws_on_host: bool  # the device's random numbers are the host's

    def check(self) -> None:
        """Raises NotLoadedError where nothing can be prepared in this process."""

    def is_capturing(self) -> bool:
        """Whether the current stream does."""

    def wait(self, device: torch.device) -> None:
        """Until it has done what it was given. Not while anything is captured in this process, of which that may be the end."""

    def random_state(self, device: torch.device) -> Any: ...

    def set_random_state(self, device: torch.device, state: Any) -> None: ...

    def watch(self, tensors: List[torch.Tensor]) -> Watch:
        """Of the memory of these."""

    def capture(self, work: Work, device: torch.device, multi_stream: bool, relaxed: bool,
                beside: Optional[Captured] = None) -> Captured:
        """Runs the work, and captures it, on the stream of another captured function where one is given. What it raises when it
        runs by itself passes through; CaptureError where it cannot be captured."""

    def capture_training(self, work: TrainingWork, device: torch.device, multi_stream: bool,
                         relaxed: bool) -> Tuple[Captured, Captured]:
        """The same; the forward and the backward, whose outputs are its result."""

    def capture_copies(self, copies: Callable[[], None], device: torch.device, relaxed: bool, beside: Captured) -> Captured:
        """Of tensors that stay where they are, on the stream of what is captured. One launch takes a fraction of the host's time that
        copies of a hundred tensors take (10 us of 100, on an H100's host; more where the host's caches are full of other things)."""

    def stream(self, device: torch.device) -> Any:
        """One for run() and record()."""

    def run(self, function: Callable[[], Any], stream: Any, learns: bool, rehearses: bool) -> Tuple[Any, shim.Rehearsed]:
        """Runs it on the stream, once; to be learned from, or not. What it returns, and, where that is wanted, what a capture would have
        had of it."""

    def rehearse_part(self) -> None:
        """Within a function that run() rehearses: a second capture would begin here (Rehearsed.behind)."""

    def hand_over(self, tensors: List[torch.Tensor]) -> None:
        """They were made by run(), and are used on the current stream."""

    def let_go(self, function: Callable[[], None]) -> None:
        """Calls it, which may drop tensors that were made while something was captured. What it raises passes through."""

    def is_idle(self, device: torch.device) -> bool:
        """Whether all is done that was put on the current stream."""

    def record(self, work: RecordedWork, stream: Any, multi_stream: bool, relaxed: bool, in_parts: bool) -> List[Captured]:
        """Captures, and runs nothing. CaptureError where it cannot be captured. in_parts: in two, where the work has a place for that
        and the first is known to write to nothing but what it may."""
