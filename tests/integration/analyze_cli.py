#!/usr/bin/env python3
"""nimble-analyze as a user meets it: options, exit statuses, messages, files. Run by ctest."""

import argparse
import contextlib
import json
import os
import pathlib
import pty
import re
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/golden/branches/trace.json"
ANALYZE = None


def branches_one_by_one(branches):
    """A trace whose program goes through the branches of its step one by one, each with two tensors one after the other
    from a pool that always hands out the same address."""
    lines, seq = [], 0

    def meta(event, **args):
        lines.append({"ph": "M", "pid": 1, "tid": 0, "name": event, "args": args})

    def call(kind, **args):
        nonlocal seq
        lines.append({"ph": "X", "pid": 1, "tid": 1, "ts": seq, "dur": 1, "name": kind, "cat": kind,
                      "args": {"seq": seq, "call": kind, **args}})
        seq += 1

    def launch(*pointers):
        call("launch", stream=0, fn=0, grid=[8, 1, 1], block=[128, 1, 1],
             params="".join(pointer.to_bytes(8, "little").hex() for pointer in pointers))

    meta("nimble.trace", version=2, nimble="test", program="test", device="none", driver=13000)
    meta("nimble.image", id=0, self_contained=True)
    meta("nimble.function", id=0, name="_Z1fPfPKf", image=0, params=[[0, 8], [8, 8]])
    meta("nimble.stream", id=0, context=0, kind="non_blocking")
    for i in range(branches + 1):
        call("alloc", addr=(i + 1) << 16, size=4096, memory="device")
    for _ in range(4):
        for i in range(branches):
            for source in (0, i + 1):
                call("alloc_async", stream=0, addr=1 << 30, size=4096)
                launch(1 << 30, (source + 1) << 16)
                launch((i + 2) << 16, 1 << 30)
                call("free_async", stream=0, addr=1 << 30)
        call("stream_synchronize", stream=0)
    meta("nimble.end", dropped=0)
    return "[\n" + ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n]\n"


class CommandTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def analyze(self, *arguments):
        """Believes signatures, by which the kernels of these traces are known."""
        if not {"check", "code", "kernels", "--trust", "--help", "--version"}.intersection(arguments):
            arguments = *arguments, "--trust", "observed"
        return subprocess.run([ANALYZE, *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)

    def make_trace(self, *arguments):
        path = self.folder / "made.json"
        subprocess.run([ROOT / "scripts/make_trace", "-o", path, *map(str, arguments)], check=True)
        return path

    def write(self, text, name="bad.json"):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def assert_refused(self, result, status, *parts):
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)


