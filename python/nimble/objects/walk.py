"""The package's one walk over Python objects. Visitors process an object and say which objects to visit next.

A visitor's visit(value, at) is called for each object that the walk reaches, and returns the next ones, each with its
own `at`: the visitor's context there (a path, a level, the names that the code has). A visitor that must see an object
only once checks is_new().

A Walk belongs to one thread. It holds all objects that it has called new, so that no id is reused during its life. """

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Deque, Dict, Generic, Hashable, Iterable, Iterator, List, Protocol, Tuple, TypeVar

At = TypeVar("At")


class Visitor(Protocol[At]):
    def visit(self, value: Any, at: At) -> "Iterable[Tuple[Any, At]]":
        """The objects to visit next. Its errors end the walk and pass through."""


class Walk(Generic[At]):
    """most: how many objects are visited; is_complete is False once that limit has left some out."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.is_complete = True
        self.new = 0  # objects that is_new() has found new
        self.depth = 0  # of the visited object, in a depth-first walk
        self._left = most
        self._seen: Dict[Tuple[int, Hashable], Any] = {}
        self._is_over = False

    def is_new(self, value: Any, key: Hashable = None) -> bool:
        """Whether this is the first call for the object, alone or with a key."""
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
        """An object's references before its neighbours. A visit() that is a generator resumes when these are done."""
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
