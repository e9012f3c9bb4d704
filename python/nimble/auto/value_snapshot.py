"""Snapshots of Python values, compared cheaply: what a module's code may read besides its tensors.

A ValueSnapshot covers some values and all that they lead to: lists, tuples, dictionaries, sets, arrays, objects with or
without __slots__, what functions and methods are bound to, tensors with their attributes. It raises NimbleError for what
cannot be compared in full: modules other than the known ones, and random generators and iterators, since a graph would not
advance these.

It holds only what never changes and leads to nothing else. Of all others it has ids, and a weak reference tells when an id may
belong to another object; what has neither is compared by content alone. It runs none of the program's code. Once made it only
reads; any thread."""

from __future__ import annotations

import array
import enum
import gc
import mmap
import types
from collections import deque
from itertools import chain
from types import CodeType
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, Hashable, Iterable, List, Optional, Sequence, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.host_values import MOST_BYTES, host_key
from nimble.objects.indirect_references import (C_DATA, CACHED, WEAK, is_opaque, is_semaphore, leads_elsewhere, number_of_weak_keys,
                                                parts_cached_now, semaphore_key)
from nimble.objects.libraries import bases_of, is_programs
from nimble.objects.memory import is_array
from nimble.objects.parts import (BUFFERS, BUILT_IN, TABLE, Parts, built_in_parts, function_parts, held_parts, inside, is_kind, slot_of,
                                  slots_of)
from nimble.objects.plain import is_constant, is_plain, plain_key
from nimble.objects.walk import Walk

_MOST_NODES = 512  # compared at each call
_MOST_VALUES = 8192  # in all nodes
_MOST_SEARCHED = 20000  # values, once
# Objects that are compared by identity. What they hold is compared elsewhere, or its changes do not matter, as with loggers.
_BY_IDENTITY = (torch.nn.Module, types.GetSetDescriptorType,
                types.MemberDescriptorType, CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.GenericAlias,
                getattr(types, "UnionType", CodeType))
_KINDS_BY_IDENTITY = {"logging", "re", "typing", "_abc", "abc"}
_OF_LIBRARIES = ("torch._ops", "torch._C", "torch._library", "multiprocessing.heap")
_WITHOUT_TENSORS = (types.ModuleType, torch.nn.Module, types.GetSetDescriptorType,
                    types.MemberDescriptorType, torch.Generator, CodeType)
# These may lead to a whole program, or to much memory: they are inspected only where code names them.
_LEADING_FAR = (*WEAK, mmap.mmap, C_DATA)
_ITERATORS = ("builtins", "itertools")


def _tensor_key(value: Any) -> Hashable:
    strided = value.layout is torch.strided
    return (value.data_ptr() if strided else 0, value.shape, value.stride() if strided else None, value.dtype, value.requires_grad)


def _host_tensor_key(value: Any) -> Hashable:
    return _tensor_key(value), host_key(value)


def _array_key(value: Any) -> Hashable:
    return str(value.dtype), value.shape, value.strides, value.tobytes()


def _buffer_key(value: Any) -> Hashable:
    return memoryview(value).tobytes()


# Objects that may be replaced by equal ones: only their content matters.
_BY_CONTENT = (list, tuple, deque, set, frozenset, dict, types.MethodType, bytearray, array.array)


def _key_of(value: Any, device_type: str) -> "Optional[Callable[[Any], Hashable]]":
    """The part of a value that is compared besides its parts' own. For tensors on the graph's device the address: the graph reads
    their values."""
    if is_kind(value, torch.Tensor):
        return _tensor_key if value.device.type == device_type else _host_tensor_key
    return _buffer_key if is_kind(value, BUFFERS) else _array_key if is_array(value) else semaphore_key if is_semaphore(value) else None


class _Node:
    """What one value held. `key`: for content that is no object; `ids` of its parts; `plain`: parts that never change, held, by place;
    `children`: nodes of other parts, by place."""

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
        """Whether the parts are equal, although some are other objects."""
        if len(now) != len(self.ids):
            return False
        own = {place for place, child in self.children if child.by_content}
        return all(id(each) == number or place in own
                   or place in self.plain and is_plain(each) and plain_key(each) == plain_key(self.plain[place])
                   for place, (each, number) in enumerate(zip(now, self.ids)))


