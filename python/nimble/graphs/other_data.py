"""Other values in the place of a function's data, while it is learned from.

What a kernel stores is not seen where it was there already, as where the same is computed twice in the same memory. So of the
runs that are learned from some have other data: each floating-point value shrunk by a random factor between a half and one,
which leaves it in any range around zero that it was in, and leaves zeros, infinities and integers alone. No state; the random
numbers are its own.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, List

import torch

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@contextlib.contextmanager
def other_data(tensors: List[torch.Tensor]) -> Iterator[None]:
    """Inside, the tensors have other values; then their own, whatever was written to them."""
    kept = [(tensor.detach(), tensor.detach().clone()) for tensor in tensors if tensor.dtype in _TYPES]
    try:
        with torch.no_grad():
            for number, (tensor, value) in enumerate(kept):
                generator = torch.Generator(tensor.device).manual_seed(number)
                tensor.data.copy_(value * torch.empty_like(value).uniform_(0.5, 1, generator=generator))
        yield
    finally:
        with torch.no_grad():
            for tensor, value in kept:
                tensor.data.copy_(value)
