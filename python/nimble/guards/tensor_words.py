"""Sees by a few words of memory whether tensors are where they were, and have the metadata that they had: some nanoseconds a tensor, where
asking it takes a hundred.

Where PyTorch keeps what tensors answer is found by values that it is told, and all of it is tested before use, with changes of every
kind. Where a word has changed, the tensors are asked. Nothing here holds tensors; any thread."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

import torch

from nimble import native

_CLASS_AT = 8  # bytes from an object's beginning: after its reference count
_COUNTS_AT = 8  # from that of PyTorch's own objects: their reference counts, after a pointer
_MOST_WORDS = 32  # of an object
_MOST_DIMENSIONS = 5  # whose sizes and strides lie in the tensor itself
_MOST_MISSES = 8  # in a row, after which words are no longer read anew
_CLASSES = (torch.Tensor, torch.nn.Parameter)

_Blocks = Tuple[Tuple[int, int, Tuple[int, ...]], ...]
_Same = Callable[[Sequence[Any]], bool]


class TensorWords:
    """What a look at tensors found, those at some numbers of a sequence, and their words at that time. Words that change all the time are
    given up. layout: place_layout, metadata_layout or shape_layout, of all that the look depends on. seen: what it found."""

    def __init__(self, layout: "Callable[[], Optional[_Blocks]]", numbers: Sequence[int], look: "Callable[[Sequence[Any]], Any]",
                 tensors: Sequence[Any]) -> None:
        self._layout, self._numbers, self._look = layout, numbers, look
        self.seen = look(tensors)
        self._words: Optional[_Same] = None
        self._misses = 0

    def are_same(self, tensors: Sequence[Any]) -> bool:
        """Whether a look would find the same: it is only taken where the words have changed."""
        words = self._words
        if words is not None and words(tensors):
            self._misses = 0
            return True
        words = self._read(tensors)  # before the look: what another thread changes after it has to show
        if self._look(tensors) != self.seen:
            return False
        self._words = words
        return True

    def _read(self, tensors: Sequence[Any]) -> Optional[_Same]:
        self._misses += 1
        blocks = self._layout() if self._misses <= _MOST_MISSES else None
        if blocks is None or not all(_has_words(tensors[number]) for number in self._numbers):
            return None
        return native.watched(blocks, tensors, self._numbers, self._layout is not shape_layout)


class Addresses(TensorWords):
    """Where some of a call's arguments lie, by their numbers: tensors."""

    def __init__(self, arguments: Sequence[Any], numbers: Sequence[int]) -> None:
        super().__init__(place_layout, numbers, lambda tensors: [tensors[number].data_ptr() for number in numbers], arguments)


def _has_words(tensor: Any) -> bool:
    return type(tensor) in _CLASSES and tensor.layout is torch.strided and tensor.dim() <= _MOST_DIMENSIONS


def place_layout() -> "Optional[_Blocks]":
    """The words that addresses depend on. None where they are not known."""
    return _layouts()[0]


def metadata_layout() -> "Optional[_Blocks]":
    """Those, and the words that shapes, strides, dtypes and requires_grad depend on."""
    return _layouts()[1]


def shape_layout() -> "Optional[_Blocks]":
    """The words that shapes, strides and dtypes depend on, of any tensors."""
    return _layouts()[2]


@functools.lru_cache(maxsize=1)
def _layouts() -> "Tuple[Optional[_Blocks], Optional[_Blocks], Optional[_Blocks]]":
    if native.module is None or sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None, None, None
    try:
        with torch.inference_mode(False), torch.enable_grad():
            place, metadata, shapes = _found()
            return (place if tells(place, _MOVES) else None, metadata if tells(metadata, _MOVES + _SHAPES + _GRADIENTS) else None,
                    shapes if tells(shapes, _SHAPES, themselves=False) else None)
    except Exception:
        return None, None, None


