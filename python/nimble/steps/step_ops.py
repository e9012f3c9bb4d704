"""Watches the ops of a step's captured run: the gradients that it reads or writes, memory that only a cache holds, and the memory that
it writes.

A StepOps belongs to one run and its thread. The rest has no state."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Sequence, Set

import torch

from nimble.errors import CaptureError
from nimble.graphs.differences import same_bytes
from nimble.guards.op_watch import OpReads, tensors_in, written_by
from nimble.guards.tensor_memory import has_memory
from nimble.objects.memory import storage_address, version_of


class StepOps(OpReads):
    """OpReads that also notes which of the earlier `gradients` the run has read or written, and the addresses of memory that ops have
    written to in place so far: `written`."""

    def __init__(self, known: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], device_type: str) -> None:
        super().__init__([*known, *gradients], device_type)
        self._versions = {id(grad): version_of(grad) for grad in gradients}
        self._gradients = set(map(storage_address, gradients)) - {0}
        self._touched: Set[int] = set()
        self.written: Set[int] = set()

    def before(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        super().before(function, args, kwargs)
        self.written.update(storage_address(t) for t in written_by(function, args, kwargs) if t.layout is torch.strided and has_memory(t))
        for leaf in tensors_in((args, kwargs)) if self._gradients else ():
            if leaf.layout is torch.strided and has_memory(leaf):
                self._touched.update(self._gradients.intersection((storage_address(leaf),)))

    def has_touched_any(self) -> bool:
        return bool(self._touched)

    def has_touched(self, grad: torch.Tensor) -> bool:
        return storage_address(grad) in self._touched or version_of(grad) != self._versions.get(id(grad))


def goes_by_ops(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer's step uses gradients only through PyTorch's dispatcher, as far as is known."""
    step = optimizer.__dict__.get("step")  # schedulers replace it
    function = getattr(step, "__func__", step)
    places = [type(optimizer).__module__, *([getattr(function, "__globals__", {}).get("__name__")] if step is not None else [])]
    return all(str(place).startswith("torch.optim.") for place in places) and "torch._inductor.graph" not in sys.modules


def tensors_on(storages: "List[Any]") -> List[torch.Tensor]:
    """A tensor on each storage."""
    with torch.inference_mode(False):
        return [torch.empty(0, dtype=torch.uint8, device=each.device).set_(each) for each in storages]


def cannot_be_looked_at(error: CaptureError) -> bool:
    """Whether the error comes from ops that take functions, and cannot be watched."""
    inner: "BaseException | None" = error
    while inner is not None and not isinstance(inner, NotImplementedError):
        inner = inner.__cause__ or inner.__context__
    return inner is not None


def is_unchanged(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the values are the same, as far as they can be compared; versions are always compared. Never raises: the step has run."""
    try:
        return same_bytes(tensor, value)
    except torch.cuda.OutOfMemoryError:
        return False  # it may differ
    except RuntimeError:
        return True
