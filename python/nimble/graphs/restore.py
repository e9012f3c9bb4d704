"""Restores a module, random numbers and PyTorch's modes after speculative runs.

No state; the caller ensures that no other thread uses the module."""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch

from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.guards import switches
from nimble.guards.state_keeper import StateKeeper


@contextlib.contextmanager
def restored_afterwards(module: torch.nn.Module, backend: Backend, device: torch.device, is_checked: bool = True) -> Iterator[StateKeeper]:
    """At the end, restores the module and the device's random numbers; if the code inside has failed also which tensors its
    attributes refer to. Raises NimbleError where PyTorch's switches have changed: another thread may have set them, so they stay.

    Unordered streams of the program may still read and write the module's tensors, for calls before and after. So it waits for the
    device before and after saving values, and before and after restoring them, unless another thread captures."""
    backend.wait(device)
    keeper, random = StateKeeper(module, is_checked), backend.random_state(device)
    backend.wait(device)
    were = switches.kernels_and_modes()
    try:
        yield keeper
        if is_checked and switches.kernels_and_modes() != were:
            raise NimbleError(f"the module, or another thread meanwhile, {switches.CHANGES_SWITCHES}")
    except BaseException:
        keeper.restore_attributes()
        raise
    finally:
        try:
            backend.wait(device)
        finally:
            keeper.restore()
            backend.set_random_state(device, random)
        backend.wait(device)
