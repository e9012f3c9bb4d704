"""Python values, compared cheaply: what a module's code may read beside its tensors.

Contents are of some values and all that these lead to: lists, tuples, dictionaries, sets, arrays, objects with or without
__slots__, what functions and methods are bound to, tensors with their attributes. What cannot be compared in full raises
NimbleError, and so do other modules than the known ones, random generators and iterators, whose state a graph would not advance.

Holds nothing but what never changes and leads to nothing else. Of all others it has ids, and a weak reference tells when an id may
be another object's; what has neither is compared by content alone. Runs no code of the program's. Once made it only reads; any
thread.
"""

from __future__ import annotations

import _thread
import array
import contextvars
import enum
import gc
import types
from collections import OrderedDict, defaultdict, deque
from functools import partial
from itertools import chain
from types import CodeType
from typing import AbstractSet, Any, Callable, Dict, Hashable, List, Optional, Tuple

import torch

from nimble.auto.watch import is_programs
from nimble.errors import NimbleError
from nimble.memory import is_array

_MOST_PLAIN = 64  # entries of a tuple that is held
_MOST_NODES = 512  # that are compared at each call
_MOST_VALUES = 8192  # in all of them
_MOST_BYTES = 1 << 16  # of an array
_SMALL = 16  # values of a tensor
_MOST_SEARCHED = 20000  # values, once
_EXACT = (type(None), bool, int, str, bytes, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
# Identity stands for these. What they hold is looked at where it is known, or changes without a meaning: loggers and the like.
_BY_IDENTITY = (torch.nn.Module, enum.Enum, types.GetSetDescriptorType,
                types.MemberDescriptorType, CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.GenericAlias,
                getattr(types, "UnionType", enum.Enum))
_KINDS_BY_IDENTITY = {"logging", "weakref", "_weakref", "re", "typing", "_abc", "abc"}
_OF_TORCH = ("torch._ops", "torch._C", "torch._library")
_WITHOUT_TENSORS = (types.ModuleType, torch.nn.Module, enum.Enum, types.GetSetDescriptorType,
                    types.MemberDescriptorType, torch.Generator, CodeType)
_BUFFERS = (bytearray, memoryview, array.array)
_ITERATORS = ("builtins", "itertools")

Parts = Callable[[Any], List[Any]]
_ABSENT = object()


def _is(value: Any, kinds: Any) -> bool:
    return issubclass(type(value), kinds)  # isinstance() would ask the value for its class


def is_plain(value: Any) -> bool:
    """Whether it can never change, and leads to nothing else: identity stands for its value, and it may be held."""
    kind = type(value)
    return (kind in _EXACT or kind in (float, complex) or kind is object or _is(value, enum.Enum)
            or kind in (tuple, torch.Size) and len(value) <= _MOST_PLAIN and all(map(is_plain, value)))


def plain_key(value: Any) -> Hashable:
    """Of a plain value: equal only for those that a program cannot tell apart by looking."""
    kind: Any = type(value)
    if kind is float:
        return kind, value.hex()  # 0.0 == -0.0, and nan is never equal to itself
    if kind is complex:
        return kind, repr(value)
    return (kind, *map(plain_key, value)) if kind in (tuple, torch.Size) else (kind, value)


def inside(value: Any) -> "dict[str, Any] | None":
    """An object's own dictionary, of the calling thread where it has one for each."""
    try:
        if _is(value, _thread._local):
            found = _thread._local.__getattribute__(value, "__dict__")
        else:
            found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if _is(found, dict) else None


def _slots_of(kind: type) -> List[Any]:
    return [held for base in kind.__mro__ if "__slots__" in vars(base) for held in vars(base).values()
            if type(held) is types.MemberDescriptorType]


def _slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _ABSENT


def attributes_of(value: Any) -> "List[Tuple[str, Any]]":
    """Names and values of what an object has, but for what its class has."""
    return [*(inside(value) or {}).items(), *[(slot.__name__, _slot(slot, value)) for slot in _slots_of(type(value))]]


def _attributes(value: Any) -> List[Any]:
    held = inside(value)
    return [] if held is None else [*held, *held.values()]


def _method_parts(value: Any) -> List[Any]:
    return [value.__self__, value.__func__]


def _built_in_parts(value: Any) -> List[Any]:
    owner = value.__self__
    return [] if _is(owner, (type, types.ModuleType)) else [owner]


def _partial_parts(value: Any) -> List[Any]:
    return [value.func, *value.args, *value.keywords, *value.keywords.values(), *_attributes(value)]


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _ABSENT


def _function_parts(value: Any) -> List[Any]:
    return [value.__code__, *map(_cell, value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(),
            *_attributes(value)]


def _property_parts(value: Any) -> List[Any]:
    return [value.fget, value.fset, value.fdel]


def _of_function_parts(value: Any) -> List[Any]:
    return [value.__func__]


def _context_parts(value: Any) -> List[Any]:
    return [value.get(_ABSENT)]


def _no_parts(value: Any) -> List[Any]:
    return []


def _tensor_key(value: Any) -> Hashable:
    strided = value.layout is torch.strided
    return (value.data_ptr() if strided else 0, value.shape, value.stride() if strided else None, value.dtype, value.requires_grad)


def host_key(tensor: torch.Tensor) -> Hashable:
    """Of what a tensor holds that the host has read. Small ones are written to without their version's rising, by numpy."""
    is_small = tensor.numel() <= _SMALL and tensor.device.type == "cpu" and tensor.layout is torch.strided
    return 0 if tensor.is_inference() else tensor._version, repr(tensor.tolist()) if is_small else None


def _host_tensor_key(value: Any) -> Hashable:
    return _tensor_key(value), host_key(value)


def _array_key(value: Any) -> Hashable:
    return str(value.dtype), value.shape, value.strides, value.tobytes()


def _buffer_key(value: Any) -> Hashable:
    return bytes(value)


def _dict_parts(value: Any) -> List[Any]:
    return [*dict.keys(value), *dict.values(value), *_attributes(value)]


def _ordered_parts(value: Any) -> List[Any]:
    return [*OrderedDict.keys(value), *OrderedDict.values(value), *_attributes(value)]


def _default_parts(value: Any) -> List[Any]:
    return [value.default_factory, *dict.keys(value), *dict.values(value), *_attributes(value)]


def _of_items(iterate: "Callable[[Any], Any]") -> Parts:
    return lambda value: [*iterate(value), *_attributes(value)]


_TABLE: "Tuple[Tuple[Any, Parts], ...]" = (
    (torch.Tensor, _attributes), (types.MethodType, _method_parts),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _built_in_parts), (types.FunctionType, _function_parts),
    (partial, _partial_parts), (property, _property_parts), ((staticmethod, classmethod), _of_function_parts),
    (contextvars.ContextVar, _context_parts),
    (list, _of_items(list.__iter__)), (tuple, _of_items(tuple.__iter__)), (deque, _of_items(deque.__iter__)),
    (set, _of_items(lambda value: sorted(set.__iter__(value), key=id))),
    (frozenset, _of_items(lambda value: sorted(frozenset.__iter__(value), key=id))),
    (OrderedDict, _ordered_parts), (defaultdict, _default_parts), (dict, _dict_parts),
    (types.MappingProxyType, lambda value: [*value, *value.values()]), (_BUFFERS, _no_parts),
)
# Made anew without a meaning; their content is all.
_BY_CONTENT = (list, tuple, deque, set, frozenset, dict, types.MethodType, bytearray, array.array)


def _key_of(value: Any, device_type: str) -> "Optional[Callable[[Any], Hashable]]":
    """What is compared of it besides its parts. Of tensors on the graph's device that is where they are: it reads what they hold."""
    if _is(value, torch.Tensor):
        return _tensor_key if value.device.type == device_type else _host_tensor_key
    return _buffer_key if _is(value, _BUFFERS) else _array_key if is_array(value) else None


class _Node:
    """What one value held. `key` of what is no object in it; `ids` of its parts; `plain`: those that never change, held, by their
    place; `children`: by their place, what others of them held."""

    __slots__ = ("kind", "parts", "by_content", "key", "seen", "ids", "plain", "children")

    def __init__(self, value: Any, parts: Parts, by_content: bool, device_type: str) -> None:
        self.kind, self.parts, self.by_content = type(value), parts, by_content
        self.key = _key_of(value, device_type)
        self.seen = self.key(value) if self.key is not None else None
        self.ids: List[int] = []
        self.plain: Dict[int, Any] = {}
        self.children: "List[Tuple[int, _Node]]" = []

    def is_same(self, value: Any) -> bool:
        if type(value) is not self.kind:
            return False
        if self.key is not None and self.key(value) != self.seen:
            return False
        now = self.parts(value)
        if list(map(id, now)) != self.ids and not self._is_equal(now):
            return False
        for place, child in self.children:
            if not child.is_same(now[place]):
                return False
        return True

    def _is_equal(self, now: List[Any]) -> bool:
        """Although some of the parts are others than they were."""
        if len(now) != len(self.ids):
            return False
        own = {place for place, child in self.children if child.by_content}
        return all(id(each) == number or place in own
                   or place in self.plain and is_plain(each) and plain_key(each) == plain_key(self.plain[place])
                   for place, (each, number) in enumerate(zip(now, self.ids)))


class Contents:
    """Of the values as they are now; `is_same` says later whether they, in their places, are what they were. `modules`: ids of those
    that are known, and looked at elsewhere. `keep` is told each object whose id must not become another's. `codes`: what has run, by
    which functions are followed. `names`: what is read of classes and modules that are met."""

    def __init__(self, values: List[Any], modules: AbstractSet[int], keep: "Callable[[Any], None]",
                 device_type: str, codes: AbstractSet[CodeType] = frozenset(), names: AbstractSet[str] = frozenset()) -> None:
        self._modules, self._keep, self._codes, self._names = modules, keep, codes, names
        self._device_type = device_type
        self._known: Dict[int, "_Node | None"] = {}
        self._held: List[Any] = []  # while it is made: no id may become another's
        self._places = self._nodes = 0
        self._kept: List[Any] = []  # what has no weak references, and leads to nothing
        self._root = _Node([], list, True, device_type)
        self._fill(self._root, values)
        del self._known, self._held, self._modules, self._keep, self._codes, self._names

    def is_same(self, values: List[Any]) -> bool:
        return self._root.is_same(values)

    def _fill(self, root: _Node, values: List[Any]) -> None:
        waiting = [(root, values)]
        while waiting:
            node, value = waiting.pop()
            parts = node.parts(value)
            self._held.append(parts)
            self._places += len(parts)
            self._nodes += 1
            if self._nodes > _MOST_NODES or self._places > _MOST_VALUES:
                raise NimbleError("its attributes hold more Python objects than can be compared at each call")
            node.ids = list(map(id, parts))
            for place, part in enumerate(parts):
                if is_plain(part) or type(part) is CodeType:
                    node.plain[place] = part
                    continue
                child = self._node_of(part)
                if child is not None:
                    node.children.append((place, child))
                    waiting.append((child, part))

    def _node_of(self, value: Any) -> Optional[_Node]:
        """None where it is looked at already, or is what its identity says."""
        if id(value) in self._known:
            return None
        self._known[id(value)] = None
        kind: Any = type(value)
        if _is(value, torch.nn.Module) and id(value) not in self._modules:
            raise NimbleError("it uses modules that are not registered as its own")
        if _is(value, torch.Generator):
            raise NimbleError("it has a generator of random numbers, which a graph would not advance")
        parts = self._parts_of(value, kind)
        by_content = _is(value, _BY_CONTENT)
        if not by_content:
            self._keep_identity(value, parts is not None or _is_known_by_identity(value))
        return _Node(value, parts, by_content, self._device_type) if parts is not None else None

    def _parts_of(self, value: Any, kind: Any) -> Optional[Parts]:
        if _is(value, types.ModuleType):
            return self._namespace_parts(value, [vars(value)]) if is_programs(value.__name__) else None
        if _is(value, type):
            spaces = [vars(base) for base in value.__mro__ if is_programs(base.__module__)]
            return self._namespace_parts(value, spaces)
        if _is_known_by_identity(value):
            return None
        if _is(value, types.FunctionType):
            # Of others nobody has read what they hold.
            return _function_parts if value.__code__ in self._codes or set(value.__dict__) - {"__wrapped__"} else None
        if is_array(value):
            if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
                raise NimbleError("it has a large array of numpy's, which cannot be compared at each call")
            return _attributes
        if _is(value, _BUFFERS) and memoryview(value).nbytes > _MOST_BYTES:
            raise NimbleError(f"it has a large {kind.__name__}, which cannot be compared at each call")
        if hasattr(kind, "__next__") and kind.__module__ in _ITERATORS:
            raise NimbleError("it has an iterator, which a graph would not advance")
        found = next((parts for kinds, parts in _TABLE if _is(value, kinds)), None)
        slots = _slots_of(kind)
        if found is None and inside(value) is None and not slots:
            return None
        return _with_class(found if found is not None else _attributes, kind, slots)

    def _namespace_parts(self, value: Any, spaces: "List[Any]") -> Optional[Parts]:
        """What the names that code has are in it, in none of its dictionaries or in several."""
        names = sorted(name for name in self._names if any(name in space for space in spaces))
        return (lambda _: list(chain.from_iterable([map(space.get, names) for space in spaces]))) if names else None

    def _keep_identity(self, value: Any, is_looked_into: bool) -> None:
        try:
            self._keep(value)
        except TypeError:
            if is_looked_into:
                return
            if any(not is_plain(each) and not _is(each, type) for each in gc.get_referents(value)):
                raise NimbleError(f"it has a {type(value).__name__}, of which it cannot be told whether it changes") from None
            self._kept.append(value)


def _is_known_by_identity(value: Any) -> bool:
    module = str(type(value).__module__)
    return _is(value, _BY_IDENTITY) or module.split(".")[0] in _KINDS_BY_IDENTITY or module.startswith(_OF_TORCH)


def _with_class(parts: Parts, kind: type, slots: List[Any]) -> Parts:
    """And what is read of an object's slots and of its class, where that is the program's."""
    if not is_programs(kind.__module__):
        return parts
    return lambda value: [type(value), *parts(value), *[_slot(slot, value) for slot in slots]]


def may_hold_tensor(values: List[Any]) -> bool:
    """Whether a tensor may be held in one of the values: no only where all of it is looked at."""
    found, is_all = tensors_in(values)
    return bool(found) or not is_all


def tensors_in(values: List[Any]) -> "Tuple[List[torch.Tensor], bool]":
    """Those that are held in the values, and whether these are all. What modules hold is looked at elsewhere."""
    found: List[torch.Tensor] = []
    seen: Dict[int, Any] = {}
    waiting, is_all = list(values), True
    while waiting:
        each = waiting.pop()
        if is_plain(each) or id(each) in seen or _is(each, _WITHOUT_TENSORS):
            continue
        seen[id(each)] = each
        kind: Any = type(each)
        held = inside(each)
        if len(seen) > _MOST_SEARCHED:
            return found, False
        if _is(each, torch.Tensor):
            found.append(each)
        parts = next((parts for kinds, parts in _TABLE if _is(each, kinds)), None)
        if _is(each, type):
            waiting += chain.from_iterable(vars(base).values() for base in each.__mro__ if is_programs(base.__module__))
        elif parts is not None:
            waiting += parts(each)
        elif held is not None or _slots_of(kind):
            waiting += [*_attributes(each), *[_slot(slot, each) for slot in _slots_of(kind)]]
        else:
            waiting += gc.get_referents(each)
            is_all = False
        if is_programs(kind.__module__):
            waiting.append(kind)
    return found, is_all
