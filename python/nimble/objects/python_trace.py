"""Traces one eager run of a module by Python's profiling hook: what its code reads outside of the module, and which of its effects a
graph would not have.

The hook reports each function that is called. PyTorch's own functions count as known, except those that talk to other processes, and
what its layers call, which may be patched. For all other functions it notes each global name that their code reads, with what is
read through modules and classes: a guard compares these at each call. A method of a module that is not a submodule ends it. Reads
by other ways go unnoticed; comparing replays with eager runs covers those.

A PythonTrace belongs to one thread. It holds none of the program's modules."""

from __future__ import annotations

import builtins
import dis
import functools
import logging
import os
import sys
from dataclasses import dataclass, field
from collections import deque
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

import torch

from nimble.objects.libraries import bases_of, is_programs
from nimble.objects.plain import is_plain

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_DISTRIBUTED = os.path.join(_TORCH, "distributed") + os.sep
_LAYERS = os.path.join(_TORCH, "nn") + os.sep
_ANY_MODULE = os.path.join(_LAYERS, "modules", "module.py")
_TENSOR_METHODS = os.path.join(_TORCH, "_tensor.py")
_HOOKS = os.path.join(_TORCH, "autograd", "graph.py")  # hooks of saved tensors and nodes; checkpointing uses them, too
_DYNAMO = os.path.join(_TORCH, "_dynamo") + os.sep
_WHEN_IT_GOES = {"<lambda>", "_remove_id"}  # callbacks of its weak-key dictionaries, which may run at any time
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_LOGGING = os.path.join(_LIBRARY, "logging") + os.sep
# Modules of built-in functions with effects: they send something out of the process, or receive something.
_EFFECTS = {"_io", "_queue", "_random", "_socket", "posix", "time", "_pickle", "_ctypes", "_posixsubprocess", "select", "_warnings",
            "_uuid"}
_EFFECTFUL_OF = {("_thread", "start_new_thread"), ("_thread", "start_new"), ("_thread", "start_joinable_thread"),
                 ("datetime", "now"), ("datetime", "today"), ("datetime", "utcnow")}
# Queries by the program's code that a graph would not repeat.
_ASKS = {("_thread", "get_ident"): "in which thread it runs", ("_thread", "get_native_id"): "in which thread it runs",
         (None, "storage_offset"): "where in memory a tensor is", (None, "data_ptr"): "where in memory a tensor is",
         (None, "_is_view"): "whether a tensor is a view", (None, "initial_seed"): "for a seed",
         (None, "is_inference"): "whether a tensor is of inference mode", (None, "is_pinned"): "whether memory is pinned",
         (None, "get_num_threads"): "how many threads there are"}
# Code that queries on behalf of its caller.
_ON_BEHALF = (os.path.join(_LIBRARY, "threading.py"), os.path.join(_TORCH, "random.py"), os.path.join(_TORCH, "cuda", "random.py"))
_BY_THE_PROGRAM = {"current_thread", "main_thread"}  # the functions of threading that the program queries, rather than a lock
# A graph reads pinned memory when it runs, when it may contain something else.
_EFFECTFUL_METHODS = {"pin_memory", "retain_grad"}
_TENSOR_HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}
# Likewise of tensors, by functions and attributes in Python.
_TENSOR_ASKS = {"is_shared": "whether memory is shared"}
_READS = {"grad": "it reads gradients", "_base": "it asks whether a tensor is a view", "_version": "it asks how often a tensor was written"}
_HARMLESS = {"cpu_count", "fspath", "getpid"}
_EFFECTFUL = {"print", "input", "open", "breakpoint", "exec"}
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_MADE_OF_PYTHONS = (SimpleNamespace, functools.partial, torch.Tensor, FunctionType, BuiltinFunctionType, type)
_MOST_CONTAINED = 64
_MOST_NAMES = 2048
_MOST_STEPS = 4  # of attribute names after a global's


@dataclass
class TracedRun:
    """The result of a traced run. `places`: (namespace, name) of each read; a namespace is a dictionary or a class. `codes`: the
    code that has run; of PyTorch's only functions with closures, such as decorators create. `names`: the attributes that the
    program's code reads. `effect`: why a graph cannot replace the run; None where no effect was seen."""

    places: "List[Tuple[Any, str]]" = field(default_factory=list)
    codes: "FrozenSet[CodeType]" = frozenset()
    names: "FrozenSet[str]" = frozenset()
    effect: Optional[str] = None


