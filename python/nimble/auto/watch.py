"""One eager run of a module, watched by Python's profiling hook: what does its code read outside of the module, and what does it
do that a graph would not do?

The hook tells each function that is called. Functions of PyTorch itself are taken for known, but for those that talk to other
processes. Of all others, each global name that their code reads is noted, with attributes of modules and classes read through it:
the guard compares these at each call. What cannot be noted (cells of closures, what is reached by other ways) is what comparing
replays with eager runs is for.

A Watch is one thread's. It holds no module of the program's.
"""

from __future__ import annotations

import dis
import os
import sys
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_DISTRIBUTED = os.path.join(_TORCH, "distributed") + os.sep
_TENSOR_METHODS = os.path.join(_TORCH, "_tensor.py")
_HOOKS = os.path.join(_TORCH, "autograd", "graph.py")  # of what autograd saves and hands on; checkpointing uses them, too
_DYNAMO = os.path.join(_TORCH, "_dynamo") + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_LOGGING = os.path.join(_LIBRARY, "logging") + os.sep
# Built-in functions by their modules: they tell the world something, or bring something of it.
_EFFECTS = {"_io", "_queue", "_random", "_socket", "posix", "time", "_pickle", "_ctypes", "_posixsubprocess", "select"}
# Pinned memory is read when a graph runs, when something else may stand there.
_EFFECTFUL_METHODS = {"pin_memory", "retain_grad"}
_TENSOR_HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}
_HARMLESS = {"cpu_count", "fspath", "getpid"}
_EFFECTFUL = {"print", "input", "open", "breakpoint", "exec"}
_MOST_NAMES = 1024


@dataclass
class Watched:
    """What a run has shown. `names`: (namespace, name, value) of what was read: a namespace is a module's dictionary or a class.
    `effect`: why a graph cannot stand for the run; None where nothing was seen."""

    names: "List[Tuple[Any, str, Any]]" = field(default_factory=list)
    effect: Optional[str] = None


class Watch:
    """Made for one run."""

    def __init__(self) -> None:
        self._codes: "Dict[CodeType, Dict[str, Any]]" = {}
        self._effect: Optional[str] = None

    @staticmethod
    def is_possible() -> bool:
        """Not where somebody else uses the hook."""
        return sys.getprofile() is None

    def run(self, function: "Callable[..., Any]", *args: Any, **kwargs: Any) -> Any:
        ours = self._see
        sys.setprofile(ours)
        try:
            return function(*args, **kwargs)
        finally:
            if sys.getprofile() == ours:
                sys.setprofile(None)

    def result(self) -> Watched:
        names: "Dict[Tuple[int, str], Tuple[Any, str, Any]]" = {}
        for code, namespace in self._codes.items():
            assigned = _note_names(code, namespace, names)
            if assigned and self._effect is None:
                self._effect = f"it assigns to the global {assigned} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        if len(names) > _MOST_NAMES and self._effect is None:
            self._effect = f"its code reads {len(names)} global names, more than can be compared at each call"
        return Watched(list(names.values()), self._effect)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self._see_built_in(frame, argument)
        elif event == "call":
            self._see_function(frame)

    def _see_built_in(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None)
        if module is None and owner is not None:
            module = type(owner).__module__
        name = getattr(function, "__name__", "?")
        if module in _EFFECTS and name not in _HARMLESS or module == "builtins" and name in _EFFECTFUL or name in _EFFECTFUL_METHODS \
                or "random" in str(module).split("."):
            self._set_effect(f"it calls {module}.{name}", frame)
        elif "_distributed_c10d" in str(module):
            self._set_effect("it talks to other processes", frame)

    def _see_function(self, frame: FrameType) -> None:
        code = frame.f_code
        if code in self._codes:
            return
        file = code.co_filename
        if file.startswith(_DISTRIBUTED) and code.co_name not in ("is_available", "is_initialized"):
            self._set_effect("it talks to other processes", frame)
        elif file.startswith(_DYNAMO):
            self._set_effect("it uses torch.compile", frame)
        elif file == _HOOKS or file == _TENSOR_METHODS and code.co_name in _TENSOR_HOOKS:
            self._set_effect("it hooks into its backward", frame)
        elif file.startswith(_LOGGING) and code.co_name == "_log":
            self._set_effect("it writes to a log", frame)
        if not file.startswith((_TORCH, _OWN)):
            self._codes[code] = frame.f_globals

    def _set_effect(self, what: str, frame: FrameType) -> None:
        caller: Optional[FrameType] = frame
        while caller is not None and caller.f_code.co_filename.startswith(_LIBRARY) and caller.f_back is not None:
            caller = caller.f_back
        if self._effect is None:
            place = caller if caller is not None else frame
            self._effect = f"{what} ({os.path.basename(place.f_code.co_filename)}:{place.f_lineno})"


def is_programs(name: Any) -> bool:
    """Whether a module of that name may be changed by the program while it runs: neither PyTorch's nor Python's own."""
    package = str(name).split(".")[0]
    return package not in ("torch", "builtins", "nimble") and package not in getattr(sys, "stdlib_module_names", ())


def _note_names(code: CodeType, namespace: "Dict[str, Any]",
                names: "Dict[Tuple[int, str], Tuple[Any, str, Any]]") -> Optional[str]:
    """Notes what `code` may read of its globals. The name of one that it may assign to, if any."""
    if not is_programs(namespace.get("__name__", "")):
        return None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return str(name)
        if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or name not in namespace:
            continue
        value = namespace[name]
        names.setdefault((id(namespace), name), (namespace, name, value))
        inner: Any = None  # of what an attribute may be read
        if isinstance(value, ModuleType) and is_programs(value.__name__):
            inner = value.__dict__
        elif isinstance(value, type) and is_programs(value.__module__):
            inner = value
        for attribute in code.co_names if inner is not None else ():
            found = inner if isinstance(inner, dict) else inner.__dict__
            if attribute in found:
                names.setdefault((id(inner), attribute), (inner, attribute, found[attribute]))
    return None
