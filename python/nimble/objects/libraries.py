"""Who owns a Python module: the standard library, PyTorch, or the program, which may change it. No state; any thread."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, List

_FOLDER = os.path.dirname(os.__file__) + os.sep


def is_pythons(name: str) -> bool:
    """Whether the module of this name is the standard library's. Its file says so, where it has one: a program's own module may have
    the same name."""
    if name == "__main__":
        return False
    module: Any = sys.modules.get(name)
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    if isinstance(file, str):
        return file.startswith(_FOLDER) and "-packages" + os.sep not in file
    return name in sys.builtin_module_names or getattr(getattr(module, "__spec__", None), "origin", None) == "frozen"


def is_programs(name: Any) -> bool:
    """Whether the program may change the module of this name while it runs: it is neither PyTorch's nor the standard library's."""
    return str(name).split(".")[0] not in ("torch", "nimble") and not is_pythons(str(name))


def bases_of(kind: type) -> List[Any]:
    """The program's classes among the bases of a class and of its metaclass."""
    made_by: type = type(kind)
    return [base for base in [*kind.__mro__, *made_by.__mro__] if is_programs(base.__module__)]
