"""Whether cuDNN may keep a random state of its own, because a recurrent module with dropout between its layers is alive.

That state cannot be read or restored, and PyTorch resets it once the seed or the state of the device's random numbers is
set, which preparing and comparing do. So nothing is prepared automatically meanwhile. No state; any thread."""

from __future__ import annotations

import gc
from typing import Any

import torch

from nimble.settings import FROZEN

DROPOUT = "the program has a recurrent module with dropout, and cuDNN would restart its random numbers"

_RECURRENT = frozenset(kind.__name__ for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))


def may_have_cudnn_dropout(device_type: str) -> bool:
    """Whether there may be such a module on a device of this type, anywhere in the process."""
    if gc.get_freeze_count() > FROZEN:
        return True  # the collector does not list objects that the program has frozen
    try:
        objects = gc.get_objects()
        types = list(map(type, objects))
        kinds = dict(zip(map(id, types), types))  # by identity: a metaclass may make its types unhashable
        recurrent = {id(kind) for kind in kinds.values() if issubclass(kind, (torch.nn.RNNBase, torch.jit.ScriptModule))}
        return bool(recurrent) and any(_has_dropout(each, device_type) for each in objects if id(type(each)) in recurrent)
    except Exception:  # another thread is making one
        return True


def _has_dropout(module: Any, device_type: str) -> bool:
    """For a recurrent or a TorchScript module. TorchScript keeps the name of a module's original class."""
    if isinstance(module, torch.jit.ScriptModule):
        is_recurrent = getattr(module, "original_name", "") in _RECURRENT
    else:
        is_recurrent = "dropout" in vars(module)  # else it is partly constructed
    return bool(is_recurrent and module.dropout > 0 and module.num_layers > 1
                and any(p.device.type == device_type for p in module.parameters()))