class PythonTrace:
    """The trace of one run of a module, or of a function that uses none."""

    def __init__(self, root: Optional[torch.nn.Module] = None) -> None:
        self._codes: "Dict[CodeType, Dict[str, Any]]" = {}
        self._effect: Optional[str] = None
        self._places: "Dict[Tuple[int, str], Tuple[Any, str]]" = {}
        self._modules = {id(each) for each in root.modules()} if root is not None else None

    @staticmethod
    def is_possible() -> bool:
        """Whether the profiling hook is free."""
        return sys.getprofile() is None

    def run(self, function: "Callable[..., Any]", *args: Any, **kwargs: Any) -> Any:
        ours = self._see
        sys.setprofile(ours)
        try:
            return function(*args, **kwargs)
        finally:
            if sys.getprofile() == ours:
                sys.setprofile(None)

    def result(self) -> TracedRun:
        for code, namespace in self._codes.items():
            assigned = _note_names(code, namespace, self._places)
            if assigned and self._effect is None:
                self._effect = f"it assigns to the global {assigned} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
            read = read_of_tensors(code) if self._effect is None and is_programs(namespace.get("__name__", "")) else None
            if read is not None:
                self._effect = f"{read} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        if len(self._places) > _MOST_NAMES and self._effect is None:
            self._effect = f"its code reads {len(self._places)} global names, more than can be compared at each call"
        codes = frozenset(code for code in self._codes if code.co_freevars or not code.co_filename.startswith(_TORCH))
        names = frozenset(name for code in codes if is_programs(self._codes[code].get("__name__", "")) for name in code.co_names)
        return TracedRun(list(self._places.values()), codes, names, self._effect)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        try:
            if event == "c_call":
                self._see_built_in(frame, argument)
            elif event == "call":
                self._see_function(frame)
        except Exception as error:  # which would reach the program
            self._set_effect(f"it cannot be watched ({type(error).__name__}: {error})", frame)

    def _see_built_in(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None)
        if module is None and owner is not None:
            module = (owner if isinstance(owner, type) else type(owner)).__module__
        name = getattr(function, "__name__", "?")
        if module in _EFFECTS and name not in _HARMLESS or module == "builtins" and name in _EFFECTFUL or name in _EFFECTFUL_METHODS \
                or "random" in str(module).split(".") or (module, name) in _EFFECTFUL_OF:
            self._set_effect(f"it calls {module}.{name}", frame)
        elif (asked := _ASKS.get((module, name)) or _ASKS.get((None, name))) is not None and _asks_for_its_program(frame):
            self._set_effect(f"it asks {asked}", frame)
        elif "_distributed_c10d" in str(module):
            self._set_effect("it talks to other processes", frame)

    def _see_function(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_varnames[:1] == ("self",) and code.co_argcount > 0:
            self._see_method(frame, frame.f_locals.get("self"))
        if code in self._codes:
            return
        file = code.co_filename
        if file.startswith(_DISTRIBUTED) and code.co_name not in ("is_available", "is_initialized"):
            self._set_effect("it talks to other processes", frame)
        elif file.startswith(_DYNAMO) and not (code.co_name in _WHEN_IT_GOES and os.path.basename(file) == "utils.py"):
            self._set_effect("it uses torch.compile", frame)
        elif file == _HOOKS or file == _TENSOR_METHODS and code.co_name in _TENSOR_HOOKS:
            self._set_effect("it hooks into its backward", frame)
        elif file == _TENSOR_METHODS and code.co_name in _TENSOR_ASKS and frame.f_back is not None and _asks_for_its_program(frame.f_back):
            self._set_effect(f"it asks {_TENSOR_ASKS[code.co_name]}", frame)
        elif file.startswith(_LOGGING) and code.co_name == "_log":
            self._set_effect("it writes to a log", frame)
        if file.startswith(_OWN):
            return
        if code.co_freevars or not file.startswith(_TORCH) or file.startswith(_LAYERS) and file != _ANY_MODULE:
            self._codes[code] = frame.f_globals

    def _see_method(self, frame: FrameType, owner: Any) -> None:
        """Modules made in the run may do anything in it."""
        if self._modules is not None and issubclass(type(owner), torch.nn.Module) and id(owner) not in self._modules:
            if frame.f_code.co_name == "__init__":
                self._modules.add(id(owner))
            elif self._effect is None:
                self._effect = "it uses modules that are not registered as its own"
        elif isinstance(owner, logging.Logger) and frame.f_code.co_name in ("isEnabledFor", "getEffectiveLevel"):
            self._note_levels(owner)
        elif (owner is os.environ or owner is getattr(os, "environb", None)) and frame.f_code.co_name == "__getitem__":
            encode, data = getattr(owner, "encodekey", None), getattr(owner, "_data", None)
            if encode is not None and data is not None:
                key = encode(frame.f_locals["key"])
                self._places[id(data), key] = data, key

    def _note_levels(self, logger: logging.Logger) -> None:
        """Notes what decides whether anything is logged."""
        spaces = [(vars(logger.manager), "_disable"), (vars(logger), "disabled")]
        one: Optional[logging.Logger] = logger
        while one is not None:
            spaces += (vars(one), "level"), (vars(one), "parent")
            one = one.parent
        self._places.update(((id(space), name), (space, name)) for space, name in spaces if name in space)

    def _set_effect(self, what: str, frame: FrameType) -> None:
        caller: Optional[FrameType] = frame
        while caller is not None and caller.f_code.co_filename.startswith(_LIBRARY) and caller.f_back is not None:
            caller = caller.f_back
        if self._effect is None:
            place = caller if caller is not None else frame
            self._effect = f"{what} ({os.path.basename(place.f_code.co_filename)}:{place.f_lineno})"


def _asks_for_its_program(frame: FrameType) -> bool:
    """Whether the caller is the program's code, and not Python's locks or PyTorch's own code."""
    asking: Optional[FrameType] = frame
    while asking is not None and asking.f_code.co_filename in _ON_BEHALF:
        if asking.f_code.co_filename == _ON_BEHALF[0] and asking.f_code.co_name not in _BY_THE_PROGRAM:
            return False
        asking = asking.f_back
    return asking is not None and is_programs(asking.f_globals.get("__name__", ""))


def _note_names(code: CodeType, namespace: "Dict[str, Any]", places: "Dict[Tuple[int, str], Tuple[Any, str]]") -> Optional[str]:
    """Notes what the code may read of its globals. Returns the name of one that it may assign to, if any."""
    is_torchs = code.co_filename.startswith(_LAYERS)
    if not is_torchs and not is_programs(namespace.get("__name__", "")):
        return None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") and not is_torchs:
            return str(name)
        if instruction.opname == "IMPORT_NAME":
            found = _imported(str(name), namespace)
            if found is not None:
                _note(sys.modules, found, code.co_names, places, _MOST_STEPS)
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not is_torchs:
            _note(namespace, name, code.co_names, places, _MOST_STEPS)
            if name not in namespace:
                _note(vars(builtins), name, code.co_names, places, _MOST_STEPS)
        elif instruction.opname == "LOAD_GLOBAL" and name in namespace:
            # For PyTorch's own layers the functions that they call, which programs patch: torch.nn.functional's.
            value = namespace[name]
            space, used = (vars(value), code.co_names) if isinstance(value, ModuleType) else (namespace, (name,))
            places.update(((id(space), each), (space, each)) for each in used
                          if each in space and not isinstance(space[each], (ModuleType, type)))
    return None


def read_of_tensors(code: CodeType) -> Optional[str]:
    """What the code reads from tensors that a graph would not read again. torch.autograd.grad is ignored, as is an object's own
    attribute of such a name."""
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            is_its_own = before == ("autograd" if instruction.argval == "grad" else "self")
            if instruction.argval in _READS and not is_its_own:
                return _READS[instruction.argval]
        before = str(instruction.argval)
    return None


def _imported(name: str, namespace: "Dict[str, Any]") -> Optional[str]:
    """The full name of a module that the program has imported. Code has only the last part of a relative import."""
    for found in (name, f"{namespace.get('__package__')}.{name}", str(namespace.get("__package__"))):
        if name and found in sys.modules and is_programs(found):
            return found
    return None


def _may_be_programs(value: Any) -> bool:
    """Whether an attribute of a standard module may be the program's: a plain value, a small container, a function or class that may have
    been replaced, or an object of the program's classes."""
    kind: Any = type(value)
    if kind in _CONTAINERS:
        return len(value) <= _MOST_CONTAINED
    return is_plain(value) or isinstance(value, _MADE_OF_PYTHONS) or is_programs(kind.__module__)


def _note(namespace: Any, name: str, names: "Tuple[str, ...]", places: "Dict[Tuple[int, str], Tuple[Any, str]]", steps: int) -> None:
    """Notes that `name` is read there, and what the other names may read through it: from modules, and from classes and their bases.
    A name missing from a namespace may refer to a built-in function until the namespace gets it."""
    places[id(namespace), name] = namespace, name
    if name not in (namespace if isinstance(namespace, dict) else vars(namespace)):
        return
    value = (namespace if isinstance(namespace, dict) else vars(namespace))[name]
    if steps == 0:
        return
    if isinstance(value, ModuleType) and (is_programs(value.__name__) or value.__name__.split(".")[0] == "torch"):
        space = vars(value)
        for each in names:
            if each in space and (id(space), each) not in places:
                _note(space, each, names, places, steps - 1)
    elif isinstance(value, ModuleType):
        # Attributes that a program has added to one of Python's modules.
        space = vars(value)
        places.update(((id(space), each), (space, each)) for each in names if each in space and _may_be_programs(space[each]))
    elif isinstance(value, type) and is_programs(value.__module__):
        bases = bases_of(value)
        for each in names:
            if any(each in vars(base) for base in bases):
                for base in bases:
                    if (id(base), each) not in places:
                        _note(base, each, names, places, steps - 1)
