"""Runs PyTorch modules and training steps as CUDA graphs with parallel branches, by libnimble.so. docs/reference/api-python.md says how.

    model = nimble.Nimble(module)
    model.prepare(example)
    output = model(input)

and, for whole training steps, nimble.step(function). torch.compile(model, backend="nimble") needs no import.

`nimble.shim` (what libnimble.so offers) and `python -m nimble run` work without PyTorch, so what needs PyTorch is imported at first
use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nimble.errors import CaptureError, DiffersError, NimbleError, NotLoadedError
from nimble.version import VERSION as __version__

if TYPE_CHECKING:
    from nimble import shim
    from nimble.api.accelerated import Accelerated, accelerate
    from nimble.api.module import Nimble
    from nimble.compile.dynamo_backend import TracedReport, report
    from nimble.graphs.graph_io import GraphReport
    from nimble.steps.steps import Step, step

DISTRIBUTION = "nimble-cuda"  # nimble_cuda.py knows this package by it

__all__ = ["Accelerated", "CaptureError", "DiffersError", "GraphReport", "Nimble", "NimbleError", "NotLoadedError", "Step", "TracedReport",
           "accelerate", "report", "shim", "step", "__version__"]

_LATE = {"Accelerated": "api.accelerated", "accelerate": "api.accelerated", "Nimble": "api.module", "GraphReport": "graphs.graph_io",
         "Step": "steps.steps", "step": "steps.steps", "TracedReport": "compile.dynamo_backend", "report": "compile.dynamo_backend"}


def __getattr__(name: str) -> Any:
    if name == "shim":
        return importlib.import_module("nimble.shim")
    if name not in _LATE:
        raise AttributeError(f"module 'nimble' has no attribute {name!r}")
    return getattr(importlib.import_module("nimble." + _LATE[name]), name)
