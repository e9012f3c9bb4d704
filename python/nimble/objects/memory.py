"""Tensors and arrays as memory: where they lie, how far they reach, whether they were written to. No state; any thread."""

from __future__ import annotations

import sys
import weakref
from operator import attrgetter
from typing import Any, Callable, Iterable, List, Optional, Sequence

import torch


def storage_of(tensor: Any) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def storage(tensor: torch.Tensor) -> int:
    """Where its memory begins."""
    return int(storage_of(tensor).data_ptr())


def storage_bytes(tensor: torch.Tensor) -> int:
    return int(storage_of(tensor).nbytes())


def extent(tensor: torch.Tensor) -> int:
    """Bytes from its first to behind its last. Of a strided one with elements."""
    return int(tensor.element_size() * (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))))


def repeats_of(tensor: torch.Tensor) -> List[int]:
    """Dimensions along which it is one element over and over, as expand() makes them."""
    return [d for d, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())) if stride == 0 and size > 1]


def once(tensor: torch.Tensor, repeats: List[int]) -> torch.Tensor:
    """The first of each along these dimensions."""
    for dimension in repeats:
        tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether two of its elements may be one, as far as strides tell: none are where each leads beyond all smaller ones together."""
    last = 0
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= last:
            return True
        last += stride * (size - 1)
    return False


def take_grad_dtype(given: torch.Tensor, mine: torch.Tensor) -> None:
    """Of leaves: gradients of `mine` have the dtype that those of `given` were told to have, where this PyTorch knows of that."""
    of_given: Any = given
    if hasattr(torch.Tensor, "grad_dtype") and given.is_leaf and of_given.grad_dtype is not given.dtype:
        setattr(mine, "grad_dtype", of_given.grad_dtype)


def weakly(tensor: torch.Tensor, gone: "Optional[Callable[[Any], Any]]" = None) -> "Callable[[], Optional[torch.Tensor]]":
    """As weakref.ref(). Where PyTorch swaps tensors to convert modules (torch.__future__), it refuses those that have weak references: there
    it is held instead."""
    swaps = getattr(torch.__future__, "get_swap_module_params_on_conversion", None)
    return (lambda: tensor) if swaps is not None and swaps() else weakref.ref(tensor, gone)


def version_of(tensor: torch.Tensor) -> int:
    """Rises when the tensor is written to. Inference tensors have none, but no graph is prepared where they can be written."""
    return 0 if tensor.is_inference() else tensor._version


def versions(tensors: Sequence[torch.Tensor]) -> List[int]:
    try:
        return list(map(_version, tensors))
    except RuntimeError:  # there is an inference tensor
        return list(map(version_of, tensors))


_version = attrgetter("_version")


def unique(tensors: Iterable[torch.Tensor]) -> List[torch.Tensor]:
    """Each object once, in the order of the first of each."""
    return list({id(t): t for t in tensors}.values())


def is_array(value: Any) -> bool:
    """Whether it is one of NumPy's, or a number of its: by its type, whatever its __class__ says."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), (numpy.ndarray, numpy.generic))
