"""NIMBLE_MODE=check in real processes: programs compute what they compute without it, and what is said wrongly of a kernel faults."""

import json

import harness
from harness import ProgramTest

ILLEGAL_ADDRESS = 700
WITHOUT_CODE, WITH_CODE = "believed.simcuda", "believed_code.simcuda"


class CheckTest(ProgramTest):
    def check(self, args, **settings):
        settings.setdefault("NIMBLE_LOG", "info")
        done = self.run_program(args, mode="check", NIMBLE_STATS=self.path("stats.json"), **settings)
        return done, self.read_json("stats.json")

    def rules(self, kernel, *params):
        with open(self.path("rules.json"), "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 5, "rules": [{"kernel": kernel, "params": params, "from": "a lie"}]}, file)
        return self.path("rules.json")


class Correct(CheckTest):
    def expect_no_fault(self, args, every, **settings):
        plain = self.run_program(args).stdout
        done, found = self.check(args, NIMBLE_CHECK_EVERY=every, **settings)
        self.assertEqual(done.stdout, plain)
        self.assertEqual((found["faults"], found["stopped"]), ([], ""), done.stderr)
        self.assertIn("nimble: info: check: no fault: ", done.stderr)
        return found

    def test_a_step_with_streams_and_allocations(self):
        for every in (0, 7, 1):
            with self.subTest(every):
                found = self.expect_no_fault(["chaos", 30, 0], every)
                self.assertGreaterEqual(found["launches_checked"], 3)
                self.assertGreater(found["objects_closed"], 0)
                if every == 1:
                    self.assertEqual(found["launches_checked"] + found["launches_unknown"] + sum(found["skipped"].values()), found["launches"])

    def test_whatever_else_a_program_does(self):
        for seed in harness.BUILD.seeds(12):
            with self.subTest(seed):
                self.expect_no_fault(["chaos", 40, seed], 1, SIMCUDA_SEED=seed)

    def test_what_is_proven_of_kernels_that_tell_lies(self):
        for what in ("flag", "clip", "block"):
            for image in (WITHOUT_CODE, WITH_CODE):
                with self.subTest(f"{what} in {image}"):
                    found = self.expect_no_fault(["beliefs", what, "steps", 8, image, 4], 1)
                    self.assertEqual(found["launches_checked"] > 0, image == WITH_CODE)
                    if image == WITHOUT_CODE:
                        self.assertTrue(all(one["why_unknown"] for one in found["kernels"]), found)

    def test_memory_is_open_to_questions(self):
        # Of memory that is closed the driver gives no address.
        done, found = self.check(["answers", "step", 30, 0, 1, 0], NIMBLE_CHECK_EVERY=1)
        self.assertGreater(found["launches_checked"], 30)
        self.assertIn("30 times: input E0 at 8\n", done.stdout)

    def test_captured_launches_are_not_checked(self):
        found = self.expect_no_fault(["beliefs", "clip", "graph", 8, WITH_CODE, 4], 1)
        self.assertGreater(found["skipped"]["a stream captures"], 0)

    def test_the_same_seed_checks_the_same_launches(self):
        checked = [self.expect_no_fault(["chaos", 60, 0], 5, NIMBLE_CHECK_SEED=seed)["launches_checked"] for seed in (1, 1, 2, 3, 4)]
        self.assertEqual(checked[0], checked[1])
        self.assertGreater(len(set(checked)), 1)


class Wrong(CheckTest):
    """What is believed without a proof may be a lie."""

    def expect_fault(self, args, kernel, evidence="declared", **settings):
        done, found = self.check(args, expect=1, NIMBLE_TRUST="declared", **settings)
        self.assertIn(f"error {ILLEGAL_ADDRESS}", done.stderr)  # as the program says it
        self.assertEqual(len(found["faults"]), 1, done.stderr)
        fault = found["faults"][0]
        self.assertEqual((fault["kernel"], fault["result"], fault["evidence"]), (kernel, ILLEGAL_ADDRESS, evidence))
        self.assertIn(f"nimble: error: check: a launch of {kernel} ", done.stderr)
        self.assertIn("nimble: error: check: a fault: ", done.stderr)
        return fault

    def test_a_write_to_what_a_signature_says_is_read(self):
        fault = self.expect_fault(["beliefs", "clip", "steps", 8, WITHOUT_CODE], "_Z4clipILi5EEvPKjPji")
        self.assertIn([0], [one["words"] for one in fault["read_only"]])

    def test_a_write_to_what_a_rule_leaves_out(self):
        lie = self.rules("scale_and_check", "in", "out", "value", "value")
        fault = self.expect_fault(["beliefs", "flag", "steps", 8, WITHOUT_CODE, 3], "scale_and_check", NIMBLE_RULES=lie,
                                  NIMBLE_CHECK_EVERY=1)
        self.assertIn([16], [one["words"] for one in fault["closed"]])

    def test_a_read_of_what_a_rule_leaves_out(self):
        lie = self.rules("apply_unless", "value", "in", "inout", "value")
        fault = self.expect_fault(["beliefs", "flag", "steps", 8, WITHOUT_CODE], "apply_unless", NIMBLE_RULES=lie)
        self.assertIn([0], [one["words"] for one in fault["closed"]])

    def test_lies_are_not_believed_by_default(self):
        lie = self.rules("apply_unless", "value", "in", "inout", "value")
        done, found = self.check(["beliefs", "flag", "steps", 8, WITH_CODE, 3], NIMBLE_RULES=lie, NIMBLE_CHECK_EVERY=1)
        self.assertEqual(found["faults"], [], done.stderr)
        self.assertGreater(found["launches_checked"], 0)


if __name__ == "__main__":
    harness.main()
