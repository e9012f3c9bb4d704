"""Copies a graph's outputs for its caller: with their strides, and sharing memory where the outputs do.

A program may write to what a module returns, and outputs on the same memory change then, as without a graph. Not to be used by two
threads at once; the graph's owner has a lock."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch

from nimble.objects.memory import extent, once, overlaps, repeats_of, storage_address, storage_of

_ALIGNMENT = 512  # bytes, as allocators align: an output is as well aligned in its copy
_MOST_BETWEEN = 4  # times as many bytes as the outputs have may lie between the first and the last output on a storage


class OutputCopies:
    """Copies tensors whose memory stays in place while their values change. They have no autograd history, as views of parameters
    may."""

    def __init__(self, tensors: List[torch.Tensor]) -> None:
        tensors = self._tensors = [tensor.detach() for tensor in tensors]
        sharing: Dict[int, List[int]] = {}
        for number, tensor in enumerate(tensors):
            if (tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.is_conj() and not tensor.is_neg()
                    and hasattr(tensor, "untyped_storage")):  # from 2.0 on
                sharing.setdefault(storage_address(tensor), []).append(number)
        self._blocks = [_Block(tensors, numbers) for numbers in sharing.values() if _is_worth_it(tensors, numbers)]
        together = {number for block in self._blocks for number in block.numbers}
        self._alone = [(number, _copier(tensor)) for number, tensor in enumerate(tensors) if number not in together]

    def __call__(self) -> List[torch.Tensor]:
        """Copies of the values now."""
        copies: List[Any] = [None] * len(self._tensors)
        for number, copy in self._alone:
            copies[number] = copy(self._tensors[number])
        for block in self._blocks:
            block.copy(copies)
        return copies


class _Block:
    """The outputs on one storage: all bytes from the first to the last are copied."""

    def __init__(self, tensors: List[torch.Tensor], numbers: List[int]) -> None:
        self.numbers = numbers
        first, end = _range_of([tensors[number] for number in numbers])
        first -= first % _ALIGNMENT
        one = tensors[numbers[0]]
        self._source = torch.empty(0, dtype=torch.uint8, device=one.device).set_(storage_of(one), first, (end - first,), (1,))
        self._views = [(number, t.dtype, (t.storage_offset() * t.element_size() - first) // t.element_size(), t.shape, t.stride())
                       for number, t in ((number, tensors[number]) for number in numbers)]

    def copy(self, copies: List[Any]) -> None:
        memory = storage_of(self._source.clone())
        for number, dtype, offset, shape, strides in self._views:
            copies[number] = torch.empty(0, dtype=dtype, device=self._source.device).set_(memory, offset, shape, strides)


def _is_worth_it(tensors: List[torch.Tensor], numbers: List[int]) -> bool:
    """Whether to copy the outputs together: there are several, and not too much lies between them."""
    of_them = [tensors[number] for number in numbers]
    first, end = _range_of(of_them)
    return len(numbers) > 1 and end - first <= _MOST_BETWEEN * sum(t.numel() * t.element_size() for t in of_them)


def _range_of(tensors: List[torch.Tensor]) -> Tuple[int, int]:
    """In bytes of their storage: where the first begins, and one past the last."""
    begins = [int(t.storage_offset()) * t.element_size() for t in tensors]
    return min(begins), max(begin + extent(t) for begin, t in zip(begins, tensors))


def _copier(tensor: torch.Tensor) -> "Callable[[torch.Tensor], torch.Tensor]":
    if tensor.layout is not torch.strided or torch.empty_like(tensor, device="meta").stride() == tensor.stride():
        return torch.clone
    repeats = repeats_of(tensor)
    if overlaps(once(tensor, repeats)):
        return torch.clone  # contiguous, then

    def strided(of: torch.Tensor) -> torch.Tensor:
        source = once(of, repeats)
        return torch.empty_strided(source.shape, source.stride(), dtype=of.dtype, device=of.device).copy_(source).expand(of.shape)

    return strided
