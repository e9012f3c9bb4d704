"""The lists of entry points are complete: each function of the CUDA headers is intercepted or passes with a reason, and
the page that says so is up to date. And the check sees it when that is not so.

Usage: driver_calls_test.py SOURCE_FOLDER CUDA_INCLUDE_FOLDER COMPILER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, INCLUDE, COMPILER = sys.argv[1:4]
PARTS = ["scripts/driver_calls", "include/nimble/internal/driver_calls.def", "include/nimble/internal/passed_calls.def", "shim/intercept/decode",
         "docs/reference/driver-calls.md"]


def check(root):
    command = [sys.executable, os.path.join(root, "scripts", "driver_calls"), "--check", "--include", INCLUDE,
               "--compiler", COMPILER]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class DriverCalls(unittest.TestCase):
    def copy(self):
        """A copy of what the check reads, to be spoiled."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for part in PARTS:
            target = os.path.join(folder.name, part)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            copy = shutil.copytree if os.path.isdir(os.path.join(ROOT, part)) else shutil.copy
            copy(os.path.join(ROOT, part), target)
        return folder.name

    def edit(self, root, path, pattern, replacement):
        path = os.path.join(root, path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
        self.assertEqual(count, 1, pattern)
        with open(path, "w", encoding="utf-8") as file:
            file.write(changed)

    def refused(self, root, *words):
        done = check(root)
        self.assertEqual(done.returncode, 1, done.stdout)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_the_lists_are_complete_and_the_page_is_up_to_date(self):
        done = check(ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_entry_point_that_takes_a_stream_and_is_in_no_list(self):
        root = self.copy()
        self.edit(root, "include/nimble/internal/driver_calls.def", r"^NIMBLE_PTSZ\(cuStreamSynchronize, .*\n", "")
        self.refused(root, "takes a stream", "cuStreamSynchronize, cuStreamSynchronize_ptsz")

    def test_one_without_a_stream(self):
        root = self.copy()
        self.edit(root, "include/nimble/internal/passed_calls.def", r"^NIMBLE_PASSED\(cuMemGetAllocationGranularity, .*\n", "")
        self.refused(root, "neither", "cuMemGetAllocationGranularity")

    def test_one_in_both_lists(self):
        root = self.copy()
        self.edit(root, "include/nimble/internal/passed_calls.def", r"^NIMBLE_PASSED\(cuProfilerStop, profiler\)",
                  "NIMBLE_PASSED(cuProfilerStop, profiler)\nNIMBLE_PASSED(cuMemFree_v2, profiler)")
        self.refused(root, "both", "cuMemFree_v2")

    def test_one_that_no_header_knows(self):
        root = self.copy()
        self.edit(root, "include/nimble/internal/passed_calls.def", r"^NIMBLE_PASSED\(cuProfilerStop, profiler\)",
                  "NIMBLE_PASSED(cuProfilerStop, profiler)\nNIMBLE_PASSED(cuNoSuchCall, profiler)")
        self.refused(root, "in no CUDA header", "cuNoSuchCall")

    def test_a_page_that_is_out_of_date(self):
        root = self.copy()
        self.edit(root, "include/nimble/internal/driver_calls.def", r"^NIMBLE_PTSZ\(cuStreamQuery, StreamQuery, observe\)",
                  "NIMBLE_PTSZ(cuStreamQuery, StreamQuery, async)")
        self.refused(root, "out of date")

    def test_a_decoder_that_nothing_is_said_about(self):
        root = self.copy()
        self.edit(root, "shim/intercept/decode/stream.h", r"^// The host waits for a stream.\n", "")
        self.refused(root, "StreamSynchronize", "no comment")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
