"""Tells whether an error raised while a module is prepared is the module's own. No state; any thread."""

from __future__ import annotations

from itertools import chain
from typing import Dict

import torch
from torch.nn.parameter import is_lazy

from nimble.capture.backend import Backend
from nimble.graphs.graph_io import device_of
from nimble.graphs.restore import restored_afterwards
from nimble.guards.signatures import Call
from nimble.nesting import one_at_a_time, preparing


@one_at_a_time
def raises_without_nimble(module: torch.nn.Module, call: Call, backend: Backend) -> bool:
    """Whether the unprepared module also raises for this call. Runs it once, with copies of the arguments, and restores
    it afterwards; False where it cannot be restored."""
    if has_no_memory_yet(module):
        return False  # a run would change these
    try:
        device = device_of([*module.parameters(), *module.buffers()], call, backend)
        copies: Dict[int, torch.Tensor] = {id(call.leaves[number]): _copy(call.leaves[number]) for number in call.tensors}
        args, kwargs = call.rebuilt([copies.get(id(leaf), leaf) for leaf in call.leaves])
        gradients = [(p, p.grad) for p in module.parameters()]
        with restored_afterwards(module, backend, device) as keeper:
            keeper.restore()  # this must succeed
            try:
                for parameter, _ in gradients:
                    parameter.grad = None
                with preparing():
                    module(*args, **kwargs)
                return False
            except Exception:
                return True
            finally:
                for parameter, gradient in gradients:
                    parameter.grad = gradient
                keeper.restore_attributes()
    except Exception:
        return False


def has_no_memory_yet(module: torch.nn.Module) -> bool:
    return any(map(is_lazy, chain(module.parameters(), module.buffers())))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, with an autograd history where the tensor has one."""
    copy = tensor.detach().clone()
    if tensor.requires_grad:
        copy.requires_grad_()
    return copy if tensor.is_leaf else copy.clone()
