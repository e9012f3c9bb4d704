"""What is believed of kernels, in real processes (programs/replay/beliefs.cpp): with only what is proven, programs are right whose
kernels do more than a signature or a recording tells; beliefs are named in the log, and found out by audits."""

import json
import re

import harness
from harness import ProgramTest

STEPS, BAD = 60, 40
# Of these the code alone tells the truth. In the second line it tells where an array begins, and that of another allocation is meant.
TOLD_BY_CODE, LEAVE_THEIR_ARRAY = ("flag", "clip", "block"), ("strided", "from_one")
WITHOUT_CODE, WITH_CODE = "believed.simcuda", "believed_code.simcuda"
CASES = [(what, image) for image in (WITHOUT_CODE, WITH_CODE) for what in TOLD_BY_CODE] + [(what, WITHOUT_CODE) for what in LEAVE_THEIR_ARRAY]


class BeliefsTest(ProgramTest):
    def run_beliefs(self, what, image, mode=None, how="steps", steps=STEPS, bad=BAD, **settings):
        return self.run_program(["beliefs", what, how, steps, image, bad], mode=mode, **settings)

    def plain(self, what, image, **options):
        return self.run_beliefs(what, image, **options).stdout

    def rewritten(self, what, image, **settings):
        settings.setdefault("NIMBLE_TUNE", "off")
        return self.run_beliefs(what, image, mode="off", how="graph", NIMBLE_GRAPHS="rewrite", **settings)

    def wrong(self, what, image, mode, how="steps", seeds=5, to_the_first=False, **settings):
        """Of some adversarial orders, how many give the program another result; and the counters of each run."""
        plain, wrong, found = self.plain(what, image, how=how), 0, []
        for seed in range(1, 1 + seeds) if to_the_first else harness.BUILD.seeds(seeds):
            if to_the_first and wrong:
                break
            if how == "graph":
                done = self.rewritten(what, image, SIMCUDA_SEED=seed, **settings)
            else:
                done = self.run_beliefs(what, image, mode, how, SIMCUDA_SEED=seed, NIMBLE_STATS=self.path("stats.json"), **settings)
            wrong += done.stdout != plain
            if mode in ("auto", "replay"):
                found.append((self.read_json("stats.json"), done.stderr))
        return wrong, found


class Proven(BeliefsTest):
    """The kinds of lies that are known, in every mode: by default only proof counts."""

    def each(self, check):
        for what, image in CASES:
            with self.subTest(f"{what} in {image}"):
                check(what, image)

    def test_replay(self):
        def check(what, image):
            for probe in ("off", "writes"):
                self.run_beliefs(what, image, "record", steps=8, bad=-1, NIMBLE_TRACE=self.path("trace.json"), NIMBLE_PROBE=probe)
                done = self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), expect=None)
                self.assertIn(done.returncode, (0, 5), done.stderr)  # 5: what was seen contradicts a signature
                self.assertNotIn("rests on beliefs", done.stdout)
                self.assertEqual(self.wrong(what, image, "replay", NIMBLE_SCHEDULE=self.path("schedule.json"))[0], 0)

        self.each(check)

    def test_auto(self):
        self.each(lambda what, image: self.assertEqual(self.wrong(what, image, "auto")[0], 0))

    def test_graphs(self):
        def check(what, image):
            for probe in ("off", "writes"):
                self.assertEqual(self.wrong(what, image, "off", "graph", NIMBLE_PROBE=probe)[0], 0)

        self.each(check)

    def test_regions(self):
        self.each(lambda what, image: self.assertEqual(self.wrong(what, image, "regions", "region")[0], 0))

    def test_code_still_leaves_ops_unordered(self):
        done = self.rewritten("flag", WITH_CODE, NIMBLE_LOG="info")
        self.assertRegex(done.stderr, r"graph 1: 3 nodes, on 2 streams")


