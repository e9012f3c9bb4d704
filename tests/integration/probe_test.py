"""NIMBLE_PROBE=writes, in real processes: what kernels were seen to write makes schedules, and changes no program."""

import json
import re

import harness
from harness import ProgramTest


class Probe(ProgramTest):
    trust = "observed"

    def record(self, args, expect=0, **settings):
        settings.setdefault("NIMBLE_TRACE", self.path("trace.json"))
        return self.run_program(args, mode="record", expect=expect, NIMBLE_PROBE="writes", **settings)

    def events(self, name="trace.json"):
        return self.read_json(name)

    def launches(self):
        return [event["args"] for event in self.events() if event["ph"] == "X" and event["pid"] == 1 and event["cat"] == "launch"]

    def probing(self):
        (found,) = [event["args"] for event in self.events() if event["name"] == "nimble.probe"]
        return found

    def schedule(self, *options, expect=0):
        done = self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--json", self.path("report.json"),
                            *options, expect=expect)
        return done, self.read_json("schedule.json"), self.read_json("report.json")

    def replay(self, args, **settings):
        done = self.run_program(args, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                NIMBLE_STATS=self.path("stats.json"), **settings)
        return done, self.read_json("stats.json")


class Observed(Probe):
    def test_what_was_seen_makes_a_schedule_with_branches(self):
        plain = self.run_program(["opaque", 40, "regular"])
        recorded = self.record(["opaque", 12, "regular"])
        self.assertEqual(recorded.stdout, self.run_program(["opaque", 12, "regular"]).stdout)
        _, schedule, report = self.schedule()
        self.assertEqual(report["ops_by_evidence"]["observed"], 11, report)
        self.assertEqual(report["ops_by_evidence"]["assumed"], 0)
        self.assertEqual(report["conflicts"], [])
        self.assertGreater(schedule["segments"][0]["lanes"], 1)
        self.assertEqual(schedule["trust"], "observed")
        self.assertGreater(schedule["unordered_pairs"]["observed"], 0)
        for seed in harness.BUILD.seeds(40):
            done, stats = self.replay(["opaque", 40, "regular"], SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertEqual(stats["steps_replayed"], 39, stats)
        self.run_program(["nimble-analyze", "check", self.path("trace.json"), self.path("schedule.json")])

    def test_a_schedule_that_lacks_what_was_seen_is_seen_to_be_wrong(self):
        """The test above can fail: with one edge less, some order gives another result."""
        plain = self.run_program(["opaque", 20, "regular"])
        self.record(["opaque", 12, "regular"])
        _, schedule, _ = self.schedule()
        edges = schedule["segments"][0]["edges"]
        wrong = 0
        for removed in range(len(edges)):
            broken = json.loads(json.dumps(schedule))
            del broken["segments"][0]["edges"][removed]
            with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
                json.dump(broken, file)
            for seed in range(1, 21):
                if self.replay(["opaque", 20, "regular"], SIMCUDA_SEED=seed)[0].stdout != plain.stdout:
                    wrong += 1
                    break
        self.assertEqual(wrong, len(edges))

    def test_without_a_probe_or_without_trust_nothing_is_known(self):
        self.run_program(["opaque", 12, "regular"], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.assertFalse([event for event in self.events() if event["name"] == "nimble.probe"])
        _, schedule, report = self.schedule()
        self.assertEqual(report["ops_by_evidence"]["assumed"], 11)
        self.record(["opaque", 12, "regular"])
        for trust in ("exact", "proven", "declared"):
            done, schedule, report = self.schedule("--trust", trust)
            self.assertEqual(report["ops_by_evidence"]["assumed"], 11)
            self.assertEqual((schedule["trust"], report["trust"]), (trust, trust))
            self.assertIn("seen to write (observed); --trust " + trust + " excludes it", done.stdout)
            self.assertEqual(sum(schedule["unordered_pairs"][kind] for kind in ("exact", "proven", "declared", "observed")), 0)
            # The check derives what the schedule was made with.
            self.run_program(["nimble-analyze", "check", self.path("trace.json"), self.path("schedule.json")])
        self.schedule()
        self.run_program(["nimble-analyze", "check", "--trust", "declared", self.path("trace.json"), self.path("schedule.json")],
                         expect=1)

    def test_one_step_is_not_enough(self):
        self.record(["opaque", 12, "regular"])
        with open(self.path("trace.json"), encoding="utf-8") as file:
            lines = file.readlines()
        seen = 0
        for i, line in enumerate(lines):
            if '"compared":[[' not in line:
                continue
            seen += 1
            if seen > 11:
                lines[i] = re.sub(r',"compared":.*"written":\[(\[\d+,\d+\],?)*\]', "", line)
        with open(self.path("trace.json"), "w", encoding="utf-8") as file:
            file.writelines(lines)
        done, _, report = self.schedule()
        # Four of the eleven launches have a counterpart in the step that differs only in its pointers: what these touch
        # by their parameters was seen often enough, but not what the other seven may have stored for them to follow.
        self.assertEqual(report["ops_by_evidence"]["assumed"], 11)
        self.assertIn("it may follow pointers in memory, and it is not known what is there", done.stdout)
        self.assertIn("what it writes was seen in 1 launch like it (the step came 12 times)", done.stdout)

    def test_other_code_is_not_believed_to_do_the_same(self):
        plain = self.run_program(["opaque", 20, "regular"])
        self.record(["opaque", 12, "regular"])
        _, schedule, _ = self.schedule()
        for function in schedule["functions"]:
            self.assertRegex(function["code"], "^[0-9a-f]{16}$")
            function["code"] = "0123456789abcdef"
        with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        done, stats = self.replay(["opaque", 20, "regular"])
        self.assertEqual(plain.stdout, done.stdout)
        self.assertEqual(stats["steps_replayed"], 0, stats)

    def test_what_is_larger_than_the_limit_is_left_out(self):
        self.record(["opaque", 12, "large"], NIMBLE_PROBE_LIMIT="1")
        self.assertEqual((self.probing()["too_large"], self.probing()["limit"]), (1, 1 << 20))
        little = self.probing()["bytes"]
        done, _, report = self.schedule()
        # Of the eleven launches, those that name the large object are not known; they are compared in part. They may have
        # left pointers in the memory of the other four, which these may follow.
        self.assertEqual((report["ops_by_evidence"]["assumed"], report["ops_by_evidence"]["observed"]), (11, 0))
        self.assertEqual(self.probing()["compared"], len(self.launches()))
        self.assertIn("1 object above 1.0 MiB left out", done.stdout)
        self.assertIn("what it writes was seen in 0 launches like it (the step came 12 times)", done.stdout)
        self.record(["opaque", 12, "large"], NIMBLE_PROBE_LIMIT="0")
        self.assertEqual(self.probing()["too_large"], 0)
        self.assertGreater(self.probing()["bytes"], little + 12 * 7 * 2 * 2**20)
        _, _, report = self.schedule()
        self.assertEqual(report["ops_by_evidence"]["observed"], 11)

    def test_it_ends_after_so_many_launches(self):
        plain = self.run_program(["opaque", 20, "regular"])
        self.record(["opaque", 12, "regular"], NIMBLE_PROBE_FIRST="40")
        self.assertEqual(self.probing()["launches"], 40)
        _, schedule, report = self.schedule()
        self.assertEqual(report["ops_by_evidence"]["observed"], 11, "in the first steps")
        # Steps that were not probed show the program's own time.
        self.assertEqual(report["host"]["repeats"], 8)
        done, stats = self.replay(["opaque", 20, "regular"])
        self.assertEqual(plain.stdout, done.stdout)
        self.assertGreater(stats["steps_replayed"], 0, stats)


class Conflicts(Probe):
    def test_a_signature_that_lies_is_an_error_and_replay_stays_right(self):
        plain = self.run_program(["opaque", 40, "lying"])
        self.record(["opaque", 12, "lying"])
        done, schedule, report = self.schedule(expect=5)
        (line,) = done.stderr.splitlines()
        self.assertIn("kernel sly<5>, parameter 0: its signature (declared) says that it is only read, but it was seen to be written",
                      line)
        self.assertIn("Conflicts of evidence", done.stdout)
        (conflict,) = report["conflicts"]
        self.assertEqual((conflict["kernel"], conflict["parameter"], conflict["said_by"], conflict["seen_written"]),
                         ("_Z3slyILi5EEvPKjPji", 0, "its signature", 24))
        self.assertGreater(schedule["segments"][0]["lanes"], 1)
        for seed in harness.BUILD.seeds(40):
            done, stats = self.replay(["opaque", 40, "lying"], SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertEqual(stats["steps_replayed"], 39, stats)

    def test_believed_it_is_wrong(self):
        """What the conflict is there for: without a probe the lie is believed, and some order gives another result."""
        plain = self.run_program(["opaque", 40, "lying"])
        self.run_program(["opaque", 12, "lying"], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.schedule()
        results = {self.replay(["opaque", 40, "lying"], SIMCUDA_SEED=seed)[0].stdout for seed in range(1, 21)}
        self.assertNotEqual(results, {plain.stdout})

    def test_a_rule_that_lies_is_named(self):
        self.record(["opaque", 12, "lying"])
        with open(self.path("rules.json"), "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 1, "rules": [{"kernel": ".*sly.*", "params": ["value", "out", "value"]}]}, file)
        done, _, report = self.schedule("--rules", self.path("rules.json"), expect=5)
        self.assertIn('the rule ".*sly.*" (declared) does not say that it is touched', done.stderr)
        self.assertEqual(report["conflicts"][0]["said_read"], False)
        plain = self.run_program(["opaque", 20, "lying"])
        for seed in range(1, 11):
            self.assertEqual(self.replay(["opaque", 20, "lying"], SIMCUDA_SEED=seed)[0].stdout, plain.stdout)


class Harmless(Probe):
    def test_programs_in_disorder_compute_the_same(self):
        for program in ("chaos", "captures"):
            for seed in harness.BUILD.seeds(12):
                plain = self.run_program([program, 40, seed])
                recorded = self.record([program, 40, seed], SIMCUDA_SEED=seed)
                self.assertEqual(plain.stdout, recorded.stdout, f"{program} {seed}")
                self.assertEqual(recorded.stderr, "")
                if program == "captures":
                    # Work of streams that capture is never waited for; the rest is compared.
                    self.assertEqual(self.probing()["why_ended"], "")
        self.assertGreater(self.probing()["compared"], 0)

    def test_other_threads_go_on(self):
        # Of a few steps none may be compared on a busy machine, where another thread is always at it.
        plain = self.run_program(["opaque", 1500, "threads"])
        recorded = self.record(["opaque", 1500, "threads"])
        self.assertEqual(plain.stdout, recorded.stdout)
        self.assertEqual(recorded.stderr, "")
        self.assertGreater(self.probing()["compared"], 0)

    def test_a_stream_that_waits_for_a_later_call_is_not_waited_for(self):
        plain = self.run_program(["opaque", 20, "waiting"])
        recorded = self.record(["opaque", 20, "waiting"])
        self.assertEqual(plain.stdout, recorded.stdout)
        self.assertIn("comparing no further launches", recorded.stderr)
        probing = self.probing()
        self.assertIn("a wait timed out", probing["why_ended"])
        self.assertGreater(probing["compared"], 50)
        self.assertLess(probing["compared"], len(self.launches()))

    def test_the_programs_own_errors_reach_it(self):
        plain = self.run_program(["opaque", 8, "faulting"])
        self.assertEqual(plain.stdout, "700 700 700 700\n")
        recorded = self.record(["opaque", 8, "faulting"])
        self.assertEqual(plain.stdout, recorded.stdout)

    def test_errors_of_the_probe_do_not(self):
        plain = self.run_program(["opaque", 12, "regular"])
        for call, error in (("cuMemcpyDtoHAsync_v2:5", 1), ("cuEventQuery:4", 400), ("cuEventCreate:7", 2), ("cuEventRecord:3", 999)):
            with self.subTest(call):
                recorded = self.record(["opaque", 12, "regular"], SIMCUDA_INJECT=f"{call}:{error}")
                self.assertEqual((plain.stdout, ""), (recorded.stdout, recorded.stderr))
                left = [launch for launch in self.launches() if "compared" not in launch]
                self.assertEqual(len(left), 1)


if __name__ == "__main__":
    harness.main()