class AnalyzeTest(CommandTest):
    def test_writes_a_schedule_and_says_what_to_type_next(self):
        result = self.analyze(GOLDEN)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        self.assertIn("NIMBLE_MODE=replay NIMBLE_SCHEDULE=schedule.json LD_PRELOAD=libnimble.so <program>", result.stdout)
        self.assertEqual(json.loads((self.folder / "schedule.json").read_text())["nimble_schedule"], 6)

    def test_each_option_does_something(self):
        self.assertEqual(self.analyze(GOLDEN, "--quiet", "-o", "one.json").stdout, "")
        self.assertTrue((self.folder / "one.json").exists())
        self.assertEqual(self.analyze(GOLDEN, "--policy", "single", "-o", "two.json").returncode, 0)
        single = json.loads((self.folder / "two.json").read_text())
        self.assertEqual((single["policy"], single["segments"][0]["lanes"]), ("single", 1))
        self.assertEqual(self.analyze(GOLDEN, "--no-schedule", "--dot", "a.dot", "--json", "r.json").returncode, 0)
        self.assertFalse((self.folder / "schedule.json").exists())
        self.assertIn("digraph", (self.folder / "a.dot").read_text())
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["step"]["ops"], 16)
        why = self.analyze(GOLDEN, "--why", 6, 7)
        self.assertIn("Not ordered", why.stdout)
        self.assertFalse((self.folder / "schedule.json").exists())
        self.assertIn("nimble-analyze 0", self.analyze("--version").stdout)
        usage = self.analyze("--help").stdout
        for option in ("--policy", "--rules", "--why", "--dot", "--json", "--no-schedule", "--quiet", "--output",
                       "--memory-limit"):
            self.assertIn(option, usage)

    def test_help_names_each_subcommand(self):
        usage = self.analyze("--help").stdout
        named = re.findall(r"^ +([\w-]+)(?: [A-Z]+)+  +\w", usage.partition("Subcommands")[2], re.MULTILINE)
        self.assertEqual(named, ["check", "code", "diff", "kernels", "report", "why-slow"], usage)
        for name in named:
            self.assertIn(f"nimble-analyze {name} [OPTIONS]", self.analyze(name, "--help").stdout)

    def test_standard_output_that_is_a_file_is_written(self):
        for option, begins in (("-o", '{"nimble_schedule"'), ("--json", '{"nimble_report"'), ("--dot", "digraph")):
            more = [] if option == "-o" else ["--no-schedule"]
            for how in "wb", "ab":
                with self.subTest(option=option, how=how):
                    path = self.write("before\n", "out.txt")
                    with open(path, how) as file:
                        done = subprocess.run([ANALYZE, GOLDEN, "--quiet", option, "/dev/stdout", *more], cwd=self.folder,
                                              stdout=file, stderr=subprocess.PIPE, check=False)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    text = path.read_text()
                    self.assertTrue(text.startswith(begins if how == "wb" else "before\n" + begins), text[:80])

    def test_rules_tell_what_a_kernel_does(self):
        rules = self.write('{"nimble_rules": 1, "rules": [{"kernel": "normalize.*", "params": ["inout"]}]}', "rules.json")
        self.assertIn("normalize", self.analyze(GOLDEN).stdout)
        self.assertNotIn("normalize", self.analyze(GOLDEN, "--rules", rules, "--rules", rules).stdout)
        self.assert_refused(self.analyze(GOLDEN, "--rules", self.write("{}")), 2, "bad.json: nimble_rules: is missing")
        self.assert_refused(self.analyze(GOLDEN, "--rules", "gone.json"), 2, "gone.json: cannot be opened")

    def test_usage_errors_are_status_2(self):
        for arguments in ([], [GOLDEN, "--policy", "best"], [GOLDEN, "--nonsense"], [GOLDEN, "--why", "1"]):
            self.assert_refused(self.analyze(*arguments), 2, "nimble-analyze: ", "see nimble-analyze --help")
        self.assert_refused(self.analyze(GOLDEN, "--why", 0, 99), 2, "0 to 15, not 99")

    def test_bad_input_is_one_line_and_status_2(self):
        good = GOLDEN.read_text()
        broken = good.replace('"grid":[32,1,1]', '"grid":[0,1,1]', 1)
        line = next(i for i, text in enumerate(broken.splitlines(), 1) if '"grid":[0,1,1]' in text)
        for text, parts in (("", ["is empty"]), (b"\x7fELF\x00\x01", [":1: is not a trace"]), ("[\n", ["no event nimble.trace"]),
                            (good.replace('"version":2', '"version":9'), [":2: args.version: is 9"]),
                            (broken, [f":{line}: args.grid: must not be 0"]),
                            (good.replace('"fn":2', '"fn":3'), ["args.fn: 3 was not defined before"])):
            self.assert_refused(self.analyze(self.write(text)), 2, "bad.json", *parts)
        self.assert_refused(self.analyze("gone.json"), 2, "gone.json: cannot be opened")
        self.assert_refused(self.analyze(self.folder), 2, "cannot be read")

    def test_a_trace_that_was_cut_off_is_used(self):
        text = GOLDEN.read_text()
        result = self.analyze(self.write(text[:int(len(text) * 0.9)]))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cut off", result.stdout)

    def test_lost_events_and_unwritable_files_are_status_1(self):
        lost = self.write(GOLDEN.read_text().replace('"dropped":0', '"dropped":5'))
        self.assert_refused(self.analyze(lost, "--quiet"), 1, "dropped 5 events")
        self.assert_refused(self.analyze(GOLDEN, "--quiet", "-o", "no/such/folder.json"), 1, "no/such/folder.json")
        self.assertEqual(self.analyze(GOLDEN, "-o", "/dev/full").returncode, 1)

    def test_no_step_is_status_3(self):
        text = GOLDEN.read_text()
        third = [at for at in range(len(text)) if text.startswith('"name":"cuEventSynchronize"', at)][1]
        result = self.analyze(self.write(text[:third]), "--json", "r.json")
        self.assert_refused(result, 3, "no step found")
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["status"], 3)

    def test_steps_on_several_streams_are_scheduled(self):
        made = self.make_trace("--multi-stream")
        self.assertEqual(self.analyze(made, "-o", "schedule.json").returncode, 0)
        schedule = json.loads((self.folder / "schedule.json").read_text())
        self.assertGreater(len(schedule["streams"]), 1)
        self.assertTrue(any(op.get("stream", 0) for op in schedule["ops"]))
        # Waits for what the step records itself are in no graph; each says what it waits for.
        waits = [op for op in schedule["ops"] if op["submit"] == "order"]
        self.assertGreater(len(waits), 0)
        self.assertTrue(all(schedule["ops"][op["record"]]["kind"] == "event_record" for op in waits))
        self.assertEqual(self.analyze("check", made, "schedule.json").returncode, 0)
        # The check finds out where a wait is taken to be for another event.
        wait = next(op for op in schedule["ops"] if op["submit"] == "order")
        wait["record"] = None
        wrong = self.write(json.dumps(schedule), "wrong.json")
        self.assert_refused(self.analyze("check", made, wrong), 2, "record")

    def test_races_are_reported_and_status_4(self):
        lines = self.make_trace("--multi-stream").read_text().splitlines(keepends=True)
        unordered = self.write("".join(line for line in lines if '"event_wait"' not in line))
        result = self.analyze(unordered)
        self.assert_refused(result, 4, "unordered")
        self.assertIn("Possible races", result.stdout)

    def test_a_schedule_that_lacks_a_dependency_is_found_out(self):
        self.assertEqual(self.analyze(GOLDEN, "--quiet").returncode, 0)
        good = self.analyze("check", GOLDEN, "schedule.json")
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertIn("every two of its 16 ops that conflict are ordered", good.stdout)
        self.assertEqual(self.analyze("check", "--quiet", GOLDEN, "schedule.json").stdout, "")
        schedule = json.loads((self.folder / "schedule.json").read_text())
        for segment in schedule["segments"]:
            for edge in list(segment["edges"]):
                segment["edges"].remove(edge)
                less = self.write(json.dumps(schedule), "less.json")
                self.assert_refused(self.analyze("check", GOLDEN, less), 1, "less.json", "not ordered by the schedule",
                                    *(f"op {op} (" for op in edge))
                segment["edges"].append(edge)
        self.assertEqual(self.analyze("check", GOLDEN, self.write(json.dumps(schedule))).returncode, 0)

    def test_a_plan_that_lays_two_live_objects_on_each_other_is_found_out(self):
        made = self.make_trace("--ops", 400, "--branches", 4)
        self.assertEqual(self.analyze(made, "--quiet").returncode, 0)
        schedule = json.loads((self.folder / "schedule.json").read_text())
        kernels = [op for op in schedule["ops"] if op["kind"] == "launch"]
        # Two that the first kernels of two branches write.
        first, second = (op["pointers"][0]["object"] for op in kernels[:2])
        self.assertNotEqual(first, second)
        schedule["objects"][second]["plan_offset"] = schedule["objects"][first]["plan_offset"]
        self.assert_refused(self.analyze("check", made, self.write(json.dumps(schedule), "laid.json")), 1, "laid.json",
                            "not ordered by the schedule", "the memory plan gives the same bytes")

    def test_a_memory_limit_is_kept_or_refused(self):
        made = self.write(branches_one_by_one(8), "branches.json")
        self.assertEqual(self.analyze(made, "--quiet", "--json", "free.json").returncode, 0)
        free = json.loads((self.folder / "free.json").read_text())["objects"]
        self.assertEqual((free["peak_bytes"], free["plan_bytes"], free["unpacked_bytes"]), (4096, 8 * 4096, 16 * 4096))
        self.assertIsNone(free["plan_bytes_without_limit"])
        between = (free["plan_bytes"] + free["peak_bytes"]) // 2
        limited = self.analyze(made, "--memory-limit", between, "--json", "limited.json")
        self.assertEqual(limited.returncode, 0, limited.stderr)
        self.assertIn("more than --memory-limit allows", limited.stdout)
        objects = json.loads((self.folder / "limited.json").read_text())["objects"]
        self.assertLessEqual(objects["plan_bytes"], between)
        self.assertEqual(objects["plan_bytes_without_limit"], free["plan_bytes"])
        self.assertLessEqual(json.loads((self.folder / "schedule.json").read_text())["arena_bytes"], between)
        self.assertEqual(self.analyze("check", made, "schedule.json").returncode, 0)
        self.assertEqual(self.analyze(made, "--quiet", "--memory-limit", "1T").returncode, 0)
        self.assert_refused(self.analyze(made, "--quiet", "--memory-limit", "1K"), 4, "no schedule", "1.0 KiB of --memory-limit")
        for limit in ("", "K", "1.5G", "-1", "1Q", "1GB", "99999999999T"):
            if limit:
                self.assert_refused(self.analyze(made, "--memory-limit", limit), 2, "--memory-limit", limit)

    def test_a_schedule_is_checked_with_the_rules_and_the_trace_that_it_came_from(self):
        rules = self.write('{"nimble_rules": 1, "rules": [{"kernel": "bias", "params": ["out", "in", "in", "value"]}]}',
                           "rules.json")
        made = self.write(self.make_trace().read_text().replace("_Z4biasPfPKfS1_i", "bias"), "unknown.json")
        self.assertEqual(self.analyze(made, "--quiet", "--rules", rules).returncode, 0)
        self.assertEqual(self.analyze("check", made, "schedule.json", "--rules", rules).returncode, 0)
        self.assert_refused(self.analyze("check", made, "schedule.json"), 1, "may touch anything")
        self.assertEqual(self.analyze(GOLDEN, "--quiet").returncode, 0)
        other = self.write(GOLDEN.read_text() + "\n", "other.json")
        self.assert_refused(self.analyze("check", other, "schedule.json"), 2, "schedule.json: trace_digest", "another trace")
        self.assert_refused(self.analyze("check", GOLDEN, self.write("{}")), 2, "bad.json: nimble_schedule: is missing")
        self.assert_refused(self.analyze("check", GOLDEN, "gone.json"), 2, "gone.json: cannot be opened")
        self.assert_refused(self.analyze("check", self.write("["), "schedule.json"), 2, "bad.json")
        for arguments in ([], [GOLDEN], [GOLDEN, "schedule.json", "--nonsense"]):
            self.assertEqual(self.analyze("check", *arguments).returncode, 2, arguments)
        self.assertIn("--rules", self.analyze("check", "--help").stdout)

    def test_the_same_trace_gives_the_same_bytes(self):
        trace = self.make_trace("--ops", 4000, "--branches", 7)
        schedules = []
        for name in ("one.json", "two.json"):
            self.assertEqual(self.analyze(trace, "--quiet", "-o", name).returncode, 0)
            schedules.append((self.folder / name).read_bytes())
        self.assertEqual(*schedules)

    def test_a_hundred_thousand_ops_take_five_seconds_and_a_gibibyte(self):
        trace = self.make_trace("--ops", 100000, "--branches", 16)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(self.analyze(trace, "--quiet").returncode, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"100 000 ops: {seconds:.2f} s of CPU, at most {after.ru_maxrss // 1024} MiB", file=sys.stderr)
        self.assertLess(after.ru_maxrss, 1 << 20)
        if not OPTIONS.sanitized:
            self.assertLess(seconds, 5)