class ValueSnapshot:
    """The current values; is_same() later says whether they are unchanged, each in its place. modules: ids of modules that are
    compared elsewhere. keep: called with each object whose id must stay unique. codes: code that has run; only such functions
    are followed. names: the names that are read from classes and modules."""

    def __init__(self, values: List[Any], modules: AbstractSet[int], keep: "Callable[[Any], None]",
                 device_type: str, codes: AbstractSet[CodeType] = frozenset(), names: FrozenSet[str] = frozenset(),
                 labels: Sequence[str] = ()) -> None:
        self._modules, self._keep, self._codes, self._names = modules, keep, codes, names
        self._all_names = names.union(*[code.co_names for code in codes])
        self._labels = labels
        self._device_type = device_type
        self._walk: "Walk[_Node]" = Walk()
        self._known: "Dict[int, Optional[_Node]]" = {}  # by id
        self._places = self._nodes = 0
        self._kept: List[Any] = []  # what has no weak references, and leads to nothing
        self._root = _Node([], list, True, device_type)
        self._walk.depth_first(self, [(values, self._root)])
        del self._walk, self._known, self._modules, self._keep, self._codes, self._names, self._all_names, self._labels

    def is_same(self, values: List[Any]) -> bool:
        return self._root.is_same(values)

    def visit(self, value: Any, at: _Node) -> "List[Tuple[Any, _Node]]":
        """Fills the node of a value, and goes on to those of its parts."""
        parts = at.parts(value)
        self._walk.is_new(parts)  # holds it and its elements during the walk, so that no id is reused
        self._places += len(parts)
        self._nodes += 1
        if self._nodes > _MOST_NODES or self._places > _MOST_VALUES:
            raise NimbleError("its attributes hold more Python objects than can be compared at each call")
        at.ids = list(map(id, parts))
        weak_keys = number_of_weak_keys(value, inside)
        for place, part in enumerate(parts):
            if is_constant(part) or type(part) is CodeType:
                at.plain[place] = part
            elif place < weak_keys and is_kind(part, torch.nn.Module):
                self._keep(part)
            elif is_kind(part, _LEADING_FAR) and not self._may_be_read(part, at, value):
                self._keep_identity(part, True)
            else:
                if self._walk.is_new(part):
                    child = self._known[id(part)] = self._node_of(part)
                    if child is not None:
                        at.children.append((place, child))
                if self._known[id(part)] is None and self._is_opaque(part) and self._may_be_read(part, at, value):
                    raise NimbleError(f"it has a {type(part).__name__}, and it cannot be told whether that changes")
        return [(parts[place], child) for place, child in at.children]

    def _node_of(self, value: Any) -> Optional[_Node]:
        """None where comparing identity is enough."""
        kind: Any = type(value)
        if is_kind(value, torch.nn.Module) and id(value) not in self._modules:
            raise NimbleError("it uses modules that are not registered as its own")
        if is_kind(value, torch.Generator):
            raise NimbleError("it has a generator of random numbers, which a graph would not advance")
        parts = self._parts_of(value, kind)
        by_content = is_kind(value, _BY_CONTENT)
        if not by_content:
            self._keep_identity(value, parts is not None or _is_known_by_identity(value))
        return _Node(value, parts, by_content, self._device_type) if parts is not None else None

    def _is_opaque(self, value: Any) -> bool:
        return (inside(value) is None and not is_kind(value, type) and not _is_known_by_identity(value)
                and is_opaque(type(value), self._all_names))

    def _may_be_read(self, part: Any, node: _Node, owner: Any) -> bool:
        """Whether code names the attribute that holds the part; True where it is no attribute."""
        names: "List[Any]"
        if node is self._root:
            names = [label for label, each in zip(self._labels, owner) if each is part]
        else:
            names = [name for name, each in (inside(owner) or {}).items() if each is part]
        return not names or any(name in self._all_names for name in names)

    def _parts_of(self, value: Any, kind: Any) -> Optional[Parts]:
        if is_kind(value, types.ModuleType):
            return self._namespace_parts(value, [vars(value)]) if is_programs(value.__name__) else None
        if is_kind(value, type):
            return self._namespace_parts(value, list(map(vars, bases_of(value))))
        if _is_known_by_identity(value):
            return None
        if is_kind(value, enum.Enum) and not is_programs(kind.__module__):
            return None
        if is_kind(value, CACHED):
            return parts_cached_now(value)
        if is_kind(value, C_DATA) and leads_elsewhere(value):
            raise NimbleError(f"it has a {kind.__name__} of ctypes, which points to what cannot be compared")
        if is_kind(value, types.FunctionType):
            # No code that has run reads what other functions hold.
            return function_parts if value.__code__ in self._codes or set(value.__dict__) - {"__wrapped__"} else None
        if is_kind(value, BUILT_IN) and not built_in_parts(value):
            return None
        if is_array(value):
            if value.nbytes > MOST_BYTES or value.dtype.hasobject:
                raise NimbleError("it has a large NumPy array, which cannot be compared at each call")
            return held_parts
        if is_kind(value, BUFFERS) and memoryview(value).nbytes > MOST_BYTES:
            raise NimbleError(f"it has a large {kind.__name__}, which cannot be compared at each call")
        if hasattr(kind, "__next__") and kind.__module__ in _ITERATORS and not is_kind(value, WEAK):
            raise NimbleError("it has an iterator, which a graph would not advance")
        found = next((parts for kinds, parts in TABLE if is_kind(value, kinds)), None)
        slots = slots_of(kind)
        if found is None and inside(value) is None and not slots:
            return (lambda _: []) if is_semaphore(value) else None
        return _with_class(found if found is not None else held_parts, kind, slots)

    def _namespace_parts(self, value: Any, spaces: "List[Any]") -> Optional[Parts]:
        """The values of the names that code has, in each of these dictionaries."""
        names = sorted(name for name in self._names if any(name in space for space in spaces))
        return (lambda _: list(chain.from_iterable([map(space.get, names) for space in spaces]))) if names else None

    def _keep_identity(self, value: Any, is_looked_into: bool) -> None:
        try:
            self._keep(value)
        except TypeError:
            if is_looked_into:
                return
            if any(not is_plain(each) and not is_kind(each, type) for each in gc.get_referents(value)):
                raise NimbleError(f"it has a {type(value).__name__}, and it cannot be told whether that changes") from None
            self._kept.append(value)


