"""What the user has set (include/nimble/internal/options.def), what there was before PyTorch, and what is said on stderr. No PyTorch here. Any
thread.

Warnings are lines like libnimble.so's own: Python's warnings may be made errors, which the program would then meet.
"""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Tuple

from nimble import log

# What is frozen for Python's collector when the program imports PyTorch (hook.py), so that no module is among it. Python 3.12 freezes some
# hundred objects of its own when it starts. Whoever freezes more later freezes all that there is.
FROZEN = gc.get_freeze_count()

_LEVELS = ("off", "error", "warn", "info")


@dataclass(frozen=True)
class Settings:
    """`skip`: NIMBLE_TORCH_SKIP. `level`: how much is said, as an index into off, error, warn, info. `trains`: calls that may be
    for training are prepared, too."""

    skip: Tuple[str, ...] = ()
    level: int = 3
    trains: bool = False

    def skips(self, kind: type) -> bool:
        """Whether modules of this class are to be left alone, by its name or that of a class that it is made from."""
        return any(fnmatchcase(name, pattern) for base in kind.__mro__
                   for name in (base.__name__, f"{base.__module__}.{base.__qualname__}") for pattern in self.skip)

    def warn(self, text: str) -> None:
        self._say(2, "warning", text)

    def inform(self, text: str) -> None:
        self._say(3, "info", text)

    def _say(self, level: int, word: str, text: str) -> None:
        if self.level >= level:
            log.say(f"nimble: {word}: {text}\n")


def read() -> Settings:
    """From the environment. A level that is not known is the default, as libnimble.so has it, which complains."""
    skip = tuple(name.strip() for name in os.environ.get("NIMBLE_TORCH_SKIP", "").split(",") if name.strip())
    word = os.environ.get("NIMBLE_LOG", "")
    return Settings(skip, _LEVELS.index(word) if word in _LEVELS else 3, os.environ.get("NIMBLE_TORCH") == "training")
