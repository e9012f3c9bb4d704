"""nimble.accelerate: a module that is prepared by itself once its calls repeat.

Calls may come from any thread: a lock guards the counts.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional

import torch

from nimble.backend import Backend
from nimble.module import Nimble
from nimble.prepared import GraphReport
from nimble.signatures import Call, GraphCache, Signature

_MOST_COUNTED = 64  # signatures


class Accelerated:
    """Made by accelerate()."""

    def __init__(self, nimble: Nimble, after: int) -> None:
        self.nimble = nimble
        self._after = after
        self._counts: "GraphCache[List[int]]" = GraphCache(_MOST_COUNTED)
        self._lock = threading.Lock()

    @property
    def module(self) -> torch.nn.Module:
        return self.nimble.module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._may_be_wanted_for_training():
            return self.module(*args, **kwargs)
        try:
            call = Call(args, kwargs, self.module.training)
        except Exception:
            return self.nimble(*args, **kwargs)  # which raises it, or warns
        if call.signature.grad or not self._has_come_often(call.signature):
            return self.module(*args, **kwargs)
        return self.nimble.serve(call)

    def __getstate__(self) -> Dict[str, Any]:
        """Of what copies and pickles are made: they have seen no call."""
        return {"nimble": self.nimble, "after": self._after}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["nimble"], state["after"])  # type: ignore[misc]

    def report(self) -> List[GraphReport]:
        """As Nimble.report()."""
        return self.nimble.report()

    def _may_be_wanted_for_training(self) -> bool:
        module = self.module
        return module.training or (torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()))

    def _has_come_often(self, signature: Signature) -> bool:
        with self._lock:
            count = self._counts.get(signature)
            if count is None:
                count = [0]
                self._counts.put(signature, count)
            count[0] += 1
            return count[0] > self._after


def accelerate(module: torch.nn.Module, after: int = 2, fallback: bool = True, max_graphs: int = 8,
               static_outputs: bool = False, *, backend: Optional[Backend] = None) -> Accelerated:
    """The module, which prepares itself: calls run eagerly until `after` of them have come with the same signature, and the next
    one with it is prepared. Calls that train (the module is in training mode, or gradients are wanted) always run eagerly; so
    does what cannot be prepared, unless `fallback` is False. The rest is as for Nimble. ValueError where `after` is negative."""
    if after < 0:
        raise ValueError(f"after is {after}, and must not be negative")
    return Accelerated(Nimble(module, fallback, max_graphs, static_outputs, backend=backend), after)
