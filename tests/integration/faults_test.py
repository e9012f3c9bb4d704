"""Whatever befalls a process, Nimble takes nothing from it: each fault in each mode. A cell is one line of a table below; the
first argument after the build folder names the group whose cells run; without it, all run. `--break WHAT` runs them
with a library in the shim's place that is in its host's way, and ends well if that shows: programs/breaking.c says what
it can do."""

import os
import resource
import signal
import sys

import fault_harness
import harness
from fault_harness import Fault, closes, dead_pipe, limits, no_folder, on_a_small_disk
from harness import ProgramTest

MIB = 1 << 20
UNLIMITED = resource.RLIM_INFINITY


def descriptors():
    return [
        Fault("no fault"),
        Fault("stdin closed", start=closes(0)),
        Fault("stdout closed", start=closes(1)),
        Fault("stderr closed", start=closes(2)),
        Fault("0, 1, 2 closed", start=closes(0, 1, 2)),
        Fault("1 and 2 closed, exec", "exec", start=closes(1, 2)),
        Fault("stderr a dead pipe", err=dead_pipe),
        Fault("stderr a dead pipe, ignored", "ignore_pipe", err=dead_pipe),
        Fault("stdout a dead pipe", out=dead_pipe, ends=-signal.SIGPIPE),
        Fault("stdout a dead pipe, ignored", "ignore_pipe", out=dead_pipe),
        Fault("16 descriptors", "fill", start=limits(resource.RLIMIT_NOFILE, 16)),
        Fault("16 descriptors, no more", "fill", start=limits(resource.RLIMIT_NOFILE, 16, 16)),
        Fault("200 descriptors, no more", "fill", start=limits(resource.RLIMIT_NOFILE, 200, 200)),
        Fault("no open succeeds", "no_files"),
    ]


def limited():
    crashes = limits(resource.RLIMIT_CORE, UNLIMITED)
    return [
        Fault("RLIMIT_AS 2 GiB", "memory", start=limits(resource.RLIMIT_AS, 2048 * MIB)),
        Fault("RLIMIT_AS 20 GiB", "memory", start=limits(resource.RLIMIT_AS, 20480 * MIB)),
        Fault("RLIMIT_AS 800 MiB", start=limits(resource.RLIMIT_AS, 800 * MIB)),
        Fault("RLIMIT_DATA 600 MiB", start=limits(resource.RLIMIT_DATA, 600 * MIB)),
        Fault("RLIMIT_FSIZE 160 KiB", start=limits(resource.RLIMIT_FSIZE, 160 << 10)),
        Fault("RLIMIT_FSIZE 160 KiB, ignored", "ignore_pipe", start=limits(resource.RLIMIT_FSIZE, 160 << 10)),
        Fault("RLIMIT_FSIZE 512 B", "small_files"),
        Fault("RLIMIT_FSIZE 512 B, ignored", "ignore_pipe", "small_files"),
        Fault("RLIMIT_STACK 128 KiB", start=limits(resource.RLIMIT_STACK, 128 << 10)),
        Fault("RLIMIT_STACK unlimited", start=limits(resource.RLIMIT_STACK, UNLIMITED)),
        Fault("crash", "crash", ends=-signal.SIGSEGV),
        Fault("crash with a core", "crash", start=crashes, ends=-signal.SIGSEGV),
        Fault("crash with a handler", "crash_handled", start=crashes, ends=9),
        Fault("threads cannot be made", "no_threads"),
        Fault("locked memory 0", start=limits(resource.RLIMIT_MEMLOCK, 0)),
    ]


def disk():
    elsewhere = {name: {"NIMBLE_TRACE": f"{path}/trace.json", "NIMBLE_STATS": f"{path}/stats.json"}
                 for name, path in (("a file is the folder", "/proc/self/exe"), ("no such folder", "/nonexistent"))}
    rows = [
        Fault("disk full at open", "full_at_open"),
        Fault("disk full later", "full_later"),
        Fault("folder read-only", "read_only"),
        Fault("folder gone", start=no_folder),
        Fault("files are /dev/full", env={"NIMBLE_TRACE": "/dev/full", "NIMBLE_STATS": "/dev/full"}),
        *(Fault(name, env=env) for name, env in elsewhere.items()),
    ]
    for name, size, inodes in (("disk of 16 KiB", "16k", 100), ("disk without inodes", "1m", 1)):
        wrap = on_a_small_disk(size, inodes)
        if wrap:
            rows.append(Fault(name, wrap=wrap))
        else:
            fault_harness.say(f"{name}: left out, nothing can be mounted here")
    return rows


