"""The user's settings (options.py), and the lines that report on them. No PyTorch here. Any thread.

Warnings are lines like those of libnimble.so: the program may have turned Python's warnings into errors, which would reach
it."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Tuple

from nimble import log
from nimble.options import OPTIONS

# The number of objects that Python's collector has frozen when the program imports PyTorch (auto/hook.py): no module is among
# them. Python 3.12 freezes some hundred of its own objects at its start. A later gc.freeze() freezes all objects.
FROZEN = gc.get_freeze_count()


@dataclass(frozen=True)
class Settings:
    """`skip`: NIMBLE_TORCH_SKIP. `level`: verbosity, as an index into off, error, warn, info. `trains`: also prepares calls that
    may be for training."""

    skip: Tuple[str, ...] = ()
    level: int = 3
    trains: bool = False

    def skips(self, kind: type) -> bool:
        """Whether to leave modules of this class alone, by its name or that of a base class."""
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
    """The value of an option with a choice of words. An unknown word counts as the default, as for libnimble.so, which
    complains."""
    option, value = OPTIONS[name], os.environ.get(f"NIMBLE_{name}", "")
    return value if value in option.words else option.default


def parts(name: str) -> Tuple[str, ...]:
    """The parts of an option that is a list."""
    return tuple(filter(None, map(str.strip, os.environ.get(f"NIMBLE_{name}", "").split(OPTIONS[name].separator))))


def observes() -> bool:
    """Whether libnimble.so believes what it sees kernels write."""
    return word("TRUST") == "observed"


def read() -> Settings:
    """From the environment."""
    return Settings(parts("TORCH_SKIP"), OPTIONS["LOG"].words.index(word("LOG")), word("TORCH") == "training")
