"""Programs with several kinds of step: one schedule has them all, and whatever comes after whatever is replayed."""

import json
import unittest

import harness
from harness import ProgramTest

# What is recorded: every kind a few times, in runs of several lengths.
RECORDED = "t6e2t5e3T6E3t4e1T5E2c3t4c1e3c2t3"
KINDS = 5


class Kinds(ProgramTest):
    def prepare(self, word=RECORDED, *options):
        self.run_program(["kinds", word], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--json", self.path("report.json"),
                     "--quiet", "--whole-segments", *options)
        self.analyze("check", self.path("trace.json"), self.path("schedule.json"))
        return self.read_json("schedule.json")

    def replay(self, args, **settings):
        done = self.run_program(["kinds", *args], mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                NIMBLE_STATS=self.path("stats.json"), timeout=120, **settings)
        return done.stdout, self.read_json("stats.json")

    def test_every_step_is_replayed_once_its_kind_has_come(self):
        schedule = self.prepare()
        self.assertEqual(len(schedule["ends"]), KINDS)
        self.assertEqual(len(self.read_json("report.json")["other_kinds"]), KINDS - 1)
        for seed in harness.BUILD.seeds(10):
            plain = self.run_program(["kinds", "*1000", seed]).stdout
            output, stats = self.replay(["*1000", seed], SIMCUDA_SEED=seed)
            self.assertEqual((output, stats["stood_aside"], stats["divergences"]), (plain, "", 0), f"seed {seed}")
            self.assertEqual(len(stats["kinds"]), KINDS)
            for kind in stats["kinds"]:
                self.assertLessEqual(kind["steps_passed_through"], 2, stats)
            self.assertGreaterEqual(stats["steps_replayed"], 1000 - 2 * KINDS, stats)

    def test_a_thousand_alternations_of_train_and_evaluate(self):
        self.prepare("t5e3t4e4t6e3")
        word = "te" * 1000
        plain = self.run_program(["kinds", word]).stdout
        output, stats = self.replay([word])
        self.assertEqual((output, stats["divergences"]), (plain, 0))
        self.assertEqual([kind["steps_passed_through"] for kind in stats["kinds"]], [1, 1], stats)
        self.assertEqual([kind["steps_replayed"] for kind in stats["kinds"]], [999, 999], stats)

    def test_kinds_that_part_in_what_memory_they_use(self):
        """Taken for one of the other kind, the op at which they part would move that kind's memory."""
        self.prepare("u5w3u4w4u6w3")
        word = "uuwuwwwuwu" * 20
        plain = self.run_program(["kinds", word]).stdout
        output, stats = self.replay([word])
        self.assertEqual((output, stats["divergences"]), (plain, 0), stats)
        self.assertGreaterEqual(stats["steps_replayed"], 200 - 4, stats)

    def test_what_is_no_kind_of_step_passes_in_between(self):
        self.prepare()
        word = "t3!e2!!c2t!e!T!E!" * 5
        plain = self.run_program(["kinds", word]).stdout
        for seed in harness.BUILD.seeds(20):
            output, stats = self.replay([word], SIMCUDA_SEED=seed)
            self.assertEqual((output, stats["stood_aside"]), (plain, ""), f"seed {seed}")
            self.assertGreaterEqual(stats["steps_replayed"], 5 * 11 - 4 * KINDS, stats)

    def test_kinds_that_were_not_recorded_pass(self):
        self.prepare("t5e3t4e4t6e3")
        word = "t2T2e2E2c2" * 10
        plain = self.run_program(["kinds", word]).stdout
        output, stats = self.replay([word])
        self.assertEqual((output, stats["stood_aside"]), (plain, ""))
        self.assertGreaterEqual(stats["steps_replayed"], 30, stats)

    def test_one_kind_alone_if_that_is_what_is_asked_for(self):
        schedule = self.prepare(RECORDED, "--one-kind")
        self.assertNotIn("ends", schedule)

    def test_each_kind_has_a_way_of_its_own_that_is_the_fastest(self):
        self.prepare()
        plain = self.run_program(["kinds", "*1000", 3]).stdout
        output, stats = self.replay(["*1000", 3], NIMBLE_TUNE="start")
        self.assertEqual(output, plain)
        tuned = [kind["tuned"] for kind in stats["kinds"]]
        self.assertTrue(all(tuned), stats)

    def test_audits_of_all_kinds_find_nothing(self):
        self.prepare()
        plain = self.run_program(["kinds", "*200", 4]).stdout
        output, stats = self.replay(["*200", 4], NIMBLE_AUDIT=2)
        self.assertEqual((output, stats["stood_aside"], stats["audits_failed"]), (plain, "", 0))
        self.assertGreater(stats["steps_audited"], 50)

    def test_a_missing_dependency_of_any_kind_is_seen(self):
        """That the tests above can fail."""
        schedule = self.prepare()
        edges = [(s, e) for s, segment in enumerate(schedule["segments"]) for e in range(len(segment["edges"]))]
        wrong = 0
        for s, e in edges:
            broken = json.loads(json.dumps(schedule))
            edge = broken["segments"][s]["edges"].pop(e)
            with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
                json.dump(broken, file)
            done = self.analyze("check", self.path("trace.json"), self.path("schedule.json"), expect=1)
            self.assertIn("not ordered", done.stderr, edge)
        for s, e in edges[:: max(1, len(edges) // 4)]:
            broken = json.loads(json.dumps(schedule))
            broken["segments"][s]["edges"].pop(e)
            with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
                json.dump(broken, file)
            for seed in harness.BUILD.seeds(8):
                plain = self.run_program(["kinds", "*60", seed]).stdout
                wrong += self.replay(["*60", seed], SIMCUDA_SEED=seed)[0] != plain
        self.assertGreater(wrong, 0)


if __name__ == "__main__":
    harness.main()
