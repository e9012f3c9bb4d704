"""What this thread is doing: a module's call that nimble.auto looks at, so that inner calls are not looked at; or preparing a graph, so
that whatever has graphs of its own runs without them, and becomes a part of that one.

No PyTorch here. All of it belongs to the thread, but for the lock of one_at_a_time()."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import Any, Callable, Iterator, TypeVar, cast


class _Nesting(threading.local):
    depth = 0  # of module calls that nimble.auto looks at: 0 or 1
    preparing = 0  # graphs that are being prepared


nesting = _Nesting()


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """While inside, module calls are not looked at."""
    before = nesting.depth
    nesting.depth = 1
    try:
        yield
    finally:
        nesting.depth = before


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """While inside, a graph is prepared, and module calls are not looked at."""
    nesting.preparing += 1
    try:
        with inside():
            yield
    finally:
        nesting.preparing -= 1


Function = TypeVar("Function", bound=Callable[..., Any])
_one = threading.RLock()  # a module that is prepared may hold another Nimble, which is prepared in its first run


def one_at_a_time(function: Function) -> Function:
    """Decorates functions so that one of them runs at a time: while a module is prepared it is not as other threads know it."""
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _one:
            return function(*args, **kwargs)

    return cast(Function, alone)


def _in_child() -> None:
    global _one
    _one = threading.RLock()  # who holds it may be a thread of the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
