"""Remembers where tensors lie, and what modules and optimizers hold, before a step is captured. A capture runs nothing
on the device, so the tensors that it puts there were never computed, and are removed again.

Not to be used by two threads at once."""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Iterable, List, Optional

import torch

from nimble.guards.kept_parameters import can_be_located, where_of
from nimble.objects import containers
from nimble.objects.hooks import accumulate_hooks, backward_hooks


class Placement:
    """The state at construction: the memory of `tensors`, the hooks of `parameters`."""

    def __init__(self, modules: Iterable[torch.nn.Module], optimizers: "Iterable[torch.optim.Optimizer]",
                 tensors: Iterable[torch.Tensor], parameters: Iterable[torch.Tensor]) -> None:
        every = {id(m): m for module in modules for m in module.modules()}.values()
        optimizers = list(optimizers)
        self._classes = [(m, type(m)) for m in every]
        self._dictionaries = [(value, containers.content(value)) for owner in (*every, *optimizers)
                              for name, value in vars(owner).items() if name.startswith("_") and isinstance(value, dict)]
        self._states = [(o, o.state) for o in optimizers if "state" in vars(o)]
        self._lists = [(each, list(each)) for o in optimizers
                       for each in (o.param_groups, *(group["params"] for group in o.param_groups)) if isinstance(each, list)]
        self._groups = [(group, dict(group)) for o in optimizers for group in o.param_groups]
        self._hooks = [(of, p, dict(of(p) or ())) for p in parameters for of in (backward_hooks, accumulate_hooks)]
        self._memory = [(t, t.detach(), where_of(t)) for t in tensors if can_be_located(t)]
        self._wanting = [(t, t.requires_grad) for t, _, _ in self._memory if t.is_leaf]

    def put_back(self) -> None:
        for module, kind in self._classes:
            if type(module) is not kind:
                module.__class__ = kind
        for optimizer, state in self._states:
            if optimizer.state is not state:
                optimizer.state = state
        for now, before in chain(self._dictionaries, self._groups):
            _fill(now, before)
        for elements, kept in self._lists:
            if list(map(id, elements)) != list(map(id, kept)):
                elements[:] = kept
        for of, parameter, hooks in self._hooks:
            _fill(of(parameter), hooks)
        for tensor, memory, where in self._memory:
            if where_of(tensor) != where:
                tensor.data = memory
        for tensor, wants in self._wanting:
            if tensor.requires_grad is not wants:
                _want(tensor, wants)


def _want(tensor: torch.Tensor, wants: bool) -> None:
    try:
        if not tensor.is_leaf:
            tensor.detach_()  # the capture has written to it
        tensor.requires_grad_(wants)
    except RuntimeError:
        pass  # a view of another


def _fill(now: "Optional[Dict[Any, Any]]", before: "Dict[Any, Any]") -> None:
    if now is not None and not containers.has(now, before):
        containers.fill(now, before)


def have_moved(tensors: "List[Optional[torch.Tensor]]", places: "List[Any]") -> bool:
    """Whether a tensor is no longer where where_of() said."""
    return any(tensor is not None and where_of(tensor) != where for tensor, where in zip(tensors, places))
