"""The benchmarks' programs do what their figures say. Nothing here is timed."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import harness

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))

from processes import Replayed  # noqa: E402


class OnNullDriver(unittest.TestCase):
    """On the driver that does nothing, through what scripts/bench runs the programs with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.build = pathlib.Path(harness.BUILD.bin).parent

    def test_threads_are_measured_beside_a_step_that_is_replayed(self):
        threads = Replayed(self.build, self.work, "threads", ["thread_overhead"])
        threads.make_schedule(1, 1, 1)
        output, _ = threads.replay(2 * 20, 2, 2, 20)
        self.assertEqual([len(samples) for samples in json.loads(output)["cpu_ns"]], [2, 2])


if __name__ == "__main__":
    harness.main()
