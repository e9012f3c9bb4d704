"""A step function's references: modules, optimizers and tensors that it uses, and the Python values that it reads.

closure_search.py finds them; step_state.py compares and restores them. A ClosureInputs does not change; its slots read and
write their places. """

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Tuple

import torch


class Slot:
    """A place that holds a value: its name for messages, and how to read and write it. `where` is the dictionary and the key, if the
    place is in a dictionary."""

    __slots__ = ("name", "get", "set", "where")

    def __init__(self, name: str, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        self.name, self.get, self.set = name, get, set
        self.where: Optional[Tuple[Dict[Any, Any], Any]] = None
        if isinstance(get, functools.partial) and get.func is dict.get:
            self.where = get.args[0], get.args[1]


class Values:
    """Reads many slots at once. `slots` has them in the order of now()'s result: those in dictionaries, which are most, come
    first."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.slots = sorted(slots, key=lambda slot: slot.where is None)
        self._others = [slot.get for slot in self.slots if slot.where is None]
        places = [slot.where for slot in self.slots if slot.where is not None]
        self._dictionaries, self._keys = [where for where, _ in places], [key for _, key in places]

    def now(self) -> List[Any]:
        return [*map(dict.get, self._dictionaries, self._keys), *(get() for get in self._others)]


class Names(NamedTuple):
    """The names in code: all of them, and those that are not only called as methods."""

    named: FrozenSet[str] = frozenset()
    read: FrozenSet[str] = frozenset()


class ClosureInputs:
    """The references of a function, each object once. `slots` are the places from which it reads values, `containers` the lists
    and the like among these values, `names` those in the code of all functions found."""

    def __init__(self) -> None:
        self.modules: List[torch.nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.scalers: List[Any] = []
        self.tensors: List[torch.Tensor] = []
        self.arrays: List[Any] = []  # NumPy's
        self.files: List[Tuple[str, Any]] = []
        self.generators: List[Any] = []  # of random numbers, on the host
        self.containers: List[Any] = []
        self.slots: List[Slot] = []
        self.kept_alive: List[Any] = []  # so that no id is reused
        self.names = Names()


def add_once(where: List[Any], value: Any) -> None:
    if not any(each is value for each in where):
        where.append(value)


def cell_content(cell: Any) -> Any:
    """The content of a closure cell; None while it is unassigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
