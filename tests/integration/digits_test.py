"""The example program under record and replay: its weights are the same, byte for byte, in any legal order."""

import json
import os
import re

import harness
from harness import ProgramTest

RULES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "digits", "digits.rules.json")
# The number of adversarial orders.
SEEDS = 200
STEPS = 8


class Digits(ProgramTest):
    def train(self, mode=None, steps=STEPS, **settings):
        """Trains a little; the weights' bytes."""
        self.run_program(["digits", "train", "--epochs", 1, "--steps", steps, "--quiet", "--save", self.path("weights.bin")],
                         mode=mode, **settings)
        with open(self.path("weights.bin"), "rb") as file:
            return file.read()

    def make_digits_schedule(self):
        self.train(mode="record", steps=14, NIMBLE_TRACE=self.path("trace.json"))
        done = self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--rules", RULES,
                            "--trust", "declared", "--whole-segments")
        return done.stdout

    def test_weights_are_identical_under_every_mode_and_order(self):
        expected = self.train()
        self.assertEqual(self.train(mode="off"), expected)
        self.assertEqual(self.train(mode="record", NIMBLE_TRACE=self.path("trace.json")), expected)
        report = self.make_digits_schedule()
        schedule = self.read_json("schedule.json")
        self.assertGreaterEqual(len(schedule["ops"]), 200)
        self.assertGreaterEqual(max(segment["lanes"] for segment in schedule["segments"]), 4, report)
        for seed in harness.BUILD.seeds(SEEDS):
            weights = self.train(mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"), SIMCUDA_SEED=seed,
                                 NIMBLE_STATS=self.path("stats.json"))
            self.assertEqual(weights, expected, f"seed {seed}")
            stats = self.read_json("stats.json")
            self.assertEqual(stats["steps_replayed"], STEPS - 1, f"seed {seed}: {stats}")

    def test_the_fastest_way_of_submitting_is_found_and_kept(self):
        expected = self.train(steps=44)
        self.make_digits_schedule()
        for when in ("start", "always"):
            weights = self.train(mode="replay", steps=44, NIMBLE_SCHEDULE=self.path("schedule.json"), NIMBLE_TUNE=when,
                                 NIMBLE_STATS=self.path("stats.json"))
            self.assertEqual(weights, expected)
            stats = self.read_json("stats.json")
            # On the simulated device, where the program's own order takes more than four times as long.
            self.assertEqual(stats["tuned"], "schedule", stats)
            times = stats["tuned_us"]
            self.assertLess(times["schedule"], times["one_stream"])
            self.assertLess(times["one_stream"], times["own"])
            self.assertEqual(stats["steps_passed_through"], 1 + 12, stats)
            self.assertEqual(stats["stood_aside"], "")

    def test_without_one_dependency_the_check_above_fails(self):
        expected = self.train()
        self.make_digits_schedule()
        schedule = self.read_json("schedule.json")
        largest = max(schedule["segments"], key=lambda segment: len(segment["edges"]))
        launches = {i for i, op in enumerate(schedule["ops"]) if op["kind"] == "launch"}
        # A dependency between two kernels in the middle of the step.
        edges = [i for i, (a, b) in enumerate(largest["edges"]) if a in launches and b in launches]
        largest["edges"].pop(edges[len(edges) // 2])
        with open(self.path("broken.json"), "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        differ = 0
        for seed in harness.BUILD.seeds(30):
            weights = self.train(mode="replay", NIMBLE_SCHEDULE=self.path("broken.json"), SIMCUDA_SEED=seed)
            differ += weights != expected
        self.assertGreater(differ, 0)

    def test_the_step_is_found_with_its_prologue_and_extras(self):
        report = self.make_digits_schedule()
        self.assertRegex(report, r"step\s+\d{3} ops, 14 times")
        self.assertTrue(re.search(r"nimble\s+\d+", report))

    def test_inference_is_replayed_too(self):
        self.train(steps=40)
        infer = ["digits", "infer", "--weights", self.path("weights.bin"), "--batch", 1, "--repeat", 30]
        plain = self.run_program(infer)
        schedule = self.make_schedule(infer, rules=[RULES])
        done = self.run_program(infer, mode="replay", NIMBLE_SCHEDULE=schedule, NIMBLE_STATS=self.path("stats.json"))

        def accuracy(text):
            return [line for line in text.splitlines() if "accuracy" in line]

        self.assertEqual(accuracy(done.stdout), accuracy(plain.stdout))
        self.assertTrue(accuracy(plain.stdout))
        self.assertGreater(self.read_json("stats.json")["steps_replayed"], 25)


if __name__ == "__main__":
    harness.main()
