"""Graphs that a program makes itself, written anew: they compute what they computed, or stay as they are."""

import json
import re

import harness
from harness import ProgramTest

# What becomes of the program's graphs; the first line about each.
REWRITTEN = r"graph 1: {} nodes, on \d+ streams with \d+ edges between them"
KINDS = {
    "plain": REWRITTEN.format(9),
    "pool": REWRITTEN.format(9),
    "own": REWRITTEN.format(5),
    "waiting": REWRITTEN.format(6),
    "forked": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them",
    "update": REWRITTEN.format(9),
    "set": REWRITTEN.format(9),
    "streams": REWRITTEN.format(9),
    "nested": r"graph 2 stays as it is: it holds a node that is not a kernel, copy or set",
    "many": REWRITTEN.format(9),
    "released": REWRITTEN.format(9) + r"[^$]*state 3, 9 nodes",
    "joined": REWRITTEN.format(9) + r"[^$]*graph 1: the program's own is launched from now on: its separate allocations may share one allocation now",
    "learned": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them[^$]*state 3, 9 nodes on [2-9] streams: \n",
    "ended": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them[^$]*state 3, 9 nodes on [2-9] streams: \n",
    "early": REWRITTEN.format(9),
    "clusters": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them[^$]*state 3, 9 nodes on [2-9] streams: \n",
    "again": r"graph 2: 5 nodes, on 2 streams with 2 edges between them",
    "opaque": r"graph 1: a node ordered with everything: launch advance: its code proves nothing[^$]*" + REWRITTEN.format(10),
    "eased": r"graph 2: 12 nodes, on 2 streams with \d+ edges between them",
    "hosted": r"graph 2 stays as it is: each of its nodes needs the one before",
    "unlearned": r"graph 2 stays as it is: each of its nodes needs the one before[^$]*state 0, 0 nodes on 0 streams: each of",
    "strayed": r"graph 2 stays as it is: the capture did not follow its plan",
    "late": r"graph 2 stays as it is: the capture did not follow its plan",
    # It asks which nodes there are, to go on after the last: what it allocates from then on is the driver's.
    "parts": r"asks about its graphs' memory[^$]*graph 1 stays as it is: it holds a node that is not a kernel, copy or set",
    "disabled": REWRITTEN.format(9) + r"[^$]*graph 1: the program's own is launched from now on: the program has changed it",
    "hops": REWRITTEN.format(9),
    "kept": REWRITTEN.format(9) + r"[^$]*state 0, 9 nodes on [2-9] streams: the program asked for it\n",
    "foreign": REWRITTEN.format(9) + r"[^$]*state 0, 9 nodes on [2-9] streams: it is launched on the default stream of another context\n",
    "device": r"graph 1 stays as it is: kernels may launch it",
    "recapture": r"graph 2 stays as it is: it holds a node that is not a kernel, copy or set",
}


# Of what can be seen less of than it does, with what may become of it.
STAYS = r"graph {} stays as it is: {}"
UNSEEN = {
    "cleared": REWRITTEN.format(4),  # and the two that share the workspace one after the other
    "cleared_inside": REWRITTEN.format(5),
    "cleared_before": r"graph 2: 4 nodes, on \d+ streams",
    "table": "graph 1: ",
    "table_late": "graph 1: ",
    "table_cleared": "graph 2: ",
    "table_reset": "graph 1: ",
    "table_reset_allocates": "graph 1: ",
    "cache": r"graph 1 may write to memory that is not listed: \d+ bytes at 0x[0-9a-f]+, by launch [^$]*writes only: [1-9] without the cache, 0 with it",
    "cache_cudnn_ops": r"writes only: 0 without the cache, 0 with it",
    "cache_own_ops": r"writes only: [1-9] without the cache, 0 with it",
    "reversed": "graph 1",
    "cooperative": STAYS.format(1, ""),
    "reserved": REWRITTEN.format(3) + r"[^$]*graph 1: the program's own is launched from now on: a word of its kernels' parameters",
    "again": REWRITTEN.format(3) + r"[^$]*graph 1: the program's own is launched from now on: a word of its kernels' parameters",
    "number": REWRITTEN.format(3) + r"\nstate 3, 3 nodes on [23] streams",
    "captured": REWRITTEN.format(3) + r"[^$]*graph 1: the program's own is launched from now on: a word of its kernels' parameters",
    "registered": REWRITTEN.format(3) + r"[^$]*graph 1: the program's own is launched from now on: a word of its kernels' parameters",
    "elsewhere": REWRITTEN.format(3) + r"[^$]*state 3, 3 nodes on 2 streams",
    "class_late": "graph 1: ",
    "class_each": "graph 1: ",
    "prepared": "graph 1: a node ordered with everything: launch prepare",
    "one_based": "graph 1",
    "packed": "graph 1",
}

