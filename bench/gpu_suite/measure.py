"""Runs one part in every mode, and finds out the cost of each and whether it changed anything."""

import hashlib
import json
import pathlib
import re
import statistics
import time

import modes
import process
import traces


class Run:
    """One process of a part: its mode, its place, and its results."""

    def __init__(self, part, mode, place, work, group):
        self.mode = mode
        self.folder = work / f"group{group}" / mode.name
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log"
        command = part.simulated if place.simulated and part.simulated else part.command
        self.command = place.fill(mode.command or command, work, self.folder)
        self.environment = place.environment(part, mode, work, self.folder)
        self.failure = ""
        self.digest = ""
        self.blocks = []  # median microseconds per step of each
        self.host = {"submit_us": [], "cpu_us": []}  # the same until submission, and of CPU time; where reported
        self.steps = 0
        self.facts = {}
        self.seconds_to_start = None
        self.pid = None
        self.program = None

    def attempt(self, what):
        """Runs `what` unless something failed before; if it fails, keeps the reason and ends the program."""
        if self.failure:
            return
        try:
            what()
        except process.Failure as failure:
            self.failure = str(failure)
            self.close()

    def close(self):
        if self.program:
            self.program.close()
            self.program = None

    def start(self):
        self.begin = time.monotonic()
        self.program = process.Stepped(self.command, self.environment, self.folder, self.log)
        self.pid = self.program.process.pid

    def wait_until_ready(self, deadline):
        self.facts = self.program.answer(deadline).get("facts", {})
        self.seconds_to_start = time.monotonic() - self.begin

    def begin_steps(self, count):
        self.program.begin_steps(count)

    def finish_steps(self, count, deadline):
        answer = self.program.finish_steps(count, deadline)
        self.digest = answer["digest"]
        self.steps += count
        return answer

    def time_steps(self, count, deadline):
        self.begin_steps(count)
        answer = self.finish_steps(count, deadline)
        self.blocks.append(answer["median_us"])
        for name, values in self.host.items():
            if isinstance(answer.get(name), (int, float)):
                values.append(answer[name])

    def begin_end(self):
        self.program.begin_end()

    def finish_end(self, deadline):
        self.program.finish_end(deadline)

    def result(self):
        lines = process.last_words(self.log)
        result = {"ok": not self.failure, "digest": self.digest, "steps": self.steps,
                  "median_us": statistics.median(self.blocks) if self.blocks else None, "blocks_us": self.blocks,
                  "seconds_to_start": self.seconds_to_start,
                  "nimble_log": [line for line in lines if line.startswith("nimble:")]}
        if self.failure:
            own = [line for line in lines if not line.startswith("nimble:")]
            result |= {"failure": self.failure, "last_words": own[-15:]}
        return result


def share_of(deadline, most=float("inf")):
    """When to give up on one wait: a hanging one takes half of the remaining time, and leaves the rest to the
    others."""
    now = time.monotonic()
    return now + min(most, 0.5 * (deadline - now))


def run_stepped(part, runs, rounds, deadline):
    """All processes live concurrently; they take turns making steps, in an alternating order."""
    try:
        for run in runs:
            run.attempt(run.start)
        ready = share_of(deadline, part.start_limit)
        for run in runs:
            run.attempt(lambda: run.wait_until_ready(ready))
        for run in runs:  # at the same time: the first steps are when libraries are loaded and kernels compiled
            run.attempt(lambda: run.begin_steps(part.warm_up))
        warm = share_of(deadline)
        for run in runs:
            run.attempt(lambda: run.finish_steps(part.warm_up, warm))
        made = 0
        # Reserves a fifth of the time for the exits; a begun round is finished, so that all make the same steps.
        last_round = time.monotonic() + 0.8 * (deadline - time.monotonic())
        while made < rounds and (made == 0 or time.monotonic() < last_round):
            for run in (runs if made % 2 == 0 else reversed(runs)):
                run.attempt(lambda: run.time_steps(part.steps, share_of(deadline)))
            made += 1
        for run in runs:
            run.attempt(run.begin_end)
        for run in runs:
            run.attempt(lambda: run.finish_end(deadline))
    finally:
        for run in runs:
            run.close()


