"""Runs a function on values other than its own, so that learning sees what its kernels store.

A store of the value that memory already has goes unseen, for example where the same is computed twice in the same memory. So some of
the learning runs have other data: each floating-point value is shrunk by a random factor between a half and one, which keeps it in
any range around zero that it was in, and leaves zeros, infinities and integers alone. No state; the random numbers are its own."""

from __future__ import annotations

import contextlib
from typing import Iterator, List

import torch

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@contextlib.contextmanager
def other_data(tensors: List[torch.Tensor]) -> Iterator[None]:
    """While inside, the tensors have other values; afterwards their own again, whatever was written to them."""
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
