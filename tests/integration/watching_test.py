"""Hosts that watch the GPU without waiting for it, and kernels that communicate: nothing is held for too long, and no
order is added."""

import unittest

import harness
from harness import ProgramTest

STEPS = 24


class Watching(ProgramTest):
    def compare(self, mode, *options, **settings):
        """Runs it bare and replayed: the output must be the same. The counters."""
        trace, schedule = self.path("trace.json"), self.path("schedule.json")
        # The simulated GPU goes on without being asked, as a real one does.
        settings["SIMCUDA_IDLE_MS"] = 1
        self.run_program(["watching", mode, 8], mode="record", NIMBLE_TRACE=trace, **settings)
        self.analyze(trace, "-o", schedule, "--quiet", *options)
        self.analyze("check", trace, schedule)
        self.assertEqual(len(self.read_json("schedule.json")["streams"]), 4)
        plain = self.run_program(["watching", mode, STEPS], **settings)
        found = []
        for seed in harness.BUILD.seeds(12):
            done = self.run_program(["watching", mode, STEPS], mode="replay", timeout=60, NIMBLE_SCHEDULE=schedule,
                                    NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed, **settings)
            stats = self.read_json("stats.json")
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {stats}")
            self.assertEqual((stats["stood_aside"], stats["divergences"]), ("", 0))
            found.append(stats)
        return found

    def test_a_host_that_polls_mapped_memory_of_several_streams_gets_what_it_waits_for(self):
        """A sign is ordered after everything that it may announce; and held ops are submitted in time."""
        for stats in self.compare("memory", "--whole-segments", NIMBLE_HOLD_US=1000):
            self.assertGreater(stats["watchdog_flushes"], STEPS / 2, stats)

    def test_where_the_host_pauses_each_time_a_graph_ends(self):
        for stats in self.compare("memory"):
            self.assertEqual((stats["flushes"], stats["watchdog_flushes"]), (0, 0), stats)
            self.assertGreaterEqual(stats["steps_replayed"], STEPS - 2, stats)

    def test_polling_events_of_the_step_before_flushes_nothing(self):
        for stats in self.compare("earlier", "--whole-segments"):
            self.assertEqual((stats["flushes"], stats["watchdog_flushes"]), (0, 0), stats)
            self.assertGreaterEqual(stats["steps_replayed"], STEPS - 2, stats)


class Talking(ProgramTest):
    def test_kernels_that_may_talk_are_left_as_they_are(self):
        plain = self.run_program(["watching", "talk", STEPS])
        self.run_program(["watching", "talk", 8], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        said = self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), expect=4)
        self.assertIn("post", said.stdout + said.stderr)
        automatic = self.run_program(["watching", "talk", STEPS], mode="auto", NIMBLE_STATS=self.path("stats.json"))
        self.assertEqual(plain.stdout, automatic.stdout)
        self.assertEqual(self.read_json("stats.json")["ops_replayed"], 0)


if __name__ == "__main__":
    harness.main()
