"""Modules that are not prepared, by what they are: those that keep ranks together by Python around their forward, which no replay
runs, and those of TorchScript, into which nothing can look; and what stands in the way of any. No state; any thread."""

from __future__ import annotations

import gc
from typing import Any, Iterable, List

import torch

from nimble.errors import NimbleError

_GRADIENTS = ("torch.nn.parallel.distributed", "torch.distributed._composable.replicate")
_RECURRENT = frozenset(kind.__name__ for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))
_PARAMETERS = ("torch.distributed.fsdp.", "torch.distributed._composable.fsdp.")  # that are in pieces between the calls


def _packages(module: torch.nn.Module) -> List[str]:
    return [f"{kind.__module__}." for kind in type(module).__mro__]


def check_step(modules: Iterable[torch.nn.Module]) -> None:
    """NimbleError where a training step that works on these could not be one graph."""
    for module in modules:
        for each in module.modules():
            if any(package.startswith((*_GRADIENTS, *_PARAMETERS)) for package in _packages(each)):
                raise NimbleError(f"the step works on a {type(each).__name__}, which keeps on the host what has come of the backward, "
                                  "and what other ranks have to be sent: run the step without, and put a Nimble inside the module "
                                  "that is wrapped")


def has_dropout_of_its_own(device_type: str) -> bool:
    """Whether there may be a recurrent module with dropout between its layers, anywhere in the process. cuDNN keeps a state for that,
    which nobody can read or put back, and PyTorch begins it anew once the seed, or the state, of the device's random numbers was set."""
    if gc.get_freeze_count() > 0:
        return True  # of what is frozen nobody is told
    try:
        return any(_has_dropout(each, device_type) for each in gc.get_objects() if issubclass(type(each), torch.nn.Module))
    except Exception:  # another thread is making one
        return True


def _has_dropout(module: Any, device_type: str) -> bool:
    """TorchScript tells by a name what a module was made from."""
    if isinstance(module, torch.jit.ScriptModule):
        is_recurrent = getattr(module, "original_name", "") in _RECURRENT
    else:
        is_recurrent = isinstance(module, torch.nn.RNNBase) and "dropout" in vars(module)  # else it is half made
    return bool(is_recurrent and module.dropout > 0 and module.num_layers > 1
                and any(p.device.type == device_type for p in module.parameters()))


def check_kind(module: torch.nn.Module, trains: bool) -> None:
    """NimbleError where it is such a module, or holds one. Without gradients DistributedDataParallel only sends buffers."""
    for each in module.modules():
        packages = _packages(each)
        what = f"it is a {type(each).__name__}" if each is module else f"it holds a {type(each).__name__}"
        if isinstance(each, torch.jit.ScriptModule):
            raise NimbleError(f"{what}: modules of TorchScript cannot be looked into; prepare the one that it was made from")
        if any(package.startswith(_PARAMETERS) for package in packages):
            raise NimbleError(f"{what}, which gathers its parameters by Python code that a graph would not run: run it without")
        sends = trains or getattr(each, "broadcast_buffers", True) and next(each.buffers(), None) is not None
        if sends and any(package.startswith(_GRADIENTS) for package in packages):
            raise NimbleError(f"{what}, which begins each call with Python code that a graph would not run, so that ranks would go "
                              "apart: put the Nimble inside, in the forward of the module that is wrapped")
