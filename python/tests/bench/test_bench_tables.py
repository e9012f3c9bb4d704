"""scripts/pytorch without a GPU: its command line, the results that it keeps from processes, and the tables made from them.
No PyTorch."""

import json
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("processes in groups of their own need Python 3.11", allow_module_level=True)
ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "pytorch"), str(ROOT / "bench")]

import networks  # noqa: E402
import render  # noqa: E402
import runner  # noqa: E402
import side_by_side  # noqa: E402
import ways  # noqa: E402
from runner import Task  # noqa: E402


def script(*words):
    command = [sys.executable, str(ROOT / "scripts/pytorch"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def entry(network, way, us=None, part="inference", batch=1, at="2026-01-02T03:04:05", **more):
    found = {"part": part, "network": network, "batch": batch, "way": way, "at": at, "invocation": "one", "device": "A GPU, 1.2"}
    if us is not None:
        times = {"median": us, "p10": us - 1, "p90": us + 2, "runs": 100}
        found |= {"gpu_us": times, "wall_us": times, "row_us": times, "prepare_s": 1.25, "torch": "2.11.0",
                  "memory_mib": {"before": 500, "after": 600}, "difference": 0.0, "relative_difference": 0.0, "digest": "d",
                  "eager_digest": "d", "same_bits": True}
    return found | more


def graph(**more):
    return {"kind": None, "state": "rewritten", "nodes": 9, "streams": 3, "own_us": 20.0, "rewritten_us": None, "why": "", **more}


def keep(folder, *entries, name="pytorch-runs.jsonl"):
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in entries))


def tables(folder, *entries, status=0):
    keep(folder, *entries)
    done = script("--table", "--results", folder)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_times_failures_and_what_is_missing(tmp_path):
    text = tables(tmp_path, entry("nasnetamobile", "eager", 1000), entry("nasnetamobile", "graph", 400),
                  entry("nasnetamobile", "nimble", 200, graphs=[graph(), graph(runs_ahead=True), graph(runs_ahead=False)]),
                  entry("darts", "graph", failed="RuntimeError: no memory", stderr="a\nb"),
                  entry("darts", "autotune", not_within_s=300))
    assert "| network | eager | torch.cuda.graph | torch.compile max-autotune | Nimble |" in text
    assert "| NASNet-A mobile | 1000 [999, 1002] | 400 [399, 402] | - | 200 [199, 202] |" in text
    assert "| DARTS | - | failed | not within 300 s | - |" in text
    assert "| NASNet-A mobile | 22.34 | 5.00 | - | 2.00 | - | 2.00 |" in text  # beside what was published
    assert "| DARTS | - | - | - | - | - | - |" in text
    assert "- DARTS, torch.cuda.graph: RuntimeError: no memory" in text
    for ahead in ("-", "yes", "no"):  # older results do not tell
        assert f"| NASNet-A mobile | - | rewritten | 9 | 3 | 20 | - | {ahead} |  |" in text
    assert "1.25 s, 500 to 600" in text
    assert "Device: A GPU, 1.2; PyTorch 2.11.0; 2026-01-02. `scripts/pytorch`, one run of it." in text
    (kept,) = tmp_path.glob("*-pytorch.md")
    assert kept.read_text() in text
    assert len(json.loads(kept.with_suffix(".json").read_text())["results"]) == 5


def test_networks_stand_in_one_order_and_titles_are_not_names(tmp_path):
    text = tables(tmp_path, entry("encoder", "eager", 3), entry("resnet50", "eager", 2))
    assert text.index("| resnet50 |") < text.index("| encoder (BERT-base) |")


def test_the_latest_result_counts_in_whichever_file(tmp_path):
    keep(tmp_path, entry("resnet50", "eager", 7, at="2026-01-03", invocation="two"), name="a.jsonl")
    text = tables(tmp_path, entry("resnet50", "eager", 5, at="2026-01-02"), entry("resnet50", "graph", 4, at="2026-01-02"))
    assert "| resnet50 | 7 [6, 9] | 4 [3, 6] |" in text
    assert "Not all ways were measured in one run of the command for: resnet50." in text and "2 runs of it" in text


def test_one_run_of_the_command_needs_no_remark(tmp_path):
    assert "Not all ways" not in tables(tmp_path, entry("resnet50", "eager", 5), entry("resnet50", "graph", 4))


def test_slower_rows_are_named(tmp_path):
    text = tables(tmp_path, entry("resnet50", "graph", 100), entry("resnet50", "nimble", 104), entry("darts", "graph", 100),
                  entry("darts", "nimble", 100.5))
    assert "Nimble is slower than torch.cuda.graph by more than 1% on: resnet50 (0.96)." in text
    text = tables(tmp_path, entry("resnet50", "graph", 100), entry("resnet50", "nimble", 90))
    assert "Nimble is slower than torch.cuda.graph by more than 1% on: no row." in text


