#!/usr/bin/env python3
"""Runs the benchmarks of a build tree, prints a table, and keeps the figures. scripts/bench builds first and calls this."""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys

import digits_bench
import policy_bench
import replay_bench
from processes import TRUST, Failure, environment, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ["bare", "off", "record", "replay"]
# Further modes: the launches of a program without graphs, while they are recorded, and once the recording is full.
GRAPHS = {"graphs": ["--graphs", "rewrite"], "full": ["--graphs", "rewrite", "--auto-limit", "1"]}
THREADS = [1, 2, 4]
ROLES = {"all": "", "replayed": "the replayed thread", "others": "the other threads"}
SEED = 1
BRANCHES = 8


class Launches:
    """ns per launch in each mode. Modes take turns, so that a slow spell of the machine affects all of them."""

    def __init__(self, build, work, repeats):
        self.build, self.work, self.repeats = build, work, repeats
        self.environment = environment(build, "simcuda")

    def program(self, mode, *arguments):
        program = [self.build / "bin" / "launch_overhead", *arguments]
        if mode == "bare":
            return program
        options = GRAPHS.get(mode) or ["--mode", mode, "--trace", self.work / "launch.trace.json", "--schedule",
                                       self.work / "launch.schedule.json", "--stats", self.work / "launch.stats.json"]
        return [self.build / "bin" / "nimble", "run", *options, "--", *program]

    def make_schedule(self):
        run(self.program("record", "--benchmark_filter=launches"), self.environment)
        run([self.build / "bin" / "nimble-analyze", self.work / "launch.trace.json", "-o",
             self.work / "launch.schedule.json", *TRUST])

    def measure_once(self, mode):
        """{benchmark: [ns per launch of each repetition]}"""
        _, _, output = run(self.program(mode, "--benchmark_format=json"), self.environment)
        found = {}
        for benchmark in json.loads(output)["benchmarks"]:
            if benchmark["run_type"] == "iteration":
                name = benchmark["name"].split("/")[0]
                found.setdefault(name, []).append(benchmark["real_time"] / benchmark["launches_per_step"])
        if mode == "replay":
            self.check_replayed()
        return found

    def check_replayed(self):
        stats = json.loads((self.work / "launch.stats.json").read_text())
        if stats["steps_replayed"] < 10 * max(1, stats["steps_passed_through"]):
            raise Failure(f"the replay benchmark did not replay, so its figure means nothing: {json.dumps(stats)}")
        self.stats = stats

    def measure(self):
        self.make_schedule()
        samples = {mode: [] for mode in (*MODES, *GRAPHS)}
        for _ in range(self.repeats):
            for mode, found in samples.items():
                found.append(self.measure_once(mode))
        rows = []
        for mode in samples:
            row = {"mode": mode}
            for name in ("launches", "step"):
                values = [value for sample in samples[mode] for value in sample[name]]
                quartiles = statistics.quantiles(values, n=4)
                row[name] = {"median_ns": quartiles[1], "quartiles_ns": [quartiles[0], quartiles[2]], "samples": len(values)}
            rows.append(row)
        for row in rows:
            for name in ("launches", "step"):
                row[name]["added_ns"] = row[name]["median_ns"] - rows[0][name]["median_ns"]
        return rows


class Threads:
    """ns per launch and thread, for each mode and number of threads, on the null driver."""

    # Steps of a sample: a millisecond or two, so that the threads run concurrently. A recording gets fewer: its queue
    # must hold what the writer has not yet written.
    STEPS = {"bare": 5000, "off": 5000, "record": 20, "replay": 300}

    def __init__(self, build, work, repeats):
        self.build, self.work, self.repeats = build, work, repeats
        self.environment = environment(build, "null_driver")

    def run(self, mode, threads, samples, steps, trace="/dev/null"):
        program = [self.build / "bin" / "thread_overhead", threads, samples, steps]
        if mode != "bare":
            options = ["--mode", mode, "--trace", trace, "--schedule", self.work / "threads.schedule.json", "--stats",
                       self.work / "threads.stats.json"]
            program = [self.build / "bin" / "nimble", "run", *options, "--", *program]
        _, _, output = run(program, self.environment)
        if mode == "replay":
            stats = json.loads((self.work / "threads.stats.json").read_text())
            # The first thread's step must have been replayed while it was measured, whatever the others did.
            if stats["steps_replayed"] < samples * steps or stats["divergences"]:
                raise Failure(f"the thread benchmark did not replay, so its figure means nothing: {json.dumps(stats)}")
        return json.loads(output)

    def measure(self):
        """Rows of a mode, a role and figures by the number of threads. The first thread's step is the schedule's; in
        replay mode the others' calls pass through, so the roles are separate."""
        trace = self.work / "threads.trace.json"
        self.run("record", 1, 1, 1, trace)
        run([self.build / "bin" / "nimble-analyze", trace, "-o", self.work / "threads.schedule.json", *TRUST])
        found = {}
        for _ in range(self.repeats):
            for threads in THREADS:
                for mode in MODES:
                    result = self.run(mode, threads, 50, self.STEPS[mode])
                    for thread in range(threads):
                        role = "all" if mode != "replay" else "others" if thread else "replayed"
                        values = found.setdefault((mode, role), {}).setdefault(threads, {"cpu": [], "elapsed": []})
                        for clock, samples in values.items():
                            samples.extend(result[f"{clock}_ns"][thread])
        rows = []
        for (mode, role), by_threads in found.items():
            row = {"mode": mode, "role": role, "threads": {}}
            for threads, values in by_threads.items():
                row["threads"][str(threads)] = {
                    f"{clock}_ns": statistics.median(samples) for clock, samples in values.items()}
            rows.append(row)
        bare = rows[0]["threads"]
        for row in rows:
            for threads, figures in row["threads"].items():
                figures["added_cpu_ns"] = figures["cpu_ns"] - bare[threads]["cpu_ns"]
            first, last = list(row["threads"].values())[0], list(row["threads"].values())[-1]
            row["growth"] = last["cpu_ns"] / first["cpu_ns"]
        return rows


