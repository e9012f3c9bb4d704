"""The host's time to submit a training step of examples/digits, alone, replayed, as a CUDA graph by hand, and as a region of Nimble's C
API.

bench/host/run_benchmarks.py calls this. On the null driver, so that only the program's own time and Nimble's show; the cost of the
driver's calls adds to all of them, and shows on a GPU (scripts/gpu_suite).

The time to submit runs from a step's first driver call to the return of its last one: by then the driver has all of the step's work.
The CPU time is that of the program's thread meanwhile, including Nimble's and the driver's work in it. """

import json
import statistics

from processes import Replayed

EPOCHS = 6
WAYS = {"eager": "by itself", "replay": "replayed", "line": "a graph by hand", "branches": "one with branches",
        "region": "a region"}
FIGURES = ("host_us_per_step", "host_cpu_us_per_step")


def measure(build, work, repeats):
    stats = work / "digits.measured.json"
    arguments = ["train", "--epochs", EPOCHS, "--quiet", "--stats", stats]
    digits = Replayed(build, work, "digits", ["digits", *arguments])
    graphs = {way: Replayed(build, work, "digits", ["digits_graph", way, *arguments]) for way in ("line", "branches")}
    graphs["region"] = Replayed(build, work, "digits", ["digits_region", *arguments])
    digits.make_schedule()
    ops = json.loads(stats.read_text())["ops_per_step"]
    samples = {way: {figure: [] for figure in FIGURES} for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            if way == "replay":
                _, counters = digits.replay(json.loads(stats.read_text())["steps"] - 2)
            else:
                (digits if way == "eager" else graphs[way]).run("regions" if way == "region" else "bare")
            found = json.loads(stats.read_text())
            for figure in FIGURES:
                samples[way][figure].append(found[figure])
    rows = [{"way": way, **{figure: statistics.median(values) for figure, values in found.items()}}
            for way, found in samples.items()]
    by_way = {row["way"]: row for row in rows}
    added = by_way["replay"]["host_cpu_us_per_step"] - by_way["eager"]["host_cpu_us_per_step"]
    over_graph = by_way["region"]["host_cpu_us_per_step"] - by_way["branches"]["host_cpu_us_per_step"]
    return {"ops": ops, "ways": rows, "region_over_graph_us": over_graph, "added_us_per_step": added, "added_ns_per_op": 1000 * added / ops,
            "node_updates_per_step": counters["node_updates"] / counters["steps_replayed"]}


def bounds(results):
    return [("replay, per op of digits", results["added_ns_per_op"], 100, "ns"),
            ("a region of digits, over a graph by hand", 1000 * results["region_over_graph_us"], 250, "ns")]


def print_table(results):
    print(f"\nus of the host's time to submit a training step of digits, {results['ops']} ops, on a driver that does nothing\n")
    print(f"  {'':20}{'elapsed':>10}{'CPU time':>10}")
    for row in results["ways"]:
        print(f"  {WAYS[row['way']]:20}{row['host_us_per_step']:10.2f}{row['host_cpu_us_per_step']:10.2f}")
    print(f"\n  replay adds {results['added_us_per_step']:.1f} us to the program's own time, {results['added_ns_per_op']:.0f} ns for "
          f"each op, and changes {results['node_updates_per_step']:.1f} nodes in a step; half a microsecond of CPU time is the clock's")
