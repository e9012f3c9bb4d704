"""bench/pytorch/chains.py without a GPU: a fake clock, and fake processes instead of those that use one."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "pytorch"), str(ROOT / "bench")]

import chains  # noqa: E402
import multi_process  # noqa: E402
import side_by_side  # noqa: E402

WORKER = """
import json, pathlib, sys
print("ready", flush=True)
sys.stdin.readline()
path = pathlib.Path({path!r})
before = path.read_text().split() if path.exists() else []
path.write_text(" ".join([*before, sys.argv[1]]))
if len(before) == {fails}: sys.exit("ValueError: no more")
if sys.argv[1] == "nimble":
    print("nimble: info: graph 1: the rewritten one is launched: 9.0 us a launch; the program's own 10.0 us", file=sys.stderr)
    print("nimble: info: graph 2: the program's own is launched: 990.0 us a launch; the program's own 1000.0 us; in turns 985.0, 990.0, "
          "1001.0; its own 1000.0, 1000.0, 1000.0", file=sys.stderr)
print(json.dumps({{what: {{"median": 10.0 * len(before)}} for what in ("row_us", "gpu_us", "wall_us")}}))
"""


class Clock:
    """A fake GPU that has finished all earlier calls."""

    def __init__(self):
        self.now = 0.0

    def synchronize(self):
        pass

    def event(self):
        return Event(self)


class Event:
    def __init__(self, clock):
        self.clock = clock

    def record(self):
        self.at = self.clock.now

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e3


def test_calls_take_turns():
    gpu, order = Clock(), []

    def call(name, takes):
        def called():
            order.append(name)
            gpu.now += takes
        return called

    found = chains.in_turns(gpu, {"one": call("one", 5.0), "other": call("other", 7.0)}, 2)
    assert [name for at, name in enumerate(order) if at == 0 or order[at - 1] != name] == ["one", "other", "one"]
    for name, takes in (("one", 5.0), ("other", 7.0)):
        assert found[name]["gpu_us"]["median"] == found[name]["row_us"]["median"] == pytest.approx(takes)
        assert found[name]["gpu_us"]["runs"] == found[name]["wall_us"]["runs"] == 2 * (chains.BLOCK - chains.WAKING)
    lines = list(chains.said_in_turns(found))
    assert "(  +0.0)" in lines[0] and "gpu      7.0 (  +2.0)" in lines[1]


@pytest.fixture
def in_processes(monkeypatch, tmp_path):
    def of(fails=-1):
        program = tmp_path / "worker.py"
        program.write_text(WORKER.format(path=str(tmp_path / "order"), fails=fails))
        monkeypatch.setattr(multi_process, "command_of", lambda way, build, _, name, kind, *more, log: (
            [sys.executable, program, way.replace(" ", "_"), name, kind, *more], side_by_side.environment()))
        return chains.in_processes("net", 2, ROOT), [way.replace("_", " ") for way in (tmp_path / "order").read_text().split()]

    return of


def test_processes_are_timed_back_and_forth(in_processes):
    found, order = in_processes()
    ways = list(multi_process.WAYS)
    assert order == [*ways, *reversed(ways)] and list(found) == ways
    assert [one["row_us"]["median"] for one in found["nimble"]] == [10.0 * (len(ways) - 1), 10.0 * len(ways)]
    first, *_, last = chains.said_of_processes(found)
    assert "row     45.0 [0.0 to 90.0]" in first
    assert ["trial" in one for way in ways for one in found[way]] == [way == "nimble" for way in ways for _ in range(2)]
    assert found["nimble"][0]["trial"] == {"launched": "program's own", "rewritten": [985.0, 990.0, 1001.0], "own": [1000.0] * 3}
    assert last.strip() == "in the trial the rewritten graph took 1.5, 1.0, -0.1 % less in its turns: the program's own is launched"


def test_one_that_fails_ends_all(in_processes, monkeypatch):
    ended = []
    monkeypatch.setattr(side_by_side, "give_up", lambda process, give_up=side_by_side.give_up: ended.append(process) or give_up(process))
    with pytest.raises(side_by_side.Failure, match="net, graph beside libnimble.so: ValueError: no more"):
        in_processes(fails=2)
    assert len(ended) == 2 * len(multi_process.WAYS) - 3


def test_one_that_cannot_start_ends_those_before_it(in_processes, monkeypatch):
    started, ended = [], []
    begin, give_up = chains.begin, side_by_side.give_up
    monkeypatch.setattr(chains, "begin", lambda *words: 1 / 0 if len(started) == 3 else started.append(begin(*words)) or started[-1])
    monkeypatch.setattr(side_by_side, "give_up", lambda process: ended.append(process) or give_up(process))
    with pytest.raises(ZeroDivisionError):
        in_processes()
    assert len(started) == 3 and ended == started
