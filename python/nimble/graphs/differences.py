"""What differs between what two runs leave, to the bit, as phrases for messages. No state; any thread.

NaNs are equal where their bits are; zeros of different signs differ. Tensors are compared on their device, all of them with one
synchronization."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from nimble.guards.signatures import flattened, place_of

STRUCTURE = -1  # instead of a leaf's number
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}  # by an element's bytes


class Leaf(NamedTuple):
    """A leaf of what a run leaves; `place` names it. Of outputs all counts that a program could tell; else values alone."""

    place: Callable[[], str]
    value: Any
    is_output: bool = False


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of their size, in one row; two for each complex number of 16 bytes."""
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(_INTEGERS[tensor.element_size()])


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type hold the same, to the bit."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(bits_of(one), bits_of(other))


def output_leaves(outputs: Any) -> "Tuple[List[Leaf], Any]":
    """The leaves of outputs, and their structure."""
    leaves, structure = flattened(outputs)
    return [Leaf(partial(place_of, outputs, number, "output"), leaf, True) for number, leaf in enumerate(leaves)], structure


def differences(graph: Sequence[Leaf], eager: Sequence[Leaf]) -> Dict[int, str]:
    """How a graph's leaves differ from those of an eager run, by number, in order."""
    found: Dict[int, str] = {}
    pairs: List[Tuple[int, torch.Tensor, torch.Tensor]] = []
    first: Dict[int, int] = {}
    other_first: Dict[int, int] = {}
    for number, (one, other) in enumerate(zip(graph, eager)):
        difference = _of_other_kind(one.value, other.value, other.is_output)
        if other.is_output and first.setdefault(id(one.value), number) != other_first.setdefault(id(other.value), number) and (
                isinstance(one.value, torch.Tensor)):
            difference = difference or "is the same tensor as another in one of them"
        if difference is not None:
            found[number] = f"{other.place()} {difference}"
        elif isinstance(one.value, torch.Tensor) and one.value is not other.value:
            pairs.append((number, one.value, other.value))
    if pairs:
        differ = [(bits_of(one) != bits_of(other)).any() for _, one, other in pairs]
        flags = torch.stack([each.to(differ[0].device) for each in differ]).tolist()
        found.update((number, f"{eager[number].place()} {_first_element(one, other)}")
                     for (number, one, other), differs in zip(pairs, flags) if differs)
    return dict(sorted(found.items()))


def first_of(found: Dict[int, str]) -> Optional[str]:
    """The first difference; None where there is none."""
    return next(iter(found.values()), None)


def _is_of_one_kind(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a program can tell the tensors apart by nothing but their values."""
    if (type(one) is not type(other) or one.dtype != other.dtype or one.shape != other.shape or one.device != other.device
            or one.layout != other.layout or one.requires_grad != other.requires_grad
            or one.is_inference() != other.is_inference()):
        return False
    if one is other:
        return True
    if one.layout is not torch.strided or one.is_quantized or other.is_quantized:
        return False
    return one.stride() == other.stride() and one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg()


def _of_other_kind(one: Any, other: Any, is_output: bool) -> Optional[str]:
    """How two leaves differ by more than the values of tensors; None where they do not."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        ours, theirs = _described(one), _described(other)
        if ours != theirs:
            return f"is {theirs} eagerly, {ours} by the graph"
        return f"({theirs}) has other strides or another kind of memory" if is_output and not _is_of_one_kind(one, other) else None
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return f"is a tensor {'eagerly' if isinstance(other, torch.Tensor) else 'by the graph'} alone"
    if type(one) is not type(other) or repr(one) != repr(other):
        return f"is {other!r} eagerly, {one!r} by the graph"
    return None


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"


def _first_element(one: torch.Tensor, other: torch.Tensor) -> str:
    """Where tensors of one type and shape differ first, with both values: their bits, where they look the same."""
    ours, theirs = bits_of(one), bits_of(other)
    number = int((ours != theirs).to(torch.uint8).argmax())
    element = number * one.numel() // ours.numel()
    index: List[int] = []
    for size in reversed(one.shape):
        element, at = divmod(element, size)
        index.insert(0, at)
    values = [repr(each[tuple(index)].item()) for each in (other.detach(), one.detach())]
    if values[0] == values[1]:
        mask = (1 << 8 * min(one.element_size(), 8)) - 1
        values = [hex(int(bits[number]) & mask) for bits in (theirs, ours)]
    where = f" at {index}" if index else ""
    return f"({_described(other)}) differs{where}: {values[0]} eagerly, {values[1]} by the graph"
