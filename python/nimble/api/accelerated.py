"""nimble.accelerate: a module that prepares itself once its calls repeat.

Calls may come from any thread: a lock guards the counts."""

from __future__ import annotations

import sys
import threading
from typing import Any, Dict, List, Optional

import torch
from torch.utils import _pytree

from nimble.api.module import Nimble
from nimble.capture.backend import Backend
from nimble.graphs.prepared import GraphReport
from nimble.guards.signatures import Call, GraphCache, Signature

_MOST_COUNTED = 64  # signatures


class Accelerated:
    """A module that prepares itself; made by accelerate()."""

    def __init__(self, nimble: Nimble, after: int) -> None:
        self.nimble = nimble
        self._after = after
        # By whether gradients are enabled: only then do outputs show what requires them.
        self._counts: "Dict[bool, GraphCache[List[int]]]" = {mode: GraphCache(_MOST_COUNTED) for mode in (False, True)}
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
            return self.nimble(*args, **kwargs)  # which raises the error, or warns
        if not call.signature.grad and self._has_come_often(call.signature):
            return self.nimble.serve(call)
        outputs = self.module(*args, **kwargs)
        if torch.is_grad_enabled() and not call.signature.grad and _want_gradients(outputs):
            self._trains(call.signature)
        return outputs

    def __getstate__(self) -> Dict[str, Any]:
        """For copies and pickles, which start without counts."""
        return {"nimble": self.nimble, "after": self._after}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["nimble"], state["after"])  # type: ignore[misc]

    def report(self) -> List[GraphReport]:
        """Nimble.report() for the module."""
        return self.nimble.report()

    def _may_be_wanted_for_training(self) -> bool:
        module = self.module
        return module.training or (torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()))

    def _has_come_often(self, signature: Signature) -> bool:
        with self._lock:
            counts = self._counts[torch.is_grad_enabled()]
            count = counts.get(signature)
            if count is None:
                count = [0]
                counts.put(signature, count)
            count[0] += 1
            return count[0] > self._after

    def _trains(self, signature: Signature) -> None:
        """Whether something other than a parameter or an argument requires gradients: an attribute, or a value in a closure."""
        with self._lock:
            self._counts[True].put(signature, [-sys.maxsize])


def _want_gradients(outputs: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in _pytree.tree_flatten(outputs)[0])


def accelerate(module: torch.nn.Module, after: int = 2, fallback: bool = True, max_graphs: int = 8,
               static_outputs: bool = False, *, backend: Optional[Backend] = None) -> Accelerated:
    """Wraps the module in one that prepares itself.

    Calls run eagerly until `after` of them have come with the same signature; the next one with it is prepared. Calls with gradients
    enabled and disabled are counted apart. Calls that train always run eagerly: the module is in training mode, or parameters,
    arguments, or anything else that shows in the outputs of the first `after` calls require gradients. What cannot be prepared
    runs eagerly too, unless `fallback` is False. The other arguments are those of Nimble. Raises ValueError where `after` is
    negative."""
    if after < 0:
        raise ValueError(f"after is {after}, and must not be negative")
    return Accelerated(Nimble(module, fallback, max_graphs, static_outputs, backend=backend), after)
