"""A step as two graphs: the part before its first backward, and the rest.

The first graph writes only to its own memory and to buffers that it copies first. So it is launched before the step's state is checked,
and undone where the graph does not fit: a step that begins on an idle GPU does not wait for the check. libnimble.so says what the first
graph writes (shim.writes_only); where that is unknown, the step is one graph. Memory that cuDNN has allocated for itself, for example
for batch norm, is ignored: another run leaves nothing in it.

Not to be used by two threads at once, except at_first_backward(), which belongs to the calling thread."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence, Tuple

import torch

from nimble.graphs.autograd_leaves import copy_all, held_by
from nimble.capture.backend import Backend, Captured, MemoryWatch
from nimble.graphs.prepared import is_same_state
from nimble.guards.op_watch import tensors_in
from nimble.objects.memory import storage_address, storage_bytes
from nimble.shim import GraphState, GraphStatus

_MOST_BYTES = 128 << 20  # of gradients. ResNet-50 has 98 MiB, and takes 8.5 ms for a step of 32 small images (H200), a look 0.1


class SplitGraph:
    """Two captured parts as one nimble.capture.backend.Captured."""

    def __init__(self, first: Captured, second: Captured) -> None:
        self.first, self.second = first, second

    @property
    def outputs(self) -> Any:
        return self.second.outputs

    def follow(self) -> None:
        self.first.follow()
        self.second.follow()

    def replay(self) -> None:
        self.first.replay()
        self.second.replay()

    def launch(self, ahead: MemoryWatch) -> bool:
        return False

    def on_its_stream(self) -> ContextManager[None]:
        return self.second.on_its_stream()

    def status(self) -> Optional[GraphStatus]:
        one, other = self.first.status(), self.second.status()
        return one if other is None else other if one is None else _together(one, other)

    def wait(self) -> None:
        self.first.wait()
        self.second.wait()

    def close(self) -> None:
        self.first.close()
        self.second.close()


def _together(one: GraphStatus, other: GraphStatus) -> GraphStatus:
    """The status of both as one graph: the state of the less settled part, else of the one that was rewritten more."""
    order = (GraphState.TRYING, GraphState.REWRITTEN, GraphState.OWN, GraphState.KEPT)
    state = min(one.state, other.state, key=order.index)
    own, rewritten = (None if a is None or b is None else a + b
                      for a, b in ((one.own_us, other.own_us), (one.rewritten_us, other.rewritten_us)))
    text = "; ".join(filter(None, (one.text, other.text))) if state == GraphState.KEPT else ""
    return GraphStatus(other.exec, state, one.nodes + other.nodes, max(one.streams, other.streams), own, rewritten, text)


def is_worth_it(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether a step on these parameters is short, so that the time of a check matters. A split step needs more memory: gradients
    cannot reuse the memory of activations."""
    return sum(p.numel() * p.element_size() for p in parameters if p.requires_grad) <= _MOST_BYTES


def can_be_kept(buffers: Sequence[torch.Tensor]) -> bool:
    """Whether copies of these buffers hold all of their memory, and none share it."""
    whole = all(t.is_contiguous() and t.numel() * t.element_size() == storage_bytes(t) and not t.is_inference() for t in buffers)
    return whole and len({storage_address(t) for t in buffers}) == len(buffers)


class Ahead:
    """Launches the first part speculatively, before it is known whether the graph fits. `keeps`: buffers that this part may write to,
    each with the tensor that it is copied to first. `reads`: tensors on memory that the part may read, kept as long as this object
    lives."""

    def __init__(self, captured: SplitGraph, keeps: "List[tuple[torch.Tensor, torch.Tensor]]", reads: List[torch.Tensor],
                 backend: Backend, device: torch.device) -> None:
        # As separate tensors: the module may give its buffers other memory.
        self._buffers, self._copies = [b.data for b, _ in keeps], [copy for _, copy in keeps]
        self._captured, self._backend, self._device = captured, backend, device
        self._reads = [t.detach() for t in reads]
        self._there = backend.watch_memory(self._reads)
        self._draws: Optional[bool] = None
        self._random: Any = None
        self.has_begun = False

    def is_awaited(self) -> bool:
        """Whether the GPU is idle. If not, it does not wait for the check."""
        return bool(self._there) and not self._backend.is_capturing() and self._backend.is_idle(self._device)

    def begin(self) -> None:
        """Launches the first part. Requires is_awaited()."""
        if self._draws is not False:
            self._random = self._backend.random_state(self._device)
        self._captured.first.replay()
        self.has_begun = True
        if self._draws is None:
            self._draws = not is_same_state(self._backend.random_state(self._device), self._random)

    def finish(self) -> None:
        self._captured.second.replay()
        self.has_begun = False

    def take_back(self) -> None:
        """Undoes begin(). Does nothing where nothing has begun."""
        if not self.has_begun:
            return
        self.has_begun = False
        copy_all(self._buffers, self._copies)
        if self._draws:
            self._backend.set_random_state(self._device, self._random)

    def close(self) -> None:
        self._there.close()
        self._reads.clear()


@contextlib.contextmanager
def at_first_backward(call: Callable[[], None]) -> Iterator[None]:
    """While inside, `call` is called once, before this thread's first backward; a backward that torch.compile traces does not count. One
    thread at a time: the caller holds the lock of captures."""
    thread, waiting = threading.get_ident(), [call]

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            if waiting and threading.get_ident() == thread and not any(map(_is_traced, tensors_in((arguments, more)))):
                waiting.pop()()
            return original(*arguments, **more)

        return run

    autograd: Any = torch.autograd
    originals = autograd.backward, autograd.grad
    autograd.backward, autograd.grad = (before(original) for original in originals)
    try:
        yield
    finally:
        autograd.backward, autograd.grad = originals


def _classes(*names: Tuple[str, str]) -> Tuple[type, ...]:
    """The classes, as far as their modules are loaded."""
    return tuple(getattr(sys.modules[module], name) for module, name in names if hasattr(sys.modules.get(module), name))


_DESCRIBED = ("torch._subclasses.fake_tensor", "FakeTensor")  # torch.compile's descriptions of tensors


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor is only a description, or a placeholder in a function that is being traced."""
    return (isinstance(tensor, _classes(_DESCRIBED, ("torch._subclasses.functional_tensor", "FunctionalTensor")))
            or torch._is_functional_tensor(tensor))


def _is_on(tensor: torch.Tensor, device_type: str) -> bool:
    try:
        return tensor.device.type == device_type
    except Exception:  # of a subclass without memory of its own
        return False


def alive_now(device_type: str) -> Optional[List[torch.Tensor]]:
    """All tensors on such devices that Python tracks, and those that their autograd graphs have saved; None where that is unknown.
    torch.compile's descriptions of tensors are left out: they have no memory, and some releases leave graphs of them to the
    collector."""
    described = _classes(_DESCRIBED)
    known = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and not issubclass(type(each), described)
             and _is_on(each, device_type)]
    held = held_by(known)
    return None if held is None else known + held
