"""Queries about memory that Nimble provides are answered as the driver would, in each mode."""

import os
import re

import harness
from harness import ProgramTest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Asked in every step, only from the 2000th on, in some alone; and by another thread.
WAYS = {"always": (300, 0, 1, 0), "late": (2300, 2000, 1, 0), "at times": (600, 40, 7, 0), "elsewhere": (300, 100, 3, 1)}


class Answers(ProgramTest):
    def compare(self, args, mode, **settings):
        plain = self.run_program(args)
        done = self.run_program(args, mode=mode, NIMBLE_STATS=self.path("stats.json"), **settings)
        self.assertEqual(plain.stdout, done.stdout)
        return done

    def replays(self, args):
        schedule = self.make_schedule(["answers", "step", 12, 12, 1, 0])
        for seed in (None, 1, 2):
            self.compare(args, "replay", NIMBLE_SCHEDULE=schedule, **({} if seed is None else {"SIMCUDA_SEED": seed}))
            yield self.read_json("stats.json")

    def test_the_questions_tell_kinds_of_memory_apart(self):
        # Or the tests below would find nothing.
        lines = self.run_program(["answers", "step", 5, 0, 1, 0]).stdout.splitlines()
        self.assertIn("4 times: ids new new old", lines)
        about = {line.split(": ")[1].split(" ")[0]: line for line in lines if ": " in line}
        self.assertIn(" 17=default ", about["a"])
        self.assertIn(" 1=null ", about["a"])
        self.assertIn(" ipc=E1", about["a"])
        self.assertIn(" 17=E1 ", about["freed"])

    def test_modes_in_which_no_memory_is_served(self):
        for way in (WAYS["always"], WAYS["elsewhere"]):
            for mode in ("off", "record", "regions"):
                with self.subTest(way=way, mode=mode):
                    self.compare(["answers", "set", *way], mode, NIMBLE_TRACE=self.path("trace.json"))
            with self.subTest(way=way, mode="graphs"):
                self.compare(["answers", "set", *way], "off", NIMBLE_GRAPHS="rewrite")

    def test_memory_of_a_replayed_step(self):
        for name, way in WAYS.items():
            with self.subTest(name):
                for stats in self.replays(["answers", "step", *way]):
                    self.assertGreater(stats["allocations_served"], way[0], stats)
                    self.assertEqual(stats["stood_aside"], "")

    def test_memory_of_a_step_that_auto_replays(self):
        for name, way in WAYS.items():
            with self.subTest(name):
                self.compare(["answers", "step", *way], "auto")
                stats = self.read_json("stats.json")
                if name == "late":
                    self.assertGreater(stats["allocations_served"], 1000, stats)

    def test_who_has_another_device_reach_memory(self):
        for name, way in WAYS.items():
            with self.subTest(name):
                for stats in self.replays(["answers", "set", *way]):
                    self.assertRegex(stats["stood_aside"], "another device may reach|the program uses cuPointerSetAttribute")
                self.compare(["answers", "set", *way], "auto")

    def test_who_gets_a_handle_for_memory(self):
        self.assertIn("times: handle of a page of b E0", self.run_program(["answers", "handle", 5, 0, 1, 0]).stdout)
        for name, way in WAYS.items():
            with self.subTest(name):
                for stats in self.replays(["answers", "handle", *way]):
                    self.assertIn("the program uses cuMemGetHandleForAddressRange", stats["stood_aside"])
                self.compare(["answers", "handle", *way], "auto")

    def test_how_much_memory_a_pool_has_given_out(self):
        for name, way in WAYS.items():
            with self.subTest(name):
                for stats in self.replays(["answers", "pool", *way]):
                    self.assertEqual("its pool" in stats["stood_aside"], True, stats)
                    if name == "always":
                        self.assertEqual(stats["allocations_served"], 0, stats)
                    else:
                        self.assertGreater(stats["allocations_served"], 0, stats)
                self.compare(["answers", "pool", *way], "auto")

    def test_memory_of_captures(self):
        self.assertIn("4 times: waits 00", self.run_program(["answers", "graph", 4]).stdout)
        for mode in ("off", "record", "replay", "auto", "regions"):
            with self.subTest(mode):
                settings = {"NIMBLE_TRACE": self.path("trace.json")}
                if mode == "replay":
                    settings["NIMBLE_SCHEDULE"] = self.make_schedule(["answers", "step", 12, 12, 1, 0])
                self.compare(["answers", "graph", 4], mode, **settings)
        for seed in harness.BUILD.seeds(4):
            self.compare(["answers", "graph", 4], "off", NIMBLE_GRAPHS="rewrite", SIMCUDA_SEED=seed)

    def test_nodes_that_stand_for_memory(self):
        plain = self.run_program(["answers", "nodes", 5]).stdout.splitlines()
        done = self.run_program(["answers", "nodes", 5], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_LOG="info")
        self.assertEqual(plain, done.stdout.splitlines())  # of all but the first graph that is asked about
        self.assertIn("asks about its graphs' memory", done.stderr)

    def test_the_page_has_the_table_of_the_code(self):
        with open(os.path.join(ROOT, "include", "nimble", "internal", "answers.def"), encoding="utf-8") as file:
            code = re.findall(r"^NIMBLE_ANSWER\((\w+), (\w+), (\w+)\)", file.read(), re.MULTILINE)
        with open(os.path.join(ROOT, "docs", "reference", "answers.md"), encoding="utf-8") as file:
            page = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \|", file.read(), re.MULTILINE)
        self.assertGreater(len(code), 15)
        self.assertEqual(code, page)


if __name__ == "__main__":
    harness.main()
