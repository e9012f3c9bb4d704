"""docs/tutorial/pytorch.md: its program runs, here on the CPU with a fake of a GPU's graphs."""

import contextlib
import io
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble.api import module as modules  # noqa: E402
from nimble.steps import steps  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import pages  # noqa: E402


def test_the_program_runs(backend, monkeypatch):
    for each in (modules, steps):
        monkeypatch.setattr(each, "CudaCapture", lambda: backend)
    found = pages.blocks((ROOT / "docs" / "tutorial" / "pytorch.md").read_text(encoding="utf-8"))
    program = "\n".join(block.text for block in found if block.language == "python" and not block.gpu)
    assert program.count('"cuda"') == 1
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program.replace('"cuda"', '"cpu"'), "tutorial", "exec"), {"__name__": "tutorial"})
    assert "inference" in said.getvalue() and backend.graphs and sum(graph.replays for graph in backend.graphs) > 10