def _words(at: int, size: int) -> List[int]:
    return list((ctypes.c_uint64 * min(size // 8, _MOST_WORDS)).from_address(at))


def _allocated(at: int) -> List[int]:
    """The words of what was allocated there."""
    size: Any = ctypes.CDLL(None).malloc_usable_size
    size.restype, size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return _words(at, size(at))


def _place_of(words: List[int], value: int) -> int:
    """The offset of a word with the value. Raises ValueError where there is none."""
    return 8 * words.index(value)


def _found() -> Tuple[_Blocks, _Blocks, _Blocks]:
    """Raises where PyTorch's tensors are not as they are known to be."""
    one = torch.empty(4093, device="cpu").as_strided((7, 11), (13, 1), 1951)
    in_object, in_tensor = _words(id(one), type(one).__basicsize__), _allocated(one._cdata)
    tensor, storage = _place_of(in_object, one._cdata), _place_of(in_tensor, one.untyped_storage()._cdata)
    data = _place_of(_allocated(one.untyped_storage()._cdata), one.untyped_storage().data_ptr())
    (dtype,) = _changed(_of_dtype)
    place = {storage, _place_of(in_tensor, 1951), _place_of(in_tensor, 77), dtype}
    (autograd,) = _changed(torch.Tensor.requires_grad_)
    shapes = set().union(*map(_changed, _SHAPES)) - {_COUNTS_AT}
    of_autograd = {offset for change in _GRADIENTS for offset in _changed(change, autograd)}
    of_object, of_storage = (0, 0, (_CLASS_AT, tensor)), (1, storage, (data, data + 8, data + 16))  # address, context and deleter
    of_place, of_metadata, of_shapes = ((0, tensor, tuple(sorted(each))) for each in (place, place | shapes | {autograd}, shapes))
    return ((of_object, of_place, of_storage), (of_object, of_metadata, of_storage, (1, autograd, tuple(sorted(of_autograd)))),
            (of_object, of_shapes))


def _changed(change: "Callable[[torch.Tensor], Any]", inside: "Optional[int]" = None) -> "Set[int]":
    """The offsets of the words that a change has changed: of a tensor, or of what it points to at the offset `inside`."""
    found: Set[int] = set()
    for tensor in _made():
        at = tensor._cdata if inside is None else _allocated(tensor._cdata)[inside // 8]
        if at and at % 16 == 0:  # as malloc() aligns
            before = _allocated(at)
            with contextlib.suppress(RuntimeError):  # not of such a tensor
                _kept = change(tensor)
            found.update(8 * number for number, (one, other) in enumerate(zip(before, _allocated(at))) if one != other)
    return found


def _made() -> List[torch.Tensor]:
    """New tensors of each kind, on more memory than they need."""
    found = [torch.zeros(1000, device="cpu", dtype=dtype) for dtype in (torch.float32, torch.float32, torch.float32, torch.int32)]
    for each in found:
        each.as_strided_((4, 6), (6, 1))
    found[1].as_strided_((2, 3, 1, 4, 2), (200, 60, 60, 14, 6), 5)
    found[2].requires_grad_().requires_grad_(False)
    return found


def tells(layout: _Blocks, changes: "Sequence[Callable[[torch.Tensor], Any]]", themselves: bool = True) -> bool:
    """Whether each of the changes shows in the words of a tensor of each kind that it can be made to, and nothing else does, except,
    where themselves is True, that it is another tensor."""
    for change in changes:
        for made in zip(_made(), _made(), _made(), _made()):
            for tensor, twin in (made[:2], [torch.nn.Parameter(each, requires_grad=False) for each in made[2:]]):
                are_same = native.watched(layout, (None, tensor), (1,), themselves)
                _read = tensor + tensor
                if are_same is None or not are_same((None, tensor)) or are_same((None, twin)) == themselves:
                    return False
                try:
                    _kept = change(tensor)
                except RuntimeError:
                    continue  # not of such a tensor
                if are_same((None, tensor)):
                    return False
    return True


def _with_data(tensor: torch.Tensor) -> None:
    memory = torch.empty(2000, dtype=tensor.dtype, device="cpu")
    tensor.data = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _of_dtype(tensor: torch.Tensor) -> None:
    there = tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    tensor.data = torch.empty(0, dtype=torch.int16, device="cpu").set_(*there)


def _elsewhere(tensor: torch.Tensor) -> None:
    tensor.as_strided_(tensor.shape, tensor.stride(), tensor.storage_offset() + 1)


def _wants_none(tensor: torch.Tensor) -> None:
    tensor.requires_grad_(not tensor.requires_grad)


def _has_history(tensor: torch.Tensor) -> None:
    tensor.mul_(torch.ones((), device="cpu", requires_grad=True))


def _in_other_memory(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() + (1 << 16))


def _set_to_another(tensor: torch.Tensor) -> None:
    tensor.set_(torch.zeros(40, dtype=tensor.dtype, device="cpu"))  # type: ignore[call-overload]


def _swapped(tensor: torch.Tensor) -> None:
    torch.utils.swap_tensors(tensor, torch.zeros_like(tensor))


_OF_NEW_RELEASES = (("_lazy_clone", torch, getattr(torch, "_lazy_clone", None)), ("swap_tensors", torch.utils, _swapped))
# What changes a tensor's address, its shape, strides or dtype, and whether it requires gradients.
_MOVES: "Tuple[Callable[[torch.Tensor], Any], ...]" = (
    _with_data, _of_dtype, _elsewhere, _in_other_memory, _set_to_another, lambda t: t.resize_(0), lambda t: t.resize_(100, 100),
    *(change for name, of, change in _OF_NEW_RELEASES if hasattr(of, name) and change is not None))
_SHAPES: "Tuple[Callable[[torch.Tensor], Any], ...]" = (
    lambda t: t.transpose_(0, -1), lambda t: t.unsqueeze_(0), lambda t: t.resize_(3), _of_dtype,
    lambda t: t.as_strided_(t.shape, [1] * t.dim()), lambda t: t.as_strided_([1] * t.dim(), t.stride()))
_GRADIENTS = (_wants_none, _has_history)