def fatbin_of(ptx, arch):
    """One with one part: this PTX, not compressed, laid out as nvcc does it."""
    part = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(ptx), 0, 0, 0, 0, arch, 0, 0, 0, 0, 0) + ptx
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(part)) + part


class CodeTest(CommandTest):
    """nimble-analyze code: what the kernels in a file touch."""

    def setUp(self):
        super().setUp()
        self.ptx = (ROOT / "tests/unit/analyzer/kernel_code/ptx/kernels.ptx").read_bytes()
        # As a library embeds it.
        self.library = self.write(pathlib.Path(sys.executable).read_bytes() + b"\0" * 5 + fatbin_of(self.ptx, 90), "lib.so")

    def code(self, *arguments):
        return self.analyze("code", *arguments)

    def test_each_parameter_of_each_kernel_is_accounted_for(self):
        for file in self.library, self.write(self.ptx, "kernels.ptx"):
            done = self.code(file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("\nscale\n  compute_90 (PTX):\n    parameter 0, bytes 0-7: written\n"
                          "    parameter 1, bytes 8-15: read\n", done.stdout)
            self.assertIn("not understood: it may follow an address that it loads from memory", done.stdout)
            self.assertIn("variable a_global: written", done.stdout)

    def test_kernels_and_architectures_are_chosen(self):
        done = self.code(self.library, "--kernel", "scale|gather", "--arch", 90)
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if line and line[0] != " ")[:2],
                         [done.stdout.splitlines()[0], "gather"])
        self.assertIn("\nscale\n", done.stdout)
        self.assertNotIn("scatter", done.stdout)
        for arguments in (["--kernel", "scal"], ["--arch", "80"], ["--arch", "sm_90"]):
            self.assert_refused(self.code(self.library, *arguments), 2, "no kernel is what --kernel and --arch ask for")
        self.assert_refused(self.code(self.library, "--kernel", "("), 2, "--kernel: is not a regular expression")
        self.assert_refused(self.code(self.library, "--arch", "hopper"), 2, "--arch: hopper is no architecture")

    def test_the_summary_counts_what_is_proven(self):
        done = self.code(self.library, "--summary", "--json", "code.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^1 image\n")
        row = re.search(r"compute_90 +(\d+) +(\d+) +[\d.]+ %", done.stdout)
        kernels, proven = map(int, row.groups())
        self.assertGreater(proven, 20)
        self.assertIn(f"{kernels - proven:9}  it may follow an address that it loads from memory", done.stdout)
        report = json.loads((self.folder / "code.json").read_text())
        self.assertEqual((report["nimble_code"], len(report["kernels"])), (1, kernels))
        self.assertEqual(report["summary"]["targets"][0]["proven"], proven)
        scale = next(each for each in report["kernels"] if each["name"] == "scale")["findings"][0]
        self.assertEqual([(each["at"], each["reads"], each["writes"]) for each in scale["accesses"]],
                         [([0], False, True), ([8], True, False)])
        # It replaces its own file, and no other.
        self.assertEqual(self.code(self.library, "--summary", "--json", "code.json").returncode, 0)
        other = self.write("{}", "other.json")
        self.assert_refused(self.code(self.library, "--json", other), 1, "was not written by Nimble")
        self.assertEqual(self.code(self.library, "--summary", "--json", other, "--force").returncode, 0)

    def test_files_without_code_are_refused(self):
        self.assert_refused(self.code(sys.executable), 2, "holds no code for a GPU")
        self.assert_refused(self.code("gone.so"), 2, "gone.so: cannot be opened")
        self.assert_refused(self.code(self.folder), 2, "cannot be opened")
        self.assert_refused(self.code(), 2, "file is required")
        self.assertIn("--summary", self.code("--help").stdout)
        self.assertFalse(list(self.folder.glob("*.part")))

    def test_memory_is_bounded_by_the_largest_image_and_not_by_the_file(self):
        with open(self.folder / "large.so", "wb") as file:
            for i in range(300):
                file.write(bytes(1 << 20))
                file.write(fatbin_of(self.ptx, 90))
        done = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys\n"
                               "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
                               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
                               ANALYZE, "code", "large.so", "--summary", "--kernel", "scale"], cwd=self.folder,
                              stdout=subprocess.PIPE, check=True)
        if not OPTIONS.sanitized:
            self.assertLess(int(done.stdout), 64 << 10)


