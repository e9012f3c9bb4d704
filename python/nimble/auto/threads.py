"""Tracks which threads are in outermost calls of modules, and gives one thread exclusive access to them: where a module writes to buffers
or arguments, or draws random numbers, our runs are undone, and no other thread may observe that or write there meanwhile.

Other threads wait at the beginning of their calls, but only for a bounded time: a program's threads may wait for each other in ways
unknown here. Any thread."""

from __future__ import annotations

import contextlib
import threading
from typing import Dict, Iterator, Optional

_MOST_UNTIL_ALONE = 0.1  # seconds until all other threads have left
_MOST_WHILE_ALONE = 60.0  # seconds that others wait; longer than a call takes


class ExclusiveAccess:
    """One thread's request for exclusive access. `is_given`; `was_kept`: no other thread has given up waiting."""

    def __init__(self, is_given: bool) -> None:
        self.is_given = is_given
        self.was_kept = True


class Threads:
    """The threads of a process."""

    def __init__(self) -> None:
        self._inside: "Dict[int, object]" = {}  # by thread, the object of its outermost call
        self._alone: Optional[ExclusiveAccess] = None
        self._changed = threading.Condition()

    def forked(self) -> None:
        """Called in a forked child, which has one thread: a thread of the parent may have held the lock."""
        self._inside, self._alone, self._changed = {}, None, threading.Condition()

    def enter(self, thread: int, of: object) -> None:
        """Called at the beginning of an outermost call, with the caller's thread; leave() must follow."""
        self._inside[thread] = of  # before the check: exclusive() sets its flag before it looks here, so one of the two sees the other
        if self._alone is not None:
            self._wait(thread, of)

    def leave(self, thread: int) -> None:
        self._inside.pop(thread, None)
        if self._alone is not None:
            with self._changed:
                self._changed.notify_all()

    def _wait(self, thread: int, of: object) -> None:
        with self._changed:
            self._inside.pop(thread, None)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._alone is None, _MOST_WHILE_ALONE) and self._alone is not None:
                self._alone.was_kept = False
            self._inside[thread] = of

    def others_in(self, thread: int, of: object) -> bool:
        """Whether other threads are in calls of this object."""
        return any(each is of and number != thread for number, each in list(self._inside.items()))

    @contextlib.contextmanager
    def exclusive(self, thread: int) -> Iterator[ExclusiveAccess]:
        """While inside, no other thread is in an outermost call, if that is_given. The caller is in an outermost call of `thread`."""
        with self._changed:
            mine = ExclusiveAccess(False)
            if self._alone is None:
                self._alone = mine
                try:
                    mine.is_given = self._changed.wait_for(lambda: set(self._inside) <= {thread}, _MOST_UNTIL_ALONE)
                finally:  # for example after Ctrl-C
                    if not mine.is_given:
                        self._end()
        try:
            yield mine
        finally:
            if mine.is_given:
                with self._changed:
                    self._end()

    def _end(self) -> None:
        self._alone = None
        self._changed.notify_all()
