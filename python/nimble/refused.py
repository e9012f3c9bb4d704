"""Modules that are not prepared, by what they are: those that keep ranks together by Python around their forward, which no replay
runs, and those of TorchScript, into which nothing can look. No state; any thread."""

from __future__ import annotations

import torch

from nimble.errors import NimbleError

_GRADIENTS = ("torch.nn.parallel.distributed", "torch.distributed._composable.replicate")
_PARAMETERS = ("torch.distributed.fsdp.", "torch.distributed._composable.fsdp.")  # that are in pieces between the calls


def check_kind(module: torch.nn.Module, trains: bool) -> None:
    """NimbleError where it is such a module, or holds one. Without gradients DistributedDataParallel only sends buffers."""
    for each in module.modules():
        packages = [f"{kind.__module__}." for kind in type(each).__mro__]
        what = f"it is a {type(each).__name__}" if each is module else f"it holds a {type(each).__name__}"
        if isinstance(each, torch.jit.ScriptModule):
            raise NimbleError(f"{what}: modules of TorchScript cannot be looked into; prepare the one that it was made from")
        if any(package.startswith(_PARAMETERS) for package in packages):
            raise NimbleError(f"{what}, which gathers its parameters by Python code that a graph would not run: run it without")
        sends = trains or getattr(each, "broadcast_buffers", True) and next(each.buffers(), None) is not None
        if sends and any(package.startswith(_GRADIENTS) for package in packages):
            raise NimbleError(f"{what}, which begins each call with Python code that a graph would not run, so that ranks would go "
                              "apart: put the Nimble inside, in the forward of the module that is wrapped")
