"""The benchmarks' programs do what their figures say: replay replays, graphs by hand compute what the program does, and what
replay allocates is counted. Nothing here is timed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import ProgramTest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "host"))

import digits_bench  # noqa: E402
import replay_bench  # noqa: E402
from processes import Failure  # noqa: E402

SHAPES = ("line", "branches")


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

    def test_nor_does_it_where_ways_were_tried_first(self):
        case = self.case("unchanged")
        case.program.environment["NIMBLE_TUNE"] = "start"
        output, counters = case.program.replay(200, 1, 200)
        self.assertEqual((counters["tuned"], json.loads(output)["allocations"]), ("schedule", 0))

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

    def test_digits_in_all_its_ways(self):
        found = digits_bench.measure(self.build, self.work, 1)  # Failure where it was not replayed
        self.assertEqual([row["way"] for row in found["ways"]], list(digits_bench.WAYS))
        self.assertEqual(found["ops"], 392)


class GraphsByHand(ProgramTest):
    """On the simulated driver, in many of the orders that it may run a graph in."""

    def train(self, *program, mode=None, **settings):
        self.run_program([*program, "train", "--epochs", 2, "--steps", 50, "--quiet", "--save", self.path("weights"), "--stats",
                          self.path("stats.json")], mode=mode, **settings)
        with open(self.path("weights"), "rb") as file:
            return file.read(), self.read_json("stats.json")

    def test_digits_has_the_same_weights(self):
        weights, stats = self.train("digits")
        for shape in SHAPES:
            for seed in harness.BUILD.seeds(10 if shape == "branches" else 2):
                found, by_hand = self.train("digits_graph", shape, SIMCUDA_SEED=seed)
                self.assertEqual(found, weights, f"{shape}, seed {seed}")
                for name in ("steps", "loss", "accuracy", "weights_xxh3"):
                    self.assertEqual(by_hand[name], stats[name])
                # The second epoch's learning rate differs, so the graphs were made again, and used in both.
                self.assertEqual(by_hand["ops_per_step"], 1)

    def test_digits_as_a_region_has_the_same_weights(self):
        weights, stats = self.train("digits")
        for seed in harness.BUILD.seeds(4):
            found, by_region = self.train("digits_region", mode="regions", SIMCUDA_SEED=seed)
            self.assertEqual(found, weights, f"seed {seed}")
            self.assertEqual(by_region["loss"], stats["loss"])
        self.train("digits_region", mode="regions", SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
        report = self.read_json("report.json")
        self.assertEqual(report["races"], [])
        self.assertGreater(report["graph_launches"], stats["steps"] / 2)

    def test_digits_submits_a_step_at_once(self):
        for program in (["digits"], *(["digits_graph", shape] for shape in SHAPES)):
            _, stats = self.train(*program, SIMCUDA_REPORT=self.path("report.json"))
            launches = self.read_json("report.json")["graph_launches"]
            self.assertEqual(launches, 0 if program == ["digits"] else stats["steps"])

    def test_nothing_that_conflicts_is_unordered(self):
        self.run_program(["digits_graph", "branches", "train", "--epochs", 1, "--steps", 6, "--quiet"], SIMCUDA_RACES=1,
                         SIMCUDA_REPORT=self.path("report.json"))
        self.assertEqual(self.read_json("report.json")["races"], [])
        self.infer("branches", SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
        self.assertEqual(self.read_json("report.json")["races"], [])

    def infer(self, variant, mode=None, **settings):
        """The digests of two blocks of steps."""
        done = subprocess.run([harness.BUILD.program("inception"), variant], input="run 10\nrun 10\nend\n", text=True,
                              capture_output=True, env=harness.BUILD.environment(mode, **settings), timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        digests = [json.loads(line)["digest"] for line in done.stdout.splitlines()[1:]]
        self.assertEqual(len(set(digests)), 2, "each step's image is another")
        return digests

    def test_inception_computes_the_same_in_all_variants(self):
        expected = self.infer("eager")
        for shape in SHAPES:
            for seed in harness.BUILD.seeds(10):
                self.assertEqual(self.infer(shape, SIMCUDA_SEED=seed), expected, f"{shape}, seed {seed}")

    def test_inception_is_replayed(self):
        expected = self.infer("eager")
        self.assertEqual(self.infer("eager", "record", NIMBLE_TRACE=self.path("trace.json")), expected)
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments")
        self.assertGreaterEqual(max(segment["lanes"] for segment in self.read_json("schedule.json")["segments"]), 4)
        for seed in harness.BUILD.seeds(10):
            self.assertEqual(self.infer("eager", "replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                        NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed), expected, f"seed {seed}")
            self.assertEqual(self.read_json("stats.json")["steps_replayed"], 19)

    def test_a_wrong_command_line(self):
        for program in ("inception", "digits_graph"):
            done = self.run_program([program, "sideways"], expect=2)
            self.assertIn(f"usage: {program}", done.stderr)


if __name__ == "__main__":
    harness.main()
