"""Compares nimble-analyze's predictions with the device's times: for digits and for op graphs of published networks, each
recorded once, scheduled by each policy, and replayed.

scripts/predictions calls this. Needs Python 3 and a build."""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POLICIES = ["cost", "nimble", "levels", "greedy", "single"]
GRAPHS = ["GoogLeNet", "Inception-v3", "NASNet-A mobile", "NASNet-A large", "DARTS", "transformer block", "training step",
          "layers 40 x 8", "layers 40 x 32"]
USAGE = """Usage: scripts/predictions [--build DIR] [--results DIR] [--only NAME,...] [--steps N] [--simulated] [--help]

Compares nimble-analyze's predictions with the device's times: runs digits and the op graphs of published networks, records each,
makes a schedule by each policy, and replays it. Prints a table of predicted and measured times of a step, and the error. Needs
Python 3 and a build; without a GPU it runs on the simulated driver, whose times come from the same model."""


class Failure(Exception):
    pass


class Program:
    """A program that makes steps and reports the device's time per step, and its result."""

    def __init__(self, name, build, steps):
        self.name, self.build, self.steps = name, build, steps

    def command(self, work):
        if self.name == "digits":
            return [self.build / "bin/digits", "train", "--epochs", 20 if self.steps > 50 else 2, "--seed", 1, "--save", work / "weights", "--stats",
                    work / "stats.json"]
        return [self.build / "bin/op_graph", self.name, self.steps]

    def run(self, work, mode, **settings):
        """Returns (microseconds a step, digest, counters)."""
        environment = {**os.environ, **{f"NIMBLE_{key}": str(value) for key, value in settings.items()},
                       "NIMBLE_LOG": "warn", "NIMBLE_STATS": str(work / "counters.json")}
        (work / "counters.json").unlink(missing_ok=True)
        command = [str(word) for word in [self.build / "bin/nimble", "run", "--mode", mode, "--", *self.command(work)]]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        if result.returncode != 0:
            raise Failure(f"{self.name}, {mode}: {result.stderr.strip()[-300:]}")
        if self.name == "digits":
            said = json.loads((work / "stats.json").read_text())
            said["digest"] = (work / "weights").read_bytes().hex()
        else:
            said = json.loads(result.stdout)
        counters = json.loads((work / "counters.json").read_text()) if (work / "counters.json").exists() else {}
        return said["gpu_us_per_step"], said["digest"], counters


def analyze(program, trace, work, policy):
    report, schedule = work / "report.json", work / f"{policy}.schedule.json"
    command = [program.build / "bin/nimble-analyze", trace, "--policy", policy, "--quiet", "--json", report, "-o", schedule]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure(f"{program.name}: {result.stderr.strip()}")
    found = json.loads(report.read_text())
    row = next(row for row in found["policies"] if row["policy"] == policy)
    return schedule, row, found


def measure(program, rounds):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        trace = work / "trace.json"
        own = statistics.median(program.run(work, "off")[0] for _ in range(rounds))
        digest = program.run(work, "off")[1]
        if program.run(work, "record", TRACE=trace)[1] != digest:
            raise Failure(f"{program.name}: recording changed what it computes")
        for policy in POLICIES:
            schedule, predicted, report = analyze(program, trace, work, policy)
            times = []
            for _ in range(rounds):
                us, replayed, counters = program.run(work, "replay", SCHEDULE=schedule, TUNE="off")
                if replayed != digest:
                    raise Failure(f"{program.name}: replay by policy {policy} changed what it computes")
                times.append(us)
            device = json.loads(trace.open().readlines()[1].rstrip().rstrip(","))["args"]
            rows.append({"policy": policy, "streams": predicted["streams"], "predicted_us": predicted["predicted_graphs_us"],
                         "measured_us": statistics.median(times), "spread_us": max(times) - min(times),
                         "steps_replayed": counters.get("steps_replayed", 0)})
        return {"program": program.name, "ops": report["step"]["ops"], "own_us": own, "critical_path_us":
                report["critical_path"]["predicted_us"], "policies": rows}, device


def table(results):
    lines = ["| program | own order | " + " | ".join(POLICIES) + " |", "|---|---|" + "---|" * len(POLICIES)]
    for result in results:
        cells = [f"{row['predicted_us']:.0f} / {row['measured_us']:.0f} ({100 * (row['predicted_us'] / row['measured_us'] - 1):+.0f} %)"
                 for row in result["policies"]]
        lines.append(f"| {result['program']} | {result['own_us']:.0f} | " + " | ".join(cells) + " |")
    errors = [abs(row["predicted_us"] / row["measured_us"] - 1) for result in results for row in result["policies"]]
    lines += ["", f"Predicted / measured microseconds of a step on the device, and the error; median error {100 * statistics.median(errors):.0f} %, "
              f"largest {100 * max(errors):.0f} %. `own order`: the program without Nimble, measured."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=USAGE.split("\n", 1)[0].removeprefix("Usage: "), description=USAGE.split("\n\n", 1)[1])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default", metavar="DIR", help="the build to use (default: build/default)")
    parser.add_argument("--results", type=pathlib.Path, metavar="DIR", help="keep DATE-predictions-DEVICE.json and .md there")
    parser.add_argument("--only", metavar="NAME,...", help=f"of digits, {', '.join(GRAPHS)}")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of an op graph (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes for each figure (default: %(default)s)")
    parser.add_argument("--simulated", action="store_true", help="the simulated driver, even where there is a GPU")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.simulated or subprocess.run([build / "bin/digits", "device"], capture_output=True).returncode != 0:
        os.environ["LD_LIBRARY_PATH"] = ":".join([str(build / "simcuda"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        print("predictions: the driver is simulated; its times come from the model that predicts", flush=True)
    names = options.only.split(",") if options.only else ["digits", *GRAPHS]
    results, device = [], {}
    try:
        for name in names:
            result, device = measure(Program(name, build, options.steps), options.rounds)
            results.append(result)
            print(f"{name}: " + ", ".join(f"{row['policy']} {row['predicted_us']:.0f}/{row['measured_us']:.0f} us"
                                          for row in result["policies"]), flush=True)
    except (Failure, OSError, ValueError) as failure:
        print(f"predictions: FAILED: {failure}", file=sys.stderr)
        return 1
    text = table(results)
    print("\n" + text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        label = re.sub(r"[^a-z0-9]+", "-", device["device"].lower()).strip("-")
        base = options.results / f"{datetime.date.today().isoformat()}-predictions-{label}"
        facts = {"date": datetime.date.today().isoformat(), "device": device["device"], "driver": device["driver"],
                 "nimble": device["nimble"], "steps": options.steps, "rounds": options.rounds, "results": results}
        base.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
        base.with_suffix(".md").write_text(f"# Predictions and measurements\n\nDevice: {device['device']}, driver "
                                           f"{device['driver']}, {facts['date']}.\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
