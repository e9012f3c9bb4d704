"""NIMBLE_MODE=auto, in real processes: recorded, analyzed and replayed in one, with the result of the program alone."""

import os
import random
import subprocess
import sys
import time
import unittest

import harness
from harness import ProgramTest


# A child has what threads of its parent own, but not the threads: to a sanitizer that is a leak.
TOLERANT = {"ASAN_OPTIONS": "detect_leaks=0"}


class Auto(ProgramTest):
    def auto(self, args, expect=0, **settings):
        stats = self.path("stats.json")
        if os.path.exists(stats):
            os.remove(stats)
        done = self.run_program(args, mode="auto", expect=expect, timeout=200, NIMBLE_STATS=stats, **settings)
        return done, self.read_json("stats.json") if os.path.exists(stats) else None

    def compare(self, args, **settings):
        """The counters of a run that prints what the program prints without Nimble."""
        plain = self.run_program(args)
        done, stats = self.auto(args, **settings)
        self.assertEqual(plain.stdout, done.stdout, f"{args} {settings}: {stats}")
        return stats

    def test_a_regular_program_is_replayed_in_the_process_that_recorded_it(self):
        stats = self.compare(["chaos", 200, 0])
        self.assertEqual(stats["stood_aside"], "")
        self.assertEqual((stats["recordings"], stats["divergences"]), (1, 0), stats)
        # About eight steps are recorded, and one binds.
        self.assertGreater(stats["steps_replayed"], 180, stats)

    def test_replay_begins_where_others_use_all_cores(self):
        cores = os.sched_getaffinity(0)
        others = []
        try:
            os.sched_setaffinity(0, {min(cores)})
            others += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
            _, stats = self.auto(["server", "launches", 400000], NIMBLE_AUTO_WAIT=0, NIMBLE_AUTO_LIMIT=8)
        finally:
            for other in others:
                other.kill()
                other.wait()
            os.sched_setaffinity(0, cores)
        self.assertGreater(stats["steps_replayed"], 0, stats)

    def test_every_order_that_the_driver_may_choose_gives_the_same_result(self):
        for seed in harness.BUILD.seeds(20):
            stats = self.compare(["chaos", 60, 0], SIMCUDA_SEED=seed)
            self.assertGreater(stats["steps_replayed"], 40, stats)

    def test_programs_in_disorder_compute_the_same(self):
        replayed = 0
        seeds = harness.BUILD.seeds(40)
        for seed in seeds:
            replayed += self.compare(["chaos", 120, seed], SIMCUDA_SEED=seed)["steps_replayed"]
        self.assertGreater(replayed, len(seeds) * 10)

    def test_several_streams_and_threads(self):
        for mode in ("fork", "prefetch", "threads"):
            replayed = 0
            seeds = harness.BUILD.seeds(8)
            for seed in seeds:
                replayed += self.compare(["streams", mode, 120, 0], SIMCUDA_SEED=seed)["steps_replayed"]
                replayed += self.compare(["streams", mode, 120, seed], SIMCUDA_SEED=seed)["steps_replayed"]
            if harness.BUILD.share == 1:
                self.assertGreater(replayed, len(seeds) * 20, mode)

    def test_a_crowd_of_threads(self):
        replayed = 0
        for threads in (1, 4):
            for stream in ("nonblocking", "blocking", "legacy"):
                for seed in harness.BUILD.seeds(3):
                    replayed += self.compare(["crowd", threads, 200, seed, stream], SIMCUDA_SEED=seed)["steps_replayed"]
        self.assertGreater(replayed, 100)

    def test_captures_and_errors_of_the_programs_own(self):
        for seed in harness.BUILD.seeds(6):
            self.compare(["captures", 80, seed], SIMCUDA_SEED=seed)

    def test_several_kinds_of_step_in_any_order(self):
        # None of them alone makes up much of the program.
        for seed in harness.BUILD.seeds(3):
            letters = random.Random(seed)
            word = "".join(letters.choice("tTeE") for _ in range(600))
            stats = self.compare(["kinds", word], SIMCUDA_SEED=seed)
            self.assertGreater(stats["steps_replayed"], 250, stats)
            replayed = [kind["steps_replayed"] for kind in stats["kinds"]]
            self.assertGreater(sum(count > 20 for count in replayed), 1, stats)

    def test_training(self):
        if harness.BUILD.share < 1:
            self.skipTest("takes long under a sanitizer")
        train = ["digits", "train", "--epochs", 1, "--steps", 60, "--quiet", "--save"]
        self.run_program([*train, self.path("plain.bin")])
        _, stats = self.auto([*train, self.path("auto.bin")])
        with open(self.path("plain.bin"), "rb") as plain, open(self.path("auto.bin"), "rb") as replayed:
            self.assertEqual(plain.read(), replayed.read(), stats)
        self.assertGreater(stats["steps_replayed"], 20, stats)

    def test_a_program_that_never_repeats_is_left_alone(self):
        # Eight steps and then something else each time: too few to find a step.
        stats = self.compare(["chaos", 2, 0])
        self.assertEqual(stats["steps_replayed"], 0)
        self.assertIn("ended before replay began", stats["stood_aside"])

    def test_a_recording_keeps_within_its_limit(self):
        # In disorder throughout, and each step has a different length: there is no step to find.
        plain = self.run_program(["phases", 0, -30000])
        done, stats = self.auto(["phases", 0, -30000], NIMBLE_AUTO_LIMIT="1")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertEqual((stats["steps_replayed"], stats["recordings"]), (0, 1), stats)
        self.assertIn("no step was found in 1 MiB of trace (NIMBLE_AUTO_LIMIT)", stats["stood_aside"])
        self.assertEqual(done.stderr.count("auto stops"), 1, done.stderr)

    def test_a_program_that_ends_at_any_moment(self):
        plain = {n: self.run_program(["chaos", n, 0]).stdout for n in (20, 400, 4000)}
        for n, expected in plain.items():
            for wait in (0, 20, 80):
                begin = time.monotonic()
                done, stats = self.auto(["chaos", n, 0], NIMBLE_AUTO_WAIT=wait)
                self.assertEqual(done.stdout, expected)
                self.assertLess(time.monotonic() - begin, 30 if harness.BUILD.share == 1 else 200)

    def test_every_way_to_end(self):
        for way in ("return", "exit", "_exit", "_Exit", "quick_exit"):
            for steps in (12, 200):
                args = ["process_life", "steps", steps, "end", way]
                plain = self.run_program(args, timeout=60)
                done, _ = self.auto(args)
                self.assertEqual(plain.stdout, done.stdout, way)

    def test_children_in_the_middle(self):
        for steps in (12, 200):
            for how in ("exit", "_exit"):
                args = ["process_life", "steps", steps, "fork", how]
                plain = self.run_program(args, timeout=60)
                done, _ = self.auto(args, **TOLERANT)
                self.assertEqual(sorted(plain.stdout.splitlines()), sorted(done.stdout.splitlines()), how)

    def test_processes_that_fork_and_exec(self):
        for args in (["fork", "exit"], ["fork_threads", "_exit"], ["fork_first", "exit"], ["threads"], ["late"], ["nothing"]):
            args = ["process_life", *args]
            plain = self.run_program(args, timeout=60)
            done, _ = self.auto(args, **TOLERANT)
            self.assertEqual(sorted(plain.stdout.splitlines()), sorted(done.stdout.splitlines()), args)

    def test_nothing_waits_for_the_analysis_unless_asked_to(self):
        done, stats = self.auto(["chaos", 300, 0], NIMBLE_AUTO_WAIT="0", NIMBLE_LOG="info")
        self.assertEqual(done.stdout, self.run_program(["chaos", 300, 0]).stdout)
        if stats["steps_replayed"] == 0:
            self.assertIn("auto: the program ended before replay began", done.stderr)

    def test_audits_find_no_difference(self):
        stats = self.compare(["chaos", 120, 0], NIMBLE_AUDIT="5")
        self.assertGreater(stats["steps_audited"], 5, stats)
        self.assertEqual(stats["audits_failed"], 0, stats)

    def test_the_c_api_tells_what_goes_on(self):
        image = harness.BUILD.program("programs.simcuda")
        done, _ = self.auto(["api", 200, image])
        plain = self.run_program(["api", 200, image])
        self.assertIn("mode 3 phase 5 ", next(line for line in done.stdout.splitlines() if line.startswith("after")))
        self.assertEqual([line for line in plain.stdout.splitlines() if line.startswith("sum")],
                         [line for line in done.stdout.splitlines() if line.startswith("sum")])

    def test_the_step_changes_and_is_recorded_again(self):
        plain = self.run_program(["phases", 60, 80000])
        done, stats = self.auto(["phases", 60, 80000], NIMBLE_LOG="info")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertEqual(stats["recordings"], 2, done.stderr)
        self.assertIn("so it is recorded again", done.stderr)
        self.assertGreater(stats["steps_replayed"], 1000, done.stderr)
        done, stats = self.auto(["phases", 60, 80000], NIMBLE_LOG="info", NIMBLE_AUTO_TRIES="1")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertEqual(stats["recordings"], 1, done.stderr)


if __name__ == "__main__":
    harness.main()
