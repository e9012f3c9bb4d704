"""What a function refers to: the modules, optimizers and tensors that it works with, and the Python values that it reads.

Looked at are closure cells, default arguments, global names that its code has, and of objects the attributes that its code
names; methods and functions that it calls of these likewise. It is no proof: what it gets at by other ways (getattr, a registry)
is not found, and has to be given.

find() has no state. A Reached is constant; its slots read and write what they stand for.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Set, Tuple

import torch

_MOST = 1000  # objects that are looked at
MOST_ELEMENTS = 64  # of a container

_schedulers = torch.optim.lr_scheduler
_SCHEDULER = getattr(_schedulers, "LRScheduler", None) or getattr(_schedulers, "_LRScheduler")


class Slot:
    """A place that holds a value: a name for people, and how to read and write it."""

    __slots__ = ("name", "get", "set")

    def __init__(self, name: str, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        self.name, self.get, self.set = name, get, set


class Reached:
    """Each once. `slots` are the places where values are read from."""

    def __init__(self) -> None:
        self.modules: List[torch.nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.scalers: List[Any] = []
        self.tensors: List[torch.Tensor] = []
        self.slots: List[Slot] = []


def find(function: Callable[..., Any], modules: Iterable[torch.nn.Module],
         optimizers: Iterable[torch.optim.Optimizer]) -> Reached:
    """With those that are given."""
    search = _Search()
    for each in (*modules, *optimizers):
        search.visit("", each, set())
    search.visit("", function, set())
    return search.reached


class _Search:
    def __init__(self) -> None:
        self.reached = Reached()
        self._seen: Set[Tuple[int, Any]] = set()
        self._held: List[Any] = []  # so that no id is used again
        self._slots: Set[Tuple[int, Any]] = set()

    def visit(self, name: str, value: Any, names: Set[str]) -> None:
        """`names`: those that the code has which refers to the value."""
        reached = self.reached
        if isinstance(value, (types.ModuleType, type)) or _is_plain(value) or len(self._seen) > _MOST:
            return
        if isinstance(value, types.FunctionType):
            self._function(value, None)
        elif isinstance(value, types.MethodType):
            self.visit(name, value.__self__, _names_of(value.__func__))
            if isinstance(value.__func__, types.FunctionType):
                self._function(value.__func__, value.__self__)
        elif not self._is_new(value, frozenset(names) if hasattr(value, "__dict__") else None):
            return
        elif isinstance(value, torch.nn.Module):
            _add(reached.modules, value)
            self._attributes(name, value, names)
        elif isinstance(value, torch.optim.Optimizer):
            _add(reached.optimizers, value)
        elif isinstance(value, torch.Tensor):
            _add(reached.tensors, value)
        elif hasattr(value, "_per_optimizer_states") and hasattr(value, "_growth_factor"):
            _add(reached.scalers, value)
        elif isinstance(value, _SCHEDULER):
            self.visit(name + ".optimizer", getattr(value, "optimizer"), names)
            self._dictionary(name, value.__dict__, [key for key, each in value.__dict__.items() if _is_plain(each)], names)
        elif isinstance(value, functools.partial):
            self.visit(name, value.func, names)
            for each in (*value.args, *value.keywords.values()):
                self.visit(name, each, _names_of(value.func))
        elif isinstance(value, dict):
            self._dictionary(name, value, list(value)[:MOST_ELEMENTS], names)
        elif isinstance(value, list):
            for i in range(min(len(value), MOST_ELEMENTS)):
                self._slot(f"{name}[{i}]", value, i, functools.partial(_item, value, i),
                           functools.partial(value.__setitem__, i), names)
        elif isinstance(value, (tuple, set, frozenset)):
            for each in list(value)[:MOST_ELEMENTS]:
                self.visit(name, each, names)
        elif hasattr(value, "__dict__"):
            if type(value).__module__.partition(".")[0] == "nimble":
                self.visit(name + ".module", getattr(value, "module", None), names)
            self._attributes(name, value, names)

    def _is_new(self, value: Any, names: Any) -> bool:
        key = (id(value), names)
        if key in self._seen:
            return False
        self._seen.add(key)
        self._held.append(value)
        return True

    def _function(self, function: types.FunctionType, owner: Any) -> None:
        if not self._is_new(function, id(owner)):
            return
        names = _names_of(function)
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            assign = functools.partial(setattr, cell, "cell_contents")
            self._slot(free, cell, "", functools.partial(_content, cell), assign, names)
        self._dictionary("", function.__globals__, [each for each in names if each in function.__globals__], names)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.visit("a default", default, names)

    def _attributes(self, name: str, owner: Any, names: Set[str]) -> None:
        """And the methods among the names, whose names count, too."""
        self._dictionary(name, owner.__dict__, [each for each in names if each in owner.__dict__], names)
        for each in names:
            method = getattr(type(owner), each, None)
            if isinstance(method, types.FunctionType) and not _is_torchs(method):
                self.visit(name, types.MethodType(method, owner), set())

    def _dictionary(self, name: str, where: Dict[Any, Any], keys: List[Any], names: Set[str]) -> None:
        for key in keys:
            self._slot(f"{name}.{key}" if name else str(key), where, key, functools.partial(where.get, key),
                       functools.partial(where.__setitem__, key), names)

    def _slot(self, name: str, where: Any, key: Any, get: Callable[[], Any], set: Callable[[Any], None], names: Set[str]) -> None:
        value = get()
        if (id(where), key) not in self._slots and not isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
            self._slots.add((id(where), key))
            self._held.append(where)
            self.reached.slots.append(Slot(name, get, set))
        self.visit(name, value, names)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device))


def _is_torchs(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _names_of(function: Any) -> Set[str]:
    def codes(code: types.CodeType) -> Iterator[types.CodeType]:
        yield code
        for each in code.co_consts:
            if isinstance(each, types.CodeType):
                yield from codes(each)

    code = getattr(function, "__code__", None)
    return {name for each in codes(code) for name in (*each.co_names, *each.co_freevars)} if code is not None else set()


def _add(where: List[Any], value: Any) -> None:
    if not any(each is value for each in where):
        where.append(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _item(where: List[Any], i: int) -> Any:
    return where[i] if i < len(where) else None
