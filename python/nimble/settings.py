"""The user's settings (options.py), and the lines that say what was done about them. No PyTorch here. Any thread.

Warnings are lines like those of libnimble.so: the program may have made Python's warnings errors, and would then meet them."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Tuple

from nimble import log
from nimble.options import OPTIONS

# How many objects are frozen for Python's collector when the program imports PyTorch (auto/hook.py): no module is among them. Python
# 3.12 freezes some hundred objects of its own when it starts. Whoever freezes more later freezes all that there is.
FROZEN = gc.get_freeze_count()


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


def word(name: str) -> str:
    """Which of its words an option is. One that it does not know counts as the default, as for libnimble.so, which complains."""
    option, value = OPTIONS[name], os.environ.get(f"NIMBLE_{name}", "")
    return value if value in option.words else option.default


def parts(name: str) -> Tuple[str, ...]:
    """The parts of an option that is a list."""
    return tuple(filter(None, map(str.strip, os.environ.get(f"NIMBLE_{name}", "").split(OPTIONS[name].separator))))


def read() -> Settings:
    """From the environment."""
    return Settings(parts("TORCH_SKIP"), OPTIONS["LOG"].words.index(word("LOG")), word("TORCH") == "training")
