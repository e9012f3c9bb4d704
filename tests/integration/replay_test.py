"""Replay mode, in real processes: the result is the program's own, whatever the program does, or replay steps aside."""

import json
import os
import unittest

import harness
from harness import ProgramTest


class Replay(ProgramTest):
    def setUp(self):
        super().setUp()
        self.schedule = self.make_schedule(["chaos", 12, 0])

    def replay(self, args, expect=0, **settings):
        settings.setdefault("NIMBLE_SCHEDULE", self.schedule)
        done = self.run_program(args, mode="replay", expect=expect, NIMBLE_STATS=self.path("stats.json"), **settings)
        return done, self.read_json("stats.json") if os.path.exists(self.path("stats.json")) else None

    def test_a_regular_program_is_replayed_in_graphs(self):
        plain = self.run_program(["chaos", 200, 0])
        done, stats = self.replay(["chaos", 200, 0])
        self.assertEqual(plain.stdout, done.stdout)
        # One step binds; every other one goes as graphs.
        self.assertEqual(stats["steps_replayed"], 199, stats)
        self.assertEqual(stats["divergences"], 0, stats)
        self.assertEqual(stats["graph_launches"] % 199, 0, stats)
        self.assertEqual(done.stderr, "")

    def test_why_no_step_was_found(self):
        self.assertEqual(self.replay(["chaos", 20, 0])[1]["not_found"], "")
        ops = self.read_json("schedule.json")["ops"]
        for args, why in ((["answers", "step", 40, 40, 1, 0], rf"^no call was its first, op 0 \({ops[0]['kind']}.*\)$"),
                          (["chaos", 1, 5], rf"^at most [0-9]+ of its {len(ops)} ops came, and then .")):
            plain = self.run_program(args)
            done, stats = self.replay(args, NIMBLE_LOG="info")
            self.assertEqual((plain.stdout, stats["steps_replayed"]), (done.stdout, 0))
            self.assertRegex(stats["not_found"], why)
            self.assertIn("; the schedule's step was not found: " + stats["not_found"], done.stderr)

    def test_every_order_that_the_schedule_allows_gives_the_same_result(self):
        plain = self.run_program(["chaos", 60, 0])
        for seed in harness.BUILD.seeds(40):
            done, stats = self.replay(["chaos", 60, 0], SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertEqual(stats["steps_replayed"], 59)

    def test_a_program_in_disorder_computes_the_same(self):
        replayed, diverged, flushed, reasons = 0, 0, 0, set()
        seeds = harness.BUILD.seeds(200)
        for seed in seeds:
            plain = self.run_program(["chaos", 80, seed])
            done, stats = self.replay(["chaos", 80, seed], SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {stats}")
            self.assertEqual(stats["stood_aside"], "", f"seed {seed}")
            replayed += stats["steps_replayed"]
            diverged += stats["divergences"]
            flushed += stats["flushes"]
            reasons |= set(stats["reasons"])
        # The test would show nothing if replay had stood aside, or the program had been regular.
        self.assertGreater(replayed, len(seeds) * 80 * 0.4)
        self.assertGreater(diverged, len(seeds) * 5)
        self.assertGreater(flushed, len(seeds) * 1.5)
        self.assertGreaterEqual(len(reasons), 4, reasons)

    def test_a_program_in_disorder_computes_the_same_where_objects_share_memory(self):
        self.analyze(self.path("trace.json"), "-o", self.path("packed.json"), "--quiet", "--policy", "single")
        packed = self.read_json("packed.json")
        places = sorted((o["plan_offset"], o["size"]) for o in packed["objects"] if o["step_local"])
        self.assertTrue(any(a[0] + a[1] > b[0] for a, b in zip(places, places[1:])), places)
        replayed = 0
        for seed in harness.BUILD.seeds(60):
            plain = self.run_program(["chaos", 80, seed])
            done, stats = self.replay(["chaos", 80, seed], SIMCUDA_SEED=seed, NIMBLE_SCHEDULE=self.path("packed.json"))
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {stats}")
            replayed += stats["steps_replayed"]
        self.assertGreater(replayed, 60 * harness.BUILD.share * 80 * 0.3)

    def test_the_watchdog_submits_what_is_held_too_long(self):
        # So many steps that the program waits with something held several times: in one the watchdog may get no turn.
        plain = self.run_program(["chaos", 960, 4])
        done, stats = self.replay(["chaos", 960, 4], NIMBLE_HOLD_US="1000")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertGreater(stats["watchdog_flushes"], 0, stats)

    def test_a_missing_schedule_leaves_the_program_alone(self):
        plain = self.run_program(["chaos", 10, 0])
        done, stats = self.replay(["chaos", 10, 0], NIMBLE_SCHEDULE="/nowhere/schedule.json")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertIn("/nowhere/schedule.json", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_broken_schedules_leave_the_program_alone(self):
        plain = self.run_program(["chaos", 10, 0])
        with open(self.schedule, encoding="utf-8") as file:
            text = file.read()
        whole = json.loads(text)
        wrong_version = dict(whole, nimble_schedule=99)
        dangling = json.loads(text)
        dangling["segments"][0]["order"][0] = 10**9
        cycle = json.loads(text)
        cycle["segments"][0]["edges"][0].reverse()
        cases = {
            "truncated": (text[: len(text) // 2], "not JSON"),
            "empty": ("", "empty"),
            "binary": ("\x7fELF\x02\x01\x01" + "\x01" * 50, "not JSON"),
            "wrong version": (json.dumps(wrong_version), "nimble_schedule"),
            "dangling": (json.dumps(dangling), "segments[0].order[0]"),
            "cycle": (json.dumps(cycle), "segments[0].edges[0]"),
        }
        for name, (content, field) in cases.items():
            with self.subTest(name):
                with open(self.path("broken.json"), "w", encoding="utf-8") as file:
                    file.write(content)
                done, _ = self.replay(["chaos", 10, 0], NIMBLE_SCHEDULE=self.path("broken.json"))
                self.assertEqual(plain.stdout, done.stdout)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn("broken.json", done.stderr)
                self.assertIn(field, done.stderr)
                checked = self.run_program(["nimble", "check", self.path("broken.json")], expect=2)
                self.assertEqual(len(checked.stderr.splitlines()), 1, checked.stderr)
                self.assertIn(field, checked.stderr)
        self.assertIn("good", self.run_program(["nimble", "check", self.schedule]).stdout)

    def test_another_programs_schedule_does_no_harm(self):
        plain = self.run_program(["ways_in", "linked"])
        done, _ = self.replay(["ways_in", "linked"])
        self.assertEqual(plain.stdout, done.stdout)

    def test_driver_errors_reach_the_program(self):
        # The driver refuses graphs: the program goes on without them.
        plain = self.run_program(["chaos", 30, 0])
        allocations = sum(op["kind"] == "alloc_async" for op in self.read_json("schedule.json")["ops"])
        for call in ("cuGraphInstantiateWithFlags", "cuGraphAddKernelNode_v2", "cuGraphLaunch",
                     f"cuMemAllocAsync:{allocations + 1}"):
            with self.subTest(call):
                inject = call if ":" in call else call + ":1"
                done, stats = self.replay(["chaos", 30, 0], SIMCUDA_INJECT=inject + ":2")
                self.assertEqual(plain.stdout, done.stdout)
                self.assertNotEqual(stats["stood_aside"], "")
                self.assertEqual(stats["steps_replayed"], 0)


class BrokenOnPurpose(ProgramTest):
    """The tests above can fail: without one dependency, some order gives another result."""

    def test_a_schedule_without_one_dependency_is_seen(self):
        self.make_schedule(["chaos", 12, 0], policy="nimble")  # all of whose edges are dependencies
        plain = self.run_program(["chaos", 30, 0])
        schedule = self.read_json("schedule.json")
        segment = max(range(len(schedule["segments"])), key=lambda i: len(schedule["segments"][i]["edges"]))
        kinds = [op["kind"] for op in schedule["ops"]]
        seen, unseen = 0, []
        edges = schedule["segments"][segment]["edges"]
        for removed in range(len(edges)):
            if "event_record" in (kinds[edges[removed][0]], kinds[edges[removed][1]]):
                continue  # an event's order shows in no memory
            broken = json.loads(json.dumps(schedule))
            del broken["segments"][segment]["edges"][removed]
            with open(self.path("broken.json"), "w", encoding="utf-8") as file:
                json.dump(broken, file)
            for seed in range(1, 31):
                done = self.run_program(["chaos", 30, 0], mode="replay", NIMBLE_SCHEDULE=self.path("broken.json"), SIMCUDA_SEED=seed)
                if done.stdout != plain.stdout:
                    seen += 1
                    break
            else:
                unseen.append(edges[removed])
        # Not every dependency is real: a kernel is assumed to read a whole object, but reads only half.
        self.assertGreater(seen, 4 * len(unseen), f"removed without a trace: {unseen}")


if __name__ == "__main__":
    harness.main()
