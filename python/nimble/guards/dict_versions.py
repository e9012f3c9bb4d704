"""Detects by a few words of CPython's memory whether dictionaries have changed, or modules got another class or `__dict__`.

A word costs some nanoseconds, a look at a dictionary's content a hundred. Up to Python 3.12 a dictionary has a version
number that each change replaces (`ma_version_tag` of PEP 509), and an object has pointers to its class and its `__dict__`.
Both are tested before use: from Python 3.13 on versions no longer change where attributes are set.

One thread at a time uses a DictVersions, holding the interpreter's lock; its owner keeps the watched objects alive."""

from __future__ import annotations

import ctypes
import functools
import sys
from array import array
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from nimble import shim

_CLASS_AT = 8  # bytes from an object's beginning: after its reference count
_VERSION_AT = 24  # from a dictionary's: after that, its class and its number of entries
_DICTIONARY_AT = -24  # where Python manages an object's dictionary, since 3.11; other classes give its offset
_MANAGED = 1 << 4  # the flag of such a class

_Update = Callable[[int, int, int], int]


class DictVersions:
    """The words at some addresses, as they were at the last look."""

    def __init__(self, update: _Update, places: List[int]) -> None:
        self._places = array("Q", places)
        self._words = array("Q", bytes(8 * len(places)))
        self._update = functools.partial(update, self._places.buffer_info()[0], self._words.buffer_info()[0], len(places))
        self._update()

    def have_changed(self) -> bool:
        """Whether a word has changed since this was last asked."""
        return self._update() != 0


def dict_versions_of(dictionaries: "Iterable[Dict[Any, Any]]", objects: Iterable[Any]) -> Optional[DictVersions]:
    """Words that change when one of the dictionaries changes, or one of the objects gets another class or `__dict__`; they
    may also change spuriously. None where this Python has none."""
    update = _update()
    places = _places_in(objects) if update is not None else None
    return DictVersions(update, [*_places_of(dictionaries), *places]) if update is not None and places is not None else None


def _places_of(dictionaries: "Iterable[Dict[Any, Any]]") -> List[int]:
    return [id(each) + _VERSION_AT for each in dictionaries]


def _places_in(objects: Iterable[Any]) -> Optional[List[int]]:
    places: List[int] = []
    for each in objects:
        kind = type(each)
        at = _DICTIONARY_AT if kind.__flags__ & _MANAGED and sys.version_info >= (3, 11) else kind.__dictoffset__
        if at == 0 or (at < 0 and at != _DICTIONARY_AT):
            return None
        here = [(id(each) + _CLASS_AT, id(kind)), (id(each) + at, id(vars(each)))]
        if any(ctypes.c_uint64.from_address(place).value != value for place, value in here):
            return None
        places.extend(place for place, _ in here)
    return places


@functools.lru_cache(maxsize=1)
def _update() -> Optional[_Update]:
    """The function that compares words; None where this Python has no reliable words."""
    update = shim.words_updater()
    return update if update is not None and tells(update) else None


def tells(update: _Update) -> bool:
    """Whether all changes show in the words, even those made by specialized bytecode."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14) or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    try:
        for number in range(64):
            for words, change in _changes(update, number):
                if words.have_changed():
                    return False
                change()
                if not words.have_changed():
                    return False
    except Exception:
        return False
    return True


class _Made:
    value: Any = None


class _Other(_Made):
    pass


_made = _Made()


def _assign(owner: Any, value: Any) -> None:
    owner.value = value


def _changes(update: _Update, number: int) -> "Iterable[Tuple[DictVersions, Callable[[], Any]]]":
    """Watched words, each with a change that must show in them."""
    for owner in (_made, _Made()):
        of_owner = DictVersions(update, _places_of([vars(owner)]))
        for change in (lambda: setattr(owner, "value", number), lambda: _assign(owner, [number]),  # noqa: B023
                       lambda: setattr(owner, "value", None), lambda: vars(owner).update(value=number),  # noqa: B023
                       lambda: delattr(owner, "value")):  # noqa: B023
            yield of_owner, change
    for kind in (dict, OrderedDict):
        for size in (1, 2, 8, 9, 40):
            found: Any = kind((str(n), [n]) for n in range(size))
            of_found = DictVersions(update, _places_of([found]))
            yield of_found, lambda: found.__setitem__("0", [number])  # noqa: B023
            yield of_found, lambda: found.__setitem__(str(size), number)  # noqa: B023
            yield of_found, lambda: found.update({"0": (number,)})  # noqa: B023
            yield of_found, lambda: found.pop("0")  # noqa: B023
            yield of_found, lambda: found.setdefault("0", number)  # noqa: B023
            yield of_found, found.popitem
            yield of_found, lambda: found.update((str(-n), n) for n in range(1, 20))  # noqa: B023
            yield of_found, lambda: found.__delitem__("-3")  # noqa: B023
            yield of_found, found.clear
    moved = _Made()
    of_moved = DictVersions(update, _places_in([moved]) or [])
    for change in (lambda: setattr(moved, "__class__", _Other), lambda: setattr(moved, "__dict__", {"value": number}),
                   lambda: setattr(moved, "__class__", _Made), lambda: setattr(moved, "__dict__", {})):
        yield of_moved, change
