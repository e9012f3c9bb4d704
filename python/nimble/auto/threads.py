"""Which threads are in outermost calls of modules, and one that has these to itself: where a module writes to its buffers or its
arguments, or draws random numbers, what a run of ours does is put back, and nobody else may see it meanwhile, nor write there.

Who comes while another thread is alone waits at the begin of its call. Nobody waits for ever: a program may have its threads wait for
each other in ways that are not known here. Any thread.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Dict, Iterator, Optional

_MOST_UNTIL_ALONE = 0.1  # seconds until all others have left
_MOST_WHILE_ALONE = 60.0  # seconds that others wait; longer than a call takes


class Alone:
    """Of the thread that has asked for it. `is_given`, and `was_kept`: nobody has come that could not wait longer."""

    def __init__(self, is_given: bool) -> None:
        self.is_given = is_given
        self.was_kept = True


class Threads:
    """Of a process."""

    def __init__(self) -> None:
        self._inside: "Dict[int, object]" = {}  # by thread, what its outermost call is of
        self._alone: Optional[Alone] = None
        self._changed = threading.Condition()

    def forked(self) -> None:
        """In a child of the process, which has one thread: another one may have held what is waited for."""
        self._inside, self._alone, self._changed = {}, None, threading.Condition()

    def enter(self, thread: int, of: object) -> None:
        """`thread` is the caller's. At the begin of an outermost call; leave() has to follow."""
        self._inside[thread] = of  # before the look, as who wants to be alone says so before looking here: one of both sees the other
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
        """Whether other threads are in calls of it."""
        return any(each is of and number != thread for number, each in list(self._inside.items()))

    @contextlib.contextmanager
    def alone(self, thread: int) -> Iterator[Alone]:
        """Within, no other thread is in an outermost call, where that is given. Within an outermost call of `thread`, the caller's."""
        with self._changed:
            mine = Alone(False)
            if self._alone is None:
                self._alone = mine
                try:
                    mine.is_given = self._changed.wait_for(lambda: set(self._inside) <= {thread}, _MOST_UNTIL_ALONE)
                finally:  # somebody may have pressed Ctrl-C
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
