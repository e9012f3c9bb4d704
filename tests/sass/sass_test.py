"""A small corpus of kernels, compiled here: machine code's proofs against PTX's, and against what the kernels do."""

import os
import sys
import tempfile
import unittest

import corpus

BUILD, NVCC = sys.argv[1:3]
KERNELS = 60
# A sanitizer, which looks for errors in the prover itself, makes each of these ten times as slow.
RUNS, MUTATIONS = (5, 10) if os.environ.get("NIMBLE_TEST_PRELOAD") else (20, 40)
INDEX_KERNELS = 100
CHOICE_KERNELS = 80
NEWER_KERNELS = 20  # that take what only newer architectures have, for each of these


def answer_of(folder, count, level):
    corpus.write_kernels(folder, 1, count, level)
    ptx, cubins = corpus.compile_kernels(NVCC, folder, ptx_arch=level)
    return corpus.ask(os.path.join(BUILD, "bin", "sass_oracle"), folder, ptx, cubins, RUNS, MUTATIONS)


class Corpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.answer = answer_of(cls.folder.name, KERNELS, 75)
        cls.counts = cls.answer.counts

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_no_run_contradicts_a_proof(self):
        self.assertEqual(self.answer.wrong, [])
        self.assertEqual(self.counts["contradictions"], 0)

    def test_the_runs_show_something(self):
        counts = self.counts
        understood = counts["both"] + counts["only_machine_code"]
        self.assertGreaterEqual(understood, counts["kernels"] // 2)
        self.assertEqual(counts["runs"], understood * RUNS)
        self.assertGreaterEqual(counts["runs_to_end"], counts["runs"] * 0.99)
        self.assertGreaterEqual(counts["accesses_in_objects"], counts["accesses"] * 0.95)
        # Most of what is proven to be possible happens.
        self.assertLessEqual(counts["claims_unseen"], counts["claims"] * 0.25)
        self.assertGreater(counts["pointers_stored"], 0)
        self.assertGreater(counts["accesses_of_variables"], 0)
        self.assertGreaterEqual(counts["mutants_understood"], counts["mutants"] // 5)

    def test_machine_code_says_what_ptx_says(self):
        counts = self.counts
        # The compiler has left accesses out, and PTX's flow looks at no order.
        self.assertGreaterEqual(counts["same"], counts["both"] * 0.8, self.answer.differences)
        self.assertLessEqual(counts["wider"], counts["both"] * 0.04, self.answer.differences)


class Newer(unittest.TestCase):
    """Asynchronous and bulk copies, matrices and barriers in shared memory, tensor maps, and so on."""

    def test_no_run_contradicts_a_proof(self):
        for level in (80, 90, 91, 100):
            with self.subTest(level=level), tempfile.TemporaryDirectory() as folder:
                answer = answer_of(folder, NEWER_KERNELS, level)
                counts = answer.counts
                self.assertEqual(answer.wrong, [])
                self.assertEqual(counts["contradictions"], 0)
                understood = counts["both"] + counts["only_machine_code"]
                self.assertGreaterEqual(understood, counts["kernels"] // 3)
                self.assertEqual(counts["runs"], understood * RUNS)
                self.assertGreaterEqual(counts["runs_to_end"], counts["runs"] * 0.94)
                self.assertGreaterEqual(counts["accesses_in_objects"], counts["accesses"] * 0.95)
                self.assertLessEqual(counts["claims_unseen"], counts["claims"] * 0.25)


class Indices(unittest.TestCase):
    """How far addresses get: kernels that are made for that, with parameters at their extremes."""

    def test_no_access_leaves_its_bounds(self):
        with tempfile.TemporaryDirectory() as folder:
            corpus.write_index_kernels(folder, 1, INDEX_KERNELS)
            ptx, cubins = corpus.compile_kernels(NVCC, folder)
            answer = corpus.ask(os.path.join(BUILD, "bin", "sass_oracle"), folder, ptx, cubins, RUNS, MUTATIONS // 4)
        counts = answer.counts
        self.assertEqual(answer.wrong, [])
        self.assertEqual(counts["contradictions"], 0)
        self.assertGreaterEqual(counts["both"], counts["kernels"] * 0.85)
        # Some loops go on for very long.
        self.assertGreaterEqual(counts["runs_to_end"], counts["runs"] * 0.85)
        self.assertGreaterEqual(counts["accesses_with_extents"], counts["accesses_in_objects"] * 0.2)
        self.assertGreater(counts["pointers_left_alone"], counts["runs"] * 0.1)


class Choices(unittest.TestCase):
    """Kernels that may follow addresses from memory: launches whose numbers exclude that, and others."""

    def test_what_a_launch_excludes_does_not_happen(self):
        for level, count in ((75, CHOICE_KERNELS), (80, 2 * NEWER_KERNELS)):  # the latter copy asynchronously
            with self.subTest(level=level), tempfile.TemporaryDirectory() as folder:
                corpus.write_choice_kernels(folder, 1, count)
                ptx, cubins = corpus.compile_kernels(NVCC, folder, ptx_arch=level)
                answer = corpus.ask(os.path.join(BUILD, "bin", "sass_oracle"), folder, ptx, cubins, RUNS, MUTATIONS // 4)
                counts = answer.counts
                self.assertEqual(answer.wrong, [])
                self.assertEqual(counts["contradictions"], 0)
                self.assertGreaterEqual(counts["only_machine_code"], counts["kernels"] * 0.2)
                self.assertGreaterEqual(counts["runs_that_exclude_doubts"], counts["runs"] * 0.1)
                self.assertGreaterEqual(counts["runs_with_doubts"], counts["runs"] * 0.1)
                self.assertGreaterEqual(counts["accesses_in_objects"], counts["accesses"] * 0.8)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
