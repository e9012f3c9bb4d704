"""Who polls a step's memory from another stream while it is recorded sees what the program's order promises; and so does who has
access to it from another device, in every mode."""

import unittest

import harness
from harness import ProgramTest

STEPS = 150
LOOKS = ["poll", "sync"]  # with no event between, and no wait
MEETS_NOTHING = ["host", "ordered", "apart"]


class Onlookers(ProgramTest):
    def check(self, done, what):
        words = done.stdout.split()
        self.assertEqual(words[2:], ["wrong", "0"], f"{what}: {done.stdout}\n{done.stderr}")
        return int(words[1])

    # The schedule is of a program that nobody looks at.
    def schedule(self, mode):
        return self.make_schedule(["onlookers", "mailbox_alone" if mode == "mailbox" else "alone", 12, 1])

    def replay(self, mode, seed, schedule, **settings):
        done = self.run_program(["onlookers", mode, STEPS, seed], mode="replay", NIMBLE_SCHEDULE=schedule, NIMBLE_LOG="info",
                                NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed, timeout=120, **settings)
        return done, self.read_json("stats.json")

    def test_a_program_that_is_looked_at_all_along(self):
        for mode in LOOKS + MEETS_NOTHING:
            with self.subTest(mode=mode):
                seen = 0
                for seed in harness.BUILD.seeds(6):
                    done = self.run_program(["onlookers", mode, 300, seed], mode="auto", SIMCUDA_SEED=seed, timeout=120)
                    seen += self.check(done, f"{mode} seed {seed}")
                if mode != "apart":
                    self.assertGreater(seen, 20 * harness.BUILD.share)

    # Who has access needs no call to look: replay ends there, and graphs are the program's own.
    def test_a_peer_that_is_granted_access(self):
        schedule = self.schedule("peer")
        seen = 0
        for seed in harness.BUILD.seeds(6):
            done, stats = self.replay("peer", seed, schedule)
            seen += self.check(done, f"seed {seed}: {stats}")
            self.assertIn("cuCtxEnablePeerAccess", stats["stood_aside"])
            self.assertGreater(stats["steps_replayed"], STEPS // 3 - 4)
            done = self.graphs("peer", seed)
            seen += self.check(done, f"seed {seed}")
            self.assertIn("is the program's own: others may reach its memory now", done.stderr)
            seen += self.check(self.run_program(["onlookers", "peer", 300, seed], mode="auto", SIMCUDA_SEED=seed), f"seed {seed}")
        self.assertGreater(seen, 20 * harness.BUILD.share)
        # A recording with such a call has everything in order.
        self.run_program(["onlookers", "peer", 60, 1], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments")
        for segment in self.read_json("schedule.json")["segments"]:
            order = sorted(segment["order"])
            self.assertEqual(sorted(map(tuple, segment["edges"])), list(zip(order, order[1:])))

    # Launches of one graph; none of them is another one's memory.
    def graphs(self, mode, seed, **settings):
        return self.run_program(["onlookers", mode, STEPS, seed, "graph"], mode="off", NIMBLE_GRAPHS="rewrite",
                                NIMBLE_TUNE="off", NIMBLE_LOG="info", SIMCUDA_SEED=seed, timeout=120, **settings)


if __name__ == "__main__":
    harness.main()
