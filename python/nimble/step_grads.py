"""Gradients as a captured step finds them, and as it leaves them.

Not to be used by two threads at once.
"""

from __future__ import annotations

import sys
from operator import attrgetter, is_
from typing import Dict, List, Optional, Sequence

import torch

from nimble.errors import NimbleError

_grad = attrgetter("grad")


class Grads:
    """p.grad of each parameter before and behind the capture."""

    def __init__(self, parameters: Sequence[torch.Tensor], before: "List[Optional[torch.Tensor]]",
                 behind: "List[Optional[torch.Tensor]]") -> None:
        self._parameters, self._behind = parameters, list(behind)
        self._there = [grad is not None for grad in before]
        # Those that are written in place have to be the same memory then. What a step drops may be anything.
        same = [(p, b) for p, b, a in zip(parameters, before, behind) if b is not None and b is a]
        self._wearers, self._same = [p for p, _ in same], [b for _, b in same]
        self._addresses = list(map(torch.Tensor.data_ptr, self._same))
        # The others are the graph's own.
        own = [(p, a) for p, b, a in zip(parameters, before, behind) if a is not None and a is not b]
        self._owners, self._own = [p for p, _ in own], [a for _, a in own]
        self._storages = [a.untyped_storage()._cdata for a in self._own] if hasattr(torch._C, "_storage_Use_Count") else []
        self._counts: Dict[bool, List[int]] = {}
        self._fits_as_left = [a is not None for a in behind] == self._there
        self._is_as_left = False  # all is what put() has left there, as fit() has seen it

    def in_place(self) -> List[torch.Tensor]:
        """Those that are written in place: they are there before, and behind."""
        return list(self._same)

    def fit(self) -> bool:
        """Whether the graph may be replayed with the gradients that there are."""
        now = list(map(_grad, self._parameters))
        self._is_as_left = len(now) == len(self._behind) and all(map(is_, now, self._behind))
        if not (self._is_as_left and self._fits_as_left):
            if [grad is not None for grad in now] != self._there:
                return False
            if not all(p.grad is grad for p, grad in zip(self._wearers, self._same)):
                return False
        return list(map(torch.Tensor.data_ptr, self._same)) == self._addresses

    def put(self) -> None:
        """Behind a replay."""
        if not all(map(is_, map(_grad, self._parameters), self._behind)):
            for i in range(len(self._behind)):  # no name is left for one of them, which would count as a use
                self._parameters[i].grad = self._behind[i]
        if not self._counts:  # nobody else can have them yet
            for is_there in (False, True):
                for i in range(len(self._own)):
                    self._owners[i].grad = self._own[i] if is_there else None
                self._counts[is_there] = self.uses()

    def leave(self) -> None:
        """Has the parameters' gradients in memory of their own: the graph goes."""
        for i in range(len(self._own)):
            if self._owners[i].grad is self._own[i]:
                self._owners[i].grad = self._own[i].clone()
        for each in (self._own, self._behind, self._same, self._storages):
            each.clear()

    def are_held(self) -> bool:
        """Whether somebody has kept a gradient of an earlier step, which a replay would write to. Asked behind fit()."""
        if not self._counts or not self._own:
            return False
        there, gone, now = self._counts[True], self._counts[False], self.uses()
        if now == gone or self._is_as_left and now == there:  # each is the graph's alone, as behind zero_grad(), or a parameter's
            return False
        worn = [self._owners[i].grad is self._own[i] for i in range(len(self._own))]
        return any(count > (there if worn[i % len(worn)] else gone)[i] for i, count in enumerate(now))

    def count_again(self, before: List[int]) -> None:
        """Another graph refers to them, too, since their uses were counted last."""
        more = [now - then for now, then in zip(self.uses(), before)]
        self._counts = {is_there: [c + m for c, m in zip(counts, more)] for is_there, counts in self._counts.items()}

    def uses(self) -> List[int]:
        """How many references there are to each of the graph's own; then to the memory of each, where PyTorch tells."""
        references = list(map(sys.getrefcount, self._own))
        if self._storages:
            references += map(torch._C._storage_Use_Count, self._storages)
        return references


def check_layouts(parameters: Sequence[torch.Tensor]) -> None:
    """NimbleError where a gradient has no memory of its own that a graph could write to."""
    for parameter in parameters:
        grad = parameter.grad
        if grad is not None and grad.layout is not torch.strided:
            raise NimbleError(f"a gradient has layout {grad.layout}, of which a graph cannot tell the size")