def processes():
    return [
        Fault("forks", "children"),
        Fault("forks, stdin closed", "children", start=closes(0)),
        Fault("vfork, spawn, system", "spawn"),
        Fault("exec of itself", "exec"),
        Fault("all children", "children", "exec", "spawn"),
        Fault("all children, 24 descriptors", "children", "exec", "spawn", start=limits(resource.RLIMIT_NOFILE, 24, 24)),
    ]


def each_signal():
    return [
        Fault("signals at each thread", "signals"),
        Fault("signals, SA_RESTART", "signals_restart"),
        Fault("interval timers", "timer"),
        Fault("interval timers and children", "timer", "children", "spawn"),
    ]


def environment():
    return [
        Fault("CUDA_LAUNCH_BLOCKING=1", env={"CUDA_LAUNCH_BLOCKING": "1"}),
        Fault("no visible device", env={"CUDA_VISIBLE_DEVICES": ""}),
        Fault("no visible device, 0-2 closed", env={"CUDA_VISIBLE_DEVICES": ""}, start=closes(0, 1, 2)),
    ]


GROUPS = {"descriptors": descriptors, "limits": limited, "disk": disk, "processes": processes, "signals": each_signal,
          "environment": environment}


class FaultTest(ProgramTest):
    def table(self, columns=None):
        if columns is None:
            columns = fault_harness.modes(self.make_schedule(["faults", self.path("file")], expect=7))
        return fault_harness.Table(columns)


class Faults(FaultTest):
    """One test for each group."""

    def matrix(self, group):
        table = self.table()
        for number, fault in enumerate(GROUPS[group](), start=list(GROUPS).index(group)):
            table.add(fault, also=fault_harness.some_recordings(number))
        fault_harness.say(table.text())
        self.assertEqual(len(table.red), 0, "cells are red")


for one in GROUPS:
    setattr(Faults, f"test_{one}", lambda self, group=one: self.matrix(group))


class Allocations(FaultTest):
    """The host's memory runs out for the shim alone, at one allocation or from one on."""

    def test_allocations(self):
        self.check({}, number=0)

    def test_allocations_of_the_c_library_for_us(self):
        self.check({"FAULT_CALLER": "libc"}, number=1)

    def test_allocations_on_a_small_stack_without_threads(self):
        # The one thread that can be started is the program's own.
        self.check({"SMALL_STACK": "64", "NO_THREADS": "1"}, ("small_stack", "no_threads", "failing_host"), number=2)

    def check(self, which, preloaded=("failing_host",), number=0):
        beside = [os.path.join(os.path.dirname(harness.BUILD.library), f"lib{name}.so") for name in preloaded]
        which = {"LD_PRELOAD": ":".join(beside), **which}
        fault = Fault("allocation")
        plain = fault_harness.run(fault, fault_harness.PLAIN)
        red = []
        for mode in (*self.table().columns, *fault_harness.some_recordings(number)):
            count = self.path("count")
            seen = fault_harness.run(fault, mode, FAULT_COUNT=count, FAULT_ONCE="1", **which)
            red += [(mode.name, found) for found in seen.differences(plain)]
            with open(count, encoding="utf-8") as file:
                most = int(file.read())
            self.assertGreater(most, 0)
            numbers = sample(most)
            for once in ({"FAULT_ONCE": "1"}, {}):
                for number in numbers:
                    seen = fault_harness.run(fault, mode, FAULT_ALLOCATION=str(number), **which, **once)
                    found = seen.differences(plain)
                    if found:
                        red.append((mode.name, number, "once" if once else "from there on", found))
            fault_harness.say(f"{mode.name}: {most} allocations, {2 * len(numbers)} runs")
        for one in red:
            fault_harness.say(str(one))
        self.assertEqual(len(red), 0, "runs were not as without Nimble")


