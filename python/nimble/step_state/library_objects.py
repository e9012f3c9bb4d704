"""Standard library objects that a step refers to: what of them can be compared and restored, and which ones are opaque.

A step's code reads attributes of most of them, which the closure search finds as it does for any object. Methods of some read attributes
that the code does not name; others lead to something else, or are memory, or a file. No state."""

from __future__ import annotations

import argparse
import array
import collections
import collections.abc
import contextvars
import functools
import gc
import io
import operator
import os
import queue
import sys
import threading
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from nimble import log
from nimble.errors import NimbleError
from nimble.guards.host_values import MOST_BYTES
from nimble.objects.libraries import is_pythons
from nimble.objects.plain import KINDS

_MOST_RESULTS = 64  # of a caching function
_OTHERS = {"torch", "numpy", "nimble"}
_LIBRARIES = {*_OTHERS, "builtins"}  # and the built-ins

# Attributes that methods of a class read; None: all of them.
_READ: Tuple[Tuple[Any, Optional[Tuple[str, ...]]], ...] = (
    (collections.UserDict, None), (collections.UserList, None), (collections.UserString, None), (collections.ChainMap, None),
    (weakref.WeakKeyDictionary, ("data",)), (weakref.WeakValueDictionary, ("data",)), (weakref.WeakSet, ("data",)),
    (queue.Queue, ("queue", "unfinished_tasks")), (threading.Event, ("_flag",)), (threading.Semaphore, ("_value",)),
    (type(os.environ), ("_data",)))
_READ_ELSEWHERE: Tuple[Tuple[str, str, Optional[Tuple[str, ...]]], ...] = (  # classes of modules that may not be imported
    ("multiprocessing.sharedctypes", "SynchronizedBase", ("_obj",)), ("multiprocessing.synchronize", "Event", ("_flag",)),
    ("configparser", "RawConfigParser", None), ("configparser", "SectionProxy", None))
_MEMORY = (("_ctypes", "_SimpleCData"), ("_ctypes", "Array"), ("_ctypes", "Structure"), ("_ctypes", "Union"))
_VIEWS: Tuple[Any, ...] = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
_CACHES = type(functools.lru_cache(maxsize=1)(lambda: None))
# Modules with classes that need no inspection: their objects never change, or their changes do not affect what the step computes, or
# they have only attributes that the code names.
_HARMLESS = frozenset((
    "_abc", "_collections", "_collections_abc", "_contextvars", "_ctypes", "_decimal", "_frozen_importlib", "_frozen_importlib_external",
    "_functools", "_json", "_lsprof", "_operator", "_struct", "_thread", "_weakref", "_weakrefset", "abc", "argparse", "ast", "builtins",
    "cProfile", "codecs", "collections", "concurrent", "configparser", "contextlib", "copy", "ctypes", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "importlib", "inspect", "ipaddress", "json", "logging", "numbers", "operator", "optparse", "pathlib",
    "pstats", "re", "string", "struct", "textwrap", "threading", "time", "traceback", "types", "typing", "unittest", "uuid", "warnings",
    "weakref", "zoneinfo"))
_ALSO_HARMLESS = frozenset(("_multiprocessing", "multiprocessing.context", "multiprocessing.heap", "multiprocessing.synchronize"))


def read_by_methods(value: Any) -> List[str]:
    """The attributes that an object's methods read, whatever the code names."""
    elsewhere = ((_kind(module, name), attributes) for module, name, attributes in _READ_ELSEWHERE)
    for kind, attributes in (*_READ, *elsewhere):
        if kind is not None and isinstance(value, kind):
            return [name for name in value.__dict__ if attributes is None or name in attributes]
    return []


