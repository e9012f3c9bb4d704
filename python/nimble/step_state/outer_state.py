"""The places outside of a step's modules that their code may assign to: attributes of their classes, global names, variables of enclosing
functions, and lists, dictionaries and sets there.

It inspects methods of the modules' own classes, but not the functions that these call. No state."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import torch

from nimble.objects import containers
from nimble.objects.code_names import globals_of, stored_by
from nimble.step_state.library_objects import own_classes

MISSING = object()
_MOST_ELEMENTS = 10000  # of a container to compare
_STORES, _STORES_ATTRIBUTE = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL")), frozenset(("STORE_ATTR",))

Place = Tuple[str, Callable[[], Any], Callable[[Any], None]]  # its name for messages, its getter and its setter


def find(modules: Iterable[torch.nn.Module]) -> "Tuple[List[Place], List[Any]]":
    """The places, and the containers."""
    kinds = {kind: None for module in modules for each in module.modules() for kind in own_classes(type(each))}
    places: List[Place] = []
    outside: Dict[int, Any] = {}
    for kind in kinds:
        for name, value in list(kind.__dict__.items()):
            functions = list(_functions_in(value))
            if not functions and not name.startswith("__") and not hasattr(value, "__get__"):
                places.append((f"the attribute {name!r} of its class", functools.partial(_of_class, kind, name),
                               functools.partial(_put_into_class, kind, name)))
                _add(outside, value)
            for function in functions:
                _look_at(function, places, outside)
        for name in _stored_by(kind) - set(kind.__dict__):
            places.append((f"the attribute {name!r} of its class", functools.partial(_of_class, kind, name),
                           functools.partial(_put_into_class, kind, name)))
    return places, list(outside.values())


def _look_at(function: types.FunctionType, places: List[Place], outside: Dict[int, Any]) -> None:
    space = function.__globals__
    for name in stored_by(function.__code__, _STORES):
        places.append((f"the global {name!r}", functools.partial(space.get, name, MISSING), functools.partial(_put, space, name)))
    for name in globals_of(function.__code__):
        _add(outside, space.get(name))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if name != "__class__":
            places.append((f"the variable {name!r}", functools.partial(_of_cell, cell), functools.partial(_put_into_cell, cell)))
            _add(outside, _of_cell(cell))


def _stored_by(kind: type) -> "set[str]":
    """Names of attributes that the methods of a class store, whatever the object."""
    return {name for value in kind.__dict__.values() for function in _functions_in(value)
            for name in stored_by(function.__code__, _STORES_ATTRIBUTE)}


def _functions_in(value: Any) -> Iterator[types.FunctionType]:
    for each in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "fset"))):
        if isinstance(each, types.FunctionType):
            yield each


def _add(outside: Dict[int, Any], value: Any) -> None:
    if isinstance(value, containers.KINDS) and containers.size(value) <= _MOST_ELEMENTS:
        outside[id(value)] = value


def _of_class(kind: type, name: str) -> Any:
    return kind.__dict__.get(name, MISSING)


def _put_into_class(kind: type, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(kind, name)
    else:
        setattr(kind, name, value)


def _put(space: Dict[str, Any], name: str, value: Any) -> None:
    if value is MISSING:
        space.pop(name, None)
    else:
        space[name] = value


def _of_cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def _put_into_cell(cell: Any, value: Any) -> None:
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value
