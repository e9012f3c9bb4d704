"""Compares eager PyTorch alone and under replay, with NIMBLE_TUNE's measurements and decisions.

scripts/eager calls this. Needs a GPU, PyTorch with torchvision, and a build."""

import datetime
import json
import pathlib
import statistics
import sys
import tempfile

import side_by_side
from side_by_side import Failure

NETWORK = side_by_side.ROOT / "bench/eager/network.py"
LIMIT = 300  # seconds per process
# Launches that are probed: the first two to four calls'.
NETWORKS = {"inception_v3": 1600, "resnet50": 900, "encoder": 280}
USAGE = """Usage: scripts/eager [--build DIR] [--results DIR] [--only NAME,...] [--calls N] [--rounds N] [--help]

Runs networks of eager PyTorch on the GPU: alone, and replayed from a recording, with segments that start early and with whole
ones, each as the schedule says and as NIMBLE_TUNE decides. Checks that all outputs are the same to the bit, and prints what a
call takes. Needs a GPU, PyTorch with torchvision, and a build."""


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.environment = side_by_side.environment(**side_by_side.DRIVER_ALLOCATIONS)

    def call(self, command, **settings):
        settings = {f"NIMBLE_{key}": str(value) for key, value in settings.items()}
        done = side_by_side.run(command, self.environment | settings, LIMIT)
        if done.status != 0:
            why = f"took more than {LIMIT} s" if done.status is None else done.errors.strip()[-400:]
            raise Failure(f"{' '.join(str(word) for word in command)}: {why}")
        return done

    def network(self, name, calls, mode=None, **settings):
        command = [sys.executable, NETWORK, name, calls]
        if mode is not None:
            command = [self.options.build / "bin/nimble", "run", "--mode", mode, "--", *command]
        return self.call(command, LOG="warn", **settings).json()

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
        for _ in range(self.options.rounds):  # alternating, since machines drift
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


def measure(options):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        for name in options.only:
            results.append(bench.measure(name))
            ways = ", ".join(f"{way} {median_ms(runs):.2f} ms" for way, runs in results[-1]["runs"].items())
            print(f"{name}: {ways}", flush=True)
    text = table(results)
    print("\n" + text)
    if options.results:
        gpu = side_by_side.device()
        head = (f"# Eager PyTorch alone and under replay\n\nDevice: {gpu}; PyTorch {results[0]['runs']['own'][0]['torch']}; "
                f"{datetime.date.today()}. `scripts/eager`.\n\n"
                f"Milliseconds of a call at batch 1: the median over {options.calls} in each process, and over {options.rounds} "
                "processes.\n`own`: without Nimble; the others: segments, NIMBLE_TUNE. The outputs of all runs of a network are "
                "the same to the bit.\nBelow: microseconds of a step on the GPU, as NIMBLE_TUNE=start measured them in each "
                "process, and what it kept.\n\n")
        side_by_side.keep(options.results, "eager-pytorch", head + text + "\n", {"device": gpu, "results": results})
    return 0


def main():
    parser = side_by_side.parser("eager")
    parser.add_argument("--only", default=list(NETWORKS), type=lambda text: side_by_side.chosen(parser, "--only", text, NETWORKS))
    parser.add_argument("--calls", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    return side_by_side.program("eager", USAGE, parser, measure)


if __name__ == "__main__":
    sys.exit(main())