def run_whole(run, deadline):
    """A program that makes all its steps on its own, and writes its measurements and results into files."""
    begin = time.monotonic()
    run.pid = process.run(run.command, run.environment, run.folder, deadline - begin, run.log)
    seconds = time.monotonic() - begin
    try:
        stats = json.loads((run.folder / "stats.json").read_text())
        digest = hashlib.sha256((run.folder / "weights").read_bytes()).hexdigest()
        if run.digest not in ("", digest):
            raise process.Failure("computed something else than in the previous round")
        run.digest = digest
        run.steps = stats["steps"]
        # Events around whole epochs; on the simulated driver their times come from a model.
        run.blocks.append(stats["host_us_per_step" if stats["simulated"] else "gpu_us_per_step"])
        run.host["submit_us"].append(stats["host_us_per_step"])
        run.host["cpu_us"].append(stats["host_cpu_us_per_step"])
    except (OSError, ValueError, KeyError) as error:
        raise process.Failure(f"left no results: {error!r}") from error
    run.facts = {"host_us_per_step": stats["host_us_per_step"], "seconds": round(seconds, 3)}


def run_wholes(part, runs, rounds, deadline):
    for number in range(rounds):
        begin = time.monotonic()
        for run in (runs if number % 2 == 0 else reversed(runs)):
            for trace in run.folder.glob("trace.*.json"):
                trace.unlink()  # the last round's is kept
            run.attempt(lambda: run_whole(run, deadline))
        now = time.monotonic()
        if deadline - now < 2 * (now - begin):
            break  # another round might not finish


