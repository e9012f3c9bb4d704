"""What is watched beside the recorder: coverage and device times, from CUPTI or from events."""

import json

import harness
from harness import ProgramTest


class Profile(ProgramTest):
    def record(self, *program, **settings):
        """Records a program; its trace's events. The output must be what it is without the shim."""
        plain = self.run_program(program)
        recorded = self.run_program(program, mode="record", NIMBLE_TRACE=self.path("trace.json"),
                                    **{"NIMBLE_LOG": "info", **settings})
        timeless = [[line for line in run.stdout.splitlines() if " us on the host" not in line] for run in (plain, recorded)]
        self.assertEqual(*timeless)
        self.said = recorded.stderr
        with open(self.path("trace.json"), encoding="utf-8") as file:
            return json.load(file)

    def coverage(self, events):
        found = [e["args"] for e in events if e["name"] == "nimble.coverage"]
        self.assertEqual(len(found), 1)
        self.assertEqual(events[-1]["name"], "nimble.end")
        return found[0]

    def device_bars(self, events):
        return {e["args"]["seq"]: e for e in events if e["ph"] == "X" and e["pid"] == 2 and e["args"].get("device")}

    def work(self, events):
        return {e["args"]["seq"]: e for e in events if e["ph"] == "X" and e["pid"] == 1
                and e["cat"] in ("launch", "copy", "set") and "result" not in e["args"]}

    def test_every_op_is_covered_and_timed(self):
        events = self.record("chaos", 30, 0)
        coverage = self.coverage(events)
        self.assertEqual(coverage["source"], "cupti")
        self.assertEqual(coverage["missed"], [])
        self.assertEqual(coverage["seen"], coverage["recorded"])
        self.assertGreaterEqual(coverage["seen"], len(self.work(events)))
        self.assertIn(f"coverage: {coverage['seen']} of {coverage['seen']} ", self.said)
        self.assertEqual(self.work(events).keys(), self.device_bars(events).keys() & self.work(events).keys())

    def test_what_went_past_the_shim_is_named_and_makes_no_schedule(self):
        events = self.record("bypass", 20, 5)
        coverage = self.coverage(events)
        self.assertEqual(coverage["missed"], [["cuLaunchKernel", 5]])
        self.assertEqual(coverage["seen"] - coverage["recorded"], 5)
        self.assertIn("missed: cuLaunchKernel 5 times", self.said)
        schedule = ["-o", self.path("schedule.json"), "--quiet"]
        refused = self.analyze(self.path("trace.json"), *schedule, expect=4)
        self.assertIn("--accept-partial", refused.stderr)
        self.analyze(self.path("trace.json"), *schedule, "--accept-partial")

    def test_with_nothing_missed_a_schedule_is_made(self):
        self.assertEqual(self.coverage(self.record("bypass", 20, 0))["missed"], [])
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet")

    def test_another_profiler_keeps_what_it_has(self):
        coverage = self.coverage(self.record("ways_in", "linked", SIMCUPTI_BUSY=1))
        self.assertEqual((coverage["source"], coverage["why"]), ("none", "another profiler uses CUPTI in this process"))
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet")

    def test_a_profiler_that_comes_later_gets_what_it_asks_for(self):
        for way in ("linked", "lookup"):
            with self.subTest(way):
                events = self.record("profiled", way)  # prints what CUPTI lets it see: the same as without Nimble
                self.assertIn("another profiler", self.coverage(events)["why"])
                self.assertEqual(self.timing(events)["source"], "cupti, then events")
                self.assertIn("has taken CUPTI over", self.said)

    def test_neither_is_measured_where_neither_is_wanted(self):
        events = self.record("ways_in", "linked", NIMBLE_TIMING="none", NIMBLE_COVERAGE="off")
        self.assertEqual(self.coverage(events)["why"], "NIMBLE_COVERAGE=off")
        self.assertEqual(self.device_bars(events), {})

    def test_times_without_coverage(self):
        events = self.record("ways_in", "linked", NIMBLE_COVERAGE="off")
        self.assertEqual(self.coverage(events)["why"], "NIMBLE_COVERAGE=off")
        self.assertEqual(self.device_bars(events).keys(), self.work(events).keys())

    def test_events_time_what_cupti_would(self):
        for program in (("chaos", 30, 1), ("chaos", 30, 2), ("ways_in", "proc_address_v2")):
            events = self.record(*program, NIMBLE_TIMING="events")
            timed, work = self.device_bars(events), self.work(events)
            # The last few may still have been on their way when the program ended.
            self.assertGreaterEqual(len(timed.keys() & work.keys()), 0.9 * len(work))
            for bar in timed.values():
                self.assertGreaterEqual(bar["dur"], 0)

    def timing(self, events):
        (found,) = [e["args"] for e in events if e["name"] == "nimble.timing"]
        return found

    def test_no_graph_runs_while_cupti_collects(self):
        # The simulated CUPTI has graphs fault, as the real one does.
        for program in (("captures", 12, 3), ("bundled", 12, "graph")):
            with self.subTest(program):
                events = self.record(*program)
                self.assertEqual(self.timing(events)["source"], "cupti, then events")
                self.assertIn("CUDA graphs", self.timing(events)["why"])
                self.assertIn("times are taken by events", self.said)
                launches = {e["args"]["seq"] for e in events if e["ph"] == "X" and e["pid"] == 1 and e["cat"] == "graph_launch"}
                self.assertTrue(launches)
                self.assertGreaterEqual(len(launches & self.device_bars(events).keys()), 0.5 * len(launches))

    def test_without_graphs_cupti_tells_all_times(self):
        self.assertEqual(self.timing(self.record("chaos", 12, 0)), {"source": "cupti", "why": ""})

    def test_an_unknown_word_is_named_and_the_default_stands(self):
        events = self.record("ways_in", "linked", NIMBLE_TIMING="sundial")
        self.assertIn("NIMBLE_TIMING=sundial is not one of cupti, events, none: using cupti", self.said)
        self.assertEqual(self.device_bars(events).keys(), self.work(events).keys())

    def test_ops_of_one_stream_do_not_overlap_on_the_device(self):
        events = self.record("digits", "train", "--epochs", 1, "--seed", 1)
        ends = {}
        for bar in sorted(self.device_bars(events).values(), key=lambda e: e["args"]["seq"]):
            self.assertGreaterEqual(bar["ts"] + 0.01, ends.get(bar["tid"], 0))
            ends[bar["tid"]] = bar["ts"] + bar["dur"]
        self.assertEqual(len(self.device_bars(events)), len(self.work(events)))


if __name__ == "__main__":
    harness.main()
