"""Runs many random programs, in several processes at once, and sums up. What scripts/soak calls; see its --help.

A kind of soak is a class like Accesses: how to run a range of seeds, and what to make of the JSON lines that come back.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import threading
import time

CHUNK = 100  # programs per process


class Accesses:
    """What the analyzer infers, what the schedule orders, what replay computes: tests/oracle/check/check_programs.cpp."""

    BREAKS = ("dependency", "access")
    EVIDENCE = ("exact", "proven", "declared", "observed", "assumed")

    def __init__(self, build, options):
        self.tool = os.path.join(build, "bin", "check_programs")
        self.options = options
        self.sums = collections.Counter()
        self.width = {evidence: [0] * 5 for evidence in self.EVIDENCE}
        self.pairs = [0, 0]
        self.why_not = collections.Counter()
        self.seen_by = collections.Counter()
        self.widest = (1.0, "", None)

    def command(self, seed, count):
        words = [self.tool, "--json"]
        if self.options.orders:
            words += ["--orders", str(self.options.orders)]
        if self.options.what_breaks:
            words += ["--break", self.options.what_breaks]
        return words + [str(seed), str(count)]

    def again(self, seed):
        broken = ["--break", self.options.what_breaks] if self.options.what_breaks else []
        return " ".join([os.path.relpath(self.tool), *broken, "--keep", "DIR", str(seed)])

    def shrunk(self, seed):
        broken = ["--break", self.options.what_breaks] if self.options.what_breaks else []
        done = subprocess.run([self.tool, *broken, "--shrink", str(seed)], capture_output=True, text=True, check=False)
        return done.stdout

    def add(self, row):
        sums = self.sums
        for name in ("ops", "step_ops", "replays", "steps_replayed", "graph_launches", "divergences"):
            sums[name] += row[name]
        sums["programs"] += 1
        sums["schedules"] += row["schedule"]
        sums["replayed"] += row["steps_replayed"] > 0
        sums["several_streams"] += row["streams"] > 1
        sums["broken"] += row["broken"]
        sums["stood_aside"] += row["stood_aside"] != ""
        for evidence, numbers in row["width"].items():
            self.width[evidence] = [a + b for a, b in zip(self.width[evidence], numbers)]
        self.pairs = [a + b for a, b in zip(self.pairs, row["pairs"])]
        if not row["schedule"]:
            self.why_not[re.sub(r"\d+", "N", row["why_no_schedule"]).split(";")[0].split(" (")[0]] += 1
        for check in {failure.split(":")[0] for failure in row["failures"]}:
            self.seen_by[check] += 1
        if row["widest"] > self.widest[0]:
            self.widest = (row["widest"], row["widest_op"], row["seed"])

    def summary(self):
        s = self.sums
        programs = max(1, s["programs"])
        lines = [
            f"programs        {s['programs']}, {s['several_streams']} of them on several streams; {s['ops']} ops in "
            "their steps",
            f"schedules       {s['schedules']} made and checked ({100 * s['schedules'] / programs:.1f} %)",
            f"replayed        {s['replayed']} programs ({100 * s['replayed'] / programs:.1f} %), {s['steps_replayed']} "
            f"steps in {s['replays']} runs; {s['divergences']} divergences, {s['stood_aside']} stood aside",
        ]
        for reason, count in self.why_not.most_common(5):
            lines.append(f"  no schedule   {count}: {reason}")
        lines.append("                     ops    touched   inferred  ratio    written   inferred  ratio")
        for evidence in self.EVIDENCE:
            ops, wide, exact, wide_written, exact_written = self.width[evidence]
            if ops:
                lines.append(f"  {evidence:<12}{ops:>10}{exact:>11}{wide:>11}{wide / max(1, exact):>7.2f}"
                             f"{exact_written:>11}{wide_written:>11}{wide_written / max(1, exact_written):>7.2f}")
        lines.append(f"conflicts       {self.pairs[1]} pairs of ops, {self.pairs[0]} are taken for such")
        if self.widest[2] is not None:
            lines.append(f"widest op       {self.widest[0]:.1f} times what it touches: seed {self.widest[2]}, "
                         f"{self.widest[1]}")
        if s["broken"]:
            seen = ", ".join(f"{check} {count}" for check, count in self.seen_by.most_common())
            lines.append(f"broken          {s['broken']} programs; seen by: {seen}")
        return lines

    def as_json(self):
        return {**self.sums, "width": self.width, "pairs": self.pairs, "why_no_schedule": self.why_not,
                "seen_by": self.seen_by}


class Divergences:
    """What programs compute and are told that do not keep to their steps: tests/oracle/disorder/check_divergences.cpp."""

    BREAKS = ("dependency", "change", "error", "hang")
    NUMBERS = ("schedule", "broken", "attempts", "runs", "steps", "disturbed", "steps_replayed", "steps_of_other_kinds",
               "ops_replayed", "graph_launches", "node_updates", "flushes", "watchdog_flushes", "steps_audited", "faults_met")

    def __init__(self, build, options):
        self.tool = os.path.join(build, "bin", "check_divergences")
        self.options = options
        self.sums = collections.Counter()
        # By name, in this order: what was changed, why steps diverged, why replay stood aside, which checks failed.
        self.counts = {name: collections.Counter() for name in ("changes", "divergences", "stood_aside", "seen_by")}
        self.faults, self.threads = collections.Counter(), collections.Counter()

    def words(self):
        words = []
        if self.options.orders:
            words += ["--runs", str(self.options.orders)]
        if self.options.patience:
            words += ["--patience", str(self.options.patience)]
        if self.options.what_breaks:
            words += ["--break", self.options.what_breaks]
        return words

    def command(self, seed, count):
        return [self.tool, "--json", *self.words(), str(seed), str(count)]

    def again(self, seed):
        return " ".join([os.path.relpath(self.tool), *self.words(), "--keep", "DIR", str(seed)])

    def shrunk(self, seed):
        done = subprocess.run([self.tool, *self.words(), "--shrink", str(seed)], capture_output=True, text=True,
                              check=False)
        return done.stdout

    def add(self, row):
        sums = self.sums
        sums["programs"] += 1
        for name in self.NUMBERS:
            sums[name] += row[name]
        if not row["schedule"]:
            return
        sums["replayed"] += row["steps_replayed"] > 0
        sums["several_streams"] += row["streams"] > 1
        sums["several_kinds"] += row["kinds"] > 1
        # Runs that stand aside on purpose do not show how much is replayed otherwise.
        if row["fault"] in ("none", "memory"):
            sums["steps_without_fault"] += row["steps"]
            sums["steps_replayed_without_fault"] += row["steps_replayed"]
        for name in ("changes", "divergences", "stood_aside"):
            self.counts[name].update(row[name])
        self.counts["seen_by"].update({failure.split(":")[0] for failure in row["failures"]})
        self.threads[row["threads"]] += 1
        if row["faults_met"]:
            self.faults[row["fault"]] += row["faults_met"]

    def summary(self):
        s = self.sums

        def share(part, whole):
            return f"{100 * part / max(1, whole):.1f} %"

        threads = ", ".join(f"{name} {count}" for name, count in self.threads.most_common())
        lines = [
            f"programs        {s['programs']}, {s['schedule']} of them with a schedule, {s['several_streams']} on "
            f"several streams, {s['several_kinds']} with several kinds of step; issued by threads: {threads}",
            f"replayed        {s['replayed']} programs ({share(s['replayed'], s['schedule'])}), {s['steps_replayed']} "
            f"of {s['steps']} steps in {s['runs']} runs, {s['steps_of_other_kinds']} of further kinds; {s['disturbed']} steps "
            "were disturbed",
            f"                {share(s['steps_replayed_without_fault'], s['steps_without_fault'])} of the steps of "
            f"programs without errors; {s['graph_launches']} graphs launched, {s['node_updates']} nodes changed, "
            f"{s['flushes']} early flushes, {s['watchdog_flushes']} by the watchdog, {s['steps_audited']} audits",
        ]
        for name, counts in (("changes", self.counts["changes"]), ("divergences", self.counts["divergences"]),
                             ("errors met", self.faults), ("stood aside", self.counts["stood_aside"])):
            lines.append(f"{name:<16}{sum(counts.values())}")
            lines += [f"  {count:>8}  {reason}" for reason, count in counts.most_common()]
        if s["broken"]:
            seen = ", ".join(f"{check} {count}" for check, count in self.counts["seen_by"].most_common())
            lines.append(f"broken          {s['broken']} programs; seen by: {seen}")
        return lines

    def as_json(self):
        return {**self.sums, **self.counts, "faults_met": self.faults, "threads": self.threads}


KINDS = {"accesses": Accesses, "divergences": Divergences}
DEFAULT_PROGRAMS = {"accesses": 100000, "divergences": 10000}


class Soak:
    """The ranges that are still to be run, and what came back. Worker threads share it, under its lock."""

    def __init__(self, kind, first, programs, out=sys.stdout):
        self.kind, self.out = kind, out
        self.next, self.end = first, first + programs
        self.lock = threading.Lock()
        self.failed = []
        self.done = 0

    def take(self):
        with self.lock:
            seed, count = self.next, min(CHUNK, self.end - self.next)
            self.next += count
            return seed, count

    def fail(self, seed, lines):
        self.failed.append(seed)
        for line in lines:
            print(f"seed {seed}: {line}", file=self.out, flush=True)

    def work(self):
        while True:
            seed, count = self.take()
            if count == 0:
                return
            # A process that does not reach the end of its range is restarted after the program that ended it.
            end = seed + count
            while seed < end:
                seed = self.run(seed, end)

    def run(self, seed, end):
        """Runs the seeds up to `end`; returns the one after the last that was handled."""
        with subprocess.Popen(self.kind.command(seed, end - seed), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            for line in process.stdout:
                row = json.loads(line)
                seed = row["seed"] + 1
                with self.lock:
                    self.kind.add(row)
                    self.done += 1
                    if row["failures"]:
                        self.fail(row["seed"], row["failures"])
            said = process.stderr.read()
        if seed < end:
            with self.lock:
                self.done += 1
                self.fail(seed, [f"the check itself ended with status {process.returncode}: {said[-500:]}"])
            seed += 1
        return seed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--break", dest="what_breaks")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.programs = options.programs or DEFAULT_PROGRAMS[options.kind]
    if options.what_breaks and options.what_breaks not in KINDS[options.kind].BREAKS:
        parser.error(f"of {options.kind}, --break takes {', '.join(KINDS[options.kind].BREAKS)}")
    kind = KINDS[options.kind](options.build, options)
    soak = Soak(kind, options.seed, options.programs)
    began = time.monotonic()
    workers = [threading.Thread(target=soak.work) for _ in range(max(1, options.jobs))]
    for worker in workers:
        worker.start()
    show_progress(soak, options.programs, workers, began)
    seconds = time.monotonic() - began
    for line in kind.summary():
        print(line)
    print(f"time            {seconds:.0f} s, {1000 * seconds * options.jobs / max(1, soak.done):.0f} ms of one "
          "processor for each")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"kind": options.kind, "first_seed": options.seed, "seconds": round(seconds, 1),
                       "failed": soak.failed, **kind.as_json()}, file, indent=1)
            file.write("\n")
    if not soak.failed:
        print("failed          none")
        return 0
    soak.failed.sort()
    print(f"failed          {len(soak.failed)}: seeds {', '.join(map(str, soak.failed[:20]))}")
    print(f"again:          {kind.again(soak.failed[0])}")
    if options.shrink:
        for seed in soak.failed[:5]:
            print(kind.shrunk(seed))
    return 1


def show_progress(soak, programs, workers, began):
    """A line that is written over on a terminal, else a line now and then."""
    terminal = sys.stderr.isatty()
    told = began
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.1)
        now = time.monotonic()
        if now - told < (0.5 if terminal else 30):
            continue
        told = now
        rate = soak.done / (now - began)
        left = (programs - soak.done) / rate if rate else 0
        line = f"{soak.done} of {programs}, {len(soak.failed)} failed, {rate:.0f} a second, {left:.0f} s to go"
        print(f"\r{line}   " if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
    if terminal:
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