def pace(run):
    """Microseconds per step of the fastest third of a run's blocks: machines have slow moments, and no fast ones."""
    fastest = sorted(run.blocks)[:max(1, len(run.blocks) // 3)]
    return statistics.mean(fastest) if fastest else 0


def ratios(groups):
    """For each mode against no shim: the ratio of their paces in each group of processes, the median of these and their
    range. Processes differ in the placement of their memory and threads, so one of each is not enough."""
    result = {}
    for mode in modes.MODES:
        if mode.name == modes.REFERENCE:
            continue
        each = []
        for runs in groups:
            by_name = {run.mode.name: run for run in runs}
            if pace(by_name[mode.name]) and pace(by_name[modes.REFERENCE]):
                each.append(pace(by_name[mode.name]) / pace(by_name[modes.REFERENCE]))
        if each:
            result[mode.name] = {"ratio": statistics.median(each), "range": [min(each), max(each)], "each": each}
    return result


def build(part, place, work, deadline):
    """Compiles the part's program; the reason where that fails."""
    for number, command in enumerate(part.build):
        log = work / f"build{number}.log"
        try:
            process.run(place.fill(command, work, work), None, work, deadline - time.monotonic(), log)
        except process.Failure as failure:
            return {"why": f"its program was not built: {failure}", "last_words": process.last_words(log)[-15:]}
    return None


def measure_groups(part, place, work, rounds, most_groups, deadline, ways=tuple(modes.MODES)):
    """Runs the part in every mode, or other way, repeatedly in fresh processes, as long as there is time. A list for
    each group."""
    groups = []
    while len(groups) < most_groups:
        begin = time.monotonic()
        # A different one is first each time: later ones may find the machine busier.
        first = 2 * len(groups) % len(ways)
        order = ways[first:] + ways[:first]
        runs = [Run(part, mode, place, work, len(groups)) for mode in order]
        (run_wholes if part.whole else run_stepped)(part, runs, rounds, deadline)
        groups.append(runs)
        now = time.monotonic()
        if any(run.failure for run in runs) or deadline - now < 1.5 * (now - begin):
            break
    return groups


def results_of(groups):
    """The run to report for each mode: the first group's, or the first that failed or computed something else."""
    chosen = {}
    for runs in groups:
        for run in runs:
            first = chosen.setdefault(run.mode.name, run)
            if not first.failure and (run.failure or run.digest != first.digest):
                chosen[run.mode.name] = run
    return {name: run.result() for name, run in chosen.items()}


def measure(part, place, work, rounds, groups, limit):
    """(the result so far, the trace to examine, if any)."""
    work.mkdir(parents=True)
    deadline = time.monotonic() + limit
    result = {"part": part.name, "what": part.what, "settings": part.settings}
    if not (place.simulated and part.simulated):
        problem = build(part, place, work, deadline)
        if problem:
            return result | {"status": "failed", **problem}, None
    begin = time.monotonic()
    all_runs = measure_groups(part, place, work, rounds, groups, deadline)
    runs = all_runs[0]
    by_name = {run.mode.name: run for run in runs}
    result |= {"modes": results_of(all_runs), "ratios": ratios(all_runs), "groups": len(all_runs),
               "facts": by_name[modes.REFERENCE].facts, "seconds": time.monotonic() - begin}
    odd = []
    for run in runs:
        others = [path for path in run.folder.glob("trace.*.json") if path != trace_of(run)]
        if others:
            odd.append(f"{run.mode.name}: {len(others)} other processes of the program recorded, too")
        odd += oddities(run.mode.name, result["modes"][run.mode.name]["nimble_log"])
    light = trace_of(by_name["light"])
    if not place.simulated:
        for name, bound in modes.BOUNDS.items():
            ratio = result["ratios"].get(name)
            if ratio and ratio["range"][0] > bound:
                odd.append(f"{name} adds {100 * (ratio['ratio'] - 1):.1f} % to a step, where at most {100 * (bound - 1):.0f} % "
                           "is meant")
    result["light_trace_bytes"] = light.stat().st_size if light else None
    result["odd"] = odd
    judge(result)
    trace = trace_of(by_name["record"])
    if result["status"] == "ok" and trace is None:
        result |= {"status": "incomplete", "why": "recording left no trace"}
    return result, trace


def trace_of(run):
    path = run.folder / f"trace.{run.pid}.json"
    return path if run.mode.records and path.exists() else None


def oddities(name, log):
    """The shim's complaints in one run, each once."""
    complaints = [line for line in log if re.match(r"nimble: (warning|warn|error|critical)", line)]
    return [f"{name}: {line}" for line in dict.fromkeys(complaints)]


def together(said, of=len(modes.MODES), everybody="all modes"):
    """["bare, off: WHAT", ...]: merges equal texts of several modes."""
    modes_of = {}
    for name, text in said.items():
        modes_of.setdefault(text, []).append(name)
    return [f"{', '.join(names) if len(names) < of else everybody}: {text}" for text, names in modes_of.items()]


def judge(result):
    """Adds `status` and `why` from what is known before the trace is read."""
    failed = together({name: run["failure"] for name, run in result["modes"].items() if not run["ok"]})
    digests = {name: run["digest"] for name, run in result["modes"].items() if run["ok"]}
    bare = digests.get(modes.REFERENCE)
    differ = [name for name, digest in digests.items() if bare and digest != bare]
    result["digests_differ"] = differ
    result["digests_equal"] = bool(bare) and not differ and not failed
    missing = [run for run in result["modes"].values() if run.get("failure", "").startswith("not installed")]
    if len(missing) == len(result["modes"]):
        result |= {"status": "not run", "why": missing[0]["failure"]}
    elif failed:
        result |= {"status": "failed", "why": "; ".join(failed)}
    elif "again" in differ:
        result |= {"status": "failed", "why": "the program's output differs from run to run without the shim"}
    elif differ:
        result |= {"status": "failed", "why": f"other output than without the shim: {', '.join(differ)}"}
    else:
        result |= {"status": "ok", "why": ""}
    return result


def add_trace(result, facts):
    """Adds the findings from the trace and the analyzer."""
    result["trace"] = facts
    result["odd"] += facts.pop("odd")
    if result["status"] == "ok" and facts["coverage"]["missed_calls"]:
        result |= {"status": "incomplete", "why": f"coverage: {traces.describe_coverage(facts['coverage'])}"}
    return result
