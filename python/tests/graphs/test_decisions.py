"""When a graph is chosen the driver is usually in the same state as for later calls (docs/explanation/pytorch.md,
Contexts that come and go)."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from nimble import shim  # noqa: E402
from nimble.capture import cuda_capture as capture  # noqa: E402


class Status:
    def __init__(self, state):
        self.state = state


class Graph:
    stream = None

    def __init__(self, events, tries):
        self.events, self.tries, self.replays = events, tries, 0

    def follow(self):
        pass

    def replay(self):
        self.replays += 1
        self.events.append("replay")

    def status(self):
        return Status(shim.GraphState.TRYING if self.replays < self.tries else shim.GraphState.REWRITTEN)


@pytest.mark.parametrize("tries, settled", [(1, [1]), (24, [8]), (1000, [8])])
def test_one_context_before_most_times_or_at_the_end(monkeypatch, tries, settled):
    events = []
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(capture, "_settle", lambda: events.append("settle"))
    capture.CudaCapture._decide([Graph(events, tries)], lambda: None)
    assert [events[:i].count("replay") for i, event in enumerate(events) if event == "settle"] == settled
