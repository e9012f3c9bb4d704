"""The package's one walk over Python objects. Visitors say what an object means to them and which objects to go on to.

A visitor's visit(value, at) is called for each object that the walk comes to, and returns the next ones, each with its own `at`:
what the visitor has to know there (a path, a level, the names that the code has). A visitor that is to see an object once asks
is_new().

A Walk belongs to one thread. It holds all that it has called new, so that no id is used again while it is there.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Deque, Dict, Generic, Hashable, Iterable, Iterator, List, Protocol, Tuple, TypeVar

At = TypeVar("At")


class Visitor(Protocol[At]):
    def visit(self, value: Any, at: At) -> "Iterable[Tuple[Any, At]]":
        """The objects to go on to. What it raises ends the walk and passes through."""


class Walk(Generic[At]):
    """most: how many objects are visited; is_complete is False once that has left some out."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.is_complete = True
        self.new = 0  # objects that is_new() has found new
        self.depth = 0  # of the object that is visited, in a walk depth first
        self._left = most
        self._seen: Dict[Tuple[int, Hashable], Any] = {}
        self._is_over = False

    def is_new(self, value: Any, key: Hashable = None) -> bool:
        """Whether this is asked for the first time, of the object alone or with a key."""
        place = id(value), key
        if place in self._seen:
            return False
        self._seen[place] = value
        self.new += 1
        return True

    def end(self) -> None:
        """The visitor has found what it looked for."""
        self._is_over = True

    def breadth_first(self, visitor: "Visitor[At]", roots: "Iterable[Tuple[Any, At]]") -> None:
        """The nearest objects first."""
        waiting: "Deque[Tuple[Any, At]]" = deque(roots)
        while waiting and self._may_go_on():
            waiting.extend(visitor.visit(*waiting.popleft()))

    def depth_first(self, visitor: "Visitor[At]", roots: "Iterable[Tuple[Any, At]]") -> None:
        """What an object leads to before its neighbours. A visit() that is a generator goes on when that is done."""
        waiting: "List[Iterator[Tuple[Any, At]]]" = [iter(roots)]
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
                continue
            if not self._may_go_on():
                return
            self.depth = len(waiting)
            waiting.append(iter(visitor.visit(*found)))

    def _may_go_on(self) -> bool:
        if self._left <= 0:
            self.is_complete = False
        self._left -= 1
        return self.is_complete and not self._is_over
