"""Python values that objects refer to indirectly: through weak references, functools.lru_cache, ctypes and other objects of C. For
nimble.auto.value_snapshot, which compares them. No state; any thread."""

from __future__ import annotations

import _weakrefset
import ctypes
import functools
import gc
import weakref
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, Optional, Tuple

CACHED: type = type(functools.lru_cache(maxsize=1)(len))
WEAK_SETS = (_weakrefset.WeakSet,)
WEAK_KEYS = (weakref.WeakKeyDictionary, *WEAK_SETS)
WEAK = (weakref.ref, *weakref.ProxyTypes, weakref.WeakValueDictionary, *WEAK_KEYS)
C_DATA: Any = ctypes.c_int.__mro__[-2]
_POINTERS = (ctypes._Pointer, ctypes.c_char_p, ctypes.c_wchar_p, ctypes.py_object)
_INTERNALS = {"data", "_remove", "_pending_removals", "_iterating", "_dirty_len"}  # of weak dictionaries and sets
# C modules with objects that never change, or whose changes do not matter.
_CONSTANT_OF = {"builtins", "collections", "datetime", "decimal", "functools", "operator", "_operator", "_struct", "_thread", "zoneinfo",
                "numpy", "numpy.dtypes", "torch"}
# Methods that syntax calls implicitly.
_CALLED = {"__call__", "__getitem__", "__len__", "__iter__", "__contains__", "__bool__", "__float__", "__int__", "__index__", "__add__",
           "__radd__", "__mul__", "__rmul__"}


def weak_parts(value: Any, inside: "Callable[[Any], Optional[Dict[str, Any]]]") -> List[Any]:
    """The parts of a value of a type in WEAK, its weakly referenced objects first."""
    if issubclass(type(value), weakref.ref):
        return [weakref.ref.__call__(value)]
    if issubclass(type(value), weakref.ProxyTypes):
        try:
            return [value.__reduce_ex__.__self__]
        except ReferenceError:
            return [None]
    held = inside(value) or {}
    data: Any = held.get("data", ())
    others = [each for name, each in held.items() if name not in _INTERNALS]
    if issubclass(type(value), WEAK_SETS):
        return [*sorted((reference() for reference in list(data)), key=id), *others]
    if issubclass(type(value), weakref.WeakValueDictionary):
        return [*[reference() for reference in list(data.values())], *data, *others]
    return [*[reference() for reference in list(data)], *data.values(), *others]


def number_of_weak_keys(value: Any, inside: "Callable[[Any], Optional[Dict[str, Any]]]") -> int:
    """How many of the parts are weak keys, or elements of a weak set, and may be other modules."""
    return len((inside(value) or {}).get("data", ())) if issubclass(type(value), WEAK_KEYS) else 0


def cached_parts(value: Any) -> List[Any]:
    """The content of an lru_cache, in an order that calls do not change."""
    found: Dict[int, Any] = {}
    own = value.__dict__
    is_bounded = CACHED.cache_info(value).maxsize is not None  # type: ignore[attr-defined]
    for each in gc.get_referents(value):
        if type(each) is dict and each is not own:
            if not is_bounded:
                found.update((id(part), part) for part in (*each, *each.values()))
                continue
            if any(type(part).__name__ == "_lru_list_elem" for part in each.values()):
                continue  # the index of the cache: what it leads to is among the referents itself
        found[id(each)] = each
    return [found[number] for number in sorted(found)]


def parts_cached_now(value: Any) -> "Callable[[Any], List[Any]]":
    """A function that returns the parts that an lru_cache has now; other calls may add others."""
    known = frozenset(map(id, cached_parts(value)))
    return lambda value: [each for each in cached_parts(value) if id(each) in known]


def leads_elsewhere(value: Any) -> bool:
    """Whether a ctypes object points to memory outside of itself."""
    if isinstance(value, _POINTERS):
        return True
    if isinstance(value, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return False  # its effect is up to a library
    return not all(each is None or type(each) in (memoryview, bytes, int) for each in _leaves(value._objects))


def _leaves(kept: Any) -> Iterable[Any]:
    return [leaf for each in kept.values() for leaf in _leaves(each)] if isinstance(kept, dict) else [kept]


def is_semaphore(value: Any) -> bool:
    """Whether it is a semaphore of multiprocessing."""
    return type(value).__name__ == "SemLock" and type(value).__module__ == "_multiprocessing"


def semaphore_key(value: Any) -> Tuple[str, int]:
    is_lock = value.maxvalue == 1 or value.kind == 0
    return "", 0 if is_lock else value._get_value()


def is_opaque(kind: type, names: AbstractSet[str]) -> bool:
    """Whether code that reads these attributes may learn something from objects of a C class that cannot be compared."""
    if kind.__module__ in _CONSTANT_OF or kind.__module__.split(".")[0] == "torch":
        return False
    bases = [base for base in kind.__mro__ if base is not object]
    if all("__slots__" in vars(base) for base in bases):
        return False  # a plain Python object without content
    return any(name in names or name in _CALLED for base in bases for name in vars(base))
