"""Steps that are called within the program's own `with torch.autocast`: there eager code goes on with the copies of weights that were
cast first, also once the weights have changed. A graph casts anew, and leaves no copies: it serves but one such call of each `with`.

CallsWithin is of one step, whose lock has one thread at a time use it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import torch

from nimble.errors import NimbleError
from nimble.guards import casts

# Has autocast forget its copies without that counting as the end of a `with`.
forget: "Callable[[], None]" = getattr(torch._C, "clear_autocast_cache", torch.clear_autocast_cache)
_TO_DO = ("eager code goes on with the weights as the first call has cast them: have the step itself begin autocast, or pass "
          "cache_enabled=False where it begins")


class _Holder:
    """What nimble.guards.casts asks of a module."""

    def __init__(self, weights: List[torch.Tensor]) -> None:
        self.weights = weights

    def parameters(self) -> Iterable[torch.Tensor]:
        return self.weights


class CallsWithin:
    """`are_eager`: whether such calls run eagerly from now on, since there have been several in one `with`."""

    why = f"a step that is called several times within one `with torch.autocast` runs eagerly, since {_TO_DO}"

    def __init__(self) -> None:
        self.are_eager = False
        self._casts = casts.Casts()
        self._holder: Optional[_Holder] = None
        self._last_was_replayed = False

    def comes(self, weights: List[torch.Tensor]) -> None:
        """Such a call, which works on these. NimbleError where a graph has served the one before in the same `with`."""
        if torch.clear_autocast_cache.__module__ != casts.__name__:  # nobody counts the times that casts are forgotten
            casts.install()
            self._casts = casts.Casts()
        are_known = self._holder is not None and self._holder.weights is weights
        if self._holder is None or not are_known:
            self._holder = _Holder(weights)
        holder: Any = self._holder
        if not self._casts.may_be_old(holder, are_known):
            return
        if self._last_was_replayed:
            self._last_was_replayed = False
            raise NimbleError(f"the step is called again within one `with torch.autocast`, where {_TO_DO}")
        self.are_eager = True

    def ends(self, is_replayed: bool) -> None:
        self._last_was_replayed = is_replayed
