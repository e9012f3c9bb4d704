"""Memory of a piece's outputs (piecewise_graph.py), which each of its calls writes to, so that other pieces find them at one place.

Outputs that share memory do so here, too. One thread at a time."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Sequence, Tuple

import torch

from nimble.objects.memory import extent, once, overlaps, repeats_of, storage_address

_ALIGNMENT = 512  # bytes, as allocators align: an output is as well aligned in its buffer
_MOST_BETWEEN = 4  # times as many bytes as outputs have may lie between the first and the last of them


class OutputBuffers:
    """Made from a first call's inputs and outputs. numbers: of the outputs that have a buffer, in order; tensors: their buffers. The other
    outputs lie in the memory of inputs, or are among `without`, or could not be written to."""

    def __init__(self, inputs: Sequence[object], outputs: Sequence[object], without: FrozenSet[int]) -> None:
        apart = {storage_address(each) for each in inputs if isinstance(each, torch.Tensor) and each.layout is torch.strided}
        sharing: Dict[int, List[int]] = {}
        for number, each in enumerate(outputs):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided:
                sharing.setdefault(storage_address(each), []).append(number)
                if number in without or not _can_have_one(each):
                    apart.add(storage_address(each))
        made: Dict[int, torch.Tensor] = {}
        for where, numbers in sharing.items():
            if where not in apart:
                made.update(_buffers([outputs[number] for number in numbers], numbers))  # type: ignore[misc]
        self.numbers = sorted(made)
        self.tensors = [made[number] for number in self.numbers]
        self.memory = frozenset(map(storage_address, self.tensors))
        self._layouts = [_layout(each) for each in self.tensors]
        self._sharing = _sharing(self.tensors)
        self._repeats = [repeats_of(each) for each in self.tensors]

    def fit(self, inputs: Sequence[object], outputs: Sequence[torch.Tensor]) -> bool:
        """Whether the outputs of another call have the same layouts, and share memory as those of the first did."""
        mine = [outputs[number] for number in self.numbers]
        others = [*inputs, *(each for number, each in enumerate(outputs) if number not in self.numbers)]
        apart = {storage_address(each) for each in others if isinstance(each, torch.Tensor) and each.layout is torch.strided}
        return (list(map(_layout, mine)) == self._layouts and _sharing(mine) == self._sharing
                and apart.isdisjoint(map(storage_address, mine)))

    def write(self, outputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> None:
        """buffers: `tensors`, or what stands for them."""
        for number, buffer, repeats in zip(self.numbers, buffers, self._repeats):
            once(buffer, repeats).copy_(once(outputs[number], repeats))


def _layout(tensor: torch.Tensor) -> Tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _sharing(tensors: Sequence[torch.Tensor]) -> List[Tuple[int, int]]:
    """For each tensor the first on the same storage, and its distance from that in bytes."""
    first: Dict[int, Tuple[int, int]] = {}
    found = []
    for number, each in enumerate(tensors):
        same, begin = first.setdefault(storage_address(each), (number, each.data_ptr()))
        found.append((same, each.data_ptr() - begin))
    return found


def _can_have_one(tensor: torch.Tensor) -> bool:
    return (type(tensor) is torch.Tensor and tensor.numel() > 0 and not tensor.is_conj() and not tensor.is_neg()
            and not tensor.requires_grad and not overlaps(once(tensor, repeats_of(tensor))))


def _buffers(tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> Dict[int, torch.Tensor]:
    """Buffers for outputs on one storage, by number; none where too much memory lies between them."""
    begins = [int(each.storage_offset()) * each.element_size() for each in tensors]
    first = min(begins) // _ALIGNMENT * _ALIGNMENT
    end = max(begin + extent(each) for begin, each in zip(begins, tensors))
    if end - first > _MOST_BETWEEN * sum(map(extent, tensors)) + _ALIGNMENT:
        return {}
    with torch.inference_mode(False):
        memory = torch.empty(end - first, dtype=torch.uint8, device=tensors[0].device).untyped_storage()
        return {number: torch.empty(0, dtype=each.dtype, device=each.device).set_(
            memory, (begin - first) // each.element_size(), each.shape, each.stride())
            for number, begin, each in zip(numbers, begins, tensors)}
