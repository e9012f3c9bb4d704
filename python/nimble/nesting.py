"""Tracks what this thread is doing: a module's call that nimble.auto observes, so that inner calls are not observed; or
preparing a graph, so that anything with its own graphs runs without them, as a part of that one.

No PyTorch here. All of it is thread-local, except the lock of one_at_a_time()."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import Any, Callable, Iterator, TypeVar, cast


class _Nesting(threading.local):
    depth = 0  # of module calls that nimble.auto observes: 0 or 1
    preparing = 0  # graphs being prepared


nesting = _Nesting()


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """While inside, module calls are not observed."""
    before = nesting.depth
    nesting.depth = 1
    try:
        yield
    finally:
        nesting.depth = before


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """While inside, a graph is prepared, and module calls are not observed."""
    nesting.preparing += 1
    try:
        with inside():
            yield
    finally:
        nesting.preparing -= 1


Function = TypeVar("Function", bound=Callable[..., Any])
_one = threading.RLock()  # reentrant: a module being prepared may hold another Nimble, which is prepared in its first run


def one_at_a_time(function: Function) -> Function:
    """Decorates functions so that one of them runs at a time: while a module is prepared its attributes are temporarily
    replaced."""
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _one:
            return function(*args, **kwargs)

    return cast(Function, alone)


@contextlib.contextmanager
def unless_others_prepare() -> Iterator[bool]:
    """Whether no other thread runs a function of one_at_a_time(), and none does while inside."""
    lock = _one
    is_alone = lock.acquire(blocking=False)
    try:
        yield is_alone
    finally:
        if is_alone:
            lock.release()


def _in_child() -> None:
    global _one
    _one = threading.RLock()  # a thread of the parent may hold the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
