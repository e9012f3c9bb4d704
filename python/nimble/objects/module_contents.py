"""Finds what modules hold unregistered: tensors, generators of random numbers and other modules, in their attributes and in
the tuples, lists, dictionaries and objects there. No state; any thread.

The search takes a bounded number of objects, the nearest first: what a module refers to may be a whole program.
"""

from __future__ import annotations

import collections
import collections.abc
import functools
import types
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from nimble.objects import containers
from nimble.objects.host_random import is_generator
from nimble.objects.libraries import is_pythons
from nimble.objects.memory import is_array
from nimble.objects.plain import KINDS, is_plain
from nimble.objects.walk import Walk

_MOST = 20000  # objects to inspect
_MOST_LEVELS = 8
_LEAVES = (*KINDS, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)  # that are not inspected
_ORDERED = (list, tuple, collections.deque)
_LIBRARIES = frozenset(("torch", "numpy", "logging", "threading", "weakref", "functools", "builtins", "ctypes", "concurrent", "nimble"))
OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__) - {"training"}  # attributes

_At = Tuple[str, int]  # the path to an object, and its level
_Found = Tuple[Any, _At]


class ModuleContents:
    """The contents of a module and its submodules. `tensors` and `modules` by the path to each, a tensor once for each
    path; mutable `containers`, each with a copy of its content, and with whether it is the __dict__ of a module or another
    object."""

    def __init__(self) -> None:
        self.tensors: List[Tuple[str, torch.Tensor]] = []
        self.modules: List[Tuple[str, torch.nn.Module]] = []  # unregistered
        self.generators: List[Any] = []
        self.containers: List[Tuple[Any, Any, bool]] = []
        self.others: List[Any] = []  # also mutable: sets, arrays, bytearrays, iterators, objects with __slots__


def find(module: torch.nn.Module) -> ModuleContents:
    """The module's contents. Does not inspect Python attributes of tensors, functions, and PyTorch's own objects."""
    search = _Search()
    roots = [found for name, child in module.named_modules() for found in search.attributes(name, child, 0)]
    for child in module.modules():
        search.walk.is_new(child)
    search.walk.breadth_first(search, roots)
    return search.found


class _Search:
    """The visitor of find()."""

    def __init__(self) -> None:
        self.found = ModuleContents()
        self.walk: "Walk[_At]" = Walk(_MOST)

    def visit(self, value: Any, at: _At) -> Iterable[_Found]:
        path, level = at
        if isinstance(value, _LEAVES):
            return ()
        if isinstance(value, torch.Tensor):
            self.found.tensors.append((path, value))
            return ()
        if level >= _MOST_LEVELS or not self.walk.is_new(value):
            return ()
        if isinstance(value, torch.nn.Module):
            return self._module(path, value, level + 1)
        if is_generator(value):
            self.found.generators.append(value)
            return ()
        if isinstance(value, (dict, *_ORDERED, set, frozenset)):
            return self._container(path, value, level + 1)
        if is_array(value) or isinstance(value, bytearray) or is_iterator(value):
            self.found.others.append(value)
            return ()
        return self._object(path, value, level + 1)

    def attributes(self, path: str, owner: Any, level: int) -> List[_Found]:
        """The entries of the owner's __dict__."""
        attributes = owner.__dict__
        self.found.containers.append((attributes, dict(attributes), True))
        return [(value, (f"{path}.{key}" if path else str(key), level)) for key, value in attributes.items()
                if type(value) not in _LEAVES and key not in OF_EVERY_MODULE]

    def _module(self, path: str, module: torch.nn.Module, level: int) -> Iterator[_Found]:
        for name, child in module.named_modules(prefix=path):
            if child is module or self.walk.is_new(child):
                self.found.modules.append((name, child))
                yield from self.attributes(name, child, level)

    def _container(self, path: str, value: Any, level: int) -> Iterator[_Found]:
        if isinstance(value, set):
            self.found.others.append(value)
        elif not isinstance(value, (tuple, frozenset)):
            self.found.containers.append((value, containers.content(value), False))
        if containers.attributes(value) is not None:  # a subclass may have attributes besides its elements
            yield from self.attributes(path, value, level)
        if isinstance(value, dict):
            places = [(_text_of(key, number), each) for number, (key, each) in enumerate(containers.items(value))]
        else:
            places = [(str(number), each) for number, each in enumerate(containers.elements(value))]
        yield from ((each, (f"{path}[{text}]", level)) for text, each in places[:_MOST] if type(each) not in _LEAVES)

    def _object(self, path: str, value: Any, level: int) -> Iterator[_Found]:
        slots = slots_of(value)
        if slots:
            self.found.others.append(value)
            yield from ((getattr(value, key), (f"{path}.{key}", level)) for key in slots if hasattr(value, key))
        yield from ((each, (f"{path}.{name}", level)) for name, each in _inside(value))
        if _is_looked_at(value):
            yield from self.attributes(path, value, level)


def _text_of(key: Any, number: int) -> str:
    """A tensor's text would wait for the GPU."""
    return repr(key) if isinstance(key, (str, int)) else f"<{type(key).__name__} {number}>"


def _is_looked_at(value: Any) -> bool:
    library = str(type(value).__module__).partition(".")[0]
    return library not in _LIBRARIES and isinstance(getattr(value, "__dict__", None), dict)