def measure_analyzer(build, work, sizes):
    rows = []
    for size in sizes:
        trace, schedule = work / "synthetic.trace.json", work / "synthetic.schedule.json"
        run([sys.executable, ROOT / "scripts" / "make_trace", "--ops", size, "--branches", BRANCHES, "--seed", SEED,
             "--device-times", "-o", trace])
        seconds, memory, _ = run([build / "bin" / "nimble-analyze", trace, "-o", schedule])
        rows.append({"ops": size, "trace_bytes": trace.stat().st_size, "seconds": seconds, "peak_bytes": memory})
        trace.unlink()
        schedule.unlink()
    return rows


def growth(rows):
    """The exponent of time in ops, over the last factor of ten: 1 is linear."""
    b = rows[-1]
    a = next(row for row in rows if row["ops"] * 10 == b["ops"])
    return math.log(b["seconds"] / a["seconds"]) / math.log(b["ops"] / a["ops"])


def launch_bounds(launches, threads):
    """(what, figure, bound, unit) of each figure that has a bound."""
    by_mode = {row["mode"]: row["launches"] for row in launches}
    rows = [("off, added per launch", by_mode["off"]["added_ns"], 20, "ns"),
            ("record, added per launch", by_mode["record"]["added_ns"], 1500, "ns"),
            ("full, added per launch", by_mode["full"]["added_ns"], 150, "ns"),
            ("replay, whole launch call", by_mode["replay"]["median_ns"], 150, "ns")]
    # A contended lock or cache line shows here as two and more.
    for row in threads:
        if row["mode"] in ("off", "replay"):
            what = " ".join(filter(None, (row["mode"], ROLES[row["role"]])))
            rows.append((f"{what}, {THREADS[-1]} threads : fewest", row["growth"], 1.4, ""))
    return rows


def analyzer_bounds(analyzer):
    rows = []
    for row in analyzer:
        if row["ops"] == 100_000:
            rows.append(("analyzer, 100 000 ops", row["seconds"], 5, "s"))
            rows.append(("analyzer, 100 000 ops", row["peak_bytes"] / 2**20, 1024, "MiB"))
        if row["ops"] == 1_000_000:
            rows.append(("analyzer, 1 000 000 ops", row["seconds"], 20, "s"))
            rows.append(("analyzer, 1 000 000 ops", row["peak_bytes"] / 2**20, 4096, "MiB"))
    rows.append(("analyzer, exponent of growth", growth(analyzer), 1.15, ""))
    return rows


def host():
    cpu = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version()}


def version(build, tool):
    _, _, text = run([build / "bin" / tool, "--version"])
    return re.findall(r"^(?:nimble(?:-analyze)?|built with) +(.*)", text, re.MULTILINE)


def commit():
    result = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return result.stdout.strip() or None


def print_threads(results):
    cores = results["host"]["cores"]
    print(f"\nns of CPU time per launch and thread on a driver that does nothing, with its share of a synchronisation;\n"
          f"{cores} cores; in brackets what it is more than bare\n")
    print(f"  {'mode':8}{'':20}" + "".join(f"{count:>11} thread{'s' if count > 1 else ' '}" for count in THREADS) +
          f"{'most : fewest':>15}")
    for row in results["threads"]:
        line = f"  {row['mode']:8}{ROLES[row['role']]:20}"
        for count in THREADS:
            figures = row["threads"].get(str(count))
            added = f"({figures['added_cpu_ns']:+.1f})" if figures and row["mode"] != "bare" else ""
            line += f"{figures['cpu_ns']:9.1f}{added:>10}" if figures else " " * 19
        print(line + f"{row['growth']:14.2f}")


