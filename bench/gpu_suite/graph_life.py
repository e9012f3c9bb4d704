"""Runs programs that make, launch, change and destroy CUDA graphs in default recording: many fresh processes of each, several at
once on the device. Recording must be invisible: each process ends as without Nimble, with the same output.

Each program prints "RESULT digest". Its trace must be complete, and say how it was timed. """

import collections
import concurrent.futures
import dataclasses
import os
import subprocess
import time

import process

PROCESSES = 20   # of each program in default recording
PLAIN = 2        # and without Nimble
TOGETHER = 5     # at once on the device
ONE_LIMIT = 120  # seconds for one process


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: tuple
    settings: dict = dataclasses.field(default_factory=dict)
    module: str = ""  # the Python package that it needs


def python(name, file, module, **settings):
    return Program(name, ("{python}", "{programs}/graphs/" + file), settings, module)


# Graphs by every route: CUDA's runtime, and frameworks.
PROGRAMS = (
    Program("cuda", ("{work}/life",)),
    python("torch", "torch_life.py", "torch"),
    python("torch async", "torch_life.py", "torch", PYTORCH_ALLOC_CONF="backend:cudaMallocAsync",
           PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"),
    python("triton", "triton_life.py", "triton"),
    python("cupy", "cupy_life.py", "cupy"),
    python("jax", "jax_life.py", "jax"),
    python("numba", "numba_life.py", "numba"),
)
# Other tools that may watch the program in the same process. Each says in one line that it declines, or is well.
WATCHED = (
    ("torch.profiler", Program("torch profiled", ("{python}", "{programs}/graphs/torch_life.py", "--profile"), module="torch")),
    ("compute-sanitizer", Program("cuda sanitized", ("compute-sanitizer", "--error-exitcode", "9", "{work}/life", "2"))),
    ("cuda-gdb", Program("cuda debugged", ("cuda-gdb", "-batch", "-ex", "run", "-ex", "quit", "--args", "{work}/life", "2"))),
)


def result_of(text):
    """The program's result; None where it printed none."""
    return next((line.split(" ", 1)[1] for line in text.splitlines() if line.startswith("RESULT ")), None)


def run(place, part, program, work, run_folder, limit, recording):
    """(exit, result, last line of an error, whether its trace is complete) of one process."""
    run_folder.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NIMBLE_", "SIMCUDA_")) and key != "LD_PRELOAD"}
    if place.cupti:
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, (place.cupti, environment.get("LD_LIBRARY_PATH"))))
    environment |= {key: value.format_map(place.words(work, run_folder)) for key, value in {**part.settings, **program.settings}.items()}
    if recording:
        environment |= {"LD_PRELOAD": str(place.library), "NIMBLE_MODE": "record", "NIMBLE_TRACE": str(run_folder / "trace.%p.json")}
    try:
        done = subprocess.run(place.fill(program.command, work, run_folder), env=environment, cwd=run_folder, text=True, errors="replace",
                              capture_output=True, timeout=limit, check=False, start_new_session=True)
    except subprocess.TimeoutExpired:
        return "timeout", None, "", False
    words = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("nimble: ", "RESULT "))]
    whole = False
    for trace in run_folder.glob("trace.*.json"):
        with open(trace, "rb") as file:
            text = file.read()
        whole = whole or (text.endswith(b"]\n") and b"nimble.coverage" in text)
        trace.unlink()
    return process.describe_exit(done.returncode), result_of(done.stdout), (words or [""])[-1][:200], whole


def available(place, program):
    if not program.module:
        return True
    return subprocess.run([place.python, "-c", f"import numpy; import importlib.util, sys; sys.exit(importlib.util.find_spec({program.module!r}) is None)"],
                          check=False, capture_output=True, timeout=60).returncode == 0


