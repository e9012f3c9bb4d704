"""Replay beside other threads: they run as without Nimble, and when threads hand each other work, nothing is missed."""

import itertools

import harness
from harness import ProgramTest

STREAMS = ("nonblocking", "blocking", "legacy")
HAND_OVERS = ("wait_event", "sync_event", "poll_event", "sync_stream", "sync_context", "implicit", "record_again",
              "destroy_event", "free", "free_now", "range", "move_state")
ALONE = 8  # kAlone of programs/crowd.cpp


class Crowd(ProgramTest):
    def setUp(self):
        super().setUp()
        self.schedule = self.make_schedule(["crowd", 1, 12, 0])

    def compare(self, *args, seed=0):
        """Runs crowd bare and replayed: the output must be the same. The counters."""
        plain = self.run_program(["crowd", *args])
        done = self.run_program(["crowd", *args], mode="replay", timeout=60, NIMBLE_SCHEDULE=self.schedule,
                                NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed)
        stats = self.read_json("stats.json")
        self.assertEqual(plain.stdout, done.stdout, f"crowd {args}, order {seed}: {stats}")
        self.assertEqual(done.stderr, "")
        self.assertEqual(stats["stood_aside"], "")
        return stats

    def check_undisturbed(self, stats, steps, moves=0):
        """Every step was followed to its end, and replayed, but for the first one, those before which a buffer moved
        when replay was about to begin, and those in whose middle another thread made a call that may observe them,
        such as cuMemFree. How many these last are depends on timing."""
        self.assertEqual(stats["divergences"], 0, stats)
        self.assertEqual(stats["steps_replayed"] + stats["steps_passed_through"], steps, stats)
        self.assertLessEqual(stats["steps_passed_through"], 1 + stats["flushes"] + moves, stats)
        self.assertGreater(stats["steps_replayed"], 0, stats)

    def test_one_thread_alone_is_replayed_whole(self):
        for stream in STREAMS:
            self.assertEqual(self.compare(1, 50, 1, stream)["steps_replayed"], 49)

    def test_other_threads_do_not_disturb(self):
        for stream, threads in itertools.product(STREAMS[:2], (2, 4)):
            for seed in harness.BUILD.seeds(4):
                self.check_undisturbed(self.compare(threads, 60, 0, stream, seed=seed), 60)

    def test_any_hand_over(self):
        for stream, who, threads in itertools.product(STREAMS, ("one", "all"), (2, 4)):
            for seed in harness.BUILD.seeds(10):
                stats = self.compare(threads, 60, seed, stream, who, seed=seed)
                if who == "all":
                    # How many steps are replayed depends on timing, except for those at the end: on a shared stream
                    # every thread's, else at least those of the thread whose stream is followed.
                    alone = ALONE * (threads if stream == "legacy" else 1)
                    self.assertGreaterEqual(stats["steps_replayed"], alone - 2, f"{stream} {threads}, order {seed}: {stats}")
                else:
                    self.assertGreater(stats["steps_replayed"], 5, f"{stream} {threads}, order {seed}: {stats}")

    def test_each_hand_over(self):
        for what, stream in itertools.product(HAND_OVERS, STREAMS):
            replayed = 0
            seeds = harness.BUILD.seeds(4)
            for seed in seeds:
                replayed += self.compare(3, 40, seed, stream, "one", what, seed=seed)["steps_replayed"]
            self.assertGreater(replayed, len(seeds) * 5, f"{what} {stream}")

    def test_memory_that_another_thread_moves_is_followed(self):
        for seed in harness.BUILD.seeds(4):
            stats = self.compare(2, 60, seed, "nonblocking", "one", "move_state", seed=seed)
            self.check_undisturbed(stats, 60, moves=8)

    def test_questions_about_addresses_do_not_disturb(self):
        self.check_undisturbed(self.compare(2, 60, 1, "nonblocking", "one", "range"), 60)

    def test_a_recording_of_many_threads_is_whole(self):
        plain = self.run_program(["crowd", 4, 60, 2])
        recorded = self.run_program(["crowd", 4, 60, 2], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.assertEqual(plain.stdout, recorded.stdout)
        calls = [e["args"]["seq"] for e in self.read_json("trace.json") if e["ph"] == "X" and e["pid"] == 1]
        self.assertEqual(sorted(calls), list(range(len(calls))))
        self.assertGreater(len(calls), 4 * 60 * 5)


if __name__ == "__main__":
    harness.main()
