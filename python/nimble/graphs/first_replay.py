"""Compares a new graph with an eager run that its preparation has made anyway, from the same state and random numbers.

Where they differ, one more eager run tells a module that is not deterministic from one that does something else while a stream
captures (eager_answers.py may help that one). Belongs to one preparation, and one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch

from nimble import settings
from nimble.errors import DiffersError
from nimble.capture.backend import Backend
from nimble.graphs.differences import STRUCTURE, Leaf, differences, first_of, output_leaves
from nimble.guards import switches

COMPARED_RUN = 2  # the first may initialise something, and later ones may have other data (Work.data())


class RunResult:
    """What a run leaves: copies of its outputs, as a call would get them, and tensors that it has written to, or gradients."""

    def __init__(self, outputs: Any, others: Sequence[Tuple[Callable[[], str], Optional[torch.Tensor]]]) -> None:
        self._outputs, self._structure = output_leaves(outputs)
        self._others = [Leaf(place, value) for place, value in others]

    def keep(self) -> "RunResult":
        """Copies the rest, too, before the state is reset. Returns itself."""
        self._others = [Leaf(place, None if value is None else value.detach().clone()) for place, value, _ in self._others]
        return self

    def differences_of(self, other: "RunResult") -> Dict[int, str]:
        """How another run, the graph's, differs from this eager one."""
        if self._structure != other._structure or len(self._outputs) != len(other._outputs):
            return {STRUCTURE: "its outputs have another structure"}
        return differences([*other._outputs, *other._others], [*self._outputs, *self._others])


@dataclass(frozen=True)
class ComparedRun:
    """An eager run to compare with, and the device's random numbers before it; None where it draws none."""

    random: Any
    result: RunResult


def check_first_replay(eager: ComparedRun, replay: Callable[[], RunResult], again: Callable[[], RunResult], name: str, backend: Backend,
                       device: torch.device) -> None:
    """Raises DiffersError where a replay leaves anything else than two eager runs that agree in that. replay() and again() run the
    graph, and the module eagerly, from the state that the eager run began with; random numbers are restored here. `name`: the
    module's, for a line about one that is not deterministic."""
    def begin() -> None:
        if eager.random is not None:
            backend.set_random_state(device, eager.random)

    begin()
    differing = eager.result.differences_of(replay())
    if not differing:
        return
    if switches.has_other_ranks():
        settings.read().warn(f"{name}: its graph differs from an eager run: {first_of(differing)}. It is not run once more, to tell "
                             "whether it is deterministic, since other ranks would wait for what it sends")
        return
    begin()
    vary = eager.result.differences_of(again())
    for number, difference in differing.items():
        if number not in vary and STRUCTURE not in vary:
            raise DiffersError(difference)
    settings.read().inform(f"{name} is not deterministic: two eager runs from the same state differ, so its graph cannot be compared "
                           "with one")
