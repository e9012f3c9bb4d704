"""Eager PyTorch by itself and under replay, side by side, with what NIMBLE_TUNE measured and decided.

scripts/eager calls this. Needs a GPU, PyTorch with torchvision, and a build."""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETWORK = ROOT / "bench/eager/network.py"
# Launches that are probed: the first two to four calls'.
NETWORKS = {"inception_v3": 1600, "resnet50": 900, "encoder": 280}
USAGE = """Usage: scripts/eager [--build DIR] [--results DIR] [--only NAME,...] [--calls N] [--rounds N] [--help]

Runs networks of eager PyTorch on the GPU: by themselves, and replayed from a recording, with segments that start early and
with whole ones, each as the schedule says and as NIMBLE_TUNE decides. Checks that all outputs are the same to the bit, and
prints what a call takes. Needs a GPU, PyTorch with torchvision, and a build."""


class Failure(Exception):
    pass


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
        # An allocation for each tensor, and the same kernels in each process.
        self.environment |= {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
                             "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

    def call(self, command, **settings):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                              env=self.environment | {f"NIMBLE_{key}": str(value) for key, value in settings.items()})
        if done.returncode != 0:
            raise Failure(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def network(self, name, calls, mode=None, **settings):
        command = [sys.executable, NETWORK, name, calls]
        if mode is not None:
            command = [self.options.build / "bin/nimble", "run", "--mode", mode, "--", *command]
        return json.loads(self.call(command, LOG="warn", **settings).splitlines()[-1])

    def replay(self, name, schedule, tune):
        """A run on the schedule, with its counters."""
        counters = self.work / "counters.json"
        counters.unlink(missing_ok=True)
        found = self.network(name, self.options.calls, "replay", SCHEDULE=schedule, TUNE=tune, STATS=counters)
        return found | {"counters": json.loads(counters.read_text())}

    def measure(self, name):
        trace = self.work / "trace.json"
        self.network(name, 20, "record", TRACE=trace, PROBE="writes", PROBE_FIRST=NETWORKS[name])
        schedules = {}
        for segments, more in (("early", []), ("whole", ["--whole-segments"])):
            schedules[segments] = self.work / f"{segments}.json"
            self.call([self.options.build / "bin/nimble-analyze", trace, "--quiet", "-o", schedules[segments], *more])
        rows = {"own": [], **{f"{segments}, {tune}": [] for segments in schedules for tune in ("off", "start")}}
        for _ in range(self.options.rounds):  # in turn, since machines drift
            rows["own"].append(self.network(name, self.options.calls))
            for segments, schedule in schedules.items():
                for tune in ("off", "start"):
                    rows[f"{segments}, {tune}"].append(self.replay(name, schedule, tune))
        digests = {run["digest"] for runs in rows.values() for run in runs}
        if len(digests) != 1:
            raise Failure(f"{name}: the output is not the same in every run")
        return {"network": name, "segments": {key: len(json.loads(path.read_text())["segments"])
                                              for key, path in schedules.items()}, "runs": rows}


def median_ms(runs):
    return statistics.median(run["ms"] for run in runs)


def table(results):
    ways = list(results[0]["runs"])
    lines = ["| network | segments | " + " | ".join(ways) + " |", "|---" * (len(ways) + 2) + "|"]
    for row in results:
        cells = [f"{median_ms(runs):.2f}" for runs in row["runs"].values()]
        lines.append(f"| {row['network']} | {row['segments']['early']}, {row['segments']['whole']} | " + " | ".join(cells) + " |")
    lines += ["", "| network | segments | own order | one graph stream | schedule | kept |", "|---|---|---|---|---|---|"]
    for row in results:
        for segments in row["segments"]:
            for run in row["runs"][f"{segments}, start"]:
                us, kept = run["counters"]["tuned_us"], run["counters"]["tuned"]
                cells = [f"{us[way]:.0f}" if way in us else "" for way in ("own", "one_stream", "schedule")]
                lines.append(f"| {row['network']} | {segments} | " + " | ".join(cells) + f" | {kept} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="eager", usage="scripts/eager [options]; see scripts/eager --help", add_help=False)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--calls", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--help", "-h", action="store_true")
    options = parser.parse_args()
    if options.help:
        print(USAGE)
        return 0
    options.build = options.build.resolve()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in NETWORKS]:
        parser.error(f"--only: {unknown[0]} is none of {', '.join(NETWORKS)}")
    results = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(options, pathlib.Path(folder))
            for name in names:
                results.append(bench.measure(name))
                print(f"{name}: " + ", ".join(f"{way} {median_ms(runs):.2f} ms" for way, runs in results[-1]["runs"].items()),
                      flush=True)
    except (Failure, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        print(f"eager: {error}", file=sys.stderr)
        return 1
    text = table(results)
    print("\n" + text)
    if options.results:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                             text=True).stdout.strip()
        head = (f"# Eager PyTorch by itself and under replay\n\nDevice: {gpu}; PyTorch {results[0]['runs']['own'][0]['torch']}; "
                f"{datetime.date.today()}. `scripts/eager`.\n\nMilliseconds of a call at batch 1: the median over {options.calls} in each "
                f"process, and over {options.rounds} processes.\n`own`: without Nimble; the others: segments, NIMBLE_TUNE. The outputs "
                "of all runs of a network are the same to the bit.\nBelow: microseconds of a step on the GPU, as NIMBLE_TUNE=start "
                "measured them in each process, and what it kept.\n\n")
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"{datetime.date.today()}-eager-pytorch"
        stem.with_suffix(".md").write_text(head + text + "\n")
        stem.with_suffix(".json").write_text(json.dumps({"device": gpu, "results": results}, indent=1) + "\n")
        print(f"\nkept in {stem}.md and .json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
