"""Steps that are called within the program's own `with torch.autocast`, which caches cast weights: eager code keeps using the first
copies, even after the weights have changed. A graph casts again, and leaves no copies: it serves only one such call of each `with`.

A CallsWithin belongs to one step, under the step's lock."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import torch

from nimble.errors import NimbleError
from nimble.guards import autocast_cache

# Makes autocast forget its copies without that counting as the end of a `with`.
forget: "Callable[[], None]" = getattr(torch._C, "clear_autocast_cache", torch.clear_autocast_cache)
_TO_DO = ("eager code keeps using the weights as the first call has cast them: have the step itself begin autocast, or pass "
          "cache_enabled=False where it begins")


class _Holder:
    """Takes a module's place in nimble.guards.autocast_cache."""

    def __init__(self, weights: List[torch.Tensor]) -> None:
        self.weights = weights

    def parameters(self) -> Iterable[torch.Tensor]:
        return self.weights


class CallsWithin:
    """The calls of a step within `with torch.autocast`. `are_eager`: they run eagerly from now on, since one `with` had several."""

    why = f"a step that is called several times within one `with torch.autocast` runs eagerly, since {_TO_DO}"

    def __init__(self) -> None:
        self.are_eager = False
        self._autocast_cache = autocast_cache.AutocastCache()
        self._holder: Optional[_Holder] = None
        self._last_was_replayed = False

    def comes(self, weights: List[torch.Tensor]) -> None:
        """Called before such a call, with the weights. Raises NimbleError where a graph has served the previous call in the same
        `with`."""
        if torch.clear_autocast_cache.__module__ != autocast_cache.__name__:  # this is not counted yet
            autocast_cache.install()
            self._autocast_cache = autocast_cache.AutocastCache()
        are_known = self._holder is not None and self._holder.weights is weights
        if self._holder is None or not are_known:
            self._holder = _Holder(weights)
        holder: Any = self._holder
        if not self._autocast_cache.may_be_stale(holder, are_known):
            return
        if self._last_was_replayed:
            self._last_was_replayed = False
            raise NimbleError(f"the step is called again within one `with torch.autocast`, where {_TO_DO}")
        self.are_eager = True

    def ends(self, is_replayed: bool) -> None:
        self._last_was_replayed = is_replayed
