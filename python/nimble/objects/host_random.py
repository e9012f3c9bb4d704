"""The host's random number generators: Python's, NumPy's, PyTorch's on the CPU, and the program's own.

A HostRandom remembers their state at construction. No locks: draws by other threads meanwhile are not distinguished."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any, Callable, Iterable, List, Optional, Tuple

import torch

_Kept = Tuple[Callable[[], Any], Callable[[Any], Any], Any]  # its getter and setter, and the saved state


def is_generator(value: Any) -> bool:
    """Whether the object draws random numbers on the host and shows its state."""
    return isinstance(value, torch.Generator) and value.device.type == "cpu" or _way(value) is not None


class HostRandom:
    """`generators`: those that is_generator() has found, besides the global ones."""

    def __init__(self, generators: Iterable[Any] = ()) -> None:
        self._torch: _Kept = _kept(torch.get_rng_state, torch.set_rng_state)
        self._others: List[_Kept] = [_kept(random.getstate, random.setstate)]
        numpy: Any = sys.modules.get("numpy.random")
        if numpy is not None:
            self._others.append(_kept(lambda: numpy.get_state(legacy=False), numpy.set_state))
        for each in generators:
            way = (each.get_state, each.set_state) if isinstance(each, torch.Generator) else _way(each)
            if way is not None:
                self._others.append(_kept(*way))

    def who_has_drawn(self, but_torch: bool = False) -> Optional[str]:
        """What has drawn random numbers since, as a phrase for a message; None where nothing has. but_torch: ignores
        PyTorch's global generator."""
        if any(_differs(kept) for kept in self._others):
            return "by Python's `random`, NumPy or a generator of its own"
        return "on the CPU" if not but_torch and _differs(self._torch) else None

    def put_back(self) -> None:
        for kept in (self._torch, *self._others):
            if _differs(kept):
                kept[1](kept[2])


def _kept(read: Callable[[], Any], write: Callable[[Any], Any]) -> _Kept:
    return read, write, read()


def _differs(kept: _Kept) -> bool:
    now, before = kept[0](), kept[2]
    if isinstance(now, torch.Tensor):
        return not torch.equal(now, before)
    return pickle.dumps(now) != pickle.dumps(before)  # NumPy's have arrays in them


def _way(value: Any) -> "Optional[Tuple[Callable[[], Any], Callable[[Any], Any]]]":
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate, value.setstate
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.RandomState):
        return lambda: value.get_state(legacy=False), value.set_state
    if numpy is not None and isinstance(value, (numpy.Generator, numpy.BitGenerator)):
        bits = value.bit_generator if isinstance(value, numpy.Generator) else value
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None
