"""Runs when a program under NIMBLE_MODE=auto, or one of `python -m nimble run`, imports PyTorch.

Under NIMBLE_MODE=auto libnimble.so is told, before PyTorch is loaded, to rewrite graphs and leave the driver's other calls alone,
unlike that mode's default for other programs; and PyTorch is told to allocate its memory in stream order. After the import, calls of
modules are observed (calls.py). libnimble.so reads its settings when its session starts, with the first driver call, or the first
query about graphs, as here. So the environment has these settings for that moment alone: child processes see the user's.

Wherever PyTorch may allocate in stream order, also under `python -m nimble run`, nimble.compile.compiled_graphs replaces what
PyTorch cannot do then.

Runs once, in the thread that imports PyTorch."""

from __future__ import annotations

import os
import re
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple

from nimble import shim
from nimble import settings as settings_of_user
from nimble.compile import compiled_graphs
from nimble.errors import NimbleError
from nimble.launcher import ALLOCATOR, ALLOCATOR_VARIABLES

_OLDEST = (2, 5)  # the first to tell whether torch.compile traces a call (switches.py); 2.1 has the allocator
_REWRITE = {"NIMBLE_MODE": "off", "NIMBLE_GRAPHS": "rewrite"}


def before_torch(spec: ModuleSpec) -> "Optional[Callable[[], None]]":
    """Called before PyTorch is loaded from `spec`. Returns what to call after that, or None."""
    if settings_of_user.word("MODE") != "auto" or settings_of_user.word("TORCH") == "off" or not shim.is_loaded():
        return compiled_graphs.install
    settings = settings_of_user.read()
    version, cuda = torch_version(spec.submodule_search_locations or ())
    if not cuda:
        return None  # this PyTorch has no GPU to use; any other GPU work of the program is libnimble.so's concern
    if version < _OLDEST:
        settings.inform(f"PyTorch {version[0]}.{version[1]} is too old for its modules to be prepared: driver calls are "
                        "replayed instead")
        return compiled_graphs.install
    if not rewrite_graphs():
        settings.inform("the GPU was in use before PyTorch was imported, so its modules are left alone: driver calls are "
                        "replayed instead")
        return compiled_graphs.install
    set_allocator(os.environ)

    def after_import() -> None:
        compiled_graphs.install()
        from nimble.auto import calls

        calls.install(settings)

    return after_import


def rewrite_graphs() -> bool:
    """Starts libnimble.so's session as one that rewrites graphs. False where it has already started as another."""
    before = {name: os.environ.get(name) for name in _REWRITE}
    os.environ.update(_REWRITE)
    try:
        shim.check()
        return True
    except NimbleError:
        return False
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def set_allocator(environment: "os._Environ[str] | Dict[str, str]") -> None:
    """Makes PyTorch allocate in stream order, unless the user has configured its allocator."""
    if not any(environment.get(name) for name in ALLOCATOR_VARIABLES):
        for name in ALLOCATOR_VARIABLES:
            environment[name] = ALLOCATOR


def torch_version(folders: Sequence[str]) -> "Tuple[Tuple[int, int], str]":
    """The version of the PyTorch in these folders, which is not loaded yet, and of the CUDA that it is built with, or ""."""
    for folder in folders:
        try:
            text = (Path(folder) / "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        version = re.search(r"^__version__\s*=\s*['\"](\d+)\.(\d+)", text, re.MULTILINE)
        cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if version:
            return (int(version[1]), int(version[2])), cuda[1] if cuda else ""
    return (0, 0), ""
