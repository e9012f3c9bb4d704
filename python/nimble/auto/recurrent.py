"""Recurrent modules with dropout between their layers, while any of which lives nothing is prepared that nobody has asked for. cuDNN keeps
a state of random numbers for that, which nobody can read or put back, and PyTorch begins it anew once the seed, or the state, of the
device's random numbers was set, as preparing and comparing do. No state; any thread."""

from __future__ import annotations

import gc
from typing import Any

import torch

from nimble.settings import FROZEN

DROPOUT = "the program has a recurrent module with dropout, whose random numbers cuDNN would begin anew"

_RECURRENT = frozenset(kind.__name__ for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))


def has_dropout_of_its_own(device_type: str) -> bool:
    """Whether there may be such a module on a device of this type, anywhere in the process."""
    if gc.get_freeze_count() > FROZEN:
        return True  # of what the program has frozen nobody is told
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
