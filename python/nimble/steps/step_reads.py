"""What the captured run of a step does with memory that was there before: gradients that it has found, what nobody but a cache
holds, and what it writes to. Seen is of one run, and belongs to its thread. The rest has no state.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Sequence, Set

import torch

from nimble.errors import CaptureError
from nimble.graphs.graph_io import same_bytes
from nimble.guards.op_watch import Reads, tensors_in, written_by
from nimble.guards.state import has_memory
from nimble.objects.memory import storage, version_of


class Seen(Reads):
    """nimble.guards.op_watch.Reads, which of the `gradients` that the run has found it has read, or written to, and where the memory begins
    that ops have written to in place so far: `written`."""

    def __init__(self, known: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], device_type: str) -> None:
        super().__init__([*known, *gradients], device_type)
        self._versions = {id(grad): version_of(grad) for grad in gradients}
        self._gradients = set(map(storage, gradients)) - {0}
        self._touched: Set[int] = set()
        self.written: Set[int] = set()

    def before(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        super().before(function, args, kwargs)
        self.written.update(storage(t) for t in written_by(function, args, kwargs) if t.layout is torch.strided and has_memory(t))
        for leaf in tensors_in((args, kwargs)) if self._gradients else ():
            if leaf.layout is torch.strided and has_memory(leaf):
                self._touched.update(self._gradients.intersection((storage(leaf),)))

    def has_touched_any(self) -> bool:
        return bool(self._touched)

    def has_touched(self, grad: torch.Tensor) -> bool:
        return storage(grad) in self._touched or version_of(grad) != self._versions.get(id(grad))


def goes_by_ops(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step does nothing to gradients past PyTorch's dispatcher, as far as can be told."""
    step = optimizer.__dict__.get("step")  # as schedulers put one there
    function = getattr(step, "__func__", step)
    places = [type(optimizer).__module__, *([getattr(function, "__globals__", {}).get("__name__")] if step is not None else [])]
    return all(str(place).startswith("torch.optim.") for place in places) and "torch._inductor.graph" not in sys.modules


def tensors_on(storages: "List[Any]") -> List[torch.Tensor]:
    """One on each."""
    with torch.inference_mode(False):
        return [torch.empty(0, dtype=torch.uint8, device=each.device).set_(each) for each in storages]


def cannot_be_looked_at(error: CaptureError) -> bool:
    """Whether it is of ops that take functions, for which nobody can be told what they do."""
    inner: "BaseException | None" = error
    while inner is not None and not isinstance(inner, NotImplementedError):
        inner = inner.__cause__ or inner.__context__
    return inner is not None


def is_unchanged(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """As far as it can be compared; versions are, anyway. The step has run: nothing may raise."""
    try:
        return same_bytes(tensor, value)
    except torch.cuda.OutOfMemoryError:
        return False  # which it may be
    except RuntimeError:
        return True