# Memory of captures, and other things that a graph depends on and that end or change: Nimble's messages.
MEMORY = {
    "freed": REWRITTEN.format(2),
    "freed_in_capture": REWRITTEN.format(2),
    "other_graph": REWRITTEN.format(2),
    "thrown": REWRITTEN.format(2),
    "hands": "\n0 MiB more are taken",
    "again": REWRITTEN.format(2),
    "set": "graph 1 stays as it is: its nodes need all the order that the program's own branches give them",
    "set_planned": "graph 2 stays as it is: the capture did not follow its plan",
    "released": "graph 1",
    "contexts": "graph 1",
    "two_contexts": STAYS.format(1, "it holds a node that is not a kernel, copy or set"),
    "failed": "\n2 MiB more are taken|^2 MiB more are taken",
    "dropped": "\n2 MiB more are taken|^2 MiB more are taken",
    "late": REWRITTEN.format(2),
    "spoilt": "2 MiB more are taken",
    "reached": r"graph 1: 2 nodes, on [^$]*\n8 MiB of the pool, released: 0 0 nimble: info: graph 2: 2 nodes, on[^$]*\n0 MiB left\n",
    "elsewhere": r"here 0, [^$]*no memory for a capture's allocation of 1024 bytes: its other memory is another device's, or the pool was changed meanwhile\nelsewhere 801, released 0\n",
    "node": REWRITTEN.format(2),
    "unloaded": r"state 3: \n[^$]*state 0: code of its kernels was unloaded",
    "returned": STAYS.format(1, "it names memory that was released since it was captured") +
                r"[^$]*graph 2 stays as it is: each of its nodes needs the one before",
}


