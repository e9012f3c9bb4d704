"""Reads and refills lists, dictionaries, sets and deques by Python's own methods, whatever their classes override.
Libraries have dictionaries that make or import something on access.

No state. The caller ensures that no thread changes such a container meanwhile."""

from __future__ import annotations

import collections
from operator import is_
from typing import Any, Dict, Iterator, List, Optional, Tuple

KINDS = (list, dict, set, collections.deque)  # mutable
_BASES: "Tuple[Any, ...]" = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque)


def _base(where: Any) -> Any:
    """The built-in base class of a container."""
    kind = type(where)
    return kind if kind in _BASES else next(base for base in _BASES if isinstance(where, base))


def elements(where: Any) -> List[Any]:
    """The elements in their order; the keys of a dictionary."""
    return list(_base(where).__iter__(where))


def values(where: "Dict[Any, Any]") -> List[Any]:
    """The values of a dictionary, in the order of elements()."""
    if not isinstance(where, collections.OrderedDict):
        return list(dict.values(where))
    return [dict.__getitem__(where, key) for key in elements(where)]


def items(where: "Dict[Any, Any]") -> Iterator[Tuple[Any, Any]]:
    return zip(elements(where), values(where))


def attributes(where: Any) -> "Optional[Dict[str, Any]]":
    """The __dict__ of a container of a subclass, if it has one."""
    return getattr(where, "__dict__", None)


def size(where: Any) -> int:
    return int(_base(where).__len__(where))


def get(where: Any, key: Any, default: Any = None) -> Any:
    """The element of a dictionary or a sequence; the default where there is none."""
    if isinstance(where, dict):
        return dict.get(where, key, default)
    return _base(where).__getitem__(where, key) if key < size(where) else default


def put(where: Any, key: Any, value: Any) -> None:
    """Sets the element of a dictionary or a sequence; does nothing past a sequence's end."""
    if isinstance(where, dict) or key < size(where):
        _base(where).__setitem__(where, key, value)


def remove(where: "Dict[Any, Any]", key: Any) -> None:
    _base(where).__delitem__(where, key)


def content(where: Any) -> Any:
    """A copy of the content: a plain dictionary or set, or a list."""
    if isinstance(where, dict):
        return dict(items(where))
    return set(elements(where)) if isinstance(where, (set, frozenset)) else elements(where)


def has(where: Any, before: Any) -> bool:
    """Whether the content equals what content() returned: the same objects, in the same order where there is one."""
    if isinstance(where, (set, frozenset)):
        return sorted(map(id, elements(where))) == sorted(map(id, before))
    now = elements(where)
    if len(now) != len(before) or not all(map(is_, now, before)):
        return False
    return not isinstance(where, dict) or all(map(is_, values(where), before.values()))


def fill(where: Any, before: Any) -> None:
    """Restores the content that content() returned. It stays the same object."""
    base = _base(where)
    base.clear(where)
    if isinstance(where, dict):
        for key, value in before.items():
            base.__setitem__(where, key, value)
    else:
        (base.update if isinstance(where, set) else base.extend)(where, before)
