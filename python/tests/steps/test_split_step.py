"""The report of two graphs that are one step."""

import pytest

pytest.importorskip("torch", minversion="2.1")
from nimble.shim import GraphState, GraphStatus  # noqa: E402
from nimble.steps.split_step import SplitGraph  # noqa: E402


def test_the_status_of_both():
    class Part:
        def __init__(self, *status):
            self._status = GraphStatus(*status) if status else None

        def status(self):
            return self._status

    own, trying = Part(1, GraphState.OWN, 4, 2, 3.0, 4.0, ""), Part(2, GraphState.TRYING, 5, 3, None, None, "")
    rewritten, kept = Part(3, GraphState.REWRITTEN, 6, 7, 5.0, 4.0, ""), Part(4, GraphState.KEPT, 0, 0, None, None, "why")
    assert SplitGraph(own, rewritten).status() == GraphStatus(3, GraphState.REWRITTEN, 10, 7, 8.0, 8.0, "")
    assert SplitGraph(own, trying).status().state == GraphState.TRYING
    assert SplitGraph(kept, own).status() == GraphStatus(1, GraphState.OWN, 4, 2, None, None, "")
    assert SplitGraph(kept, kept).status().text == "why; why"
    assert SplitGraph(Part(), kept).status().text == "why" and SplitGraph(Part(), Part()).status() is None
