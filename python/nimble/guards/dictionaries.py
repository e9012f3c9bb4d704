"""Whether modules still have their dictionaries of parameters, buffers, submodules and hooks, and classes their attributes.

A program may replace a module's dictionary (`module._modules = ...`, `module.__setstate__(...)`). Where this PyTorch has versions of
dictionaries, comparing them quickly shows that nothing has changed. Only reads, from any thread."""

from __future__ import annotations

import gc
from itertools import chain
from operator import is_, itemgetter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import torch


class Dictionaries:
    """The dictionaries that the namespaces (as vars() returns them) have under these names, in the order of names. Holds them."""

    def __init__(self, namespaces: Iterable[Dict[str, Any]], names: Sequence[str]) -> None:
        spaces = list(namespaces)
        self._fetching = [(itemgetter(name), [space for space in spaces if name in space]) for name in names]
        self.all: List[Dict[Any, Any]] = self._now()

    def are_same(self) -> bool:
        """Whether the namespaces still have these dictionaries. Raises KeyError where one has lost its name."""
        return all(map(is_, self._now(), self.all))

    def _now(self) -> List[Dict[Any, Any]]:
        return list(chain.from_iterable([map(get, spaces) for get, spaces in self._fetching]))


class Classes:
    """The attributes of classes, by identity. `keep` is called with each value whose id must stay unique."""

    def __init__(self, kinds: Iterable[type], keep: Callable[[Any], None]) -> None:
        self._spaces = [_space_of(kind) for kind in kinds]
        self._versions = versions_of(self._spaces)
        self._seen = self._now()
        for space in self._spaces:
            for value in space.values():
                keep(value)

    def are_same(self) -> bool:
        versions = versions_of(self._spaces)
        if versions is None or versions != self._versions:
            if self._now() != self._seen:
                return False
            self._versions = versions
        return True

    def _now(self) -> List[int]:
        return list(map(id, chain.from_iterable(map(dict.values, self._spaces))))


def _space_of(kind: type) -> Dict[str, Any]:
    """The dictionary that vars() of a class only shows through a proxy."""
    found: Dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found


def _found_version_of() -> "Optional[Callable[[Dict[str, Any]], int]]":
    """torch.compile's function for the version of a dictionary, which takes a twentieth of a microsecond. None where it misses
    changes, such as those made by specialized bytecode."""
    found: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "dict_version", None)
    made: Any = type("Made", (torch.nn.Module,), {})
    try:
        for owner, space in ((made, _space_of(made)), (made(), None)):
            space = vars(owner) if space is None else space
            for number in range(64):
                for change in (lambda: setattr(owner, "value", number), lambda: _assign(owner, [number]),  # noqa: B023
                               lambda: setattr(owner, "value", None), lambda: delattr(owner, "value")):  # noqa: B023
                    before = found(space)
                    if found(space) != before:
                        return None
                    change()  # type: ignore[no-untyped-call]
                    if found(space) == before:
                        return None
    except Exception:
        return None
    return found  # type: ignore[no-any-return]


def _assign(module: Any, value: Any) -> None:
    module.value = value


_version_of = _found_version_of()


def versions_of(spaces: Iterable[Dict[str, Any]]) -> Optional[List[int]]:
    """Versions that stay the same while the dictionaries do not change; they may also change spuriously. None where there are
    none."""
    return list(map(_version_of, spaces)) if _version_of is not None else None
