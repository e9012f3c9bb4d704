"""Regions of a program, launched as graphs: what they compute is what their code computes, or they are refused."""

import harness
from harness import ProgramTest


class Regions(ProgramTest):
    def test_launching_does_what_the_code_does(self):
        plain = self.run_program(["regions", "code", 50])
        for seed in harness.BUILD.seeds(40):
            done = self.run_program(["regions", "region", 50], mode="regions", SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            self.assertEqual(done.stderr, "launches: 49\n")

    def test_addresses_beside_memory_that_moves(self):
        beside = r"byte \d+ of its parameters may be an address beside memory that the region allocates and releases"
        # The word before it is the end of the memory there, from which a kernel may go backwards.
        for address, why in {"end": r"\)?: " + beside, "before": r"\)? may use any memory, ", "padded": r"\)?: " + beside}.items():
            with self.subTest(address=address):
                plain = self.run_program(["regions", "code", 12, address])
                done = self.run_program(["regions", "region", 12, address], mode="regions")
                self.assertEqual(plain.stdout, done.stdout)
                self.assertRegex(done.stderr, r"compile: op \d+ \(launch .*span[^)]*" + why)

    def test_the_end_of_memory_that_moves_in_a_table(self):
        plain = self.run_program(["regions", "code", 12, "table"])
        done = self.run_program(["regions", "region", 12, "table"], mode="regions")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertRegex(done.stderr, r"compile: op \d+ \(copy[^)]*\) copies an address of memory that the region allocates and releases")

    def test_memory_that_lasts_where_other_memory_was(self):
        plain = self.run_program(["regions", "code", 12, "reused"])
        for seed in harness.BUILD.seeds(20):
            done = self.run_program(["regions", "region", 12, "reused"], mode="regions", SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout)
            self.assertEqual(done.stderr, "launches: 11\n")

    def test_launches_by_threads_without_a_context(self):
        plain = self.run_program(["regions", "code", 12])
        done = self.run_program(["regions", "region", 12, "away"], mode="regions")
        self.assertEqual((plain.stdout, "launches: 11\n"), (done.stdout, done.stderr))

    def test_without_nimble_and_in_other_modes_the_code_runs(self):
        plain = self.run_program(["regions", "code", 12])
        for mode, answer in ((None, 1), ("off", 5), ("auto", 5)):
            done = self.run_program(["regions", "region", 12], mode=mode)
            self.assertEqual(done.stdout, f"begin: {answer}\n" * 12 + plain.stdout, mode)

    def test_regions_that_cannot_be(self):
        lines = self.run_program(["regions", "errors"], mode="regions").stdout.splitlines()
        said = {line.split(":")[0]: line.split(":", 1)[1].strip() for line in lines}
        success, invalid, failed, refused, stale = 0, 2, 4, 6, 7
        self.assertEqual(said["nothing"], f"{invalid} {invalid} {invalid} {success}")
        self.assertEqual(said["nested"], f"{failed} null")
        self.assertEqual(said["too early"], f"{invalid} {invalid}")
        self.assertEqual(said["twice"], f"{invalid} {success}")
        for what in ("good", "event", "lasting memory", "unknown kernel", "again", "the last"):
            self.assertEqual(said[what], f"end {success} compile {success} launch {success}", what)
        for what, why in (("synchronizes", "cuStreamSynchronize: the host looks"), ("pageable", "cannot be part of a graph"),
                          ("host function", "host function"), ("earlier event", "wait"), ("empty", "no op"),
                          ("unknown kernel in memory of its own", "may use any memory")):
            self.assertRegex(said[what], f"^end {success} compile {refused} launch {refused} .*{why}", what)
        for what, why in (("its event is destroyed", "event"), ("it is released", "memory that it uses"),
                          ("a state is released", "memory that it uses"),
                          ("what it may use is released", "memory that it uses"), ("code is unloaded", "code"),
                          ("its context has ended", "its context has ended")):
            self.assertRegex(said[what], f"^launch {stale} .*{why}", what)
        self.assertEqual(said["released before"], str(stale))
        self.assertEqual(said["after its context"], str(success))
        self.assertEqual(said["still good"], f"launch {success}")

    def test_a_program_without_regions_is_left_alone(self):
        plain = self.run_program(["chaos", 60, 3])
        self.assertEqual(plain.stdout, self.run_program(["chaos", 60, 3], mode="regions").stdout)


if __name__ == "__main__":
    harness.main()
