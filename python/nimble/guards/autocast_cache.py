"""Whether autocast's cache may hold stale copies of a module's weights, so that an eager run would use them and a graph would not.

A program that writes to weights within its outermost `with torch.autocast(...)` keeps using the earlier copies. A graph has no such
copies, so it does not serve these calls. Autocast shows the end of a `with` only by forgetting its copies, through a function of
PyTorch that install() replaces. Casts outside of observed calls stay unknown. Any thread."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from nimble.nesting import nesting
from nimble.objects.memory import version_of, weakly

_NAME = "clear_autocast_cache"


def is_around(call_is_cast: bool) -> bool:
    """Whether copies cast now outlive the call. Autocast forgets them where the outermost `with` ends, enabled or not, for any kind
    of device."""
    if not torch.is_autocast_cache_enabled():
        return False
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0 or call_is_cast


class _Region:
    number = 0  # how often the copies were forgotten


def install() -> "Callable[[], None]":
    """Starts to count how often autocast forgets its copies. Returns a function that undoes it."""
    original: "Callable[[], None]" = getattr(torch, _NAME)

    def clear_autocast_cache() -> None:
        if not nesting.preparing:  # else Nimble makes it forget them
            _Region.number += 1
        original()

    setattr(torch, _NAME, clear_autocast_cache)
    return lambda: setattr(torch, _NAME, original)


class AutocastCache:
    """Tracks the cached copies of one module's weights."""

    def __init__(self) -> None:
        self._region = -1
        self._weights: "List[Callable[[], Optional[torch.Tensor]]]" = []
        self._seen: "Dict[int, Tuple[int, int]]" = {}  # the versions first seen in the region

    def may_be_stale(self, module: torch.nn.Module, are_known: bool) -> bool:
        """Whether the cache may hold copies of earlier values. are_known: the weights are those of the last call, or a guard will tell.
        Called at each call under an autocast that caches."""
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