def _is_known_by_identity(value: Any) -> bool:
    module = str(type(value).__module__)
    return is_kind(value, _BY_IDENTITY) or module.split(".")[0] in _KINDS_BY_IDENTITY or module.startswith(_OF_LIBRARIES)


def _with_class(parts: Parts, kind: type, slots: List[Any]) -> Parts:
    """The parts, with an object's slots and its class, where that is the program's."""
    if not is_programs(kind.__module__):
        return parts
    return lambda value: [type(value), *parts(value), *[slot_of(slot, value) for slot in slots]]


class _Tensors:
    """The visitor of tensors_in()."""

    def __init__(self) -> None:
        self.found: List[torch.Tensor] = []
        self.are_all = True
        self.walk: "Walk[None]" = Walk()

    def visit(self, value: Any, at: None) -> "List[Tuple[Any, None]]":
        if is_constant(value) or is_kind(value, _WITHOUT_TENSORS) or not self.walk.is_new(value):
            return []
        if self.walk.new > _MOST_SEARCHED:
            self.are_all = False
            self.walk.end()
            return []
        if is_kind(value, torch.Tensor):
            self.found.append(value)
        held = list(self._held_by(value))
        if is_programs(type(value).__module__):
            held.append(type(value))
        return [(each, None) for each in held]

    def _held_by(self, value: Any) -> "Iterable[Any]":
        kind: Any = type(value)
        parts = next((parts for kinds, parts in TABLE if is_kind(value, kinds)), None)
        if is_kind(value, type):
            return chain.from_iterable(vars(base).values() for base in bases_of(value))
        if parts is not None:
            return parts(value)
        if inside(value) is not None or slots_of(kind):
            return [*held_parts(value), *[slot_of(slot, value) for slot in slots_of(kind)]]
        self.are_all = False
        return gc.get_referents(value)


def tensors_in(values: List[Any]) -> "Tuple[List[torch.Tensor], bool]":
    """The tensors held in the values, and whether the list is complete. What modules hold is inspected elsewhere."""
    tensors = _Tensors()
    tensors.walk.depth_first(tensors, [(value, None) for value in values])
    return tensors.found, tensors.are_all
