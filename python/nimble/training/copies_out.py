"""Copies gradients out of a graph's memory, into one block of memory for each dtype.

Autograd takes over a gradient that nothing else refers to and that has the strides it wants, without another copy. PyTorch copies many
tensors by a few kernels where they share a dtype and have their sources' strides; a single one that does not costs a kernel for each of
the others. A Copies has no state but its plan; any thread may use it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

_ALIGNMENT = 512  # bytes, as allocators align
# Below this dispatch key views count as separate tensors, each with its own version. Not in releases before 2.2.
_below: Any = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", None)
_copy_many: Any = getattr(torch, "_foreach_copy_", None)  # from 2.1 on


class Copies:
    """Copies gradients with these shapes and strides; None stays None.

    likes: for each gradient the parameter whose layout the copy gets, or None for the gradient's own. Strides that change later only
    cost time."""

    def __init__(self, made: "List[Optional[torch.Tensor]]", likes: "List[Optional[torch.Tensor]]") -> None:
        self._plan: "List[Optional[Tuple[torch.dtype, torch.Size, Tuple[int, ...], int]]]" = []
        self._sizes: Dict[torch.dtype, int] = {}
        self._together: Dict[torch.dtype, List[int]] = {}  # indices of those that are copied at once,
        self._alone: List[int] = []  # and of those with other strides
        for number, (grad, like) in enumerate(zip(made, likes)):
            if grad is None:
                self._plan.append(None)
                continue
            offset = self._sizes.get(grad.dtype, 0)
            strides = _strides(grad if like is None else like)
            self._plan.append((grad.dtype, grad.shape, strides, offset))
            step = max(_ALIGNMENT // grad.element_size(), 1)
            self._sizes[grad.dtype] = offset + (grad.numel() + step - 1) // step * step
            is_alike = all(size == 1 or one == other for size, one, other in zip(grad.shape, strides, grad.stride()))
            (self._together.setdefault(grad.dtype, []) if is_alike and _copy_many is not None else self._alone).append(number)

    def __call__(self, made: "List[Optional[torch.Tensor]]") -> "List[Optional[torch.Tensor]]":
        device = next((grad.device for grad in made if grad is not None), None)
        blocks = {dtype: torch.empty(size, dtype=dtype, device=device) for dtype, size in self._sizes.items()}
        if _below is not None:
            with _below():
                copies = [None if place is None else blocks[place[0]].as_strided(place[1], place[2], place[3]) for place in self._plan]
        else:
            copies = [None if place is None else blocks[place[0]].as_strided(place[1], place[2], place[3]).data
                      for place in self._plan]
        for numbers in self._together.values():
            _copy_many([copies[number] for number in numbers], [made[number] for number in numbers])
        for number in self._alone:
            copies[number].copy_(made[number])  # type: ignore[union-attr, arg-type]
        return copies


def _strides(like: torch.Tensor) -> Tuple[int, ...]:
    """The tensor's strides where it is dense and without overlap; else those of a contiguous tensor."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(like.stride(), like.shape) if size != 1):
        if stride != expected:
            return tuple(torch.empty(like.shape, device="meta").stride())
        expected *= size
    return like.stride()
