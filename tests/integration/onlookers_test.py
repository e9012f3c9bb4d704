"""Who looks at a step's memory from another stream sees what the program's order promises: in replay, in auto, and where
graphs are rewritten. And who does not look, or has been put in order with the step, costs nothing of its order."""

import unittest

import harness
from harness import ProgramTest

STEPS = 150
LOOKS = ["poll", "sync", "kernel", "early", "mailbox", "graph"]  # with no event between, and no wait
MEETS_NOTHING = ["host", "ordered", "apart"]
SAID = "from now on its graphs keep the program's order"


class Onlookers(ProgramTest):
    def check(self, done, what):
        words = done.stdout.split()
        self.assertEqual(words[2:], ["wrong", "0"], f"{what}: {done.stdout}\n{done.stderr}")
        return int(words[1])

    # The schedule is of a program without observers.
    def schedule(self, mode):
        return self.make_schedule(["onlookers", "mailbox_alone" if mode == "mailbox" else "alone", 12, 1])

    def replay(self, mode, seed, schedule, **settings):
        done = self.run_program(["onlookers", mode, STEPS, seed], mode="replay", NIMBLE_SCHEDULE=schedule, NIMBLE_LOG="info",
                                NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed, timeout=120, **settings)
        return done, self.read_json("stats.json")

    def test_a_replayed_step_is_looked_at(self):
        for mode in LOOKS:
            with self.subTest(mode=mode):
                schedule = self.schedule(mode)
                seen, replayed = 0, 0
                for seed in harness.BUILD.seeds(20):
                    done, stats = self.replay(mode, seed, schedule)
                    seen += self.check(done, f"{mode} seed {seed}: {stats}")
                    self.assertEqual(stats["stood_aside"], "", done.stderr)
                    # The step waits for observers that come before it: perhaps each time.
                    times = done.stderr.count(SAID)
                    self.assertTrue(times == 1 or (times == 0 and mode in ("early", "mailbox")), done.stderr)
                    replayed += stats["steps_replayed"]
                self.assertGreater(seen, 20 * harness.BUILD.share)
                self.assertGreater(replayed, len(harness.BUILD.seeds(20)) * STEPS // 4)

    def test_what_meets_nothing_costs_nothing(self):
        for mode in MEETS_NOTHING:
            with self.subTest(mode=mode):
                schedule = self.schedule(mode)
                for seed in harness.BUILD.seeds(10):
                    done, stats = self.replay(mode, seed, schedule)
                    self.check(done, f"{mode} seed {seed}: {stats}")
                    self.assertNotIn(SAID, done.stderr)
                    self.assertGreater(stats["steps_replayed"], STEPS - 12, f"{mode} seed {seed}: {stats}")

    def test_a_program_that_is_looked_at_all_along(self):
        analyzed = 0
        for mode in LOOKS + MEETS_NOTHING:
            with self.subTest(mode=mode):
                seen = 0
                for seed in harness.BUILD.seeds(12):
                    done = self.run_program(["onlookers", mode, 300, seed], mode="auto", SIMCUDA_SEED=seed, timeout=120)
                    seen += self.check(done, f"{mode} seed {seed}")
                if mode != "apart":
                    self.assertGreater(seen, 20 * harness.BUILD.share)
                # Who looks at random moments may leave no step to be found.
                self.run_program(["onlookers", mode, 40, 1], mode="record", NIMBLE_TRACE=self.path("trace.json"))
                found = self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments", expect=None)
                if found.returncode == 4:
                    continue
                self.assertEqual(found.returncode, 0, found.stderr)
                analyzed += 1
                for seed in harness.BUILD.seeds(12):
                    done, _ = self.replay(mode, seed, self.path("schedule.json"))
                    self.check(done, f"{mode} seed {seed}, recorded")
        self.assertGreater(analyzed, 3)

    # Who has access needs no call to look: replay ends there, and graphs are the program's own.
    def test_a_peer_that_is_granted_access(self):
        schedule = self.schedule("peer")
        seen = 0
        for seed in harness.BUILD.seeds(10):
            done, stats = self.replay("peer", seed, schedule)
            seen += self.check(done, f"seed {seed}: {stats}")
            self.assertIn("cuCtxEnablePeerAccess", stats["stood_aside"])
            self.assertGreater(stats["steps_replayed"], STEPS // 3 - 4)
            done = self.graphs("peer", seed)
            seen += self.check(done, f"seed {seed}")
            self.assertIn("the program's own is launched from now on: others may reach its memory now", done.stderr)
            seen += self.check(self.run_program(["onlookers", "peer", 300, seed], mode="auto", SIMCUDA_SEED=seed), f"seed {seed}")
        self.assertGreater(seen, 20 * harness.BUILD.share)
        # A recording with such a call orders everything.
        self.run_program(["onlookers", "peer", 60, 1], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments")
        for segment in self.read_json("schedule.json")["segments"]:
            order = sorted(segment["order"])
            self.assertEqual(sorted(map(tuple, segment["edges"])), list(zip(order, order[1:])))

    # Launches of one graph; none of them is another one's memory.
    def graphs(self, mode, seed, **settings):
        return self.run_program(["onlookers", mode, STEPS, seed, "graph"], mode="off", NIMBLE_GRAPHS="rewrite",
                                NIMBLE_TUNE="off", NIMBLE_LOG="info", SIMCUDA_SEED=seed, timeout=120, **settings)

    def test_a_rewritten_graph_is_looked_at(self):
        for mode in LOOKS:
            with self.subTest(mode=mode):
                seen = 0
                for seed in harness.BUILD.seeds(20):
                    done = self.graphs(mode, seed)
                    seen += self.check(done, f"{mode} seed {seed}")
                    self.assertIn("nodes, on ", done.stderr)
                self.assertGreater(seen, 20 * harness.BUILD.share)

    def test_what_meets_no_graph_leaves_it_rewritten(self):
        for mode in MEETS_NOTHING:
            with self.subTest(mode=mode):
                for seed in harness.BUILD.seeds(10):
                    done = self.graphs(mode, seed)
                    self.check(done, f"{mode} seed {seed}")
                    self.assertIn("nodes, on ", done.stderr)
                    self.assertNotIn("is launched from now on", done.stderr)

    def test_a_region_is_looked_at(self):
        for mode in LOOKS + MEETS_NOTHING:
            with self.subTest(mode=mode):
                seen = 0
                for seed in harness.BUILD.seeds(20):
                    done = self.run_program(["onlookers", mode, STEPS, seed, "region"], mode="regions", SIMCUDA_SEED=seed,
                                            timeout=120)
                    seen += self.check(done, f"{mode} seed {seed}")
                if mode != "apart":
                    self.assertGreater(seen, 20 * harness.BUILD.share)


if __name__ == "__main__":
    harness.main()