def test_other_bits_are_an_error(tmp_path):
    text = tables(tmp_path, entry("resnet50", "nimble", 5, same_bits=False), status=1)
    assert "OTHER BITS" in text
    assert "resnet50, nimble" in script("--table", "--results", tmp_path).stderr
    assert "OTHER BITS" not in tables(tmp_path, entry("resnet50", "nimble", 5))


def exactness(*entries, way):
    part = render.Part("inference", {runner.task_of(one): one for one in entries})
    return render.exactness(part, ("resnet50", 1), ways.way("inference", way))


def test_exactness_in_words():
    assert exactness(entry("resnet50", "graph", 1), way="graph") == "same bits"
    assert exactness(entry("resnet50", "eager", 1, digest="x"), entry("resnet50", "graph", 1), way="graph") == \
        "same bits, other than in eager's process, eager differs between the processes"
    compiled = entry("resnet50", "compile", 1, relative_difference=2e-6)
    del compiled["same_bits"]
    assert exactness(compiled, way="compile") == "2e-06 of eager's largest"
    assert exactness(compiled, entry("resnet50", "nimble-compile", 1, digest="x"), way="nimble-compile") == \
        "same bits, other than in compile's process, 0e+00 of eager's largest"
    assert exactness(entry("resnet50", "graph", not_within_s=3), way="graph") == "not within 3 s"
    assert exactness(way="graph") == "-"


def test_training(tmp_path):
    rows = [entry("resnet50", way, us, "training", batch) for batch, way, us in
            ((32, "eager", 200), (32, "nimble", 100), (128, "eager", 400), (32, "graph", 50), (32, "nimble-step", 60))]
    text = tables(tmp_path, *rows)
    assert "## Training" in text and "## Inference" not in text
    assert "| resnet50, 32 | 1.90 | 2.00 | - | - | - | 0.83 |" in text
    assert text.index("| resnet50, 32 | 200") < text.index("| resnet50, 128 | 400")
    assert "nimble.step is slower than torch.cuda.graph of the step by more than 1% on: resnet50, 32 (0.83)." in text


def test_compiling_with_empty_caches_is_told(tmp_path):
    assert "| resnet50 | 1.2 s (70 s), 500 to 600 |" in tables(tmp_path, entry("resnet50", "compile", 5, cold_prepare_s=70.1))


def test_published_figures_are_of_networks_that_there_are():
    for part, known in (("inference", networks.INFERENCE), ("training", networks.TRAINING)):
        found = {name for name in render.PUBLISHED[part] if name != "source"}
        assert found and found <= set(known)
    assert all(set(render.PUBLISHED["training"][name]) == set(map(str, networks.BATCHES)) for name in networks.TRAINING)


@pytest.mark.parametrize("words, why", [
    (["--only", "resnet5"], "--only: resnet5 is none of"), (["--ways", "eager,fast"], "--ways: fast is none of"),
    (["--part", "serving"], "--part: serving is none of"), (["--batches", "33"], "--batches: 33 is none of"),
    (["--limit", "0"], "--limit"), (["--warm", "none"], "--warm"), (["--tab"], "--tab"), (["more"], "more")])
def test_arguments_that_are_refused(words, why):
    done = script(*words)
    assert done.returncode == 2 and why in done.stderr and "--help" in done.stderr


def test_results_that_cannot_be_shown(tmp_path):
    for words in (["--table"], ["--table", "--results", tmp_path / "none"], ["--table", "--results", tmp_path],
                  ["--part", "training", "--only", "darts"], ["--warm-only"], ["--gpus", "99"]):
        done = script(*words)
        assert done.returncode == 1 and done.stderr.startswith("pytorch: "), words
    for broken in ("{", '{"at": "2026", "part": "inference"}', "[1]"):
        (tmp_path / "broken.jsonl").write_text(broken)
        done = script("--table", "--results", tmp_path)
        assert done.returncode == 1 and "broken.jsonl is not of this command" in done.stderr


def test_help_names_every_way_and_option():
    done = script("--help")
    assert done.returncode == 0 and done.stdout.startswith("Usage: scripts/pytorch ")
    for word in ("--batches", "--missing", "--total", "--together", "--gpus", "--warm-only", *(way.name for part in ways.WAYS.values() for way in part)):
        assert word in done.stdout


# Processes, with fake programs instead of the benches'.

FOUND = 'print("noise"); print(\'{"prepare_s": 1.0, "gpu_us": {"median": 5}}\'); print("more noise")'


