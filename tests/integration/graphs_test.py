"""Graphs that a program makes itself, written anew: they compute what they computed, or stay as they are."""

import harness
from harness import ProgramTest

# What becomes of the program's graphs; the first line about each.
REWRITTEN = r"graph 1: {} nodes, on \d+ streams with \d+ edges between them"
KINDS = {
    "plain": REWRITTEN.format(9),
    "pool": REWRITTEN.format(9),
    "opaque": REWRITTEN.format(10),
    "own": REWRITTEN.format(5),
    "waiting": REWRITTEN.format(6),
    "forked": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them",
    "update": REWRITTEN.format(9),
    "set": REWRITTEN.format(9),
    "streams": REWRITTEN.format(9),
    "nested": r"graph 2 stays as it is: it holds a node that is no kernel, copy or set",
    "many": REWRITTEN.format(9),
    "released": REWRITTEN.format(9) + r"[^$]*state 3, 9 nodes",
    "joined": REWRITTEN.format(9) + r"[^$]*graph 1 is the program's own: what it used apart may lie in one piece of memory now",
    "learned": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them[^$]*state 3, 9 nodes on [2-9] streams: \n",
    "early": REWRITTEN.format(9),
    "clusters": r"graph 2: 9 nodes, on \d+ streams with \d+ edges between them[^$]*state 3, 9 nodes on [2-9] streams: \n",
    "again": r"graph 2: 5 nodes, on 2 streams with 2 edges between them",
    "unlearned": r"graph 2 stays as it is: each of its nodes needs the one before[^$]*state 0, 0 nodes on 0 streams: each of",
    "strayed": r"graph 2 stays as it is: the capture did not keep to its plan",
    "late": r"graph 2 stays as it is: the capture did not keep to its plan",
    "parts": r"graph 1 stays as it is: the capture did not keep to its plan",
    "disabled": REWRITTEN.format(9) + r"[^$]*graph 1 is the program's own: it is changed",
    "hops": REWRITTEN.format(9),
    "kept": REWRITTEN.format(9) + r"[^$]*state 0, 9 nodes on [2-9] streams: the program wants it so\n",
    "recapture": r"graph 2 stays as it is: it holds a node that is no kernel, copy or set",
}


# Of what can be seen less of than it does, with what may become of it.
STAYS = r"graph {} stays as it is: {}"
UNSEEN = {
    "cleared": REWRITTEN.format(4),  # and the two that share the workspace one behind the other
    "cleared_inside": REWRITTEN.format(5),
    "cleared_before": r"graph 2: 4 nodes, on \d+ streams",
    "table": "graph 1: ",
    "table_late": "graph 1: ",
    "table_cleared": "graph 2: ",
    "table_reset": "graph 1: ",
    "table_reset_allocates": "graph 1: ",
    "cache": r"writes only: [1-9] without the cache, 0 with it",
    "reversed": "graph 1",
    "cooperative": STAYS.format(1, ""),
}


class Graphs(ProgramTest):
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

    def test_it_is_never_too_late_to_learn(self):
        plain = self.run_program(["rewritten", "long", 20])
        for seed in harness.BUILD.seeds(6):
            done = self.rewrite("long", 20, SIMCUDA_SEED=seed, SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"),
                                NIMBLE_AUTO_LIMIT="1")
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertRegex(done.stderr, KINDS["learned"])
            self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")

    def test_while_they_are_timed_too(self):
        for what in ("plain", "pool", "streams", "hops"):
            plain = self.run_program(["rewritten", what, 64])
            for seed in harness.BUILD.seeds(12):
                done = self.rewrite(what, 64, tune="start", SIMCUDA_SEED=seed)
                self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            if what != "hops":  # which is changed before
                self.assertRegex(done.stderr, r"graph 1: the (rewritten one|program's own) is launched: [\d.]+ us a launch; "
                                              r"the program's own [\d.]+ us")


if __name__ == "__main__":
    harness.main()
