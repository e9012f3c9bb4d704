"""The backwards of a TrainingGraph: one for each set of outputs that have gradients, and for each layout of these in memory.

Kernels add in another order where a gradient has other strides, so a graph serves only gradients with the strides that it was
captured with. One thread at a time; the TrainingGraph has a lock."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from nimble.errors import NimbleError
from nimble.capture.backend import Captured
from nimble.objects.memory import once, overlaps, repeats_of
from nimble.training.copies_out import Copies

Pattern = Tuple[Optional[Tuple[int, ...]], ...]  # for each output the strides of its gradient, or None

_functorch: Any = getattr(torch._C, "_functorch", None)
_IS_BATCHED = [getattr(_functorch, name) for name in ("is_batchedtensor", "is_legacy_batchedtensor") if hasattr(_functorch, name)]


def are_batched(grads: "Sequence[Optional[torch.Tensor]]") -> bool:
    """Whether several backwards run at once (torch.vmap)."""
    return any(grad is not None and is_batched(grad) for grad in grads for is_batched in _IS_BATCHED)


def pattern_of(grads: "Sequence[Optional[torch.Tensor]]") -> Pattern:
    """The pattern of gradients. Raises NimbleError where a graph cannot take them."""
    for grad in grads:
        if grad is not None and grad.layout is not torch.strided:
            raise NimbleError(f"the gradient of an output has layout {grad.layout}, which a graph's backward does not take")
    if are_batched(grads):
        raise NimbleError("a graph's backward takes one gradient at a time (is_grads_batched=False, no torch.vmap): run the module "
                          "eagerly for several at once")
    return tuple(None if grad is None else grad.stride() for grad in grads)


class BackwardEntry:
    """A backward, by a graph or eagerly where there is none. `given`: the graph's memory for gradients; empty until some
    arrive. `as_eager`: see GraphReport."""

    def __init__(self, given: "Sequence[Optional[torch.Tensor]]" = (), captured: Optional[Captured] = None,
                 as_eager: bool = False) -> None:
        self.captured, self.as_eager = captured, as_eager
        self.is_final = captured is not None  # no further graph is tried
        self.copies: Optional[Copies] = None
        self.compared = 0
        self.given = list(given)
        self._memory: "List[Optional[Tuple[torch.Tensor, List[int]]]]" = [None if each is None else (each, []) for each in given]

    def meet(self, grads: "Sequence[Optional[torch.Tensor]]") -> None:
        """Allocates memory for gradients like these, where a graph can take them."""
        if self.is_final or self.given:
            return
        made: "List[Optional[Tuple[torch.Tensor, List[int]]]]" = []
        for grad in grads:
            repeats = [] if grad is None else repeats_of(grad)
            source = None if grad is None else once(grad.detach(), repeats)
            if source is not None and overlaps(source):
                self.is_final = True
                return
            made.append(None if source is None else (torch.empty_strided(
                source.shape, source.stride(), dtype=source.dtype, device=source.device).copy_(source), repeats))
        self._memory = made
        self.given = [None if grad is None or one is None else one[0].expand(grad.shape) for grad, one in zip(grads, made)]

    def take(self, grads: "Sequence[Optional[torch.Tensor]]") -> None:
        for one, grad in zip(self._memory, grads):
            if one is not None and grad is not None:
                one[0].copy_(once(grad.detach(), one[1]))

    def memory(self) -> List[torch.Tensor]:
        return [one[0] for one in self._memory if one is not None]

    def forget(self) -> None:
        """From now on no graph is tried."""
        self.is_final = True
        self.given, self._memory = [], []