class Graphs(ProgramTest):
    trust = "observed"

    def rewrite(self, what, steps=40, tune="off", **settings):
        return self.run_program(["rewritten", what, steps], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE=tune,
                                NIMBLE_LOG="info", **settings)

    def test_they_compute_what_they_computed(self):
        for what, said in KINDS.items():
            with self.subTest(what=what):
                plain = self.run_program(["rewritten", what, 40])
                for seed in harness.BUILD.seeds(12):
                    done = self.rewrite(what, SIMCUDA_SEED=seed, SIMCUDA_RACES=1,
                                        SIMCUDA_REPORT=self.path("report.json"))
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")  # and what memory is taken in the end
                    self.assertRegex(done.stderr, said)
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")

    def test_what_cannot_be_seen(self):
        for what, said in UNSEEN.items():
            with self.subTest(what=what):
                plain = self.run_program(["unseen", what])
                for seed in harness.BUILD.seeds(6):
                    done = self.run_program(["unseen", what], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off", NIMBLE_LOG="info",
                                            SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {done.stderr}")
                    self.assertRegex(done.stderr, said)
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")

    def memory(self, what, tune="off", **settings):
        return self.run_program(["graph_memory", what], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE=tune, NIMBLE_LOG="info",
                                **settings)

    def test_memory_of_captures(self):
        for what, said in MEMORY.items():
            with self.subTest(what=what):
                plain = self.run_program(["graph_memory", what])
                for seed in harness.BUILD.seeds(6):
                    done = self.memory(what, SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {done.stderr}")
                    self.assertRegex(done.stderr, said)
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")

    def test_a_capture_that_comes_to_nothing_is_over(self):
        for what in ("destroyed", "destroyed_context", "spoilt_before"):
            done = self.memory(what, tune="start")
            self.assertRegex(done.stderr, r"graph 1: the (rewritten one|program's own) is launched", what)

    def test_what_ends_or_does_not(self):
        for what in ("null", "primary", "reset", "handles", "peer", "slots", "variables"):
            with self.subTest(what=what):
                plain = self.run_program(["graph_ends", what])
                for seed in harness.BUILD.seeds(3 if what == "handles" else 6):
                    done = self.run_program(["graph_ends", what], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off",
                                            SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {done.stderr}")
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")
                if what in ("peer", "slots"):
                    self.assertRegex(done.stderr, "both in it\nstate 0: its separate allocations may share one allocation now")

    def test_memory_of_the_host_that_libraries_have_for_themselves(self):
        # No one is told anything by a library's own. Of other memory it has to be known that the kernel does not communicate by it.
        waits = self.path("rules.json")
        with open(waits, "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 4, "rules": [{"kernel": "void fill<3>.*", "blocks_wait": True, "communicates": False}]}, file)
        for what, rules, said in (("flag_cudnn_ops", waits, "0 without the flag, 0 with it"),
                                  ("flag_own_ops", waits, "[1-9] without the flag, 0 with it"),
                                  ("flag_cudnn_ops", None, "0 without the flag, 0 with it"),
                                  ("flag_own_ops", None, "[1-9] without the flag, [1-9] with it")):
            with self.subTest(what=what, rules=rules):
                plain = self.run_program(["unseen", what])
                done = self.run_program(["unseen", what], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off",
                                        **({"NIMBLE_RULES": rules} if rules else {}))
                self.assertEqual(plain.stdout, done.stdout)
                self.assertRegex(done.stderr, "writes only: " + said)

    def test_products_have_workspaces_of_their_own(self):
        # Serial, except for what needs two of them. 8 MiB for each, and for everything else.
        apart, serial = (rf"a first capture with {mib} MiB[^$]*graph 2: 9 nodes, on {streams} streams" for mib, streams in ((32, "[3-9]"), (8, "2")))
        for args, said in ((("set", "torch_cuda"), apart), (("given", "torch_cuda"), apart), (("both", "torch_cuda"), apart),
                           (("set", "own"), serial), (("given", "own"), apart), (("both", "own"), apart),
                           (("set", "torch_cuda", "spoilt"), apart), (("given", "own", "spoilt"), apart),
                           (("both", "torch_cuda", "large"), serial),
                           (("given", "opener"), apart), (("set", "opener"), serial),
                           (("mixed", "torch_cuda"), r"graph 2: 33 nodes, on [2-9] streams")):
            with self.subTest(args=args):
                plain = self.run_program(["products", *args])
                for seed in harness.BUILD.seeds(6):
                    done = self.run_program(["products", *args], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off", NIMBLE_LOG="info",
                                            SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
                    self.assertEqual(plain.stdout, done.stdout, f"seed {seed}: {done.stderr}")
                    self.assertRegex(done.stderr, said)
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")
                    self.assertIn("\n0 MiB are not given back", done.stderr)
                self.assertEqual(plain.stdout, self.run_program(["products", *args], mode="off").stdout)

    def test_work_that_goes_past_captures_is_counted(self):
        plain = self.run_program(["graph_ends", "strays"])
        done = self.run_program(["graph_ends", "strays"], mode="off", NIMBLE_GRAPHS="rewrite")
        self.assertEqual(plain.stdout, done.stdout)
        for which in ("strays", "rehearsed"):
            self.assertEqual(["0", "1", "2", "1", "0", "1"], re.findall(rf"^{which} (\d+)", done.stderr, re.MULTILINE), which)
        self.assertEqual(["0"] * 6, re.findall(r"^rehearsed \d, behind (\d+)$", done.stderr, re.MULTILINE))
        self.assertEqual([("0", "0"), ("0", "1")], re.findall(r"^in parts: (\d+), behind (\d+)$", done.stderr, re.MULTILINE))
        self.assertEqual(["0", "0", "0", "1"], re.findall(r"^of a part (\d+)$", done.stderr, re.MULTILINE))
        self.assertNotIn("twice", done.stderr)

    def test_more_than_the_queue_holds_is_recorded_while_a_library_is_loaded(self):
        """Who writes it down must not wait for the dynamic loader, which waits for the program, which waits for room."""
        settings = {"LOADING_CALLS": int(1500000 * harness.BUILD.share)}
        plain = self.run_program(["graph_ends", "first"], **settings)
        done = self.run_program(["graph_ends", "first"], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_AUTO_LIMIT="1", timeout=120, **settings)
        self.assertEqual(plain.stdout, done.stdout)

    def test_beside_a_thread_that_loads_libraries(self):
        plain = self.run_program(["graph_ends", "loading"])
        done = self.run_program(["graph_ends", "loading"], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_AUTO_LIMIT="1", timeout=120)
        self.assertEqual(plain.stdout, done.stdout)

    def test_launches_that_the_driver_refuses(self):
        plain = self.run_program(["graph_ends", "refused"])
        for seed in harness.BUILD.seeds(6):
            for tune in ("start", "off"):
                done = self.run_program(["graph_ends", "refused"], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE=tune,
                                        SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"))
                self.assertEqual(plain.stdout, done.stdout, f"seed {seed}, tune {tune}: {done.stderr}")
                self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}, tune {tune}")

    def test_who_may_be_watching_sees_the_programs_order(self):
        for seed in harness.BUILD.seeds(6):
            done = self.memory("shown", SIMCUDA_SEED=seed)
            self.assertIn("the flag was seen early: 0", done.stdout, f"seed {seed}")
            self.assertRegex(done.stderr, "graph 1: the program's own is launched from now on: others may reach its memory now")

    def test_what_happens_while_a_graph_is_analyzed(self):
        self.assertNotIn("state 3", self.memory("meanwhile").stderr)

    def test_beside_another_thread_that_works(self):
        # Where the other's launch comes among the nodes as they are recorded, a graph stays as it is.
        self.assertRegex(self.memory("threads").stderr, r"\n[4-8] of 8 are rewritten")

    def test_it_is_never_too_late_to_learn(self):
        plain = self.run_program(["rewritten", "long", 20])
        for seed in harness.BUILD.seeds(6):
            done = self.rewrite("long", 20, SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"),
                                NIMBLE_AUTO_LIMIT="1")
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertRegex(done.stderr, KINDS["learned"])
            self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")

    def test_a_program_that_does_not_capture_again_keeps_no_other_from_learning(self):
        plain = self.run_program(["graph_memory", "refused"])
        done = self.memory("refused", NIMBLE_AUTO_LIMIT="1")
        self.assertEqual(plain.stdout, done.stdout)
        full = int(re.search(r"the recording was full for (\d+)", done.stderr).group(1))
        self.assertTrue(0 < full < 100, full)  # of 400: the rest are in recordings made anew

    def test_while_they_are_timed_too(self):
        for what in ("plain", "pool", "streams", "hops"):
            plain = self.run_program(["rewritten", what, 64])
            for seed in harness.BUILD.seeds(12):
                done = self.rewrite(what, 64, tune="start", SIMCUDA_SEED=seed)
                self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            if what != "hops":  # which is changed before
                self.assertRegex(done.stderr, r"graph 1: the (rewritten one|program's own) is launched: [\d.]+ us a launch; "
                                              r"the program's own [\d.]+ us")

    def test_less_is_enough_where_the_driver_was_in_both_its_states(self):
        for what, launched in (("little", "program's own"), ("settled", "rewritten one")):
            plain = self.run_program(["rewritten", what, 40])
            done = self.rewrite(what, 40, tune="start")
            self.assertEqual(plain.stdout, done.stdout, what)
            self.assertRegex(done.stderr, f"graph 1: the {launched} is launched", what)
            rewritten, own = (float(figure) for figure in re.search(r"([\d.]+) us a launch; the program's own ([\d.]+) us",
                                                                    done.stderr).groups())
            self.assertTrue(0.99 * own < rewritten < 0.997 * own, f"{what}: {rewritten} us instead of {own}")


if __name__ == "__main__":
    harness.main()
