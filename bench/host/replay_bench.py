"""What replay costs on the host, piece by piece, on a driver that does nothing (replay_overhead.cpp).

bench/host/run_benchmarks.py calls this.
"""

import json
import statistics

from processes import Failure, Replayed

SAMPLES, STEPS, WARM_UP_STEPS = 40, 300, 64
SEGMENTS = 16  # in the case of that name
CASES = {"unchanged": "parameters unchanged", "changed": "a number changed in each launch",
         "allocated": "an allocation for each launch", "one_segment": "one segment", "segments": f"{SEGMENTS} segments"}
GRAPH_LAUNCHES = "graph_launches"
MOST_NS_PER_CALL, MOST_NS_PER_SEGMENT = 100, 2000


class Case:
    def __init__(self, build, work, name):
        self.name = name
        self.program = Replayed(build, work, f"replay.{name}", ["replay_overhead", name])

    def make_schedule(self):
        self.program.make_schedule(1, 1)

    def bare(self):
        return json.loads(self.program.run("bare", SAMPLES, STEPS))

    def replayed(self):
        output, _ = self.program.replay(SAMPLES * STEPS, SAMPLES, STEPS)
        found = json.loads(output)
        if found["allocations"] != 0:
            raise Failure(f"replay allocates: {found['allocations']} times in {SAMPLES * STEPS} steps ({self.name})")
        return found


def measure(build, work, repeats):
    """Medians of the thread's CPU time in nanoseconds, per step, and figures derived from them."""
    cases = [Case(build, work, name) for name in CASES]
    for case in cases:
        case.make_schedule()
    driver = Case(build, work, GRAPH_LAUNCHES)
    samples = {}
    for _ in range(repeats):
        runs = [(GRAPH_LAUNCHES, "bare", driver.bare())]
        for case in cases:
            runs += [(case.name, "bare", case.bare()), (case.name, "replay", case.replayed())]
        for name, mode, found in runs:
            of_case = samples.setdefault(name, {"launches": found["launches"], "calls": found["calls"]})
            of_case.setdefault(mode, []).extend(found["cpu_ns"])
    return figures(samples)


def figures(samples):
    rows = []
    for name, found in samples.items():
        row = {"case": name, "launches": found["launches"], "calls": found["calls"]}
        for mode in ("bare", "replay"):
            if mode in found:
                quartiles = statistics.quantiles(found[mode], n=4)
                row[mode] = {"median_ns": quartiles[1], "quartiles_ns": [quartiles[0], quartiles[2]],
                             "samples": len(found[mode])}
        if "replay" in row:
            row["added_ns_per_call"] = (row["replay"]["median_ns"] - row["bare"]["median_ns"]) / row["calls"]
        rows.append(row)
    by_name = {row["case"]: row for row in rows}
    graph_launch = by_name[GRAPH_LAUNCHES]["bare"]["median_ns"] / by_name[GRAPH_LAUNCHES]["launches"]
    # The same launches and synchronisations, in more segments.
    bare, replay = (by_name["segments"][mode]["median_ns"] - by_name["one_segment"][mode]["median_ns"]
                    for mode in ("bare", "replay"))
    segment = (replay - bare) / (SEGMENTS - 1)
    return {"cases": rows, "driver_ns_per_graph_launch": graph_launch, "added_ns_per_segment": segment - graph_launch}


def bounds(results):
    rows = [(f"replay, per call, {CASES[row['case']]}", row["added_ns_per_call"], MOST_NS_PER_CALL, "ns")
            for row in results["cases"] if row["case"] in ("unchanged", "changed", "allocated")]
    return [*rows, ("replay, added per segment", results["added_ns_per_segment"], MOST_NS_PER_SEGMENT, "ns")]


def print_table(results):
    print("\nns of CPU time per step under replay on a driver that does nothing; no step allocated memory\n")
    print(f"  {'':34}{'calls':>7}{'bare':>10}{'replay':>10}{'added per call':>17}")
    for row in results["cases"]:
        if "replay" in row:
            print(f"  {CASES[row['case']]:34}{row['calls']:7}{row['bare']['median_ns']:10.0f}{row['replay']['median_ns']:10.0f}"
                  f"{row['added_ns_per_call']:17.1f}")
    print(f"\n  a segment more adds {results['added_ns_per_segment']:.0f} ns, the driver's own "
          f"{results['driver_ns_per_graph_launch']:.0f} ns for a graph's launch left out")
