"""The parts that Python objects of each kind hold. No state, and runs none of the program's code; any thread."""

from __future__ import annotations

import _thread
import array
import contextvars
import mmap
import types
from collections import OrderedDict, defaultdict, deque
from functools import partial
from typing import Any, Callable, List, Tuple

import torch

from nimble.objects.indirect_references import C_DATA, CACHED, WEAK, cached_parts, weak_parts

BUILT_IN = (types.BuiltinFunctionType, types.MethodWrapperType)
BUFFERS = (bytearray, memoryview, array.array, mmap.mmap, C_DATA)

Parts = Callable[[Any], List[Any]]
_ABSENT = object()


def is_kind(value: Any, kinds: Any) -> bool:
    return issubclass(type(value), kinds)  # isinstance() would ask the value for its class


def inside(value: Any) -> "dict[str, Any] | None":
    """An object's own dictionary; the calling thread's, if it has one per thread."""
    try:
        if is_kind(value, _thread._local):
            found = _thread._local.__getattribute__(value, "__dict__")
        else:
            found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if is_kind(found, dict) else None


def slots_of(kind: type) -> List[Any]:
    return [held for base in kind.__mro__ if "__slots__" in vars(base) for held in vars(base).values()
            if type(held) is types.MemberDescriptorType]


def slot_of(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _ABSENT


def attributes_of(value: Any) -> "List[Tuple[str, Any]]":
    """Names and values of an object's own attributes and slots."""
    return [*(inside(value) or {}).items(), *[(slot.__name__, slot_of(slot, value)) for slot in slots_of(type(value))]]


def held_parts(value: Any) -> List[Any]:
    held = inside(value)
    return [] if held is None else [*held, *held.values()]


def _method_parts(value: Any) -> List[Any]:
    return [value.__self__, value.__func__]


def built_in_parts(value: Any) -> List[Any]:
    owner = value.__self__
    return [] if owner is None or is_kind(owner, (type, types.ModuleType)) else [owner]


def _partial_parts(value: Any) -> List[Any]:
    return [value.func, *value.args, *value.keywords, *value.keywords.values(), *held_parts(value)]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _ABSENT


def function_parts(value: Any) -> List[Any]:
    return [value.__code__, *map(_cell, value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(),
            *held_parts(value)]


def _property_parts(value: Any) -> List[Any]:
    return [value.fget, value.fset, value.fdel]


def _of_function_parts(value: Any) -> List[Any]:
    return [value.__func__]


def _context_parts(value: Any) -> List[Any]:
    return [value.get(_ABSENT)]


def _weak_parts(value: Any) -> List[Any]:
    return weak_parts(value, inside)


def _dict_parts(value: Any) -> List[Any]:
    return [*dict.keys(value), *dict.values(value), *held_parts(value)]


def _ordered_parts(value: Any) -> List[Any]:
    return [*OrderedDict.keys(value), *OrderedDict.values(value), *held_parts(value)]


def _default_parts(value: Any) -> List[Any]:
    return [value.default_factory, *dict.keys(value), *dict.values(value), *held_parts(value)]


def _of_items(iterate: "Callable[[Any], Any]") -> Parts:
    return lambda value: [*iterate(value), *held_parts(value)]


TABLE: "Tuple[Tuple[Any, Parts], ...]" = (
    (torch.Tensor, held_parts), (types.MethodType, _method_parts),
    (BUILT_IN, built_in_parts), (types.FunctionType, function_parts),
    (partial, _partial_parts), (property, _property_parts), ((staticmethod, classmethod), _of_function_parts),
    (contextvars.ContextVar, _context_parts), (WEAK, _weak_parts), (CACHED, cached_parts),
    (list, _of_items(list.__iter__)), (tuple, _of_items(tuple.__iter__)), (deque, _of_items(deque.__iter__)),
    (set, _of_items(lambda value: sorted(set.__iter__(value), key=id))),
    (frozenset, _of_items(lambda value: sorted(frozenset.__iter__(value), key=id))),
    (OrderedDict, _ordered_parts), (defaultdict, _default_parts), (dict, _dict_parts),
    (types.MappingProxyType, lambda value: [*value, *value.values()]), (BUFFERS, held_parts),
)
