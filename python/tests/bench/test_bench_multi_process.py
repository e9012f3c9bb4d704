"""bench/pytorch/multi_process.py without a GPU: fake processes instead of those that use one."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "pytorch"), str(ROOT / "bench")]

import multi_process  # noqa: E402
import side_by_side  # noqa: E402

# Notes its requests, and whether holders exist then.
WORKER = """
import json, pathlib, sys
folder = pathlib.Path({folder!r})
print("noise\\nready", flush=True)
for number, line in enumerate(sys.stdin):
    if number == {ends}: sys.exit("no more")
    print(json.dumps({{"median": len(list(folder.glob("holder*"))), "said": [line.strip(), *sys.argv[2:]]}}), flush=True)
"""
HOLDER = """
import os, pathlib, sys
path = pathlib.Path({folder!r}) / f"holder{{os.getpid()}}"
path.touch()
print({says!r}, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    def of(ends=-1, says="ready"):
        program = tmp_path / "worker.py"
        program.write_text(WORKER.format(folder=str(tmp_path), ends=ends))
        monkeypatch.setattr(multi_process, "HOLDER", HOLDER.format(folder=str(tmp_path), says=says))
        return multi_process.run("net", "graph", 3, ROOT, program)

    return of


def test_a_graph_is_asked_alone_and_in_company(run):
    found = run()
    assert [(what, each["said"], each["median"]) for what, each in found.items()][:5] == [
        ("alone", ["time", "net", "graph"], 0), ("settled", ["settle", "net", "graph"], 0), ("in company", ["time", "net", "graph"], 3),
        ("captured in company", ["capture", "net", "graph"], 3), ("profiled in company", ["profile", "net", "graph"], 3)]
    # Files of holders that have ended stay.
    assert [(what, each["said"][0], each["median"]) for what, each in found.items()][5:] == [
        ("alone again", "time", 3), ("profiled alone", "profile", 3), ("begun in company", "time", 6),
        ("profiled, begun in company", "profile", 6), ("begun in company, alone", "time", 6)]


def test_a_process_that_ends_is_told_of(run):
    with pytest.raises(side_by_side.Failure, match="(?s)net, graph: it ended: no more"):
        run(ends=1)
    with pytest.raises(side_by_side.Failure, match="no context"):
        run(says="the driver says 2")


@pytest.mark.parametrize("kernels, work, gaps", [
    ([(0, 2), (3, 5)], 4, 1), ([(3, 5), (0, 2)], 4, 1), ([(0, 4), (1, 2), (3, 6)], 6, 0), ([(0, 4), (1, 3), (6, 7)], 5, 2),
    ([(10, 11)], 1, 0)])
def test_work_and_gaps(kernels, work, gaps):
    assert multi_process.times_between(kernels) == {"kernels": len(kernels), "work_us": work, "gaps_us": gaps}
