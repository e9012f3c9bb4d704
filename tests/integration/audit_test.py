"""Audits in replay, in real processes: an honest schedule passes them, a wrong one is found out, and either way the
program's result is its own."""

import json

import harness
from harness import ProgramTest

STEPS = 40


class Audit(ProgramTest):
    def setUp(self):
        super().setUp()
        self.schedule = self.make_schedule(["chaos", 12, 0])

    def replay(self, args, schedule=None, **settings):
        settings.setdefault("NIMBLE_AUDIT", 1)
        done = self.run_program(args, mode="replay", NIMBLE_SCHEDULE=schedule or self.schedule,
                                NIMBLE_STATS=self.path("stats.json"), **settings)
        return done, self.read_json("stats.json")

    def test_an_honest_schedule_passes(self):
        plain = self.run_program(["chaos", STEPS, 0])
        for seed in [0, *harness.BUILD.seeds(30)]:
            for every in (1, 10):
                done, stats = self.replay(["chaos", STEPS, 0], SIMCUDA_SEED=seed, NIMBLE_AUDIT=every)
                self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
                self.assertEqual(done.stderr, "", f"seed {seed}")
                self.assertEqual(stats["audits_failed"], 0)
                self.assertEqual(stats["audits_skipped"], {})
                if every == 10:
                    self.assertEqual(stats["steps_audited"], (STEPS - 1) // 10, stats)
                    self.assertGreater(stats["steps_replayed"], STEPS // 3)
                else:
                    self.assertGreater(stats["steps_audited"], STEPS // 5, stats)
                    self.assertEqual(stats["steps_replayed"], 0, stats)

    def test_without_it_nothing_is_audited(self):
        _, stats = self.replay(["chaos", STEPS, 0], NIMBLE_AUDIT=0)
        self.assertEqual(stats["steps_audited"], 0)
        self.assertEqual(stats["steps_replayed"], STEPS - 1)

    def test_a_program_in_disorder_computes_the_same(self):
        audited, skipped = 0, set()
        seeds = harness.BUILD.seeds(80)
        for seed in seeds:
            plain = self.run_program(["chaos", STEPS, seed])
            done, stats = self.replay(["chaos", STEPS, seed], SIMCUDA_SEED=seed, NIMBLE_AUDIT=1 + seed % 3)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {stats}")
            self.assertEqual(stats["stood_aside"], "", f"seed {seed}")
            audited += stats["steps_audited"]
            skipped |= set(stats["audits_skipped"])
        self.assertGreater(audited, len(seeds) * 4)
        self.assertIn("other streams have work", skipped)

    def test_a_schedule_that_lacks_a_dependency_is_found_out_and_does_no_harm(self):
        plain = self.run_program(["chaos", STEPS, 0])
        schedule = self.read_json("schedule.json")
        segment = max(range(len(schedule["segments"])), key=lambda i: len(schedule["segments"][i]["edges"]))
        kinds = [op["kind"] for op in schedule["ops"]]
        edges = schedule["segments"][segment]["edges"]
        harmful, found = 0, 0
        for removed, (first, second) in enumerate(edges):
            if "event_record" in (kinds[first], kinds[second]):
                continue  # an event's order shows in no memory
            broken = json.loads(json.dumps(schedule))
            del broken["segments"][segment]["edges"][removed]
            with open(self.path("broken.json"), "w", encoding="utf-8") as file:
                json.dump(broken, file)
            for seed in harness.BUILD.seeds(10):
                done, _ = self.replay(["chaos", STEPS, 0], self.path("broken.json"), SIMCUDA_SEED=seed, NIMBLE_AUDIT=0)
                harmful += done.stdout != plain.stdout
                done, stats = self.replay(["chaos", STEPS, 0], self.path("broken.json"), SIMCUDA_SEED=seed)
                self.assertEqual(done.stdout, plain.stdout, f"without {first} -> {second}, seed {seed}")
                self.assertEqual(stats["audits_failed"], int(stats["stood_aside"] != ""))
                if not stats["stood_aside"]:
                    continue
                found += 1
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn("replay stops: an audit found", done.stderr)
                self.assertRegex(done.stderr, r"differ, written by op \d+ \((launch \w+|copy|set)\)")
        # Most orders that harm the program harm an audited step as well.
        self.assertGreater(harmful, 20 * harness.BUILD.share)
        self.assertGreater(found, harmful * 0.5, f"{harmful} runs went wrong, {found} were found")

    def test_the_ops_are_named(self):
        """Without its dependencies on whatever writes what it reads, a kernel shows up by its number and its name."""
        schedule = self.read_json("schedule.json")
        segment = max(schedule["segments"], key=lambda each: len(each["edges"]))
        last = max(op for op in segment["order"] if schedule["ops"][op]["kind"] == "launch"
                   and "update" in schedule["functions"][schedule["ops"][op]["function"]]["name"]
                   and any(edge[1] == op and schedule["ops"][edge[0]]["kind"] == "launch" for edge in segment["edges"]))
        segment["edges"] = [edge for edge in segment["edges"] if edge[1] != last]
        name = schedule["functions"][schedule["ops"][last]["function"]]["name"]
        with open(self.path("broken.json"), "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        named = 0
        for seed in harness.BUILD.seeds(10):
            _, stats = self.replay(["chaos", STEPS, 0], self.path("broken.json"), SIMCUDA_SEED=seed)
            named += f"op {last} (launch {name})" in stats["stood_aside"]
        self.assertGreater(named, 0)


if __name__ == "__main__":
    harness.main()