def measure(part, place, work, _rounds, _groups, limit):
    """Like measure.py's, with `graph_life`: for each program how its processes ended, without Nimble and recording."""
    begin = time.monotonic()
    result = {"part": part.name, "what": part.what, "settings": part.settings, "odd": [], "status": "failed", "why": "", "graph_life": []}
    work.mkdir(parents=True, exist_ok=True)
    build = [place.nvcc, "-std=c++17", "-O2", f"-arch={place.arch}", str(place.root / "bench/gpu_suite/programs/graphs/life.cu"), "-o",
             str(work / "life")]
    try:
        subprocess.run(build, check=True, capture_output=True, text=True, timeout=120)
    except (subprocess.SubprocessError, OSError) as failure:
        return result | {"why": f"life.cu could not be built: {failure}"[:600]}, None
    jobs = []
    for program in PROGRAMS:
        if not available(place, program):
            result["odd"].append(f"{program.name}: {program.module} is not installed")
            continue
        jobs += [(program, recording, number) for recording, count in ((False, PLAIN), (True, PROCESSES)) for number in range(count)]

    def one(job):
        program, recording, number = job
        left = limit - (time.monotonic() - begin)
        if left < 1:
            return job, ("not run", None, "the time was up", False)
        folder = work / f"{program.name.replace(' ', '-')}-{'recording' if recording else 'plain'}-{number}"
        return job, run(place, part, program, work, folder, min(left, ONE_LIMIT), recording)

    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        ended = list(pool.map(one, jobs))
    for program in PROGRAMS:
        plain = [outcome for (of, recording, _), outcome in ended if of is program and not recording]
        recorded = [outcome for (of, recording, _), outcome in ended if of is program and recording]
        if not plain:
            continue
        right = {(how, output) for how, output, *_ in plain}
        result["graph_life"].append({
            "program": program.name, "plain": collections.Counter(how for how, *_ in plain), "outputs_plain": len({output for _, output in right}),
            "recorded": collections.Counter(how for how, *_ in recorded),
            "otherwise": sum((how, output) not in right for how, output, *_ in recorded),
            "traces_whole": sum(whole for *_, whole in recorded),
            "words": sorted({words for how, _, words, _ in plain + recorded if how != "exit status 0"})[:3]})
    result["watched"] = [watched(name, program, part, place, work, limit - (time.monotonic() - begin)) for name, program in WATCHED]
    wrong = [row for row in result["graph_life"] if row["otherwise"] or row["outputs_plain"] != 1 or set(row["plain"]) != {"exit status 0"} or
             row["traces_whole"] != sum(row["recorded"].values())]
    wrong_watched = [row for row in result["watched"] if row["status"] == "otherwise"]
    if wrong:
        result["why"] = f"{wrong[0]['program']}: {wrong[0]['otherwise']} of {sum(wrong[0]['recorded'].values())} processes ended otherwise than without Nimble: {dict(wrong[0]['recorded'])}"
    elif wrong_watched:
        result["why"] = f"{wrong_watched[0]['watcher']}: {wrong_watched[0]['why']}"
    result["status"] = "failed" if result["why"] else "ok"
    return result | {"seconds": time.monotonic() - begin}, None


def watched(name, program, part, place, work, left):
    """How the program ends while another tool watches it: without Nimble, and recording."""
    row = {"watcher": name, "status": "not run", "why": ""}
    if left < 10:
        return row | {"why": "the time was up"}
    outcomes = []
    for recording in (False, True):
        folder = work / f"watched-{name}-{recording}"
        try:
            outcomes.append(run(place, part, program, work, folder, min(left / 2, ONE_LIMIT), recording))
        except OSError as error:
            return row | {"why": str(error)}
    plain, recorded = outcomes
    if plain[0] != "exit status 0" or plain[1] is None:
        return row | {"why": f"fails without Nimble: {plain[0]}: {plain[2]}"}
    same = plain[:2] == recorded[:2]
    return row | {"status": "ok" if same else "otherwise", "why": "" if same else f"{recorded[0]}: {recorded[2]}"}

