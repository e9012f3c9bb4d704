"""nimble-analyze trace.json, as a user meets it: options, exit statuses, messages, files."""

import json
import re
import resource
import subprocess
import sys

import analyze_command
from analyze_command import GOLDEN, CommandTest, branches_one_by_one


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
                        done = subprocess.run([analyze_command.ANALYZE, GOLDEN, "--quiet", option, "/dev/stdout", *more], cwd=self.folder,
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
        if not analyze_command.IS_SANITIZED:
            self.assertLess(seconds, 5)


if __name__ == "__main__":
    analyze_command.main()