@pytest.fixture
def run(tmp_path):
    def make(program, **options):
        given = {"limit": 60, "total": None, "cache": tmp_path / "cache", "build": tmp_path, "together": 1, "gpus": 1, **options}
        made = runner.Runner(types.SimpleNamespace(**given), tmp_path)
        made.command = lambda task, *more: ["-c", program, task.way, *more]
        return made
    return make


def kept(folder):
    return {task[3]: found for task, found in runner.load(folder).items()}


def task(way, network="resnet50"):
    return Task("inference", network, 1, way)


def test_a_result_is_kept_at_once(run, tmp_path):
    found = run(FOUND).timed(task("eager"))
    assert found["gpu_us"] == {"median": 5} and kept(tmp_path)["eager"] == found


@pytest.mark.parametrize("program, why", [
    ("import sys; sys.stderr.write('1\\n  ValueError: not it\\n'); raise ValueError('the reason')", "ValueError: the reason"),
    ("import os; os.kill(os.getpid(), 11)", "ended by signal 11"), ("pass", "its output cannot be read: it has no results in it"),
    ("print('{')", "its output cannot be read"), ("import sys; sys.exit('last words')", "last words"),
    ("exit(3)", "it said nothing")])
def test_what_a_failure_says(run, tmp_path, program, why):
    made = run(program)
    assert made.timed(task("eager"))["failed"].startswith(why) and made.failed == 1
    assert runner.said(kept(tmp_path)["eager"]).startswith("failed: ")


def test_the_tail_of_stderr_is_kept_without_this_machines_folders(run):
    place = f"{ROOT}/bench/pytorch/x.py"
    found = run(f"import sys; sys.exit('File \"{place}\"' + 3000 * '.')").timed(task("eager"))
    assert len(found["stderr"]) == side_by_side.TAIL
    assert side_by_side.without_paths(f'"{place}" "/a/site-packages/y.py"') == '"bench/pytorch/x.py" "y.py"'


def test_a_process_that_takes_too_long_ends_with_its_children(run, tmp_path):
    child = f"import time; time.sleep(3); open({str(tmp_path / 'alive')!r}, 'w')"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    begin = time.monotonic()
    found = run(program, limit=1).timed(task("eager"))
    assert found["not_within_s"] == 1 and time.monotonic() - begin < 2.5
    time.sleep(3)
    assert not (tmp_path / "alive").exists()


def test_what_the_time_for_all_cuts_short_is_not_kept(run, tmp_path):
    made = run("import time; time.sleep(30)", total=1)
    assert made.timed(task("eager")) is None  # ended
    assert made.timed(task("graph")) is None  # not begun
    assert runner.load(tmp_path) == {}


