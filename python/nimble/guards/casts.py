"""Copies of weights that autocast keeps: a program that writes to weights within its outermost `with torch.autocast(...)` goes on
with the copies that were made before. A graph has none, so such calls are no calls for it.

Autocast has no sign of its own that a `with` has ended but that it forgets the copies, by a function of PyTorch's in whose place
install() puts one of ours. What has been cast by others than calls that are looked at is not known. Any thread.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from nimble.nesting import nesting
from nimble.objects.memory import version_of, weakly

_NAME = "clear_autocast_cache"


def is_around(call_is_cast: bool) -> bool:
    """Whether what is cast now is kept beyond the call: autocast forgets its copies where the outermost `with` ends, be it enabled there
    or not, for this kind of device or another."""
    if not torch.is_autocast_cache_enabled():
        return False
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0 or call_is_cast


class _Region:
    number = 0  # of times that the copies were forgotten


def install() -> "Callable[[], None]":
    """Returns what undoes it."""
    original: "Callable[[], None]" = getattr(torch, _NAME)

    def clear_autocast_cache() -> None:
        if not nesting.preparing:  # where it is we who forget them
            _Region.number += 1
        original()

    setattr(torch, _NAME, clear_autocast_cache)
    return lambda: setattr(torch, _NAME, original)


class Casts:
    """Of one module's weights."""

    def __init__(self) -> None:
        self._region = -1
        self._weights: "List[Callable[[], Optional[torch.Tensor]]]" = []
        self._seen: "Dict[int, Tuple[int, int]]" = {}  # when they were first looked at in the region

    def may_be_old(self, module: torch.nn.Module, are_known: bool) -> bool:
        """Whether copies may be kept of what the weights have been. are_known: they are the ones of the last call, or a guard will
        tell. Asked at each call under autocast that keeps copies."""
        if not are_known:
            self._weights = [weakly(p) for p in module.parameters() if _is_kept(p)]
        if self._region != _Region.number:
            self._region, self._seen = _Region.number, {}
        weights = [each() for each in self._weights]
        now = {id(weight): (weight.data_ptr(), version_of(weight)) for weight in weights if weight is not None}
        before = self._seen
        if now == before:
            return False
        self._seen = {**now, **before}
        return any(before.get(number, value) != value for number, value in now.items())


def _is_kept(weight: Any) -> bool:
    return bool(weight.requires_grad and weight.is_leaf and weight.dtype is torch.float32 and not weight.is_inference())
