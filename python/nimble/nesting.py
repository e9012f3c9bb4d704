"""Whether this thread is inside a module's call that nimble.auto looks at, or is preparing one: calls within are not looked at.

No PyTorch here. A thread's own; no locks.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator


class _Nesting(threading.local):
    depth = 0


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
