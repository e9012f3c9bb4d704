"""What is left to do of a forward's backwards, where these come one by one for some of its outputs each: which may still come, and what
each needs. No PyTorch's state here but what it is told; used by one thread at a time, as the TrainingGraph's lock has it.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Sequence

import torch

from nimble.leaves import AutogradGraph

Ran = Dict[int, int]  # outputs whose backward has run without the graph being kept, and in which backward of autograd's


class Ways:
    """From each of the outputs that gradients may come for. needed: ids of the tensors that each needs."""

    def __init__(self, graphs: "Sequence[AutogradGraph]" = (), needed: "Sequence[FrozenSet[int]]" = ()) -> None:
        self._needed = list(needed)
        self._together = [frozenset(i for i, other in enumerate(graphs) if other is one or one.meets(other)) for one in graphs]
        self._runs_once = [graph.runs_once() for graph in graphs]
        self._waits = True  # for outputs that have nothing in common with those whose backward has run
        self._in_vain: Optional[Ran] = None  # of a forward that a call has not been served for, for their sake

    def has_changed(self, came: List[int], watched: "List[torch.Tensor]", before: List[int], now: List[int]) -> bool:
        """Whether something was written to that backwards of these outputs need."""
        needed = frozenset().union(*(self._needed[number] for number in came))
        return any(one != other and id(tensor) in needed for tensor, one, other in zip(watched, before, now))

    def is_second(self, came: List[int], ran: Ran, task: int) -> bool:
        """Whether one of these has run before, and PyTorch would not run it again."""
        return bool(ran) and any(self._runs_once[number] and ran.get(number, task) != task for number in came)

    def is_over(self, ran: Ran) -> bool:
        """Whether no backward is to be waited for: each output has had its own, or that of one which shares what it would need. Of
        others nobody knows whether they will have one."""
        return bool(ran) and (not self._waits or self._covers(ran))

    def hold_up(self, ran: Ran) -> None:
        """A call is not served, since the forward before it is not over."""
        if ran:
            self._in_vain = ran

    def go_on(self) -> None:
        """That forward is over, or gone: where its other outputs had no backward, those of others are not waited for."""
        if self._in_vain is not None:
            self._waits = self._waits and self._covers(self._in_vain)
            self._in_vain = None

    def _covers(self, ran: Ran) -> bool:
        return all(not each.isdisjoint(ran) for each in self._together)
