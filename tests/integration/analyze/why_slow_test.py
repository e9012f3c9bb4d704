"""nimble-analyze why-slow and diff: for what the GPU is idle or narrow, and how two steps differ."""

import json

import analyze_command
from analyze_command import TimedTraceTest


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


if __name__ == "__main__":
    analyze_command.main()