def test_ways_of_nimble_run_under_nimble(run, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setenv("NIMBLE_MODE", "record")
    monkeypatch.setenv("PYTHONPATH", "/wheels")

    def note(command, env, waits):
        assert waits and "--wait" in command
        calls.append((command, env))

    monkeypatch.setattr(side_by_side, "start", note)
    monkeypatch.setattr(side_by_side, "finish", lambda process, limit: side_by_side.Done(0, "{}", "", 1))
    made = run("x")
    for way in ("nimble-one", "graph"):
        assert made.timed(task(way))["seconds"] == 1
    (nimble, env), (graph_, own) = calls
    assert nimble[1:4] == ["-m", "nimble", "run"] and "-m" not in graph_
    assert env["PYTHONPATH"] == f"{ROOT}/python:/wheels" and env["NIMBLE_LIBRARY"] == f"{tmp_path}/lib/libnimble.so"
    assert own["PYTHONPATH"] == "/wheels" and "NIMBLE_MODE" not in own
    assert own["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache")


def test_warming_compiles_for_each_way_with_options_of_its_own_and_gives_up_what_does_not_compile(run, tmp_path):
    log = tmp_path / "log"
    made = run(f"""
import sys
open({str(log)!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "autotune":
    raise RuntimeError("cannot")
print('{{"prepare_s": 9.0}}')
""")
    wanted = [task(way.name) for way in ways.INFERENCE]
    left = made.warm(wanted, 3)
    assert sorted(log.read_text().split("\n")[:-1]) == [
        f"{way} --prepare-only" for way in ("autotune", "compile", "nimble-autotune", "nimble-compile")]
    assert [one.way for one in left] == [way.name for way in ways.INFERENCE if way.name != "autotune"]
    assert kept(tmp_path)["autotune"]["failed"] == "RuntimeError: cannot" and made.failed == 1
    assert made.timed(task("nimble-compile"))["cold_prepare_s"] == 9.0
    assert "cold_prepare_s" not in made.timed(task("nimble"))
    # Another run finds the caches filled, and knows how long that took.
    log.unlink()
    again = run("raise RuntimeError('not again')")
    assert again.warm([task("compile")], 3) == [task("compile")]
    again.command = made.command
    assert again.timed(task("compile"))["cold_prepare_s"] == 9.0


def test_processes_start_together_and_have_the_gpu_one_at_a_time(run, tmp_path):
    log = tmp_path / "log"
    program = f'''
import sys, time
def say(what):
    with open({str(log)!r}, "a") as file: file.write(f"{{sys.argv[1]}} {{what}}\\n")
say("starts")
time.sleep(0.2)
print("noise")
say("waits")
print("ready", flush=True)
sys.stdin.readline()
say("has it")
time.sleep(0.2)
say("ends")
print('{{"prepare_s": 1.0}}')
'''
    tasks = [task(name) for name in ("eager", "graph", "torchscript", "autotune")]
    for together in (1, 3):
        log.write_text("")
        found = [(one.way, entry["prepare_s"], entry.get("together")) for one, entry in
                 run(program, together=together).all_timed(tasks)]
        assert found == [(one.way, 1.0, 3 if together > 1 else None) for one in tasks]
        said = log.read_text().splitlines()
        assert [line for line in said if "ends" in line or "has" in line] == \
            [f"{one.way} {what}" for one in tasks for what in ("has it", "ends")]
        assert (said.index("torchscript waits") < said.index("eager has it")) == (together > 1)
        assert said.index("autotune starts") > said.index("torchscript ends") or together == 1


def test_each_gpu_has_networks_of_its_own_and_one_process_that_is_timed(run, tmp_path, monkeypatch):
    program = """
import json, os, sys, time
gpu, begin = os.environ["CUDA_VISIBLE_DEVICES"], time.time()
print("ready", flush=True)
sys.stdin.readline()
go = time.time()
time.sleep(0.3)
print(json.dumps({"prepare_s": 1.0, "gpu": gpu, "begin": begin, "go": go, "end": time.time()}))
"""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    tasks = [task(way, network) for network in ("resnet50", "googlenet", "darts") for way in ("eager", "graph")]
    for together in (1, 2):
        found = dict(run(program, together=together, gpus=2).all_timed(tasks))
        assert {each: entry["gpu"] for each, entry in found.items()} == \
            {each: "5" if each.network == "googlenet" else "3" for each in tasks}
        assert all(entry["gpus"] == 2 for entry in found.values())
        first, other = ([entry for each, entry in found.items() if each.network == name] for name in ("resnet50", "googlenet"))
        for one, next_one in (first, other):
            assert one["end"] < next_one["go"]
        assert first[0]["go"] < other[0]["end"] and other[0]["go"] < first[0]["end"]  # at once
        begun = first[:together] + other[:together]
        assert max(entry["begin"] for entry in begun) < min(entry["go"] for entry in begun)
    one_gpu = run("import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == '3,5'; print('{\"prepare_s\": 1.0}')")
    assert "failed" not in one_gpu.timed(task("eager"))


def test_who_has_enough_of_a_run_on_several_gpus_ends_all_that_has_started(run, tmp_path, monkeypatch):
    program = f"import os, sys, time; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w'); print('ready', flush=True); " \
        "sys.stdin.readline(); sys.argv[1] == 'graph' and time.sleep(30); print('{\"prepare_s\": 1.0}')"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    begin = time.monotonic()
    going = run(program, together=2, gpus=2).all_timed([task(way, network) for network in ("resnet50", "darts") for way in ("eager", "graph")])
    assert next(going)[0].way == "eager"
    going.close()
    assert time.monotonic() - begin < 10
    pids = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    assert len(pids) == 4 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_what_a_waiting_process_complains_of_does_not_hold_it_up(run):
    program = "import sys; sys.stderr.write('much\\n' * 50000); print('ready', flush=True); sys.stdin.readline(); sys.exit('the end')"
    begin = time.monotonic()
    ((_, entry),) = run(program, together=2).all_timed([task("eager")])
    assert entry["failed"] == "the end" and time.monotonic() - begin < 10


def test_of_those_that_start_together_one_may_fail(run):
    program = "import sys; sys.argv[1] == 'eager' and sys.exit('last words'); print('ready', flush=True); sys.stdin.readline(); " \
        "print('{\"prepare_s\": 1.0}')"
    found = dict(run(program, together=2).all_timed([task("eager"), task("graph")]))
    assert found[task("eager")]["failed"] == "last words" and found[task("graph")]["prepare_s"] == 1.0


def test_what_has_started_goes_with_the_run(run, tmp_path):
    program = f"import os, sys, time; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w'); print('ready', flush=True); " \
        "sys.stdin.readline(); time.sleep(30)"
    begin = time.monotonic()
    assert list(run(program, together=2, total=2).all_timed([task("eager"), task("graph")])) == []
    assert time.monotonic() - begin < 10
    pids = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    assert len(pids) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in pids)