def print_launches(results):
    print(f"\nns per launch on the simulated driver, median of {results['launches'][0]['step']['samples']} "
          "samples of 20 steps\n")
    print(f"  {'mode':8}{'launch call':>13}{'added':>9}{'with synchronisation':>23}{'added':>9}")
    for row in results["launches"]:
        call, step = row["launches"], row["step"]
        print(f"  {row['mode']:8}{call['median_ns']:13.1f}{call['added_ns']:+9.1f}{step['median_ns']:23.1f}"
              f"{step['added_ns']:+9.1f}")
    print_threads(results)
    replay_bench.print_table(results["replay"])
    digits_bench.print_table(results["digits"])


def print_analyzer(results):
    print(f"\nnimble-analyze, synthetic traces of {BRANCHES} branches\n")
    print(f"  {'ops':>9}{'trace':>11}{'time':>10}{'per op':>11}{'peak memory':>14}")
    for row in results["analyzer"]:
        print(f"  {row['ops']:9}{row['trace_bytes'] / 2**20:7.1f} MiB{row['seconds']:8.2f} s"
              f"{row['seconds'] / row['ops'] * 1e6:8.2f} us{row['peak_bytes'] / 2**20:10.1f} MiB")
    print("\n" + policy_bench.text_plot(results["analyzer"]))


def print_bounds(results):
    print("\nbounds\n")
    for row in results["bounds"]:
        print(f"  {row['what']:46}{row['figure']:10.2f} {row['unit']:4}at most {row['bound']:<6g}"
              f"{'ok' if row['ok'] else 'MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build tree")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="folder to keep the figures in")
    parser.add_argument("--name", default="host", help="what the results are called")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller traces")
    parser.add_argument("--policies", action="store_true", help="leave out the cost of launches")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a figure misses its bound")
    options = parser.parse_args()
    build = options.build.resolve()
    work = build / "bench-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)

    today = datetime.date.today().isoformat()
    results = {"date": today, "commit": commit(), "nimble": version(build, "nimble-analyze" if options.policies else "nimble"),
               "device": "simulated", "driver": "simulated", "host": host()}
    rows = []
    if not options.policies:
        repeats = 3 if options.quick else 9
        print(f"bench: launches, {repeats} runs in each mode")
        launch_bench = Launches(build, work, repeats)
        results.update(repeats=repeats, launches=launch_bench.measure(), replay_counters=launch_bench.stats)
        print(f"bench: {', '.join(map(str, THREADS))} threads, {repeats} runs in each mode")
        results["threads"] = Threads(build, work, repeats).measure()
        print(f"bench: replay piece by piece, {repeats} runs of each")
        results["replay"] = replay_bench.measure(build, work, repeats)
        print(f"bench: a training step of digits, {repeats} runs in each way")
        results["digits"] = digits_bench.measure(build, work, repeats)
        rows += launch_bounds(results["launches"], results["threads"])
        rows += replay_bench.bounds(results["replay"]) + digits_bench.bounds(results["digits"])
    sizes = [1_000, 3_000, 10_000, 30_000, 100_000] + ([] if options.quick else [300_000, 1_000_000])
    print(f"bench: analyzer, {', '.join(map(str, sizes))} ops")
    results["analyzer"] = measure_analyzer(build, work, sizes)
    rows += analyzer_bounds(results["analyzer"])
    print("bench: policies")
    results["policies"] = policy_bench.measure(build)
    rows += policy_bench.bounds(results["policies"])
    results["bounds"] = [{"what": what, "figure": figure, "bound": bound, "unit": unit, "ok": figure <= bound}
                         for what, figure, bound, unit in rows]
    if not options.policies:
        print_launches(results)
    print_analyzer(results)
    policy_bench.print_tables(results["policies"])
    print_bounds(results)
    options.results.mkdir(parents=True, exist_ok=True)
    kept = options.results / f"{today}-{options.name}.json"
    kept.write_text(json.dumps(results, indent=1) + "\n")
    title = f"nimble-analyze: time for a trace, {results['host']['cpu']}"
    kept.with_suffix(".svg").write_text(policy_bench.svg_plot(results["analyzer"], title))
    shutil.rmtree(work)
    print(f"\nkept in {os.path.relpath(kept)}, and beside it, as a picture, how nimble-analyze grows")
    missed = [row["what"] for row in results["bounds"] if not row["ok"]]
    if options.check and missed:
        print(f"bench: missed: {', '.join(missed)}")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"bench: {failure}")
