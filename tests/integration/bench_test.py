"""The benchmarks' programs do what their figures say: replay replays, and what it allocates is counted. Nothing here is timed."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import harness

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))

import replay_bench  # noqa: E402
from processes import Failure  # noqa: E402


class OnNullDriver(unittest.TestCase):
    """On the driver that does nothing, through what scripts/bench runs the programs with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.build = pathlib.Path(harness.BUILD.bin).parent

    def case(self, name):
        case = replay_bench.Case(self.build, self.work, name)
        case.make_schedule()
        return case

    def test_each_case_is_replayed_and_allocates_nothing(self):
        for name in replay_bench.CASES:
            with self.subTest(name):
                found = self.case(name).replayed()
                self.assertEqual(found["allocations"], 0)
                self.assertEqual(len(found["cpu_ns"]), replay_bench.SAMPLES)

    def test_cases_differ_in_what_they_are_named_after(self):
        steps, warm_up = 8, replay_bench.WARM_UP_STEPS
        for name, segments, updates, served in (("unchanged", 1, 0, 0), ("changed", 1, 64, 0), ("allocated", 1, 0, 64),
                                                ("one_segment", 1, 0, 0), ("segments", replay_bench.SEGMENTS, 0, 0)):
            with self.subTest(name):
                _, counters = self.case(name).program.replay(steps, 1, steps)
                replayed = counters["steps_replayed"]
                self.assertEqual(replayed, warm_up + steps - 1)
                self.assertEqual(counters["graph_launches"], segments * replayed)
                self.assertEqual(counters["node_updates"], updates * replayed)
                self.assertEqual(counters["allocations_served"], served * replayed)

    def test_what_is_allocated_is_counted(self):
        """The count above could be other than 0: binding allocates, and is counted, in libnimble.so as well."""
        case = self.case("unchanged")
        bare = json.loads(case.program.run("bare", 1, 1))
        replayed = json.loads(case.program.replay(1, 1, 1)[0])
        self.assertGreater(replayed["warm_up_allocations"], bare["warm_up_allocations"] + 100)

    def test_allocations_end_the_benchmark(self):
        case = self.case("unchanged")
        output = json.loads(case.program.replay(1, 1, 1)[0]) | {"allocations": 3}
        case.program.replay = lambda *_: (json.dumps(output), {})
        with self.assertRaisesRegex(Failure, "replay allocates: 3 times"):
            case.replayed()

    def test_what_is_not_replayed_has_no_figure(self):
        case = self.case("unchanged")
        with self.assertRaisesRegex(Failure, "not replayed as it should"):
            case.program.replay(1000, 1, 1)
        case.program.schedule.write_text("{}")
        with self.assertRaisesRegex(Failure, "nothing was replayed"):
            case.program.replay(1, 1, 1)

    def test_what_follows_from_the_samples(self):
        samples = {name: {"launches": 64, "calls": 64, "bare": [64, 128, 192], "replay": [6400, 6528, 9999]}
                   for name in replay_bench.CASES}
        samples["segments"]["replay"] = [6528 + 15 * 1000] * 3
        samples[replay_bench.GRAPH_LAUNCHES] = {"launches": 16, "calls": 16, "bare": [320, 320, 320]}
        found = replay_bench.figures(samples)
        self.assertEqual(found["cases"][0]["added_ns_per_call"], 100)
        self.assertEqual(found["driver_ns_per_graph_launch"], 20)
        self.assertEqual(found["added_ns_per_segment"], 980)
        self.assertEqual(replay_bench.bounds(found)[-1], ("replay, added per segment", 980, 2000, "ns"))

    def test_threads_are_measured_beside_a_step_that_is_replayed(self):
        threads = replay_bench.Replayed(self.build, self.work, "threads", ["thread_overhead"])
        threads.make_schedule(1, 1, 1)
        output, _ = threads.replay(2 * 20, 2, 2, 20)
        self.assertEqual([len(samples) for samples in json.loads(output)["cpu_ns"]], [2, 2])


if __name__ == "__main__":
    harness.main()
