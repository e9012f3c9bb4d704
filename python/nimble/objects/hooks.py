"""Hooks that PyTorch keeps: of optimizers, modules and tensors, and the global ones.

A step's graph contains their work, so nimble.step_state follows them, and compares the set of hooks. No state; any thread."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any, Iterator, List

import torch

_modules: Any = torch.nn.modules.module
_HOOKS = [name for name in vars(torch.nn.Module()) if name.endswith("hooks") and name.startswith(("_forward", "_backward"))]
_GLOBAL_HOOKS = [name for name, value in vars(_modules).items() if name.startswith("_global") and name.endswith("hooks")]
_optimizers = importlib.import_module("torch.optim.optimizer")  # not an attribute of torch.optim in some releases

backward_hooks = attrgetter("_backward_hooks")


def accumulate_hooks(tensor: torch.Tensor) -> Any:
    return getattr(tensor, "_post_accumulate_grad_hooks", None)  # from 2.1 on


def hooks_of(optimizer: torch.optim.Optimizer) -> List[Any]:
    """Functions that run with an optimizer's step, and replacements of its methods, or None."""
    return [*(hook for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
              for hook in getattr(optimizer, name, {}).values()), optimizer.__dict__.get("step"), optimizer.__dict__.get("zero_grad")]


def hooks_of_all_optimizers() -> List[Any]:
    return [hook for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
            for hook in getattr(_optimizers, name, {}).values()]


def hooks_of_module(module: torch.nn.Module) -> Iterator[Any]:
    """Functions that run with the forward and backward of a module and its submodules."""
    places = [each.__dict__.get(name) for each in module.modules() for name in _HOOKS]
    for hooks in (*places, *(vars(_modules)[name] for name in _GLOBAL_HOOKS)):
        yield from hooks.values() if hooks else ()


def hooks_of_tensor(tensor: torch.Tensor) -> List[Any]:
    """Functions that run when a gradient of the tensor arrives, or has been accumulated."""
    return [hook for hooks in (backward_hooks(tensor), accumulate_hooks(tensor)) for hook in (hooks or {}).values()]
