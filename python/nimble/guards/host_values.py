"""Keys for values that the host holds and that a graph has frozen. No state; any thread."""

from __future__ import annotations

import ctypes
from typing import Hashable, Optional

import torch

from nimble.objects.memory import version_of

MOST_BYTES = 1 << 16  # of a tensor, an array or the like that is compared at each call


def host_key(tensor: torch.Tensor) -> Hashable:
    """A key of a tensor's values that the host has read: its version, and its bytes, since NumPy and `tensor.data` write without
    raising the version. The version alone for large tensors, and for those that are not dense on the host."""
    return version_of(tensor), _bytes_of(tensor)


def _bytes_of(tensor: torch.Tensor) -> Optional[bytes]:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    size = tensor.numel() * tensor.element_size()
    if size > MOST_BYTES:
        return None
    if not tensor.is_contiguous():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return None  # copying a subclass may do anything
        tensor = tensor.detach().contiguous()
    where = tensor.data_ptr()
    return ctypes.string_at(where, size) if where else None
