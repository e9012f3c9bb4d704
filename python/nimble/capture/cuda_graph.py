"""A captured function on the GPU. Its memory is freed quietly: PyTorch would warn of each tensor of a capture that is freed outside of
one.

One thread at a time uses a CudaGraph; its owner ensures that. """

from __future__ import annotations

import atexit
import contextlib
import ctypes
import warnings
import weakref
from typing import Any, Callable, Iterator, List, Optional

import torch

from nimble import shim
from nimble.capture.backend import MemoryWatch
from nimble.objects.memory import storage_bytes

raw_stream: "Callable[[int], int]" = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)  # absent without CUDA
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
        self._at_end = weakref.finalize(self, let_go, self._kept)
        self._at_end.atexit = False
        _alive.add(self)

    @property
    def outputs(self) -> Any:
        return self._kept[0]

    def follow(self) -> None:
        # replay() uses the current stream of the graph's device, whichever device is current. Its raw handle is faster to get.
        handle = raw_stream(self._index)
        if handle == self._last_handle:
            return
        current = torch.cuda.current_stream(self._device)
        if self._last is not None and self._last != current:
            current.wait_stream(self._last)
        self._last, self._last_handle = current, handle

    def replay(self) -> None:
        self._graph.replay()

    def launch(self, ahead: MemoryWatch) -> bool:
        stream = raw_stream(self._index)
        return stream == self._last_handle and self._launch is not None and self._launch(stream, ahead.word) == 0

    @contextlib.contextmanager
    def on_its_stream(self) -> Iterator[None]:
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
        """Frees the graph: it is no longer replayed, and its outputs are no longer used."""
        self._graph.reset()
        self._at_end()

    def status(self) -> Optional[shim.GraphStatus]:
        return None if self._handle is None else shim.get_graph(self._handle)

    def keep(self) -> None:
        """From now on the graph is launched as PyTorch has made it."""
        if self._handle is not None:
            shim.keep_graph(self._handle)

    def writes_only(self, tensors: List[torch.Tensor]) -> bool:
        sizes = [min(t.numel() * t.element_size(), storage_bytes(t) - t.storage_offset() * t.element_size()) for t in tensors]
        ranges = [(t.data_ptr(), -(-size // _GRANULE) * _GRANULE) for t, size in zip(tensors, sizes)]
        return self._handle is not None and shim.writes_only(self._handle, ranges)


_alive: "weakref.WeakSet[CudaGraph]" = weakref.WeakSet()


@atexit.register
def _keep_for_good() -> None:
    """Keeps captured memory that is alive at the interpreter's exit until the process ends: nothing could free it quietly then
    (let_go())."""
    for graph in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph._kept))


def let_go(kept: List[Any]) -> None:
    """Drops tensors of a capture without warnings.

    PyTorch's allocator in stream order warns on stderr of each such tensor that is freed while nothing is captured, and a backward needs
    hundreds of them. Within a PyTorch function that calls Python, its warnings become Python's, which can be suppressed; and
    Tensor.apply_ calls any function. (They cannot be dropped during a capture: where autograd has used one on another stream,
    PyTorch ends the process.)"""

    quietly(kept.clear)


def quietly(function: "Callable[[], Any]") -> None:
    """Calls a function within one of PyTorch's, if possible: see let_go(). Its errors pass through."""
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
            pass  # for example under the program's torch function mode
    if not done:
        function()
    if errors:
        raise errors.pop()  # so that no frame holds it