def _kind(module: str, name: str) -> Any:
    """A class, or None where its module is not imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind if isinstance(kind, type) else None


def content_of(name: str, value: Any) -> "Optional[Tuple[Callable[[], Any], Callable[[Any], None]]]":
    """Getter and setter of the content of an object that is memory, or holds one value; None for others. Raises NimbleError where it is
    too much to compare."""
    if isinstance(value, contextvars.ContextVar):
        return functools.partial(value.get, None), functools.partial(_set_variable, value)
    semaphore = _kind("multiprocessing.synchronize", "Semaphore")
    if semaphore is not None and isinstance(value, semaphore) and sys.platform != "darwin":  # where its value is unavailable
        return value._semlock._get_value, lambda _: None
    kinds: Any = (array.array, bytearray, memoryview, *filter(None, (_kind(module, kind) for module, kind in _MEMORY)))
    if not isinstance(value, kinds):
        return None
    size = memoryview(value).nbytes
    if size > MOST_BYTES:
        raise NimbleError(f"{name!r} is a {type(value).__name__} of {size} bytes, which cannot be compared at each call: pass it as an "
                          "argument, as a tensor")
    return functools.partial(_bytes, value), functools.partial(_set_bytes, value)


def _set_variable(variable: "contextvars.ContextVar[Any]", value: Any) -> None:
    variable.set(value)


def _bytes(memory: Any) -> bytes:
    return memoryview(memory).tobytes()


def _set_bytes(memory: Any, content: bytes) -> None:
    if memoryview(memory).nbytes != len(content):
        del memory[:]
        memory.extend(content) if isinstance(memory, bytearray) else memory.frombytes(content)
    elif not memoryview(memory).readonly:
        memoryview(memory).cast("B")[:] = content


def leads_to(value: Any) -> "List[Any]":
    """The objects read through this one: a view's dictionary, a cached function's results."""
    if isinstance(value, _VIEWS):
        return [each for each in gc.get_referents(value) if isinstance(each, dict)]
    return _results_of(value) if isinstance(value, _CACHES) else []


def _results_of(cached: Any) -> List[Any]:
    """The results that a cached function keeps; none where they are too many to compare at each call. An unbounded cache has them in a
    dictionary. A bounded one has opaque links there, and refers to keys and results itself."""
    found = [each for each in gc.get_referents(cached) if each is not cached.__dict__ and each is not cached.__wrapped__]
    if cached.cache_info().maxsize is None:
        kept = [each for cache in found if isinstance(cache, dict) for each in cache.values()]
    else:
        caches = [each for each in found if isinstance(each, dict) and any(type(link).__module__ == "functools" for link in each.values())]
        apart = {*map(id, caches), *(id(key) for cache in caches for key in cache)}
        kept = [each for each in found if id(each) not in apart and not isinstance(each, type)]
    return kept if len(kept) <= _MOST_RESULTS else []


def names_in(value: Any) -> Set[str]:
    """Names of attributes that an attrgetter or methodcaller reads."""
    if not isinstance(value, (operator.attrgetter, operator.methodcaller)):
        return set()
    described: Any = value.__reduce__()
    return {part for each in described[1] if isinstance(each, str) for part in each.split(".")}


def check_known(name: str, value: Any) -> None:
    """Raises NimbleError for an object of a standard class where it is unknown what a step reads or stores there."""
    module = str(type(value).__module__)
    if module.partition(".")[0] not in _HARMLESS and module not in _ALSO_HARMLESS:
        raise NimbleError(f"{name!r} is a {module}.{type(value).__qualname__}, and it is unknown what the step reads or stores "
                          "there: keep it out of the step")


@functools.lru_cache(maxsize=4096)
def is_librarys(module: str) -> bool:
    """Whether the module of this name belongs to a library, and is not inspected: its state is its own."""
    return module.partition(".")[0] in _LIBRARIES or is_pythons(module)


def own_classes(kind: type) -> List[type]:
    """The program's classes among the bases of a class."""
    return [each for each in kind.__mro__ if not is_librarys(str(each.__module__))]


def is_of_python(kind: type) -> bool:
    """Whether a class is the standard library's, and not a subclass that the program has made."""
    return not own_classes(kind) and not any(str(each.__module__).partition(".")[0] in _OTHERS for each in kind.__mro__)


def is_record(kind: type) -> bool:
    """Whether objects of a class have attributes, and no methods but special ones."""
    own = own_classes(kind)
    return bool(own or issubclass(kind, (argparse.Namespace, types.SimpleNamespace))) and not any(
        is_code(value) and not key.startswith("__") for each in own for key, value in each.__dict__.items())


def is_code(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, staticmethod, classmethod, property, functools.cached_property,
                              types.GetSetDescriptorType, types.MemberDescriptorType, type, functools.partialmethod))


def attributes_of(value: Any) -> Dict[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}


def is_iterator(value: Any) -> bool:
    """Whether it is an iterator whose state cannot be restored. The program's own classes are inspected."""
    return (isinstance(value, collections.abc.Iterator) and not isinstance(value, io.IOBase)
            and not any("__next__" in kind.__dict__ for kind in own_classes(type(value))))


def text_of(key: Any) -> str:
    """A tensor's text would wait for the GPU."""
    return str(key) if isinstance(key, KINDS) else f"<{type(key).__name__}>"


class Positions:
    """The present positions in files."""

    def __init__(self, files: "List[Tuple[str, Any]]") -> None:
        self._files = [(name, file, _position(file)) for name, file in files]

    def check(self) -> None:
        """Raises NimbleError where the step has written to a file or read from one."""
        for name, file, position in self._files:
            if _position(file) != position:
                raise NimbleError(f"the step writes to {name!r}, or reads from it, which a graph would not do: do so outside of the step")

    def put_back(self) -> None:
        """Restores files in memory."""
        for _, file, position in self._files:
            if isinstance(file, (io.StringIO, io.BytesIO)) and position is not None and _position(file) != position:
                file.seek(position)
                file.truncate()


def _position(file: Any) -> Optional[int]:
    try:
        position = int(file.tell())
    except (OSError, ValueError):  # from terminals, pipes and closed files
        return None
    try:
        return None if log.may_go_to(file.fileno()) else position
    except (OSError, ValueError):  # from files in memory
        return position
