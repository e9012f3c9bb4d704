"""What captured graphs allocate and release themselves is theirs while they run: where memory is short it goes, and comes back."""

import re

import harness
from harness import ProgramTest

# What `transient` can do, and how much of the device's memory Nimble keeps for it once the GPU has nothing to do, in MiB:
# none, except for memory that lasts, and for graphs whose launches are unknown; and how much more the driver might keep, if
# graphs happen to run concurrently.
PAIR = 88
KEEPS = {"one": 0, "apart": 0, "later": 0, "moved": 0, "ended": 0, "captured": 0, "parts": 3 * PAIR, "updated": 0, "threads": 128,
         "lasting": 6 * 2, "context": 0}
ROOM = 12  # beside that
# Of a device that has enough for two graphs at a time, or for one with what six of them leave, in the driver's pieces.
SMALL = {what: 2 * PAIR + ROOM for what in ("one", "moved", "ended", "later")} | {"lasting": 128 + 6 * 32 + ROOM}


class Transient(ProgramTest):
    def run_it(self, what, **settings):
        done = self.run_program(["transient", what], **settings)
        return done.stdout, int(re.search(r"in use (\d+) MiB", done.stderr).group(1)), done.stderr

    def rewrite(self, what, **settings):
        return self.run_it(what, mode="off", NIMBLE_GRAPHS="rewrite", SIMCUDA_RACES=1, SIMCUDA_REPORT=self.path("report.json"),
                           **settings)

    def test_programs_compute_what_they_did_and_see_their_memory_free(self):
        for what, keeps in KEEPS.items():
            with self.subTest(what=what):
                plain, plain_used, _ = self.run_it(what)
                for tune in ("off", "start"):
                    for seed in harness.BUILD.seeds(4):
                        out, used, log = self.rewrite(what, NIMBLE_TUNE=tune, SIMCUDA_SEED=seed)
                        self.assertEqual(plain, out, f"seed {seed}: {log}")
                        self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")
                        self.assertLess(used, plain_used + keeps + ROOM, f"seed {seed}")

    def test_as_much_is_free_as_with_graphs_of_the_drivers(self):
        # Which keeps memory of graphs in pieces, and shares it between those that do not run at once.
        plain, _, _ = self.run_it("many")
        self.assertIn("trimmed: 352 MiB", plain)
        for tune in ("off", "start"):
            for seed in harness.BUILD.seeds(4):
                out, _, log = self.rewrite("many", NIMBLE_TUNE=tune, NIMBLE_LOG="info", SIMCUDA_SEED=seed)
                self.assertEqual(plain, out, f"seed {seed}: {log}")
                self.assertRegex(log, "graph 12[: ]")

    def test_a_small_device_is_enough(self):
        for what, memory in SMALL.items():  # of up to six graphs
            with self.subTest(what=what):
                plain, _, _ = self.run_it(what, SIMCUDA_MEMORY=memory)
                for seed in harness.BUILD.seeds(4):
                    out, _, log = self.rewrite(what, NIMBLE_TUNE="off", NIMBLE_LOG="info", SIMCUDA_SEED=seed,
                                               SIMCUDA_MEMORY=memory)
                    self.assertEqual(plain, out, f"seed {seed}: {log}")
                    self.assertEqual([], self.read_json("report.json")["races"], f"seed {seed}")
                    # None has memory of the driver's own, which would be a node.
                    self.assertRegex(log, "graph 4[: ]")
                    self.assertNotIn("a node that is not a kernel", log, f"seed {seed}")


if __name__ == "__main__":
    harness.main()
