"""Modules that cannot be prepared because of their class: those that keep ranks together by Python code around their forward, which no
replay runs, and those of TorchScript, which cannot be inspected. No state; any thread."""

from __future__ import annotations

from typing import Iterable, List

import torch

from nimble.errors import NimbleError

_GRADIENTS = ("torch.nn.parallel.distributed", "torch.distributed._composable.replicate")
_PARAMETERS = ("torch.distributed.fsdp.", "torch.distributed._composable.fsdp.")  # whose parameters are sharded between the calls


def _packages(module: torch.nn.Module) -> List[str]:
    return [f"{kind.__module__}." for kind in type(module).__mro__]


def check_step(modules: Iterable[torch.nn.Module]) -> None:
    """Raises NimbleError where a training step that works on these modules cannot be one graph."""
    for module in modules:
        for each in module.modules():
            if any(package.startswith((*_GRADIENTS, *_PARAMETERS)) for package in _packages(each)):
                raise NimbleError(f"the step works on a {type(each).__name__}, which tracks on the host the backward, and what "
                                  "to send to other ranks: run it without nimble.step, and put a Nimble inside the wrapped module")


def check_kind(module: torch.nn.Module, trains: bool) -> None:
    """Raises NimbleError where the module, or one in it, cannot be prepared. Without gradients DistributedDataParallel only sends
    buffers."""
    for each in module.modules():
        packages = _packages(each)
        what = f"it is a {type(each).__name__}" if each is module else f"it holds a {type(each).__name__}"
        if isinstance(each, torch.jit.ScriptModule):
            raise NimbleError(f"{what}: modules of TorchScript cannot be inspected; prepare the one that it was made from")
        if any(package.startswith(_PARAMETERS) for package in packages):
            raise NimbleError(f"{what}, which gathers its parameters by Python code that a graph would not run: run it "
                              "without Nimble")
        if any(package.startswith(_GRADIENTS) for package in packages) and (
                trains or getattr(each, "broadcast_buffers", True) and next(each.buffers(), None) is not None):
            raise NimbleError(f"{what}, which begins each call with Python code that a graph would not run, so that ranks would "
                              "diverge: put the Nimble inside, in the forward of the module that is wrapped")
