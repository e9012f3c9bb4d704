"""What modules hold beside what they have registered: tensors, generators of random numbers and other modules, in their attributes
and in tuples, lists, dictionaries and objects that are such. No state; any thread.

Of a bounded number of objects, the nearest first: what a module refers to may be a whole program.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import functools
import types
from typing import Any, Deque, Dict, Iterator, List, Tuple

import torch

from nimble.objects import containers
from nimble.objects.host_random import is_generator
from nimble.objects.libraries import is_pythons
from nimble.objects.memory import is_array

_MOST = 20000  # objects that are looked at
_MOST_LEVELS = 8
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format,
          enum.Enum, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_ORDERED = (list, tuple, collections.deque)
_VALUES = frozenset((type(None), bool, int, float, str))  # as flags and counters are
_LIBRARIES = frozenset(("torch", "numpy", "logging", "threading", "weakref", "functools", "builtins", "ctypes", "concurrent"))
OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__) - {"training"}  # attributes


class Held:
    """Of a module and those in it. `tensors` and `modules` by the path to each, the former as often as there are paths; `containers`
    that can be changed, each with its content, and with whether it is the __dict__ of a module or another object."""

    def __init__(self) -> None:
        self.tensors: List[Tuple[str, torch.Tensor]] = []
        self.modules: List[Tuple[str, torch.nn.Module]] = []  # that are not registered
        self.generators: List[Any] = []
        self.containers: List[Tuple[Any, Any, bool]] = []
        self.others: List[Any] = []  # that can be changed, too: sets, arrays, bytearrays, iterators, objects with __slots__


def find(module: torch.nn.Module) -> Held:
    """With what is behind tensors' Python attributes, within functions, and in objects of PyTorch's own left out."""
    held = Held()
    seen = set(map(id, module.modules()))
    waiting: "Deque[Tuple[str, Any, int]]" = collections.deque()

    def enter_attributes(path: str, value: Any, level: int) -> None:
        """Of a container, which a class of its own may have beside what it holds."""
        if containers.attributes(value) is not None:
            enter(path, value, level)

    def enter(path: str, owner: Any, level: int) -> None:
        """All that its __dict__ has."""
        attributes = owner.__dict__
        held.containers.append((attributes, dict(attributes), True))
        waiting.extend((f"{path}.{key}" if path else str(key), value, level) for key, value in attributes.items()
                       if type(value) not in _PLAIN and key not in OF_EVERY_MODULE)

    for name, child in module.named_modules():
        enter(name, child, 0)
    looked = 0
    while waiting and looked < _MOST:
        path, value, level = waiting.popleft()
        if isinstance(value, _PLAIN):
            continue
        looked += 1
        if isinstance(value, torch.Tensor):
            held.tensors.append((path, value))
            continue
        if id(value) in seen or level >= _MOST_LEVELS:
            continue
        seen.add(id(value))
        if isinstance(value, torch.nn.Module):
            for name, child in value.named_modules(prefix=path):
                if child is value or id(child) not in seen:
                    seen.add(id(child))
                    held.modules.append((name, child))
                    enter(name, child, level + 1)
        elif is_generator(value):
            held.generators.append(value)
        elif isinstance(value, dict):
            content = containers.content(value)
            held.containers.append((value, content, False))
            enter_attributes(path, value, level + 1)
            waiting.extend((f"{path}[{_text_of(key, i)}]", each, level + 1) for i, (key, each) in enumerate(list(content.items())[:_MOST])
                           if type(each) not in _PLAIN)
        elif isinstance(value, (*_ORDERED, set, frozenset)):
            enter_attributes(path, value, level + 1)
            if isinstance(value, set):
                held.others.append(value)
            elif isinstance(value, (list, collections.deque)):
                held.containers.append((value, containers.content(value), False))
            waiting.extend((f"{path}[{i}]", each, level + 1) for i, each in enumerate(containers.elements(value)[:_MOST])
                           if type(each) not in _PLAIN)
        elif is_array(value) or isinstance(value, bytearray) or is_iterator(value):
            held.others.append(value)
        else:
            slots = slots_of(value)
            if slots:
                held.others.append(value)
                waiting.extend((f"{path}.{key}", getattr(value, key), level + 1) for key in slots if hasattr(value, key))
            for name, inner in _inside(value):
                waiting.append((f"{path}.{name}", inner, level + 1))
            if _is_looked_at(value):
                enter(path, value, level + 1)
    return held


def _text_of(key: Any, number: int) -> str:
    """Not of tensors, which would wait for the GPU for it."""
    return repr(key) if isinstance(key, (str, int)) else f"<{type(key).__name__} {number}>"


def _is_looked_at(value: Any) -> bool:
    library = str(type(value).__module__).partition(".")[0]
    return library not in _LIBRARIES and library != "nimble" and isinstance(getattr(value, "__dict__", None), dict)


def is_iterator(value: Any) -> bool:
    """Of Python's own."""
    return isinstance(value, collections.abc.Iterator) and type(value).__module__ in ("builtins", "itertools")


