"""The state of one kind of call of a module, and the reasons why it ends. No state of its own; the AutoModule's lock
guards it."""

from __future__ import annotations

import math
from typing import FrozenSet, Optional, Union

from nimble.auto.gradients import Backwards
from nimble.auto.traced_guard import TracedModuleGuard
from nimble.graphs.prepared import PreparedGraph
from nimble.objects.python_trace import TracedRun
from nimble.training.training import TrainingGraph

Graph = Union[PreparedGraph, TrainingGraph]


class RunsEagerly(Exception):
    """Calls of this kind run eagerly from now on; the text says why."""


class Changed(Exception):
    """The module has changed since it was guarded."""


class Differs(Exception):
    """A graph's run differed from an eager run."""


class Disturbed(Exception):
    """Another thread ran the module meanwhile."""


class Shares(Exception):
    """An argument of the call shares memory with the module."""


class Entry:
    """The state of one kind of call."""

    def __init__(self) -> None:
        self.calls = 0  # since it began
        self.guarded_runs = 0
        self.short_lived = 0
        self.disturbed = 0
        self.traced: Optional[TracedRun] = None
        self.guard: Optional[TracedModuleGuard] = None
        self.backwards = Backwards()  # of its eager calls
        self.graph: Optional[Graph] = None
        self.served = 0  # by this graph, including those that were compared
        self.next_compared = 0
        self.may_write = True  # to buffers, attributes or arguments, or draw random numbers: no other thread may see what is restored then
        self.has_effects = True
        self.apart_from: "FrozenSet[int]" = frozenset()  # memory that no argument may share, where the graph writes
        self.graph_seconds = self.eager_seconds = math.inf  # a call, the fastest that was compared
        self.why_eager: Optional[str] = None
        self.broken: Optional[Exception] = None  # what a call of the graph has raised

    def begin_anew(self) -> None:
        self.calls = 1  # lazy initialisation is done
        self.traced = self.guard = self.graph = self.broken = None
        self.backwards = Backwards()
        self.served = self.next_compared = self.guarded_runs = 0
        self.may_write = True
        self.has_effects = True
        self.apart_from = frozenset()
        self.graph_seconds = self.eager_seconds = math.inf