class Believed(BeliefsTest):
    """With more trust, the same programs are what shows that it is not for nothing."""

    def test_beliefs_make_wrong_orders(self):
        for what, mode, how, settings in (("clip", "auto", "steps", {"NIMBLE_TRUST": "declared"}),
                                          ("clip", "off", "graph", {"NIMBLE_TRUST": "declared"}),
                                          ("clip", "regions", "region", {"NIMBLE_TRUST": "declared"}),
                                          ("flag", "off", "graph", {"NIMBLE_TRUST": "observed"})):
            with self.subTest(f"{what}, {mode}"):
                self.assertGreater(self.wrong(what, WITHOUT_CODE, mode, how, seeds=40, to_the_first=True, **settings)[0], 0)

    def test_audits_find_them_out(self):
        """Unless told otherwise, in the first and second step, the 10th, and so on. What they find is right in the end."""
        settings = {"NIMBLE_TRUST": "declared", "seeds": 20}
        without, _ = self.wrong("clip", WITHOUT_CODE, "auto", NIMBLE_AUDIT="0", **settings)
        wrong, runs = self.wrong("clip", WITHOUT_CODE, "auto", NIMBLE_AUDIT="", **settings)
        found = sum(stats["audits_failed"] for stats, _ in runs)
        self.assertGreater(found, 0)
        self.assertLess(wrong, without)
        for stats, said in runs:
            self.assertEqual("an audit found" in said, stats["audits_failed"] == 1)
            self.assertGreater(stats["steps_audited"], 0)

    def test_audits_that_no_one_asked_for_leave_memory_of_the_host_alone(self):
        for audit, audited in (("", False), ("1", True)):
            _, runs = self.wrong("host", WITHOUT_CODE, "auto", NIMBLE_TRUST="declared", NIMBLE_AUDIT=audit)
            for stats, said in runs:
                self.assertEqual(stats["steps_audited"] > 0, audited, said)
                self.assertEqual("a copy writes memory that the host reaches" in stats["audits_skipped"], not audited, stats)

    def test_what_is_proven_is_not_audited(self):
        _, runs = self.wrong("flag", WITH_CODE, "auto", NIMBLE_TRUST="declared", NIMBLE_AUDIT="")
        for stats, _ in runs:
            self.assertGreater(stats["steps_replayed"], 0)
            self.assertEqual((stats["steps_audited"], stats["audits_skipped"]), (0, {}), "no two ops rest on a belief")

    def test_a_schedule_says_whether_it_is_audited(self):
        self.run_beliefs("clip", WITHOUT_CODE, "record", steps=8, bad=-1, NIMBLE_TRACE=self.path("trace.json"))
        for trust, audited in (("declared", True), ("proven", False)):
            self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--trust", trust)
            _, runs = self.wrong("clip", WITHOUT_CODE, "replay", seeds=3, NIMBLE_SCHEDULE=self.path("schedule.json"), NIMBLE_AUDIT="",
                                 NIMBLE_LOG="info")
            for stats, said in runs:
                self.assertEqual((stats["steps_audited"] > 0, "the order rests on beliefs" in said), (audited, audited), said)
                self.assertEqual("nimble-analyze --trust proven does without" in said, audited, said)


class Log(BeliefsTest):
    def lines(self, done):
        return [line for line in done.stderr.splitlines() if "beliefs" in line]

    def test_beliefs_are_named_once(self):
        for mode, how, settings, ops in (("auto", "steps", {}, 4), ("off", "graph", {"NIMBLE_GRAPHS": "rewrite"}, 3),
                                         ("regions", "region", {}, 3)):
            for trust in ("declared", "proven"):
                with self.subTest(f"{mode}, {trust}"):
                    done = self.run_beliefs("clip", WITHOUT_CODE, mode, how, NIMBLE_TRUST=trust, NIMBLE_LOG="info", NIMBLE_TUNE="off", **settings)
                    if trust == "proven":
                        self.assertEqual(self.lines(done), [])
                        continue
                    self.assertEqual(len(self.lines(done)), 1, done.stderr)
                    self.assertRegex(self.lines(done)[0], rf"^nimble: info: \w+: the order rests on beliefs: of {ops} ops 3 are known by declared evidence\. "
                                                          r"NIMBLE_TRUST=proven does without\.$")

    def test_rules_that_are_not_believed_are_complained_about(self):
        with open(self.path("rules.json"), "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 5, "rules": [{"kernel": "scale_and_check", "params": ["in", "out", "inout", "value"]}]}, file)
        for trust in ("proven", "declared"):
            done = self.run_beliefs("flag", WITHOUT_CODE, "auto", NIMBLE_TRUST=trust, NIMBLE_RULES=self.path("rules.json"))
            self.assertEqual("NIMBLE_RULES: what only a rule says that a kernel reads and writes is not believed" in done.stderr, trust == "proven", done.stderr)


class Watching(BeliefsTest):
    """Memory is compared only where that is believed, or where the user asks for it."""

    def compared(self, **settings):
        self.rewritten("flag", WITHOUT_CODE, NIMBLE_TRACE=self.path("trace.json"), **settings)
        with open(self.path("trace.json"), encoding="utf-8") as file:
            return len(re.findall('"compared":', file.read()))

    def test_learning(self):
        self.assertGreater(self.compared(NIMBLE_TRUST="observed"), 0)
        for trust in ("declared", "proven", "exact"):
            self.assertEqual(self.compared(NIMBLE_TRUST=trust), 0, trust)
        self.assertGreater(self.compared(NIMBLE_TRUST="proven", NIMBLE_PROBE="writes"), 0)

    def test_learning_still_tells_what_memory_a_capture_gets(self):
        """Its graphs are made as before, but with less order left out."""
        for trust in ("observed", "proven"):
            done = self.rewritten("clip", WITH_CODE, NIMBLE_TRUST=trust, NIMBLE_LOG="info")
            self.assertRegex(done.stderr, r"graph 1: 3 nodes, on 2 streams", trust)


if __name__ == "__main__":
    harness.main()
