"""Compares several ways of running one part: alone, as a CUDA graph by hand, replayed by Nimble. Measures each one's host
time and step time, and whether all compute the same.

A schedule is made first, from a recording of the program alone. """

import json
import statistics
import time

import modes
import process
from measure import Run, measure_groups, run_stepped, run_wholes, share_of, together, trace_of

# The figures of each way: the medians of blocks of steps, or of processes that run to their end on their own.
FIGURES = ("submit_us", "cpu_us", "step_us")
BY_HAND = ("line", "branches")
REPLAYED = "nimble"
GOAL = 1.05  # the most that submitting a step under replay should take, against the graph by hand with the shorter steps
COUNTERS = ("steps_replayed", "steps_passed_through", "graph_launches", "node_updates", "flushes", "watchdog_flushes",
            "divergences")


def make_schedule(part, place, work, deadline):
    """The reason why there is none, or nothing."""
    run = Run(part, modes.RECORD, place, work, "-recorded")
    (run_wholes if part.whole else run_stepped)(part, [run], 1, deadline)
    trace = trace_of(run)
    if run.failure or trace is None:
        return f"recording: {run.failure or 'it left no trace'}"
    log = work / "analyze.log"
    try:
        process.run([str(place.build / "bin/nimble-analyze"), str(trace), "-o", str(work / "schedule.json"), "--quiet"],
                    None, work, deadline - time.monotonic(), log)
    except process.Failure as failure:
        return f"nimble-analyze: {failure}: {' / '.join(process.last_words(log)[-3:])}"
    return ""


def spread(values):
    """Median and quartiles; empty for no values."""
    if not values:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": statistics.median(values), "quartiles": [low, high], "blocks": len(values)}


def counters_of(runs):
    """Replay's counters, from the latest process of each run."""
    found = []
    for run in runs:
        try:
            found.append(json.loads((run.folder / "counters.json").read_text()))
        except (OSError, ValueError):
            pass  # it failed, and says why
    return {name: sum(counters[name] for counters in found) for name in COUNTERS} | {
        "stood_aside": sorted({counters["stood_aside"] for counters in found if counters["stood_aside"]})}


def results_of(part, groups):
    """Each way's figures, over all its processes."""
    result = {}
    for way in part.ways:
        runs = [run for group in groups for run in group if run.mode.name == way.name]
        blocks = {name: [value for run in runs for value in run.host.get(name, run.blocks)] for name in FIGURES}
        row = result[way.name] = {"what": way.what, "steps": sum(run.steps for run in runs),
                                  "digests": sorted({run.digest for run in runs}),
                                  **{name: spread(values) for name, values in blocks.items()}}
        failed = next((run for run in runs if run.failure), None)
        if failed:
            row |= {"failure": failed.failure, "last_words": process.last_words(failed.log)[-15:]}
        if way.shim:
            row["counters"] = counters_of(runs)
    return result


def add_ratios(found):
    """Each way's medians, against those of the program alone and those of the graph by hand with the shorter steps."""
    by_hand = [found[way] for way in BY_HAND if found[way]["step_us"]]
    against = {"eager": next(iter(found.values()))}
    if by_hand:
        against["by_hand"] = min(by_hand, key=lambda row: row["step_us"]["median"])
    for row in found.values():
        row["ratios"] = {}
        for name in FIGURES:
            if row[name] and len(against) == 2 and all(other[name] for other in against.values()):
                row["ratios"][name] = {which: row[name]["median"] / other[name]["median"] for which, other in against.items()}


def judge(result):
    """Adds `status` and `why`, and further remarks."""
    found = result["ways"]
    failed = together({name: row["failure"] for name, row in found.items() if row.get("failure")}, len(found), "all ways")
    digests = {digest for row in found.values() for digest in row["digests"]}
    counters = found[REPLAYED]["counters"]
    result["digests_equal"] = not failed and len(digests) == 1
    result |= {"status": "failed", "why": ""}
    if failed:
        result["why"] = "; ".join(failed)
    elif len(digests) > 1:
        result["why"] = "not all ways computed the same"
    elif counters["steps_replayed"] == 0:
        result["why"] = "no step was replayed" + "".join(f": {why}" for why in counters["stood_aside"])
    else:
        result["status"] = "ok"
    for name, what, goal in (("submit_us", "submitting a step", f"; the goal is at most {GOAL}"), ("step_us", "a step", "")):
        ratio = found[REPLAYED]["ratios"].get(name)
        if ratio:
            result["odd"].append(f"{what} takes {ratio['eager']:.2f} of its time without Nimble, and {ratio['by_hand']:.2f} "
                                 f"of its time with the graph by hand{goal}")


def measure(part, place, work, rounds, groups, limit):
    """Like measure.py's; it leaves no trace to examine."""
    begin = time.monotonic()
    work.mkdir(parents=True)
    result = {"part": part.name, "what": part.what, "settings": part.settings, "odd": []}
    problem = make_schedule(part, place, work, share_of(begin + limit))
    if problem:
        return result | {"status": "failed", "why": problem}, None
    found = measure_groups(part, place, work, rounds, groups, begin + limit, part.ways)
    result |= {"ways": results_of(part, found), "groups": len(found)}
    add_ratios(result["ways"])
    judge(result)
    return result | {"seconds": time.monotonic() - begin}, None
