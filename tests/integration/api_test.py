"""The C API, from a program in plain C: with libnimble.so in each of its modes, and without."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

import harness
from harness import ProgramTest

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include" / "nimble" / "nimble.h"
VERSION = re.search(r"^#define NIMBLE_API_VERSION (\d+)$", HEADER.read_text(encoding="utf-8"), re.MULTILINE)[1]


class Api(ProgramTest):
    def run_api(self, mode=None, steps=6, **settings):
        image = harness.BUILD.program("programs.simcuda")
        lines = self.run_program(["api", steps, image], mode=mode, **settings).stdout.splitlines()
        said = {}
        for line in lines:
            if match := re.match(r'(before|after): status (\d+) mode (\d+) phase (\d+) reason "(.*)" counters (\d+) '
                                 r"marked (\d+) matched (\d+) launches (\d+)$", line):
                keys = ("status", "mode", "phase", "reason", "counters", "marked", "matched", "launches")
                said[match[1]] = dict(zip(keys, (v if k == "reason" else int(v)
                                                 for k, v in zip(keys, match.groups()[1:]))))
        return lines, said

    def sum_of(self, lines):
        return next(line for line in lines if line.startswith("sum "))

    def test_without_the_library_nothing_happens(self):
        lines, said = self.run_api()
        self.assertEqual(lines[0], "version 1 api 0 text ")
        for when in ("before", "after"):
            self.assertEqual(said[when], {"status": 1, "mode": 0, "phase": 0, "reason": "", "counters": 1, "marked": 0,
                                          "matched": 0, "launches": 0})
        self.assertEqual(lines[-1], "bad arguments: 1 1 1")

    def test_off(self):
        plain, _ = self.run_api()
        lines, said = self.run_api("off")
        self.assertRegex(lines[0], rf"^version 0 api {VERSION} text \d+\.\d+\.\d+$")
        self.assertEqual((said["after"]["status"], said["after"]["mode"], said["after"]["phase"]), (0, 0, 0))
        self.assertEqual(self.sum_of(plain), self.sum_of(lines))
        self.assertEqual(lines[-1], "bad arguments: 2 2 2")

    def test_marks_make_the_step_and_replay_counts_it(self):
        plain, _ = self.run_api()
        trace, schedule, report = self.path("trace.json"), self.path("schedule.json"), self.path("report.json")
        lines, said = self.run_api("record", NIMBLE_TRACE=trace)
        self.assertEqual(self.sum_of(plain), self.sum_of(lines))
        self.assertEqual((said["before"]["phase"], said["after"]["phase"]), (0, 1))
        self.assertEqual(said["after"]["marked"], 7)
        with open(trace, encoding="utf-8") as file:
            marks = [(e["cat"], e["args"].get("note")) for e in json.load(file) if e.get("cat", "").startswith("step_")]
        train, evaluate, end = ("step_begin", "train"), ("step_begin", "evaluate"), ("step_end", None)
        self.assertEqual(marks, [train, end] * 4 + [evaluate, end] + [train, end] * 2)
        text = self.analyze(trace, "-o", schedule, "--json", report, "--whole-segments").stdout
        self.assertIn("marked by the program as train; 6 of the 7 that it marked are like this one", text)
        step = self.read_json("report.json")["step"]
        self.assertEqual((step["ops"], step["repeats"], step["marked"], step["name"]), (3, 6, 7, "train"))

        lines, said = self.run_api("replay", NIMBLE_SCHEDULE=schedule)
        self.assertEqual(self.sum_of(plain), self.sum_of(lines))
        self.assertEqual((said["after"]["mode"], said["after"]["phase"], said["after"]["reason"]), (2, 5, ""))
        self.assertEqual((said["after"]["marked"], said["after"]["matched"]), (7, 6))
        self.assertGreater(said["after"]["launches"], 0)

    def test_two_marked_steps_are_enough(self):
        trace, report = self.path("trace.json"), self.path("report.json")
        self.run_api("record", steps=2, NIMBLE_TRACE=trace)
        self.analyze(trace, "-o", self.path("s.json"), "--json", report, "--quiet")
        self.assertEqual(self.read_json("report.json")["step"]["repeats"], 2)

    def test_replay_without_a_schedule_says_why_it_does_nothing(self):
        _, said = self.run_api("replay", NIMBLE_SCHEDULE="/nowhere/schedule.json")
        self.assertEqual(said["after"]["phase"], 6)
        self.assertIn("/nowhere/schedule.json", said["after"]["reason"])

    def test_functions_are_found_by_name(self):
        script = ("import ctypes; api = ctypes.c_int(); program = ctypes.CDLL(None); "
                  "print(program.nimble_version(ctypes.byref(api), None), api.value, program.nimble_step_begin(None))")
        env = harness.BUILD.environment("off")
        if harness.BUILD.preload_first:
            self.skipTest("the interpreter is built without sanitizers")
        done = subprocess.run([sys.executable, "-c", script], env=env, text=True, capture_output=True, check=True)
        self.assertEqual(done.stdout.split(), ["0", VERSION, "0"])


if __name__ == "__main__":
    harness.main()
