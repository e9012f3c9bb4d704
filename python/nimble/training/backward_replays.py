"""Replays the backwards of a captured forward: each kind by a graph of its own, or eagerly over the same memory where there is none yet.

One thread at a time, under the TrainingGraph's lock; capture_what_came() is called without it.
"""

from __future__ import annotations

import functools
import warnings
from typing import Dict, List, Optional, Tuple

import torch

from nimble.errors import DiffersError, NimbleError
from nimble.graphs.autograd_leaves import gradients, mark_written, one_thread
from nimble.capture.backend import Backend, Captured
from nimble.graphs.differences import Leaf, differences, first_of
from nimble.capture.eager_answers import Answers, with_eager_answers_if_needed
from nimble.graphs.first_replay import RunResult, check_first_replay
from nimble.graphs.graph_io import GraphReport, Options, report
from nimble.nesting import preparing
from nimble.training.backward_entries import BackwardEntry, Pattern, pattern_of
from nimble.training.copies_out import Copies
from nimble.training.training_nodes import Gradients
from nimble.training.training_work import BackwardWork, ForwardWork

_MOST_BACKWARDS = 4  # graphs, each for other outputs with gradients, or other strides
_MOST_ENTRIES = 64  # remembered


class BackwardReplays:
    """wanted: the outputs that require gradients. `compared_first`: this many backwards of each kind also run eagerly, and are
    compared; `difference` is what differed: the graph is then no longer used. `is_distrusted`: the user has not requested the
    graph."""

    def __init__(self, work: ForwardWork, forward: Captured, backward: Captured, wanted: List[torch.Tensor], backend: Backend,
                 options: Options) -> None:
        self.compared_first = 0
        self.is_distrusted = False
        self.difference: Optional[str] = None
        self._backend, self._options = backend, options
        self._wanted, self._towards = wanted, work.paths.towards
        self._likes: "List[Optional[torch.Tensor]]" = [*(None for _ in work.paths.argument_numbers), *work.paths.parameters]
        self._has_effects = work.has_effects
        self._raised = work.watch.raised_by_backwards  # versions that eager backwards raise
        self._reads, self._also_read = work.watch.reads, work.watch.found_elsewhere  # memory that the module finds outside of itself
        given = work.paths.given
        self._entries: Dict[Pattern, BackwardEntry] = {pattern_of(given): BackwardEntry(given, backward, work.watch.answers.as_eager)}
        self._forward = forward  # the last attribute, so it is freed last, and quietly with all that `wanted` leads to

    def run(self, pattern: Pattern, grads: Gradients, is_compared: bool = False) -> "List[Optional[torch.Tensor]]":
        """The gradients of the last forward."""
        made = self._made(pattern, grads, is_compared)
        if self._raised:
            mark_written(self._raised)
        return made

    def _made(self, pattern: Pattern, grads: Gradients, is_compared: bool) -> "List[Optional[torch.Tensor]]":
        self._forward.follow()
        entry = self._entries.get(pattern) or BackwardEntry()
        if len(self._entries) < _MOST_ENTRIES:
            self._entries[pattern] = entry
        if entry.captured is None:
            entry.meet(grads)
            return self._eager(entry, grads)
        entry.take(grads)
        entry.captured.replay()
        result = self._copied(entry, entry.captured.outputs)
        if entry.compared < self.compared_first and not is_compared:
            entry.compared += 1
            eager = self._eager(entry, grads)
            self.difference = self.difference or differing_gradient(result, eager)
            if self.difference is not None:
                entry.captured = None
            return eager
        return result

    def _eager(self, entry: BackwardEntry, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        with self._forward.on_its_stream():
            made = self._run_backward(grads)
        result = self._copied(entry, made)
        with self._forward.on_its_stream():  # their memory is freed on that stream, after the copies
            del made
        return result

    def _run_backward(self, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        return gradients(self._wanted, self._towards, list(grads))

    def _copied(self, entry: BackwardEntry, made: "List[Optional[torch.Tensor]]") -> "List[Optional[torch.Tensor]]":
        if entry.copies is None:
            entry.copies = Copies(made, self._likes)
        return entry.copies(made)

    def capture_what_came(self) -> None:
        """Captures a graph for each kind of backward that has run without one. Not under the lock: the capture may wait for
        this graph, and a backward writes only to its own memory."""
        if all(entry.is_final for entry in list(self._entries.values())):
            return
        for entry in list(self._entries.values()):
            if entry.is_final or not entry.given:
                continue
            # A capture needs extra runs, whose effects besides gradients would not be undone.
            if self._has_effects or sum(each.captured is not None for each in list(self._entries.values())) >= _MOST_BACKWARDS:
                entry.forget()
                continue
            entry.is_final = True
            try:
                entry.captured, entry.as_eager = with_eager_answers_if_needed(functools.partial(self._captured, entry),
                                                                              self._backend.device_type, "a backward")
            except Exception as error:  # it then runs eagerly
                if not self.is_distrusted and (isinstance(error, DiffersError) or not isinstance(error, NimbleError)):
                    warnings.warn(f"nimble: a backward stays without a graph: {type(error).__name__}: {error}", stacklevel=2)

    def _captured(self, entry: BackwardEntry, answers: Answers) -> "Tuple[Captured, bool]":
        memory = entry.memory()
        work = BackwardWork(functools.partial(self._run_backward, entry.given), memory, self._reads, not self.is_distrusted, answers)
        with preparing(), torch.no_grad(), one_thread():
            captured = self._backend.capture(work, memory[0].device, self._options.use_multi_stream, self._options.relaxed, self._forward)
            work.check()
            self._compare(work, captured)
        self._also_read += work.found_elsewhere
        return captured, answers.as_eager

    def _compare(self, work: BackwardWork, captured: Captured) -> None:
        def replay() -> RunResult:
            captured.follow()
            captured.replay()
            return work.left_by(captured.outputs)

        def again() -> RunResult:
            with captured.on_its_stream():
                return work.left_by(work.run())

        if work.runs.eager is not None:
            check_first_replay(work.runs.eager, replay, again, "a backward", self._backend, work.data()[0].device)

    def close(self) -> None:
        """Waits until the GPU has finished with the graphs."""
        for entry in self._entries.values():
            if entry.captured is not None:
                entry.captured.close()

    def reports(self, signature: str, seconds: float) -> List[GraphReport]:
        """Reports of the graphs."""
        return [report("backward", signature, entry.captured.status(), seconds, [*entry.memory(), *entry.captured.outputs], as_eager=entry.as_eager)
                for entry in self._entries.values() if entry.captured is not None]


def differing_gradient(ours: "List[Optional[torch.Tensor]]", theirs: "List[Optional[torch.Tensor]]") -> Optional[str]:
    """How a gradient differs, to the bit, or that it exists on one side alone; None where none does."""
    graph, eager = ([Leaf(functools.partial("gradient {}".format, number), each) for number, each in enumerate(made)]
                    for made in (ours, theirs))
    return first_of(differences(graph, eager))
