#!/usr/bin/env python3
"""The demo itself, in a built tree: off, record, analyze, replay, compare, table. scripts/demo builds and calls this."""

import argparse
import collections
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Relative to the root, so that the commands can be typed as they are printed; main() may set others.
BUILD = pathlib.Path("build/default")
WORK = pathlib.Path("build/demo")


class Failure(Exception):
    """Why the demo did not succeed."""


def show(text=""):
    print(text, flush=True)


def run(command, extra=None, quiet=False, head=0, tail=6):
    """Runs a command as it is printed, shows the first and last lines of what it says, and returns all of that."""
    words = [str(word) for word in command]
    if not quiet:
        show(f"\n$ {shlex.join(words)}")
    begin = time.monotonic()
    result = subprocess.run(words, env={**os.environ, **(extra or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace")
    seconds = time.monotonic() - begin
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    failed = result.returncode != 0
    if not quiet:
        left_out = 0 if failed else max(0, len(lines) - head - tail)
        for number, line in enumerate(lines):
            if left_out == 0 or number < head or number >= len(lines) - tail:
                show("  " + line)
            elif number == head:
                show(f"  [... {left_out} lines]")
        show(f"  ({seconds:.1f} s)")
    if failed:
        raise Failure(f"exit status {result.returncode} from {shlex.join(words)}")
    return result.stdout


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from error


class Device:
    """What the program runs on: the GPU where one answers, else the simulated driver."""

    def __init__(self, force_simulated):
        self.text = "" if force_simulated else self.ask()
        if not self.text:
            if not force_simulated:
                show("demo: no GPU answers here, so the driver is simulated")
            path = [str(BUILD / "simcuda")] + ([os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else [])
            os.environ["LD_LIBRARY_PATH"] = ":".join(path)
            show(f"\n$ export LD_LIBRARY_PATH={os.environ['LD_LIBRARY_PATH']}")
            self.text = self.ask()
            if not self.text:
                raise Failure(f"{BUILD / 'bin/digits'} device does not work on the simulated driver")
        self.simulated = "Simulated GPU" in self.text
        self.mark = " (simulated)" if self.simulated else ""
        show(f"\n$ {BUILD / 'bin/digits'} device")
        for line in self.text.splitlines():
            show("  " + line)

    @staticmethod
    def ask():
        """What the program says of the device; nothing where it finds none."""
        result = subprocess.run([BUILD / "bin/digits", "device"], capture_output=True, text=True)
        return result.stdout.strip() if result.returncode == 0 else ""


class Training:
    """One training run in one mode, with the files that it left."""

    def __init__(self, mode, epochs, device, *options):
        self.mode = mode
        self.weights = WORK / f"{mode}.weights"
        stats, report = WORK / f"{mode}.json", WORK / f"{mode}.driver.json"
        run([BUILD / "bin/nimble", "run", "--mode", mode, *options, "--", BUILD / "bin/digits", "train", "--epochs", epochs,
             "--seed", 1, "--save", self.weights, "--stats", stats],
            {"SIMCUDA_REPORT": str(report)} if device.simulated else None)
        stats = read_json(stats)
        self.steps = stats["steps"]
        self.ops_per_step = stats["ops_per_step"]
        self.host_us = stats["host_us_per_step"]
        self.gpu_us = stats["gpu_us_per_step"]
        self.accuracy = stats["accuracy"]
        if self.steps <= 0:
            raise Failure(f"the program made no step in mode {mode}")
        if device.simulated:
            counted = read_json(report)
            self.submissions = counted["submissions"] / self.steps
            self.driver_us = counted["simulated"]["host_submit_us"] / self.steps
        self.digest = hashlib.sha256(self.weights.read_bytes()).hexdigest()



def must_equal(off, other):
    if other.steps != off.steps:
        raise Failure(f"{other.mode} made {other.steps} steps, off made {off.steps}")
    if other.digest != off.digest:
        raise Failure(f"the weights differ between off and {other.mode}: {off.weights} and {other.weights}")


class Recording:
    """What the trace tells: how much the program submits by itself, and who recorded it."""

    SUBMITTED = ("launch", "copy", "set", "host_function", "graph_launch")  # as the simulated driver counts

    def __init__(self, path, steps):
        kinds = collections.Counter()
        self.facts = {}
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                # Each op stands there twice: as a call (process 1), and on its stream's track.
                if kind := re.search(r'^{"ph":"X","pid":1,.*"cat":"(\w+)"', line):
                    kinds[kind[1]] += 1
                elif '"nimble.trace"' in line:
                    self.facts = json.loads(line.rstrip().rstrip(","))["args"]
        self.submissions = sum(kinds[kind] for kind in self.SUBMITTED) / steps


class Plan:
    """What the schedule says of one step."""

    def __init__(self, path):
        schedule = read_json(path)
        self.policy = schedule["policy"]
        self.graphs = len(schedule["segments"])
        self.streams = max((segment["lanes"] for segment in schedule["segments"]), default=1)
        self.synchronizations = sum(segment["synchronizations"] for segment in schedule["segments"])


def submissions(device, training, recording, counters=None):
    """Driver submissions per step: counted by the simulated driver, else from the trace and the replayer's counters."""
    if device.simulated:
        return training.submissions
    saved = counters["ops_replayed"] - counters["graph_launches"] if counters else 0
    return recording.submissions - saved / training.steps


def table(headings, rows):
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]

    def line(row):
        return "  " + "  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row))

    return "\n".join([line(headings), "  " + "  ".join("-" * width for width in widths), *map(line, rows)])


def changed(before, after):
    return f"{before / after:.2f}x" if after > 0 else ""


def comparison(device, runs, plan, own_streams, submitted):
    """The table of the three runs. submitted: driver submissions per step of each."""
    off, _, replay = runs
    clock = "GPU time per step" + device.mark
    headings = ["", "off", "record", "replay", "off / replay"]
    # What a real driver's calls would cost comes from the model.
    name = "host time per step, to submit" + (", wall clock" if device.simulated else "")
    host_rows = [[name, *(f"{run.host_us:.1f} us" for run in runs), changed(off.host_us, replay.host_us)]]
    if device.simulated:
        host_rows.append(["time in the driver's calls per step (simulated)", *(f"{run.driver_us:.1f} us" for run in runs),
                          changed(off.driver_us, replay.driver_us)])
    rows = [
        ["ops per step", *(f"{run.ops_per_step:.0f}" for run in runs), ""],
        ["streams", own_streams, own_streams, str(plan.streams), ""],
        ["synchronisations between streams", "0", "0", str(plan.synchronizations), ""],
        ["driver submissions per step", *(f"{each:.1f}" for each in submitted),
         changed(submitted[0], submitted[2])],
        *host_rows,
        [clock, *(f"{run.gpu_us:.1f} us" for run in runs), changed(off.gpu_us, replay.gpu_us)],
        ["accuracy", *(f"{run.accuracy:.4f}" for run in runs), ""],
        ["final weights (SHA-256)", *(run.digest[:12] for run in runs), "identical"],
    ]
    return table(headings, rows)


def show_next(trace):
    show("\nNext:")
    for command, what in [
            (f"{BUILD / 'bin/nimble-analyze'} {trace} --no-schedule", "what depends on what in a step; --why tells why"),
            (f"{BUILD / 'bin/nimble'} --help", "all settings"),
            (f"{BUILD / 'bin/nimble'} run -- your-program", "record your own; then analyze and replay as above"),
            ("scripts/test", "run the tests"), ("scripts/bench", "what a launch costs under Nimble")]:
        show(f"  {command:60} # {what}")
    show(f"  open {trace} in https://ui.perfetto.dev")


def demo(options):
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    device = Device(options.simulated)
    trace, schedule, report = WORK / "trace.json", WORK / "schedule.json", WORK / "report.json"
    counters_file = WORK / "counters.json"

    show("\n1. The program by itself: libnimble.so is loaded, and does nothing.")
    epochs = options.epochs or (4 if device.simulated else 20)
    off = Training("off", epochs, device)
    show("\n2. The same, recorded.")
    record = Training("record", epochs, device, "--trace", trace)
    must_equal(off, record)
    show("\n3. What depends on what, and how it can run.")
    run([BUILD / "bin/nimble-analyze", trace, "-o", schedule, "--json", report], head=16, tail=12)
    show("\n4. The same program on the schedule.")
    replay = Training("replay", epochs, device, "--schedule", schedule, "--stats", counters_file,
                      "--tune", "off")  # which compares the schedule with the program's own order, as is done here

    must_equal(off, replay)

    counters = read_json(counters_file)
    if counters["steps_replayed"] == 0:
        raise Failure(f"no step was replayed; the counters say why: {json.dumps(counters)}")
    plan = Plan(schedule)
    recording = Recording(trace, record.steps)
    own_streams = str(read_json(report)["step"]["streams"])
    before, after = submissions(device, off, recording), submissions(device, replay, recording, counters)
    runs = (off, record, replay)
    text = comparison(device, runs, plan, own_streams, (before, submissions(device, record, recording), after))
    show("\n" + text)
    show(f"\n  {counters['steps_replayed']} of {replay.steps} steps were replayed, each as {plan.graphs} graph"
         f"{'' if plan.graphs == 1 else 's'}; policy {plan.policy}")
    if device.simulated:
        show("  simulated: the driver is tests/simcuda, and its times come from a model. It answers in a fraction of the time that a\n"
             "  real one takes, so wall clock shows what the program and Nimble take alone. Run this on a GPU for real ones.")

    facts = {
        "date": datetime.date.today().isoformat(), "simulated": device.simulated,
        "device": recording.facts.get("device"), "driver": recording.facts.get("driver"), "nimble": versions(),
        "steps": off.steps, "counters": counters, "policy": plan.policy, "graphs_per_step": plan.graphs,
        "streams": plan.streams, "synchronizations": plan.synchronizations,
        "submissions_per_step": {"off": before, "replay": after}, "weights_sha256": off.digest,
        "modes": {run.mode: {"ops_per_step": run.ops_per_step, "host_us_per_step": run.host_us,
                             "gpu_us_per_step": run.gpu_us, "accuracy": run.accuracy} for run in runs}
    }
    if options.results:
        keep(options.results, facts, text)

    show_next(trace)
    show(f"\ndemo: ok: {off.ops_per_step:.0f} ops per step, driver submissions {before:.1f} -> {after:.1f}, " +
         (f"driver calls (simulated) {off.driver_us:.1f} -> {replay.driver_us:.1f} us and " if device.simulated else
            f"host {off.host_us:.1f} -> {replay.host_us:.1f} us and ") +
         f"GPU{device.mark} {off.gpu_us:.1f} -> {replay.gpu_us:.1f} us per step, weights identical to the bit")


def versions():
    text = run([BUILD / "bin/nimble", "--version"], quiet=True)
    return re.findall(r"^(?:nimble|built with) +(.*)", text, re.MULTILINE)


def keep(folder, facts, text):
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", "simulated" if facts["simulated"] else str(facts["device"]).lower()).strip("-")
    base = folder / f"{facts['date']}-demo-{name}"
    base.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    heading = [f"scripts/demo, {facts['date']}", f"device: {facts['device']}{' (simulated)' if facts['simulated'] else ''}",
               f"driver: {facts['driver']}", f"nimble: {', '.join(facts['nimble'])}",
               f"steps: {facts['counters']['steps_replayed']} of {facts['steps']} replayed, policy {facts['policy']}"]
    base.with_suffix(".txt").write_text("\n".join([*heading, "", text, ""]), encoding="utf-8")
    show(f"\nkept in {base}.json and .txt")


def positive(text):
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def main():
    global BUILD, WORK
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="the simulated driver, even where there is a GPU")
    parser.add_argument("--epochs", type=positive, help="how long to train (default: 4 simulated, 20 on a GPU)")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="the build tree (default: %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=WORK, help="where files are left (default: %(default)s)")
    parser.add_argument("--results", type=pathlib.Path, help="folder to keep the table in")
    options = parser.parse_args()
    BUILD, WORK = options.build, options.work
    os.chdir(ROOT)
    try:
        demo(options)
    except (Failure, KeyError, OSError) as failure:
        what = f"{failure} is missing from a report" if isinstance(failure, KeyError) else failure
        show(f"\ndemo: FAILED: {what}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