def sample(most):
    """Some numbers from 1 to `most`: the first few, and then ever fewer."""
    numbers, at = [], 1.0
    while at <= most:
        numbers.append(int(at))
        at = max(at + 1, at * 1.6)
    return numbers + [most]


class Itself(FaultTest):
    """What the matrix is for shows in it, and the modes do what they are there for."""

    # What is in its host's way, and a row in which that shows.
    WRONG = {
        "descriptor": Fault("no fault"), "kept_open": Fault("spawn", "spawn"),
        "descriptor_high": Fault("fill", "fill", start=limits(resource.RLIMIT_NOFILE, 32)),
        "address_space": Fault("AS", "memory", start=limits(resource.RLIMIT_AS, 2048 * MIB)),
        "thread": Fault("signals", "signals"), "sigpipe": Fault("dead", out=dead_pipe, ends=-signal.SIGPIPE),
        "file_size": Fault("FSIZE", start=limits(resource.RLIMIT_FSIZE, 160 << 10), ends=7),
        "stderr": Fault("dead stderr", err=dead_pipe), "trace": Fault("no fault"), "stdout": Fault("no fault"), "status": Fault("no fault"), "killed": Fault("no fault"),
        "call": Fault("no fault"), "core": Fault("core", "crash", start=limits(resource.RLIMIT_CORE, UNLIMITED), ends=-signal.SIGSEGV),
        "hangs": Fault("no fault"),
    }

    def test_what_is_wrong_shows(self):
        before, fault_harness.TIMEOUT = fault_harness.TIMEOUT, 10
        try:
            for what, fault in self.WRONG.items():
                with self.subTest(what):
                    if what == "core" and fault_harness.run(fault, fault_harness.PLAIN).core is None:
                        self.skipTest("nothing here writes cores")
                    table = self.table([fault_harness.in_place_of_the_shim(what)])
                    red = table.add(fault)
                    fault_harness.say("; ".join(f"{what}: {found}" for _, _, found in red) or f"{what}: nothing")
                    self.assertEqual([mode for _, mode, _ in red], [f"break {what}"], "not seen")
        finally:
            fault_harness.TIMEOUT = before

    def test_the_modes_do_their_work(self):
        for mode in (*self.table().columns, *fault_harness.recordings()):
            with self.subTest(mode.name):
                seen = fault_harness.run(Fault("no fault", "tell"), mode, NIMBLE_HOLD_US="60000000")
                said = seen.err.decode()
                if mode.variables.get("NIMBLE_MODE") == "record":
                    self.assertIn("trace.json", seen.ours)
                if mode.name == "steps":
                    self.assertIn("steps found (NIMBLE_STEPS=20)", said)
                if mode.name in ("probe", "first"):
                    self.assertRegex(said, r"probe: [1-9]\d* of \d+ launches compared")
                if mode.name == "bundle":
                    self.assertIn("trace.bundle: a step", said)
                if mode.name in ("replay", "auto"):
                    self.assertGreater(seen.ours["stats.json"]["steps_replayed"], 20)
                if mode.name == "regions":
                    self.assertIn("launches of the region: 5", said)
                if mode.name == "check":
                    self.assertGreater(seen.ours["stats.json"]["launches_checked"], 20)
                if mode.name == "graphs":
                    self.assertIn("the graph was rewritten: 1", said)


def main():
    if "--break" in sys.argv:
        at = sys.argv.index("--break")
        what = sys.argv[at + 1]
        del sys.argv[at:at + 2]
        harness.BUILD = harness.Build(sys.argv[1])
        table = fault_harness.Table([fault_harness.in_place_of_the_shim(what)])
        for group in sys.argv[2:3] or GROUPS:
            for fault in GROUPS[group]():
                table.add(fault)
        fault_harness.say(table.text())
        sys.exit(0 if table.red else 1)
    if len(sys.argv) > 2 and not sys.argv[2].startswith("-"):
        group = sys.argv[2]
        sys.argv[2:3] = ["Itself"] if group == "itself" else ["-k", f"*.test_{group}*"]
    harness.main()


if __name__ == "__main__":
    main()
