"""What kernels reach without a parameter that shows it: recorded, analyzed, replayed in many orders, and never missed.

Each mode of the program reaches memory in another way. That the test can fail is shown for each by removing from its
schedule the dependencies that only this way causes: then some order gives another result.
"""

import json
import os
import unittest

import harness
from harness import ProgramTest

# By how the memory is reached, and by what we know of the kernel that reaches it.
TABLES = ["table_copy", "table_pageable", "table_struct", "table_device", "table_kernel", "table_out"]
DECLARED = TABLES + ["tensor_map"]
NAMED = ["global", "constant"]
BARRIERS = ["table_prologue", "texture", "surface", "print", "heap", "child"]
# Where other steps may reach other memory.
CHANGING = DECLARED


def after(schedule, op):
    """All ops that the segments' edges order after `op`."""
    reached, edges = {op}, [edge for segment in schedule["segments"] for edge in segment["edges"]]
    for start, end in sorted(edges):
        if start in reached:
            reached.add(end)
    return reached - {op}


class HiddenState(ProgramTest):
    trust = "observed"

    def kernels(self, schedule, name):
        """The places of launches of the kernel among the ops."""
        return [
            i for i, op in enumerate(schedule["ops"])
            if op["kind"] == "launch" and op["function"] is not None and name in schedule["functions"][op["function"]]["name"]
        ]

    def record(self, mode):
        self.make_schedule(["hidden_state", mode, 12, 0])
        self.analyze(self.path("trace.json"), "--json", self.path("report.json"), "--quiet", "--no-schedule")
        return self.read_json("schedule.json"), self.read_json("report.json")

    def replay(self, mode, steps, seed, schedule="schedule.json", **settings):
        done = self.run_program(["hidden_state", mode, steps, seed], mode="replay", NIMBLE_SCHEDULE=self.path(schedule),
                                NIMBLE_STATS=self.path("stats.json"), **settings)
        return done.stdout, self.read_json("stats.json")

    def write(self, name, schedule):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(schedule, file)

    def test_what_comes_into_the_middle_of_a_step(self):
        for what in ("table", "grid", "null", "primary"):
            with self.subTest(what):
                plain = self.run_program(["midway", what, 24, 5]).stdout
                self.make_schedule(["midway", what, 12, 0])
                for seed in harness.BUILD.seeds(8):
                    done = self.run_program(["midway", what, 24, 5], mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                            NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed, SIMCUDA_RACES=1,
                                            SIMCUDA_REPORT=self.path("races.json"))
                    stats = self.read_json("stats.json")
                    self.assertEqual(plain, done.stdout, f"{what}, order {seed}: {stats}")
                    self.assertEqual([], self.read_json("races.json")["races"], f"{what}, order {seed}")
                    self.assertGreater(stats["steps_replayed"], 12)

    def test_pointers_in_disguise(self):
        for what in ("walk", "masked", "halves", "apart", "packed", "put", "units"):
            with self.subTest(what):
                plain = self.run_program(["disguised", what, 24]).stdout
                self.make_schedule(["disguised", what, 24])
                for seed in harness.BUILD.seeds(8):
                    done = self.run_program(["disguised", what, 24], mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                            SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("races.json"))
                    self.assertEqual(plain, done.stdout, f"{what}, order {seed}")
                    self.assertEqual([], self.read_json("races.json")["races"], f"{what}, order {seed}")

    def test_pointers_in_disguise_in_one_process(self):
        for what in ("masked", "halves", "apart", "packed", "units"):
            with self.subTest(what):
                plain = self.run_program(["disguised", what, 120]).stdout
                for seed in harness.BUILD.seeds(4):
                    done = self.run_program(["disguised", what, 120], mode="auto", SIMCUDA_SEED=seed, SIMCUDA_RACES=1,
                                            SIMCUDA_REPORT=self.path("races.json"))
                    self.assertEqual(plain, done.stdout, f"{what}, order {seed}")
                    self.assertEqual([], self.read_json("races.json")["races"], f"{what}, order {seed}")

    def test_pointers_in_disguise_where_there_were_none(self):
        for what in ("sometimes", "sometimes_units", "counted", "flagged"):
            with self.subTest(what):
                plain = self.run_program(["disguised", what, 24, 12]).stdout
                self.make_schedule(["disguised", what, 24, 99])
                if what == "flagged":  # one at a time all would be right as well
                    launches = [op for op in self.read_json("schedule.json")["ops"] if op["kind"] == "launch"]
                    self.assertEqual([op.get("barrier", False) for op in launches], [False] * 3)
                for seed in harness.BUILD.seeds(8):
                    done = self.run_program(["disguised", what, 24, 12], mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                            NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed, SIMCUDA_RACES=1,
                                            SIMCUDA_REPORT=self.path("races.json"))
                    self.assertEqual(plain, done.stdout, f"{what}, order {seed}")
                    self.assertEqual([], self.read_json("races.json")["races"], f"{what}, order {seed}")
                    stats = self.read_json("stats.json")
                    self.assertGreaterEqual(stats["steps_replayed"], 10, f"{what}: {stats}")
                    self.assertLess(stats["steps_replayed"], 13, f"{what}: {stats}")

    def test_what_leaves_its_object(self):
        for what in ("stride", "back", "counted", "apart", "later"):
            with self.subTest(what):
                plain = self.run_program(["leaving", what, 24]).stdout
                self.make_schedule(["leaving", what, 24])
                for seed in harness.BUILD.seeds(8):
                    self.check_order(plain, ["leaving", what, 24], seed, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"))

    def test_what_leaves_its_object_in_one_process(self):
        for what in ("stride", "back", "counted", "apart", "later"):
            with self.subTest(what):
                plain = self.run_program(["leaving", what, 120]).stdout
                for seed in harness.BUILD.seeds(4):
                    self.check_order(plain, ["leaving", what, 120], seed, mode="auto")

    def test_what_leaves_its_object_in_a_graph(self):
        for what in ("stride", "back", "counted", "apart"):
            with self.subTest(what):
                plain = self.run_program(["leaving", what, 40, "graph"]).stdout
                for seed in harness.BUILD.seeds(4):
                    self.check_order(plain, ["leaving", what, 40, "graph"], seed, mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off")

    def make_proven_schedule(self, what, steps):
        """By its kernels' code alone; which of its launches keep their place."""
        if not os.path.exists(harness.BUILD.program("choosing.simcuda")):
            self.skipTest("there is no nvcc")
        self.run_program(["choosing", what, steps], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments", "--trust", "proven")
        return [op.get("barrier", False) for op in self.read_json("schedule.json")["ops"] if op["kind"] == "launch"]

    def test_what_a_launch_excludes(self):
        for what in ("stride", "array"):
            with self.subTest(what):
                barriers = self.make_proven_schedule(what, 24)
                self.assertEqual(barriers, [False, what == "array"])
                plain = self.run_program(["choosing", what, 24]).stdout
                for seed in harness.BUILD.seeds(8):
                    self.check_order(plain, ["choosing", what, 24], seed, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"))

    def test_what_a_launch_excluded_when_it_was_recorded(self):
        self.make_proven_schedule("stride", 24)
        plain = self.run_program(["choosing", "later", 48]).stdout
        for seed in harness.BUILD.seeds(8):
            self.check_order(plain, ["choosing", "later", 48], seed, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                             NIMBLE_STATS=self.path("stats.json"))
            stats = self.read_json("stats.json")
            self.assertGreaterEqual(stats["steps_replayed"], 16, stats)
            self.assertLess(stats["steps_replayed"], 25, stats)

    def check_order(self, plain, program, seed, **settings):
        done = self.run_program(program, SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("races.json"), **settings)
        self.assertEqual(plain, done.stdout, f"{program}, order {seed}")
        self.assertEqual([], self.read_json("races.json")["races"], f"{program}, order {seed}")

    def test_every_order_gives_the_same_result(self):
        for mode in DECLARED + NAMED + BARRIERS + ["cooperative"]:
            with self.subTest(mode):
                plain = self.run_program(["hidden_state", mode, 24, 0]).stdout
                self.record(mode)
                for seed in harness.BUILD.seeds(12):
                    digest, stats = self.replay(mode, 24, 0, SIMCUDA_SEED=seed)
                    self.assertEqual(plain, digest, f"{mode}, order {seed}: {stats}")
                    self.assertEqual(stats["steps_replayed"], 23, stats)
                    self.assertEqual(stats["stood_aside"], "", stats)

    def test_what_is_known_of_each(self):
        for mode in DECLARED + NAMED + BARRIERS:
            with self.subTest(mode):
                schedule, report = self.record(mode)
                evidence = report["ops_by_evidence"]
                if mode in BARRIERS:
                    self.assertGreater(evidence["assumed"], 0, evidence)
                elif mode != "table_pageable":  # where the copy itself comes from memory that the trace does not know
                    self.assertEqual(evidence["assumed"], 0, report["assumed"])
                # The three kernels that fill buffers do not wait for each other.
                fills = self.kernels(schedule, "fill")[:3]
                for fill in fills:
                    self.assertFalse(after(schedule, fill) & set(fills), f"{mode}: {schedule['segments']}")

    def hidden_pairs(self, mode, schedule):
        """Pairs of ops that conflict by the hidden way alone, the earlier first."""
        fills = self.kernels(schedule, "fill")
        named = {"table_out": "spread", "table_struct": "sum_batch", "tensor_map": "sum_map", "constant": "weigh",
                 "texture": "sum_texture", "print": "speak", "child": "parent"}
        reached = self.kernels(schedule, named.get(mode, "sum_tables"))
        if mode in ("global", "surface", "heap"):
            place = "scratch" if mode == "global" else mode
            return [(self.kernels(schedule, "to_" + place)[0], self.kernels(schedule, "from_" + place)[0])]
        if mode == "constant":
            copies = [i for i, op in enumerate(schedule["ops"]) if op["kind"] == "copy"]
            return [(copies[1], reached[0])]
        if mode == "print":
            return [(reached[0], reached[1])]
        if mode == "table_kernel":  # what comes before is also read by the kernel that fills the table
            return [(reached[0], fills[3]), (reached[0], fills[4])]
        pairs = [(fills[0], reached[0]), (reached[0], fills[3])]  # `a`
        if mode in ("tensor_map", "texture", "child"):
            return pairs
        return pairs + [(fills[1], reached[0]), (reached[0], fills[4])]

    def test_without_these_dependencies_some_order_gives_another_result(self):
        for mode in DECLARED + NAMED + BARRIERS:
            with self.subTest(mode):
                plain = self.run_program(["hidden_state", mode, 12, 0]).stdout
                schedule, _ = self.record(mode)
                seen = 0
                for first, second in self.hidden_pairs(mode, schedule):
                    segment = schedule["ops"][first]["segment"]
                    if segment != schedule["ops"][second]["segment"]:
                        continue  # in order by more than an edge
                    self.assertIn(second, after(schedule, first), f"{mode}: {first} and {second} are not ordered")
                    broken = json.loads(json.dumps(schedule))
                    edges = broken["segments"][segment]["edges"]
                    # Whatever leads from the one to the other: of all paths the last link.
                    later = after(schedule, first) | {first}
                    broken["segments"][segment]["edges"] = [e for e in edges if e[1] != second or e[0] not in later]
                    self.write("broken.json", broken)
                    results = set()
                    for seed in range(1, 31):
                        results.add(self.replay(mode, 12, 0, "broken.json", SIMCUDA_SEED=seed)[0])
                        if results != {plain}:
                            seen += 1
                            break
                self.assertGreater(seen, 0, f"{mode}: no order shows that a dependency is missing")

    def test_steps_that_reach_other_memory_diverge(self):
        for mode in CHANGING:
            with self.subTest(mode):
                self.record(mode)
                diverged = 0
                for seed in harness.BUILD.seeds(12):
                    plain = self.run_program(["hidden_state", mode, 30, seed]).stdout
                    digest, stats = self.replay(mode, 30, seed, SIMCUDA_SEED=seed)
                    self.assertEqual(plain, digest, f"{mode}, order {seed}: {stats}")
                    diverged += stats["divergences"]
                self.assertGreater(diverged, 0, mode)

    def test_a_table_that_is_not_compared_goes_wrong(self):
        schedule, _ = self.record("table_copy")
        tables = [op for op in schedule["ops"] if "payload" in op]
        self.assertEqual(len(tables), 1)
        self.assertEqual(len(tables[0].pop("payload")), 2)
        self.write("broken.json", schedule)
        wrong = 0
        for seed in range(1, 13):
            plain = self.run_program(["hidden_state", "table_copy", 30, seed]).stdout
            wrong += plain != self.replay("table_copy", 30, seed, "broken.json", SIMCUDA_SEED=seed)[0]
        self.assertGreater(wrong, 0)

    def test_kernels_that_need_the_whole_device_stand_alone(self):
        schedule, _ = self.record("cooperative")
        direct = [op for op in schedule["ops"] if op["kind"] == "launch" and op["submit"] == "direct"]
        self.assertEqual(len(direct), 1)


if __name__ == "__main__":
    harness.main()
