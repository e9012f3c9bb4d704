"""Makes the tensors that a training call returns for the forward's outputs, and refuses outputs that cannot be returned.

Copies of outputs with a history share no memory with each other: a write to one would not show in the other, and autograd would miss
it. So overlapping outputs are refused (find_aliases()), except those without gradients that lie within one with a history: they are
made from its copy as Tensor.detach() does, with its memory and its version. Not to be used by two threads at once; the graph's owner
has a lock."""

from __future__ import annotations

from typing import Any, Dict, List

import torch

from nimble.errors import NimbleError
from nimble.graphs.outputs import OutputCopies
from nimble.objects.memory import extent, once, overlaps, repeats_of, storage_address

Aliases = Dict[int, int]  # the index of an output without gradients, and of the output that it lies within


class TrainingOutputs:
    """Copies outputs whose memory stays in place while their values change."""

    def __init__(self, tensors: List[torch.Tensor], wanted: List[bool], aliases: Aliases) -> None:
        self._tensors = [each.detach() for each in tensors]
        self._wanted = [number for number, is_wanted in enumerate(wanted) if is_wanted]
        self._aliases = aliases
        self._others = [number for number, is_wanted in enumerate(wanted) if not is_wanted and number not in aliases]
        self._copies = [OutputCopies([self._tensors[number]]) for number in self._wanted]
        self._other_copies = OutputCopies([self._tensors[number] for number in self._others])
        self._rest: List[torch.Tensor] = []

    def made(self) -> List[torch.Tensor]:
        """Copies of the outputs with gradients, each with its own version and a view of nothing; copies of the others are kept for
        with_others()."""
        self._rest = self._other_copies() if self._others else []
        return [copies()[0].data for copies in self._copies]

    def with_others(self, connected: List[torch.Tensor]) -> List[torch.Tensor]:
        """All outputs, in order."""
        if len(connected) == len(self._tensors):
            return connected
        found: List[Any] = [None] * len(self._tensors)
        for number, output in zip(self._wanted + self._others, connected + self._rest):
            found[number] = output
        for number, place in self._aliases.items():
            mine, whole = self._tensors[number], self._tensors[place]
            base = found[place].detach()
            offset = int(mine.storage_offset()) - int(whole.storage_offset())
            found[number] = base.as_strided(mine.shape, mine.stride(), int(base.storage_offset()) + offset)
        self._rest = []
        return found


def find_aliases(tensors: List[torch.Tensor]) -> Aliases:
    """The outputs without gradients that lie within another. Raises NimbleError where two overlap otherwise, and one has gradients."""
    sharing: Dict[int, List[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel() > 0:
            sharing.setdefault(storage_address(tensor), []).append(number)
    aliases: Aliases = {}
    for numbers in sharing.values():
        if len(numbers) > 1 and any(tensors[number].requires_grad for number in numbers):
            aliases.update(_aliases_among({number: tensors[number] for number in numbers}))
    return aliases


def _aliases_among(tensors: Dict[int, torch.Tensor]) -> Aliases:
    """find_aliases() for the outputs on one storage."""
    unit = min(t.element_size() for t in tensors.values())
    owners = torch.zeros(max(_begin(t) + extent(t) for t in tensors.values()) // unit, dtype=torch.int32,
                         device=next(iter(tensors.values())).device)  # for each unit of memory the output that owns it, from 1 on
    aliases: Aliases = {}
    for number, tensor in sorted(tensors.items(), key=lambda each: not each[1].requires_grad):
        found = _owners_of(owners, tensor, unit).unique().tolist()  # type: ignore[no-untyped-call]
        if found == [0]:
            if tensor.requires_grad:
                _mark(owners, tensor, unit, number + 1)
        elif tensor.requires_grad or len(found) > 1 or not _lies_alike(tensor, tensors[found[0] - 1]):
            raise NimbleError("outputs overlap in memory, and one of them has gradients: a write to one changes the other, which "
                              "copies would not do: return a clone() of one")
        else:
            aliases[number] = found[0] - 1
    return aliases


def _owners_of(owners: torch.Tensor, tensor: torch.Tensor, unit: int) -> torch.Tensor:
    """The owners of the tensor's elements, repeated ones once."""
    source, parts = once(tensor, repeats_of(tensor)), tensor.element_size() // unit
    return owners.as_strided((*source.shape, parts), (*(stride * parts for stride in source.stride()), 1), _begin(tensor) // unit)


def _mark(owners: torch.Tensor, tensor: torch.Tensor, unit: int, owner: int) -> None:
    if overlaps(once(tensor, repeats_of(tensor))):  # it cannot be written directly
        owners[_owners_of(torch.arange(owners.numel(), device=owners.device), tensor, unit).reshape(-1)] = owner
    else:
        _owners_of(owners, tensor, unit).fill_(owner)


def _lies_alike(one: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether the elements lie at the same offsets in a copy of the whole."""
    return one.dtype == whole.dtype and not (overlaps(once(whole, repeats_of(whole))) or one.is_conj() or one.is_neg()
                                             or whole.is_conj() or whole.is_neg())


def _begin(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()
