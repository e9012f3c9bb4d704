"""What runs that the program has not asked for do to a module is undone, where the program's streams cannot see that it was done.

No state; who calls sees to it that no other thread works with the module.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch

from nimble.errors import NimbleError
from nimble.graphs.backend import Backend
from nimble.guards import switches
from nimble.guards.state import StateKeeper


@contextlib.contextmanager
def left_as_it_was(module: torch.nn.Module, backend: Backend, device: torch.device, is_checked: bool = True) -> Iterator[StateKeeper]:
    """The module and the device's random numbers are at the end what they were; which tensors attributes are, only where what is done
    inside fails. NimbleError where PyTorch's switches are others behind that: they are not put back, since another thread may have set them.

    Streams of the program's own that wait for nothing may still read and write what the module holds, on behalf of calls before and
    from those that come, and on behalf of what is done inside: so the device is waited for before values are kept and behind that, before
    they are put back and behind that, unless another thread captures."""
    backend.wait(device)
    keeper, random = StateKeeper(module, is_checked), backend.random_state(device)
    backend.wait(device)
    were = switches.kernels_and_modes()
    try:
        yield keeper
        if is_checked and switches.kernels_and_modes() != were:
            raise NimbleError(f"the module, or another thread meanwhile, {switches.LEAVES}")
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
