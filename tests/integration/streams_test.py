"""Steps on several streams, in real processes: replay computes what the program does, whatever it does, and orders all that
the program orders."""

import json
import unittest

import harness
from harness import ProgramTest

MODES = ["fork", "prefetch", "threads"]
STEPS = 60
# How many of the steps of a regular run are replayed at least: of `prefetch` two make one; and threads interleave.
REGULAR = {"fork": STEPS - 2, "prefetch": STEPS // 2 - 3, "threads": STEPS // 2}
# Of a run in disorder, all seeds together, the share.
DISORDERED = {"fork": 0.25, "prefetch": 0.3, "threads": 0.3}


class Streams(ProgramTest):
    def prepare(self, mode):
        schedule = self.make_schedule(["streams", mode, 12, 0])
        self.assertGreater(len(self.read_json("schedule.json")["streams"]), 1)
        return schedule

    def replay(self, args, schedule, **settings):
        done = self.run_program(args, mode="replay", NIMBLE_SCHEDULE=schedule, NIMBLE_STATS=self.path("stats.json"),
                                timeout=120, **settings)
        return done, self.read_json("stats.json")

    def test_regular_programs_are_replayed(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                schedule = self.prepare(mode)
                self.analyze("check", self.path("trace.json"), schedule)
                plain = self.run_program(["streams", mode, STEPS, 0])
                for seed in harness.BUILD.seeds(8):
                    done, stats = self.replay(["streams", mode, STEPS, 0], schedule, SIMCUDA_SEED=seed)
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
                    self.assertEqual(stats["stood_aside"], "")
                    if harness.BUILD.share == 1 or mode != "threads":
                        self.assertGreaterEqual(stats["steps_replayed"], REGULAR[mode], stats)

    def test_programs_in_disorder_compute_the_same(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                schedule = self.prepare(mode)
                replayed, diverged, flushed = 0, 0, 0
                seeds = harness.BUILD.seeds(200)
                for seed in seeds:
                    plain = self.run_program(["streams", mode, STEPS, seed])
                    done, stats = self.replay(["streams", mode, STEPS, seed], schedule, SIMCUDA_SEED=seed)
                    self.assertEqual(plain.stdout, done.stdout, f"{mode} seed {seed}: {stats}")
                    self.assertEqual(stats["stood_aside"], "", f"{mode} seed {seed}")
                    replayed += stats["steps_replayed"]
                    diverged += stats["divergences"]
                    flushed += stats["flushes"]
                if harness.BUILD.share < 1:
                    continue
                # The test would show nothing if replay had found no step, or the program had been regular.
                steps = STEPS / 2 if mode == "prefetch" else STEPS
                self.assertGreater(replayed, len(seeds) * steps * DISORDERED[mode])
                self.assertGreater(diverged + flushed, len(seeds) * 2)

    # What the simulated driver sees of each op's reads and writes: all that conflicts is ordered, by the program's
    # streams and events or by a graph's edges.
    def test_nothing_that_conflicts_is_left_unordered(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                schedule = self.prepare(mode)
                replayed = 0
                for seed in harness.BUILD.seeds(20):
                    _, stats = self.replay(["streams", mode, 24, seed], schedule, SIMCUDA_SEED=seed, SIMCUDA_RACES=1,
                                           SIMCUDA_REPORT=self.path("report.json"))
                    report = self.read_json("report.json")
                    self.assertEqual(report["races"], [], f"{mode} seed {seed}: {json.dumps(report['races'])[:2000]}")
                    replayed += stats["steps_replayed"]
                self.assertGreater(replayed, 0)

    def test_the_watchdog_submits_what_is_held_on_any_stream(self):
        schedule = self.prepare("fork")
        for seed in harness.BUILD.seeds(10):
            plain = self.run_program(["streams", "fork", 40, seed])
            done, _ = self.replay(["streams", "fork", 40, seed], schedule, NIMBLE_HOLD_US="1000")
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")

    def test_trials_and_audits_change_nothing(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                schedule = self.prepare(mode)
                audited = 0
                for seed in harness.BUILD.seeds(6):
                    plain = self.run_program(["streams", mode, 90, seed])
                    for settings in ({"NIMBLE_TUNE": "always"}, {"NIMBLE_AUDIT": "3"}):
                        done, stats = self.replay(["streams", mode, 90, seed], schedule, SIMCUDA_SEED=seed, **settings)
                        self.assertEqual(plain.stdout, done.stdout, f"{mode} seed {seed} {settings}: {stats}")
                        self.assertEqual(stats["audits_failed"], 0)
                        audited += stats["steps_audited"]
                self.assertGreater(audited, 0)


if __name__ == "__main__":
    harness.main()
