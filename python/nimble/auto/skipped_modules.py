"""Modules that nimble.auto leaves alone because of their class or a setting. No state; any thread."""

from __future__ import annotations

from typing import Optional

import torch

from nimble.settings import Settings

# Modules of these packages, and modules that hold one, are left alone: they communicate with other processes, or are compiled
# already.
_LEFT_ALONE = ("torch.jit.", "torch._dynamo.", "torch.nn.parallel.", "torch.distributed.", "torch.fx.")


def why_skipped(module: torch.nn.Module, settings: Settings) -> Optional[str]:
    """Why the module is never observed; None where it is."""
    for each in module.modules():
        kind = type(each)
        if any(base.__module__.startswith(_LEFT_ALONE) or f"{base.__module__}.".startswith(_LEFT_ALONE) for base in kind.__mro__):
            return f"it is a {kind.__name__}" if each is module else f"it holds a {kind.__name__}"
    if type(module).__call__ is not torch.nn.Module.__call__:
        return "its class has a __call__ of its own"
    return "NIMBLE_TORCH_SKIP names it" if settings.skips(type(module)) else None
