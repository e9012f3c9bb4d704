"""Gradients as a backward gives them away: copied out of a graph's memory, into one block of memory for each dtype.

Autograd takes over a gradient that nobody else has, and whose strides are as it wants them; then nothing is copied again. A
Copies has no state but its plan, and any thread may use it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

_ALIGNMENT = 512  # bytes, as allocators align
# Below it, what is a view of a tensor is none for autograd: each has a version of its own. Not in releases before 2.2.
_below: Any = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", None)


class Copies:
    """Of gradients of these shapes and strides; None stays None.

    likes: of each, the parameter whose layout it is to have; None keeps the gradient's."""

    def __init__(self, made: "List[Optional[torch.Tensor]]", likes: "List[Optional[torch.Tensor]]") -> None:
        self._plan: "List[Optional[Tuple[torch.dtype, torch.Size, Tuple[int, ...], int]]]" = []
        self._sizes: Dict[torch.dtype, int] = {}
        for grad, like in zip(made, likes):
            if grad is None:
                self._plan.append(None)
                continue
            offset = self._sizes.get(grad.dtype, 0)
            self._plan.append((grad.dtype, grad.shape, _strides(grad if like is None else like), offset))
            step = max(_ALIGNMENT // grad.element_size(), 1)
            self._sizes[grad.dtype] = offset + (grad.numel() + step - 1) // step * step

    def __call__(self, made: "List[Optional[torch.Tensor]]") -> "List[Optional[torch.Tensor]]":
        sources = [grad for grad in made if grad is not None]
        blocks = {dtype: torch.empty(size, dtype=dtype, device=sources[0].device) for dtype, size in self._sizes.items()}
        if _below is not None:
            with _below():
                copies = [None if place is None else blocks[place[0]].as_strided(place[1], place[2], place[3]) for place in self._plan]
        else:
            copies = [None if place is None else blocks[place[0]].as_strided(place[1], place[2], place[3]).data
                      for place in self._plan]
        targets = [each for each in copies if each is not None]
        if hasattr(torch, "_foreach_copy_"):
            torch._foreach_copy_(targets, sources)
        else:
            for target, source in zip(targets, sources):
                target.copy_(source)
        return copies


def _strides(like: torch.Tensor) -> Tuple[int, ...]:
    """Its own where each of its elements has a place, and there is none between them; else as if it were contiguous."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(like.stride(), like.shape) if size != 1):
        if stride != expected:
            return tuple(torch.empty(like.shape, device="meta").stride())
        expected *= size
    return like.stride()
