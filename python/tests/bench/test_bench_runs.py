"""scripts/pytorch without a GPU: whole runs of the command. No PyTorch."""

import json
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("processes in groups of their own need Python 3.11", allow_module_level=True)
ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "pytorch"), str(ROOT / "bench")]

import runner  # noqa: E402
import table  # noqa: E402
import ways  # noqa: E402
from test_bench_tables import FOUND, entry, keep  # noqa: E402


def measured(monkeypatch, capsys, folder, *words, program=FOUND, without=()):
    """What a whole run of the command ran: (network, batch, way), its exit status, and what it printed."""
    found = []

    def command(self, task, *more):
        found.append((task.network, task.batch, task.way))
        return ["-c", program]

    monkeypatch.setattr(runner.Runner, "command", command)
    monkeypatch.setattr(runner.ways, "way", lambda part, name: ways.Way(name, name))
    monkeypatch.setattr(sys, "argv", ["pytorch", "--results", str(folder), *words])
    monkeypatch.setattr(table.importlib.util, "find_spec", lambda name: None if name in without else name)
    try:
        status = table.main()
    finally:
        monkeypatch.undo()
    return found, status, capsys.readouterr().out


WHOLE = "print('" + json.dumps({key: value for key, value in entry("", "", 5).items() if key not in entry("", "")}) + "')"


def test_a_run_is_what_was_asked_for(monkeypatch, capsys, tmp_path):
    only = ["--only", "resnet50,darts", "--ways", "eager,graph"]
    found, status, text = measured(monkeypatch, capsys, tmp_path, *only, program=WHOLE)
    training = [("resnet50", batch, way) for batch in (32, 64, 128) for way in ("eager", "graph")]
    assert found == [(network, 1, way) for network in ("resnet50", "darts") for way in ("eager", "graph")] + training and status == 0
    only = ["--part", "inference", *only]
    assert "resnet50, graph: 5 us, prepared in 1.2 s" in text and "| DARTS | 5 [4, 7] | 5 [4, 7] |" in text
    only[-1] += ",nimble"
    found, status, _ = measured(monkeypatch, capsys, tmp_path, *only, "--missing", program=WHOLE)
    assert found == [("resnet50", 1, "nimble"), ("darts", 1, "nimble")] and status == 0
    found, status, text = measured(monkeypatch, capsys, tmp_path, *only, "--missing", program=WHOLE)
    assert found == [] and status == 0 and "there is nothing to run" in text
    found, _, _ = measured(monkeypatch, capsys, tmp_path, "--part", "training", "--batches", "32,128", "--only", "resnet50",
                           "--ways", "callables", program=WHOLE)
    assert found == [("resnet50", 32, "callables"), ("resnet50", 128, "callables")]


def test_a_python_without_pytorch_runs_nothing(monkeypatch, capsys, tmp_path):
    for without, only in (({"torch", "torchvision"}, "darts"), ({"timm"}, "nasnetalarge")):
        assert measured(monkeypatch, capsys, tmp_path, "--only", only, without=without)[:2] == ([], 1)
    assert measured(monkeypatch, capsys, tmp_path, "--only", "darts", "--ways", "eager", program=WHOLE, without={"timm"})[1] == 0


def test_a_run_goes_on_after_a_failure_and_says_so_at_its_end(monkeypatch, capsys, tmp_path):
    found, status, text = measured(monkeypatch, capsys, tmp_path, "--only", "darts", "--ways", "eager,graph",
                                   program="raise OSError(3)")
    assert len(found) == 2 and status == 1 and text.count("failed: OSError: 3") == 2 and "| DARTS | failed | failed |" in text


def test_a_run_ends_with_its_time(monkeypatch, capsys, tmp_path):
    keep(tmp_path, entry("resnet50", "eager", 5))
    found, status, text = measured(monkeypatch, capsys, tmp_path, "--only", "darts", "--total", "1",
                                   program="import time; time.sleep(9)")
    assert len(found) == 1 and status == 0 and f"{len(ways.INFERENCE)} of {len(ways.INFERENCE)} are not done" in text