class KernelsTest(CommandTest):
    """nimble-analyze kernels: what the kernels of a trace touch."""

    def kernels(self, *arguments):
        return self.analyze("kernels", *arguments)

    def test_each_kernel_of_a_trace_is_accounted_for(self):
        done = self.kernels(GOLDEN, "--trust", "declared", "--json", "kernels.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads((self.folder / "kernels.json").read_text())
        self.assertEqual(report["nimble_kernels"], 1)
        launches = sum(each["launches"] for each in report["kernels"])
        self.assertGreater(launches, 0)
        self.assertEqual((report["launches"], sum(report["known"].values())), (launches, launches))
        self.assertIn(f"kernels         {len(report['kernels'])}, {launches} launches\n", done.stdout)
        for kernel in report["kernels"]:
            self.assertIn("\n" + kernel["readable"] + "\n", done.stdout)
            self.assertEqual(sum(kernel["known"].values()), kernel["launches"])
            self.assertTrue(all(word["reads"] or word["writes"] for word in kernel["words"]))
        self.assertIn("  parameter 0, bytes 0-7: ", done.stdout)

    def test_what_is_not_believed_is_not_known(self):
        trace = self.write(branches_one_by_one(2), "trace.json")
        done = self.kernels(trace)
        self.assertIn("known           assumed 100.0 % of the launches (--trust proven)\n", done.stdout)
        self.assertIn("  not known in 32 launches: ", done.stdout)
        self.assertIn("known           declared 100.0 %", self.kernels(trace, "--trust", "declared").stdout)
        self.assertNotIn("f(float*", self.kernels(trace, "--trust", "declared", "--unknown").stdout)
        self.assertIn("f(float*", self.kernels(trace, "--unknown").stdout)

    def test_kernels_are_chosen_and_files_are_not_overwritten(self):
        trace = self.write(branches_one_by_one(2), "trace.json")
        self.assertIn("\nf(float*, float const*)\n", self.kernels(trace, "--kernel", "_Z1f.*").stdout)
        self.assert_refused(self.kernels(trace, "--kernel", "g"), 2, "launches no kernel that --kernel asks for")
        self.assert_refused(self.kernels(trace, "--kernel", "("), 2, "--kernel: is not a regular expression")
        self.assert_refused(self.kernels("gone.json"), 2, "gone.json: cannot be opened")
        other = self.write("{}", "other.json")
        self.assert_refused(self.kernels(trace, "--json", other), 1, "was not written by Nimble")
        self.assertEqual(self.kernels(trace, "--json", other, "--force").returncode, 0)
        self.assertEqual(self.kernels(trace, "--json", other).returncode, 0)


class TimedTraceTest(CommandTest):
    def timed_trace(self, *options):
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "60", "--steps", "5", *options, "-o", "trace.json"],
                       cwd=self.folder, check=True)
        return "trace.json"


