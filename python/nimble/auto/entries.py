"""One kind of call of a module, as nimble.auto.served knows it, and why it may end. No state of its own; its Served's lock is its
lock."""

from __future__ import annotations

import math
from typing import FrozenSet, Optional, Union

from nimble.auto.gradients import Backwards
from nimble.auto.guard import Guard
from nimble.graphs.prepared import PreparedGraph
from nimble.objects.watch import Watched
from nimble.training.training import TrainingGraph

Graph = Union[PreparedGraph, TrainingGraph]


class Aside(Exception):
    """Calls of this kind run eagerly from now on; the text says why."""


class Changed(Exception):
    """The module is not what the guard has seen."""


class Differs(Exception):
    """A graph's run was not an eager run's."""


class Disturbed(Exception):
    """Another thread ran the module meanwhile."""


class Shares(Exception):
    """An argument of the call shares memory with the module."""


class Entry:
    """What is known of one kind of call."""

    def __init__(self) -> None:
        self.calls = 0  # since it began
        self.watches = 0
        self.short_lived = 0
        self.disturbed = 0
        self.watched: Optional[Watched] = None
        self.guard: Optional[Guard] = None
        self.backwards = Backwards()  # of its eager calls
        self.graph: Optional[Graph] = None
        self.served = 0  # by this graph, with those that were compared
        self.next_compared = 0
        self.may_write = True  # to buffers, attributes or arguments, or draw: nobody else may see what is put back then
        self.has_effects = True
        self.apart_from: "FrozenSet[int]" = frozenset()  # memory that no argument may share, where the graph writes
        self.graph_seconds = self.eager_seconds = math.inf  # a call, the fastest that was compared
        self.aside: Optional[str] = None
        self.broken: Optional[Exception] = None  # what a call of the graph has raised

    def begin_anew(self) -> None:
        self.calls = 1  # what is made once has been made
        self.watched = self.guard = self.graph = self.broken = None
        self.backwards = Backwards()
        self.served = self.next_compared = self.watches = 0
        self.may_write = True
        self.has_effects = True
        self.apart_from = frozenset()
        self.graph_seconds = self.eager_seconds = math.inf
