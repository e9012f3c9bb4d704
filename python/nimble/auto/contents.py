"""Python values, compared cheaply: what a module's code may read beside its tensors.

content() is equal for values that a program cannot tell apart by looking, as far as it looks: into lists, tuples, dictionaries,
sets, small arrays and objects, some levels deep and some hundred values far. Beyond that identity stands for the value. It is
what nimble.auto compares at each call, and what the comparisons with eager runs are the net under.

Holds nothing: contents are made of numbers, texts and ids. Runs no code of the program's. No state; any thread.
"""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, defaultdict, deque
from functools import partial
from itertools import islice
from typing import Any, Hashable

import torch

_DEPTH = 4
_MOST = 64  # entries of a container that are looked at
_MOST_VALUES = 256  # that are looked at in all
_MOST_SEARCHED = 20000  # values, once
_EXACT = (type(None), bool, int, str, bytes, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module,
                property, staticmethod, classmethod, enum.Enum)
# Of what cannot hold any, and of modules and code, each looked at where they are known.
_WITHOUT_TENSORS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, torch.nn.Module, property,
                    staticmethod, classmethod, enum.Enum, types.GetSetDescriptorType, types.MemberDescriptorType, torch.Generator)
_SEQUENCES = (list, tuple, deque, torch.Size)
_SETS = (set, frozenset)
_MAPPINGS = (dict, OrderedDict, defaultdict)


def _is(value: Any, kinds: Any) -> bool:
    return issubclass(type(value), kinds)  # isinstance() would ask the value for its class


def is_plain(value: Any) -> bool:
    """Whether it can never change, and leads to nothing else: identity stands for its value, and it may be held."""
    kind = type(value)
    return (kind in _EXACT or kind in (float, complex) or _is(value, enum.Enum)
            or kind in (tuple, torch.Size) and len(value) <= _MOST and all(map(is_plain, value)))


def is_mutable(value: Any) -> bool:
    """Whether its content may change while it stays the same object, and content() would see it."""
    if is_plain(value) or _is(value, (*_BY_IDENTITY, torch.Tensor)):
        return False
    kind = type(value)
    return kind in _SEQUENCES or kind in _MAPPINGS or kind in _SETS or _is_array(value) or _inside(value) is not None


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def _inside(value: Any) -> "dict[str, Any] | None":
    try:
        inside = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return inside if type(inside) is dict else None


def content(value: Any) -> Hashable:
    """See above."""
    return _content(value, _DEPTH, [_MOST_VALUES])


def _content(value: Any, depth: int, left: "list[int]") -> Hashable:
    kind: Any = type(value)
    if kind in _EXACT:
        return kind, value
    if kind is float:
        return kind, value.hex()  # 0.0 == -0.0, and nan is never equal to itself
    if kind is complex:
        return kind, repr(value)
    left[0] -= 1
    if _is(value, torch.Tensor):
        strided = value.layout is torch.strided
        return id(value), value.data_ptr() if strided else 0, 0 if value.is_inference() else value._version
    if depth == 0 or left[0] < 0 or _is(value, _BY_IDENTITY):
        return id(value)
    depth -= 1
    if kind in _SEQUENCES:
        return (kind, len(value), *[_content(each, depth, left) for each in islice(value, _MOST)])
    if kind in _MAPPINGS:
        return (kind, len(value), *[(_content(key, depth, left), _content(each, depth, left))
                                    for key, each in islice(value.items(), _MOST)])
    if kind in _SETS:
        return kind, len(value), frozenset(_content(each, depth, left) for each in value) if len(value) <= _MOST else id(value)
    if _is_array(value):
        return kind, id(value), value.tobytes() if value.nbytes <= 4096 else value.nbytes
    inside = _inside(value)
    if inside is None:
        return id(value)
    return (id(value), len(inside), *[(key, _content(each, depth, left)) for key, each in islice(inside.items(), 4 * _MOST)])


def may_hold_tensor(value: Any) -> bool:
    """Whether a tensor may be held in a value, or is one: no only where all of it is looked at. Modules count as none, and so does
    code: what they hold is looked at elsewhere."""
    waiting, seen = [value], set()
    while waiting:
        each = waiting.pop()
        if is_plain(each) or _is(each, _WITHOUT_TENSORS) or id(each) in seen:
            continue
        seen.add(id(each))
        kind: Any = type(each)
        inside = _inside(each)
        if _is(each, torch.Tensor) or len(seen) > _MOST_SEARCHED:
            return True
        if kind in _SEQUENCES or kind in _SETS:
            waiting += each
        elif kind in _MAPPINGS:
            waiting += [*each, *each.values()]
        elif kind is partial:
            waiting += [each.func, *each.args, *each.keywords.values()]
        elif inside is not None and not _is(each, (list, dict, set, tuple)):
            waiting += [*inside.values(), *(held for base in kind.__mro__[:-1] for held in vars(base).values())]
        else:
            return True
    return False


def hides_module(value: Any, known: "set[int]", depth: int = _DEPTH) -> bool:
    """Whether a module that is not among the known ones is held in a value, or is one."""
    if _is(value, torch.nn.Module):
        return id(value) not in known
    if depth == 0:
        return False
    kind = type(value)
    if kind in _SEQUENCES or kind in _SETS:
        return any(hides_module(each, known, depth - 1) for each in islice(value, _MOST))
    return kind in _MAPPINGS and any(hides_module(each, known, depth - 1) for each in islice(value.values(), _MOST))