class WhySlowTest(TimedTraceTest):
    """nimble-analyze why-slow: for what the GPU is idle or narrow."""

    def test_causes_add_up_to_what_is_lost(self):
        trace = self.timed_trace("--device-times")
        done = self.analyze("why-slow", trace, "--trust", "declared", "--json", "ledger.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ledger = json.loads((self.folder / "ledger.json").read_text())
        self.assertEqual(ledger["nimble_ledger"], 1)
        lost = ledger["idle_us"] + ledger["narrow_us"]
        self.assertGreater(lost, 0)
        self.assertLessEqual(lost, ledger["step_us"] + 0.01)
        self.assertAlmostEqual(sum(ledger["causes"].values()), lost, delta=lost * 0.001)
        self.assertAlmostEqual(sum(each["idle_us"] + each["narrow_us"] for each in ledger["entries"]), lost,
                               delta=lost * 0.001)
        self.assertGreaterEqual(ledger["accounted_for_us"], 0.99 * lost)
        self.assertIn("accounted for   100 % of both\n", done.stdout)
        self.assertIn("\nWhat helps:\n", done.stdout)

    def test_what_is_believed_frees_what_evidence_holds(self):
        trace = self.timed_trace("--device-times")
        causes = {}
        for trust in ("proven", "declared"):
            self.analyze("why-slow", trace, "--trust", trust, "--json", "ledger.json")
            causes[trust] = json.loads((self.folder / "ledger.json").read_text())["causes"]
        self.assertGreater(causes["proven"]["evidence"], 0)
        self.assertEqual(causes["declared"]["evidence"], 0)
        self.assertGreater(causes["declared"]["program order"], 0)

    def test_what_cannot_be_said(self):
        self.assert_refused(self.analyze("why-slow", self.timed_trace()), 2, "no times of the GPU", "NIMBLE_TIMING")
        self.assert_refused(self.analyze("why-slow", "gone.json"), 2, "gone.json: cannot be opened")
        other = self.write("{}", "other.json")
        trace = self.timed_trace("--device-times")
        self.assert_refused(self.analyze("why-slow", trace, "--json", other), 1, "was not written by Nimble")
        self.assertEqual(self.analyze("why-slow", trace, "--json", other, "--force").returncode, 0)
        self.assertEqual(self.analyze("why-slow", trace, "--json", other).returncode, 0)


class DiffTest(TimedTraceTest):
    """nimble-analyze diff: what is different between two steps."""

    def test_figures_ops_and_order(self):
        self.timed_trace("--device-times")
        (self.folder / "trace.json").rename(self.folder / "one.json")
        self.timed_trace("--device-times", "--branches", "3")
        done = self.analyze("diff", "one.json", "trace.json", "--trust", "declared", "--json", "diff.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        diff = json.loads((self.folder / "diff.json").read_text())
        self.assertEqual((diff["nimble_diff"], diff["first"], diff["second"]), (1, "one.json", "trace.json"))
        steps = []
        for name in ("one.json", "trace.json"):
            self.analyze(name, "--trust", "declared", "--no-schedule", "--quiet", "--json", "report.json", "--force")
            steps.append(json.loads((self.folder / "report.json").read_text()))
        figures = {each["name"]: (each["first"], each["second"]) for each in diff["figures"]}
        self.assertEqual(figures["ops"], tuple(step["step"]["ops"] for step in steps))
        self.assertEqual(figures["memory plan"], tuple(step["objects"]["plan_bytes"] for step in steps))
        self.assertEqual(diff["same"] + diff["only_in_first"], steps[0]["step"]["ops"])
        self.assertEqual(diff["same"] + diff["only_in_second"], steps[1]["step"]["ops"])
        self.assertIn(f"\nOps: {diff['same']} in both", done.stdout)
        self.assertGreater(len(diff["ops"]), 0)

    def test_of_the_same_trace_there_is_none(self):
        self.timed_trace("--device-times")
        done = self.analyze("diff", "trace.json", "trace.json")
        self.assertIn("0 only in the first, 0 only in the second", done.stdout)
        self.assertNotIn("%", done.stdout)

    def test_what_it_cannot_read(self):
        self.assert_refused(self.analyze("diff", "trace.json"), 2, "second is required")
        self.assert_refused(self.analyze("diff", self.timed_trace(), "gone.json"), 2, "gone.json: cannot be opened")


class ProgressTest(TimedTraceTest):
    """What takes more than two seconds says how far it is, on a terminal alone."""

    def on_a_terminal(self, seconds, stderr_is_terminal=True):
        """What comes on standard error where the trace is a pipe that gets its second half after so long."""
        text = self.timed_trace("--device-times")
        text = (self.folder / text).read_bytes()
        fifo = self.folder / "slow.json"
        os.mkfifo(fifo)

        def write():
            with open(fifo, "wb") as out:
                out.write(text[:len(text) // 2])
                out.flush()
                time.sleep(seconds)
                out.write(text[len(text) // 2:])

        writer = threading.Thread(target=write)
        writer.start()
        ours, theirs = pty.openpty() if stderr_is_terminal else os.pipe()
        done = subprocess.run([ANALYZE, "slow.json", "--no-schedule", "--quiet"], cwd=self.folder, stderr=theirs,
                              stdout=subprocess.DEVNULL, timeout=60, check=False)
        writer.join()
        os.close(theirs)
        os.set_blocking(ours, False)
        said = b""
        with contextlib.suppress(OSError):
            while more := os.read(ours, 4096):
                said += more
        os.close(ours)
        fifo.unlink()
        self.assertEqual(done.returncode, 0, said)
        return said.decode()

    def test_after_two_seconds(self):
        said = self.on_a_terminal(3)
        self.assertIn("\rreading slow.json: 2 s", said)
        self.assertTrue(said.endswith("\r\x1b[K"), repr(said))

    def test_not_before_and_not_elsewhere(self):
        self.assertEqual(self.on_a_terminal(0.1), "")
        self.assertEqual(self.on_a_terminal(3, stderr_is_terminal=False), "")


class ReportTest(TimedTraceTest):
    """nimble-analyze report: the page. tests/page/ has what a browser makes of it."""

    def test_writes_a_page_and_replaces_its_own(self):
        trace = self.timed_trace("--device-times")
        done = self.analyze("report", trace)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "Written: report.html\n"))
        page = (self.folder / "report.html").read_text()
        self.assertTrue(page.startswith("<!doctype html>") and page.rstrip().endswith("</html>"))
        self.assertLess(len(page), 1 << 20)
        self.assertEqual(self.analyze("report", trace, "--quiet").stdout, "")
        other = self.write("<!doctype html><title>Mine</title>", "mine.html")
        self.assert_refused(self.analyze("report", trace, "-o", other), 1, "was not written by Nimble")
        self.assertEqual(self.analyze("report", trace, "-o", other, "--force").returncode, 0)

    def test_of_a_large_step_it_shows_a_part(self):
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "20000", "--steps", "3",
                        "--device-times", "-o", "trace.json"], cwd=self.folder, check=True)
        done = self.analyze("report", "trace.json")
        self.assertIn("It shows 12000 ops of 20000: --from N shows those from op N on.", done.stdout)
        self.assertLess((self.folder / "report.html").stat().st_size, 5e6)
        self.assertEqual(self.analyze("report", "trace.json", "--from", "19000").stdout, "Written: report.html\n")
        self.assert_refused(self.analyze("report", "trace.json", "--from", "20000"), 2, "--from: the step has ops 0 to 19999")

    def test_what_it_cannot_read(self):
        self.assert_refused(self.analyze("report", "gone.json"), 2, "gone.json: cannot be opened")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("analyze", help="the nimble-analyze to test")
    parser.add_argument("--sanitized", action="store_true", help="it was built with a sanitizer: do not measure its speed")
    OPTIONS, rest = parser.parse_known_args()
    ANALYZE = str(pathlib.Path(OPTIONS.analyze).resolve())
    unittest.main(argv=[sys.argv[0], *rest])
