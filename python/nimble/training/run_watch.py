"""Watches the runs of a forward and its backwards: what they write when they are looked at; what they read, and which versions they
raise, when they are captured."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterable, Iterator, List, Optional, Tuple, TypeVar

import torch

from nimble.capture.eager_answers import Answers
from nimble.graphs.effects import VersionRises
from nimble.guards.op_watch import OpReads, OpWrites, tensors_in
from nimble.guards.state_keeper import StateKeeper

_Made = TypeVar("_Made")


class RunWatch:
    """answers: what captured runs get from ops that ask the host."""

    def __init__(self, keeper: StateKeeper, device_type: str, answers: Answers) -> None:
        self.answers = answers
        self.captures = False  # whether the runs from now on are captured
        self.raised: List[torch.Tensor] = []  # versions that others see: raised by each forward, and by each backward
        self.raised_by_backwards: List[torch.Tensor] = []
        self.reads: Optional[OpReads] = None
        """The reads of the last captured forward and its backwards; None where ops cannot be watched."""
        self.found_elsewhere: List[Any] = []
        """Storages that these read, and that belong neither to the module nor to them."""
        self._keeper, self._device_type = keeper, device_type
        self._writes: Optional[OpWrites] = None
        self._sees_ops = True

    def look(self, forward: "Callable[[], _Made]", begin_again: "Callable[[], None]") -> _Made:
        """Runs the first forward. begin_again: called before it runs a second time, where its ops cannot be watched."""
        writes = self._writes = self._keeper.watch_writes()
        try:
            with writes.on():
                return forward()
        except NotImplementedError:  # from ops that take functions, which hide what these do
            self._sees_ops, writes.has_backward = False, True  # to be safe
        begin_again()
        return forward()

    def look_at_backward(self, wanted: List[torch.Tensor], backward: "Callable[[], _Made]") -> _Made:
        """Runs the backward of the forward that look() has run."""
        writes = self._writes
        if writes is None or not self._sees_ops:
            return backward()
        writes.is_backward_of(wanted)
        try:
            with writes.on():
                return backward()
        except NotImplementedError:  # as for forwards
            self._sees_ops, writes.has_backward = False, True
        return backward()

    def rises(self, standing: "Iterable[Tuple[torch.Tensor, torch.Tensor]]") -> VersionRises:
        """The versions to note, in captured runs only: the first run may have written to something only once. standing: tensors that
        stand in for others, and these."""
        return VersionRises([*standing, *((t, t) for t in self._keeper.kept())] if self.captures else ())

    def on(self, known: "Callable[[], Iterable[torch.Tensor]]", again: bool = False) -> ContextManager[None]:
        """Watches reads if the run is captured, and gives it the answers. known: the memory of the run. again: for a new forward."""
        if not self.captures:
            return contextlib.nullcontext()
        if not self._sees_ops:
            return self.answers.given(sees_ops=False)
        if again or self.reads is None:
            self.found_elsewhere = []
            self.reads = OpReads((*known(), *self._keeper.tensors()), self._device_type)
        return _both(self.reads.on(), self.answers.given(sees_ops=True))

    def hold(self, made: Any) -> None:
        """Keeps what a captured run has read, except what it has made."""
        if self.captures and self.reads is not None:
            self.found_elsewhere += self.reads.still_there(but=tensors_in(made)).values()


@contextlib.contextmanager
def _both(outer: ContextManager[None], inner: ContextManager[None]) -> Iterator[None]:
    with outer, inner:
        yield