def is_iterator(value: Any) -> bool:
    """Whether it is one of Python's own iterators."""
    return isinstance(value, collections.abc.Iterator) and type(value).__module__ in ("builtins", "itertools")


def slots_of(value: Any) -> List[str]:
    """Names of the slots that the program's classes add to the value."""
    return [key for kind in type(value).__mro__ for key, each in kind.__dict__.items()
            if isinstance(each, types.MemberDescriptorType) and not _is_of_library(str(kind.__module__))]


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES or is_pythons(module)


def _inside(value: Any) -> "Iterator[Tuple[str, Any]]":
    """What is inspected of objects that are not themselves inspected."""
    if isinstance(value, functools.partial):
        yield from (("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
    elif str(type(value).__module__).partition(".")[0] == "nimble":
        yield "module", getattr(value, "module", None)


class AttributeValues:
    """The attributes of a module at construction: tensors, including those in containers there, and plain values of
    modules."""

    def __init__(self, contents: ModuleContents) -> None:
        self._containers = contents.containers

    def changed_values(self) -> "Dict[Tuple[int, str], Any]":
        """The present values of modules' plain attributes that have changed, by namespace and name."""
        found: Dict[Tuple[int, str], Any] = {}
        for number, (where, before, is_dict_of_object) in enumerate(self._containers):
            if is_dict_of_object and _is_of_module(before):
                found.update(((number, key), value) for key, value in where.items()
                             if is_plain(value) and _is_another(value, before.get(key, self)))
        return found

    def put_back(self) -> None:
        """Undoes additions, removals and replacements of tensors and what holds tensors, and of plain values of
        modules' attributes. Plain values of other objects may belong to other threads."""
        for where, before, is_dict_of_object in self._containers:
            if isinstance(where, dict):
                _put_back_dictionary(where, before, is_dict_of_object, is_dict_of_object and _is_of_module(before))
            elif not containers.has(where, before):
                if any(map(_holds_tensors, containers.elements(where))) or any(map(_holds_tensors, before)):
                    containers.fill(where, before)


def _put_back_dictionary(where: "Dict[Any, Any]", before: "Dict[Any, Any]", is_dict_of_object: bool, has_values: bool) -> None:
    """has_values: restores plain values, too."""
    now = containers.content(where)

    def is_ours(*values: Any) -> bool:
        return any(map(_holds_tensors, values)) or has_values and all(map(is_plain, values))

    for key in [key for key in now if key not in before and is_ours(now[key])]:
        containers.remove(where, key)
    for key, value in before.items():
        if is_dict_of_object and key in OF_EVERY_MODULE:
            continue
        if key not in now or now[key] is not value and is_ours(value, now[key]):
            containers.put(where, key, value)


def _is_of_module(attributes: Dict[str, Any]) -> bool:
    return "_parameters" in attributes and "_modules" in attributes


def _is_another(value: Any, before: Any) -> bool:
    return value is not before and (type(value) is not type(before) or value != before)


class _Keys:
    """The visitor of known_by_identity()."""

    def __init__(self) -> None:
        self.found: List[Tuple[str, Any]] = []
        self.walk: "Walk[_At]" = Walk()
        self._looked = 0

    def visit(self, value: Any, at: _At) -> Iterable[_Found]:
        path, level = at
        if not isinstance(value, (dict, set, frozenset, *_ORDERED)):
            return ()
        elements = containers.elements(value)[:_MOST]
        self._looked += 1 + len(elements)
        if self._looked >= _MOST:
            self.walk.end()
        self.found += [(path, each) for each in elements if not isinstance(value, _ORDERED) or type(each) is int]
        inner = containers.values(value)[:_MOST] if isinstance(value, dict) else elements
        return [(each, (path, level + 1)) for each in inner if type(each) not in _LEAVES] if level < _MOST_LEVELS else ()


def known_by_identity(module: torch.nn.Module) -> "List[Tuple[str, Any]]":
    """Elements of sets, keys of dictionaries, and numbers in lists and tuples, where these are attributes or nested in
    attributes: with the path of each container."""
    keys = _Keys()
    keys.walk.depth_first(keys, [(value, (f"{name}.{key}" if name else key, 0)) for name, child in module.named_modules()
                                 for key, value in child.__dict__.items() if key not in OF_EVERY_MODULE])
    return keys.found


class _Tensors:
    """The visitor of _holds_tensors(); `at` is the level."""

    def __init__(self) -> None:
        self.has_any = False
        self.walk: "Walk[int]" = Walk()

    def visit(self, value: Any, at: int) -> "Iterable[Tuple[Any, int]]":
        if isinstance(value, torch.Tensor):
            self.has_any = True
            self.walk.end()
            return ()
        elements: Any = ()
        if isinstance(value, dict):
            elements = containers.values(value)
        elif isinstance(value, (*_ORDERED, set, frozenset)):
            elements = containers.elements(value)
        elif not isinstance(value, (*_LEAVES, torch.nn.Module)) and _is_looked_at(value):
            elements = value.__dict__.values()
        return [(each, at + 1) for each in elements] if at < _MOST_TENSOR_LEVELS else ()


_MOST_TENSOR_LEVELS = 4


def _holds_tensors(value: Any) -> bool:
    tensors = _Tensors()
    tensors.walk.depth_first(tensors, [(value, 0)])
    return tensors.has_any


def tensors_of(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The unregistered tensors that a module holds, by path."""
    return dict(find(module).tensors)