def slots_of(value: Any) -> List[str]:
    """Names of those that classes of the program give it."""
    return [key for kind in type(value).__mro__ for key, each in kind.__dict__.items()
            if isinstance(each, types.MemberDescriptorType) and not _is_of_library(str(kind.__module__))]


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in (*_LIBRARIES, "nimble") or is_pythons(module)


def _inside(value: Any) -> "Iterator[Tuple[str, Any]]":
    """Of objects that are not looked at themselves."""
    if isinstance(value, functools.partial):
        yield from (("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
    elif str(type(value).__module__).partition(".")[0] == "nimble":
        yield "module", getattr(value, "module", None)


class Contents:
    """What the tensors in the module's attributes, and in containers there, are, and plain values in attributes of modules; and can be put
    back to."""

    def __init__(self, held: Held) -> None:
        self._containers = held.containers

    def changed_values(self) -> "Dict[Tuple[int, str], Any]":
        """Of modules' attributes, by where and which: plain values that are not what they were, as they are now."""
        found: Dict[Tuple[int, str], Any] = {}
        for number, (where, before, is_dict_of_object) in enumerate(self._containers):
            if is_dict_of_object and _is_of_module(before):
                found.update(((number, key), value) for key, value in where.items()
                             if type(value) in _VALUES and _is_another(value, before.get(key, self)))
        return found

    def put_back(self) -> None:
        """Where a tensor, or something with tensors in it, has come, gone or become another: None becomes None again. And plain values of
        modules' attributes: those of other objects may be other threads'."""
        for where, before, is_dict_of_object in self._containers:
            if isinstance(where, dict):
                has_values = is_dict_of_object and _is_of_module(before)
                now = containers.content(where)
                for key in [key for key in now if key not in before and (
                        _holds_tensors(now[key]) or has_values and type(now[key]) in _VALUES)]:
                    containers.remove(where, key)
                for key, value in before.items():
                    if is_dict_of_object and key in OF_EVERY_MODULE:
                        continue
                    if now.get(key) is not value and (key not in now or _holds_tensors(value) or _holds_tensors(now[key])
                                                      or has_values and {type(value), type(now[key])} <= _VALUES):
                        containers.put(where, key, value)
            elif not containers.has(where, before):
                if any(map(_holds_tensors, containers.elements(where))) or any(map(_holds_tensors, before)):
                    containers.fill(where, before)


def _is_of_module(attributes: Dict[str, Any]) -> bool:
    return "_parameters" in attributes and "_modules" in attributes


def _is_another(value: Any, before: Any) -> bool:
    return value is not before and (type(value) is not type(before) or value != before)


def known_by_identity(module: torch.nn.Module) -> "Iterator[Tuple[str, Any]]":
    """What is in sets and keys of dictionaries, and numbers in lists and tuples, that are attributes or in such: with the path of
    each container."""
    waiting = [(f"{name}.{key}" if name else key, value, 0) for name, child in module.named_modules()
               for key, value in child.__dict__.items() if key not in OF_EVERY_MODULE]
    looked = 0
    while waiting and looked < _MOST:
        path, value, level = waiting.pop()
        if not isinstance(value, (dict, set, frozenset, *_ORDERED)):
            continue
        elements = containers.elements(value)[:_MOST]
        looked += 1 + len(elements)
        if not isinstance(value, _ORDERED):
            yield from ((path, each) for each in elements)
        else:
            yield from ((path, each) for each in elements if type(each) is int)
        inner = containers.values(value)[:_MOST] if isinstance(value, dict) else elements
        if level < _MOST_LEVELS:
            waiting.extend((path, each, level + 1) for each in inner if type(each) not in _PLAIN)


def _holds_tensors(value: Any, levels: int = 4) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    elements: Any = ()
    if isinstance(value, dict):
        elements = containers.values(value)
    elif isinstance(value, (*_ORDERED, set, frozenset)):
        elements = containers.elements(value)
    elif not isinstance(value, (*_PLAIN, torch.nn.Module)) and _is_looked_at(value):
        elements = value.__dict__.values()
    return levels > 0 and any(_holds_tensors(each, levels - 1) for each in elements)


def tensors_of(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """By path. Not those that modules have registered."""
    return dict(find(module).tensors)
