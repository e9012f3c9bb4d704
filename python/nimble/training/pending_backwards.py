"""Which backwards of a forward are outstanding, and what each needs, where they run one by one for some of the outputs.

No state besides its arguments; one thread at a time, under the TrainingGraph's lock."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Sequence

import torch

from nimble.graphs.autograd_leaves import AutogradGraph

Ran = Dict[int, int]  # outputs whose backward has run without keeping the graph, and the number of that backward


class PendingBackwards:
    """The backwards of all outputs with gradients. needed: for each the ids of the tensors that it needs."""

    def __init__(self, graphs: "Sequence[AutogradGraph]" = (), needed: "Sequence[FrozenSet[int]]" = ()) -> None:
        self._needed = list(needed)
        known: Dict[Any, bool] = {}
        once = [graph.run_once(known) for graph in graphs]
        self._together = [frozenset(i for i, other in enumerate(once) if other is one or not one.isdisjoint(other)) for one in once]
        self._runs_once = [graph.runs_once() for graph in graphs]

    def has_changed(self, came: List[int], watched: "List[torch.Tensor]", before: List[int], now: List[int]) -> bool:
        """Whether a tensor that backwards of these outputs need was written to."""
        needed = frozenset().union(*(self._needed[number] for number in came))
        return any(one != other and id(tensor) in needed for tensor, one, other in zip(watched, before, now))

    def is_second(self, came: List[int], ran: Ran, task: int) -> bool:
        """Whether one of these backwards has run before, and PyTorch would not run it again."""
        return bool(ran) and any(self._runs_once[number] and ran.get(number, task) != task for number in came)

    def is_over(self, ran: Ran) -> bool:
        """Whether no backward is outstanding: each output's has run, or another one has freed what it needs."""
        return bool(ran) and all(not each.isdisjoint(ran) for each in self._together)
