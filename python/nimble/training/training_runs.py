"""What is left to do of a forward's backwards, where these come one by one for some of its outputs each: which may still come, and what
each needs. No PyTorch's state here but what it is told; used by one thread at a time, as the TrainingGraph's lock has it.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Sequence

import torch

from nimble.graphs.autograd_leaves import AutogradGraph

Ran = Dict[int, int]  # outputs whose backward has run without the graph being kept, and in which backward of autograd's


class Ways:
    """From each of the outputs that gradients may come for. needed: ids of the tensors that each needs."""

    def __init__(self, graphs: "Sequence[AutogradGraph]" = (), needed: "Sequence[FrozenSet[int]]" = ()) -> None:
        self._needed = list(needed)
        known: Dict[Any, bool] = {}
        once = [graph.run_once(known) for graph in graphs]
        self._together = [frozenset(i for i, other in enumerate(once) if other is one or not one.isdisjoint(other)) for one in once]
        self._runs_once = [graph.runs_once() for graph in graphs]

    def has_changed(self, came: List[int], watched: "List[torch.Tensor]", before: List[int], now: List[int]) -> bool:
        """Whether something was written to that backwards of these outputs need."""
        needed = frozenset().union(*(self._needed[number] for number in came))
        return any(one != other and id(tensor) in needed for tensor, one, other in zip(watched, before, now))

    def is_second(self, came: List[int], ran: Ran, task: int) -> bool:
        """Whether one of these has run before, and PyTorch would not run it again."""
        return bool(ran) and any(self._runs_once[number] and ran.get(number, task) != task for number in came)

    def is_over(self, ran: Ran) -> bool:
        """Whether none may come any more: each output has had its own, or that of one which shares what it would need."""
        return bool(ran) and all(not each.isdisjoint(ran) for each in self._together)
