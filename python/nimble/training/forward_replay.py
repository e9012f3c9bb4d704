"""Replays a captured forward: copies the arguments in, launches, and publishes its effects to the module.

One thread at a time; the TrainingGraph has a lock.
"""

from __future__ import annotations

from typing import FrozenSet, Optional

from nimble.graphs.autograd_leaves import CopiesAll, mark_written
from nimble.capture.backend import Captured
from nimble.graphs.graph_io import InputCopier, check_apart
from nimble.guards.signatures import Call
from nimble.training.training_nodes import Run
from nimble.training.training_work import ForwardWork


class ForwardReplay:
    """copies: to the buffers that the module writes to, from the forward's own memory; copies_at_once: a graph of them, if there is one.
    own_written: addresses of these buffers."""

    def __init__(self, work: ForwardWork, captured: Captured, copies: CopiesAll, copies_at_once: Optional[Captured],
                 own_written: FrozenSet[int]) -> None:
        self.captured = captured
        self.inputs = work.inputs
        self.number = 0  # of the last forward
        self._written = work.written
        self._take = InputCopier(work.inputs)
        self._own_written = own_written
        self._to_buffers, self._to_buffers_at_once = copies, copies_at_once  # the former also keeps both sides' memory
        self._raised = work.watch.raised  # versions that eager runs raise

    def begin(self, call: Call, run: Run) -> None:
        """Launches the forward. Raises NimbleError where arguments share memory that is written."""
        self.number += 1
        run.number = self.number
        self.captured.follow()
        if self._written or self._own_written:
            check_apart(call, self.inputs, self._written, own_written=self._own_written)
        self._take(call.leaves)
        self.captured.replay()
        for each in self._written:
            if call.leaves[each.number] is not each.tensor:
                call.leaves[each.number].copy_(each.tensor)

    def publish(self) -> None:
        """Called after begin(), once the module is known to fit: gives its buffers the values that the forward has made."""
        if self._to_buffers_at_once is not None:
            self._to_buffers_at_once.replay()
        else:
            self._to_buffers()
        if self._raised:
            mark_written(self._raised)

    def close(self) -> None:
        """Waits until the GPU has finished with it."""
        self.captured.close()
        if self._to_buffers_at_once is not None:
            self._to_buffers_at_once.close()
