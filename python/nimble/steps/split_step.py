"""A step in two parts: what comes before its first backward, and the rest. The first writes to nothing that anybody else sees, but
for buffers, of which it keeps copies; so it is launched before the step's state is looked at, and taken back where that does not
fit. So a step that begins on an idle GPU does not wait for the look.

What a first part writes is libnimble.so's to say (shim.writes_only); where it is not known, the step is one graph. What cuDNN has taken
for itself, as its batch norm needs it, does not count there: a run more leaves nothing in it.

None of it may be used by two threads at once, but for at_first_backward(), which is the calling thread's.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence, Tuple

import torch

from nimble.graphs.autograd_leaves import copy_all, held_by
from nimble.graphs.backend import Backend, Captured, Watch
from nimble.graphs.prepared import is_same_state
from nimble.guards.op_watch import tensors_in
from nimble.objects.memory import storage, storage_bytes
from nimble.shim import GraphState, GraphStatus

_MOST_BYTES = 128 << 20  # of gradients. ResNet-50 has 98 MiB, and takes 8.5 ms for a step of 32 small images (H200), a look 0.1


class InParts:
    """nimble.graphs.backend.Captured of two, the one behind the other."""

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

    def launch(self, ahead: Watch) -> bool:
        return False

    def beside(self) -> ContextManager[None]:
        return self.second.beside()

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
    """As of one graph: the state of the part that is least settled, and else of the one that was changed more."""
    order = (GraphState.TRYING, GraphState.REWRITTEN, GraphState.OWN, GraphState.KEPT)
    state = min(one.state, other.state, key=order.index)
    own, rewritten = (None if a is None or b is None else a + b
                      for a, b in ((one.own_us, other.own_us), (one.rewritten_us, other.rewritten_us)))
    text = "; ".join(filter(None, (one.text, other.text))) if state == GraphState.KEPT else ""
    return GraphStatus(other.exec, state, one.nodes + other.nodes, max(one.streams, other.streams), own, rewritten, text)


def is_worth_it(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether a step that works on these is soon over, so that a look counts. In two parts it takes more memory: gradients do not come
    to lie where activations lay."""
    return sum(p.numel() * p.element_size() for p in parameters if p.requires_grad) <= _MOST_BYTES


def can_be_kept(buffers: Sequence[torch.Tensor]) -> bool:
    """Whether copies of these hold all that lies in their memory, each its own."""
    whole = all(t.is_contiguous() and t.numel() * t.element_size() == storage_bytes(t) and not t.is_inference() for t in buffers)
    return whole and len({storage(t) for t in buffers}) == len(buffers)


class Ahead:
    """Of a graph in parts: runs the first before it is known whether it fits. `keeps`: buffers that this part may write to, each with
    the tensor that it copies it to before. `reads`: tensors on memory that it may read, which is there as long as this is."""

    def __init__(self, captured: InParts, keeps: "List[tuple[torch.Tensor, torch.Tensor]]", reads: List[torch.Tensor],
                 backend: Backend, device: torch.device) -> None:
        # As tensors of their own: the module may give its buffers other memory.
        self._buffers, self._copies = [b.data for b, _ in keeps], [copy for _, copy in keeps]
        self._captured, self._backend, self._device = captured, backend, device
        self._reads = [t.detach() for t in reads]
        self._there = backend.watch(self._reads)
        self._draws: Optional[bool] = None
        self._random: Any = None
        self.has_begun = False

    def is_awaited(self) -> bool:
        """Whether the GPU has nothing else to do; else the look takes nobody's time."""
        return bool(self._there) and not self._backend.is_capturing() and self._backend.is_idle(self._device)

    def begin(self) -> None:
        """Where it is awaited."""
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
        """Nothing has begun then."""
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
    """While inside, it is called before this thread's first backward begins, once. What torch.compile asks for while it traces is none.
    For who holds the lock of captures: one at a time."""
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
    """Those of these modules that are loaded."""
    return tuple(getattr(sys.modules[module], name) for module, name in names if hasattr(sys.modules.get(module), name))


_DESCRIBED = ("torch._subclasses.fake_tensor", "FakeTensor")  # by which torch.compile describes tensors


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether it stands for one that is not there, or may be another one in a function that is about to be made."""
    return (isinstance(tensor, _classes(_DESCRIBED, ("torch._subclasses.functional_tensor", "FunctionalTensor")))
            or torch._is_functional_tensor(tensor))


def _is_on(tensor: torch.Tensor, device_type: str) -> bool:
    try:
        return tensor.device.type == device_type
    except Exception:  # of a class of its own, which has no memory to tell of
        return False


def alive_now(device_type: str) -> Optional[List[torch.Tensor]]:
    """All tensors on such devices that Python knows of, with what their autograd graphs have saved; None where these do not tell.
    Left out are those by which torch.compile describes tensors: they have no memory, and some releases leave graphs of them to
    Python's collector."""
    described = _classes(_DESCRIBED)
    known = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and not issubclass(type(each), described)
             and _is_on(each, device_type)]
    held = held_by(known)
    return None if held is None else known + held
