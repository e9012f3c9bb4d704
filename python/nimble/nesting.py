"""Where this thread is: inside a module's call that nimble.auto looks at, whose inner calls are not looked at; or preparing a graph,
where what has graphs of its own runs without them, and becomes a part of that one.

No PyTorch here. A thread's own; no locks.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator


class _Nesting(threading.local):
    depth = 0  # of module calls that nimble.auto looks at: 0 or 1
    preparing = 0  # graphs that are being prepared


nesting = _Nesting()


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Module calls made meanwhile are not looked at."""
    before = nesting.depth
    nesting.depth = 1
    try:
        yield
    finally:
        nesting.depth = before


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """The same while a graph is prepared."""
    nesting.preparing += 1
    try:
        with inside():
            yield
    finally:
        nesting.preparing -= 1
