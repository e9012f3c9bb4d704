"""Which modules of Python's are its own library's. No state; any thread."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

_FOLDER = os.path.dirname(os.__file__) + os.sep


def is_pythons(name: str) -> bool:
    """By the file that it was loaded from, where it has one: a program's own module may have a name of Python's."""
    if name == "__main__":
        return False
    module: Any = sys.modules.get(name)
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    if isinstance(file, str):
        return file.startswith(_FOLDER) and "-packages" + os.sep not in file
    return name in sys.builtin_module_names or getattr(getattr(module, "__spec__", None), "origin", None) == "frozen"
