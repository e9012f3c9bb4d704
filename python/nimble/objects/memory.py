"""Tensors and arrays as memory: where they lie, how far they extend, whether they were written to. No state; any thread."""

from __future__ import annotations

import sys
import weakref
from operator import attrgetter
from typing import Any, Callable, Iterable, List, Optional, Sequence

import torch


def storage_of(tensor: Any) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def storage_address(tensor: torch.Tensor) -> int:
    """The address where the tensor's storage begins."""
    return int(storage_of(tensor).data_ptr())


def storage_bytes(tensor: torch.Tensor) -> int:
    return int(storage_of(tensor).nbytes())


def extent(tensor: torch.Tensor) -> int:
    """How many bytes a strided tensor extends over. It must have elements."""
    return int(tensor.element_size() * (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))))


def repeats_of(tensor: torch.Tensor) -> List[int]:
    """Dimensions that repeat one element, such as expand() creates."""
    return [d for d, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())) if stride == 0 and size > 1]


def once(tensor: torch.Tensor, repeats: List[int]) -> torch.Tensor:
    """The tensor with one element along each of these dimensions."""
    for dimension in repeats:
        tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements may share memory, by strides: none do where each stride exceeds the extent of all smaller
    dimensions."""
    last = 0
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= last:
            return True
        last += stride * (size - 1)
    return False


def take_grad_dtype(given: torch.Tensor, mine: torch.Tensor) -> None:
    """Gives the leaf `mine` the gradient dtype of the leaf `given`, if this PyTorch has that setting."""
    of_given: Any = given
    if hasattr(torch.Tensor, "grad_dtype") and given.is_leaf and of_given.grad_dtype is not given.dtype:
        setattr(mine, "grad_dtype", of_given.grad_dtype)


def weakly(tensor: torch.Tensor, gone: "Optional[Callable[[Any], Any]]" = None) -> "Callable[[], Optional[torch.Tensor]]":
    """A weak reference as by weakref.ref(). Where PyTorch converts modules by swapping tensors (torch.__future__), it refuses tensors with
    weak references; there the tensor is held instead."""
    swaps = getattr(torch.__future__, "get_swap_module_params_on_conversion", None)
    return (lambda: tensor) if swaps is not None and swaps() else weakref.ref(tensor, gone)


def version_of(tensor: torch.Tensor) -> int:
    """A number that increases when the tensor is written to; 0 for inference tensors, which cannot be written where graphs
    are prepared."""
    return 0 if tensor.is_inference() else tensor._version


def versions(tensors: Sequence[torch.Tensor]) -> List[int]:
    try:
        return list(map(_version, tensors))
    except RuntimeError:  # there is an inference tensor
        return list(map(version_of, tensors))


_version = attrgetter("_version")


def unique(tensors: Iterable[torch.Tensor]) -> List[torch.Tensor]:
    """Each tensor once, in the order of first occurrence."""
    return list({id(t): t for t in tensors}.values())


def is_array(value: Any) -> bool:
    """Whether the value is an array or a number of NumPy, by its type, whatever its __class__ says."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), (numpy.ndarray, numpy.generic))


def has_room(device: torch.device, share: int = 4) -> bool:
    """Whether 1/`share` of the GPU's memory is free for another graph."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + max(0, unused) >= total // share
