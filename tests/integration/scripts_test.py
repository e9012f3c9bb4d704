#!/usr/bin/env python3
"""The scripts' faces: each has --help, refuses what it does not know, and runs from any folder.

Usage: scripts_test.py SOURCE_FOLDER
"""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = sys.argv[1]
SCRIPTS = [*(f"scripts/{name}" for name in ("setup", "test", "demo", "bench", "gpu_suite", "soak", "eager", "pytorch", "wheel", "ten_minutes",
                                            "torch_releases", "site")), ".ci/run"]


def script(name, *arguments):
    with tempfile.TemporaryDirectory() as elsewhere:
        return subprocess.run([os.path.join(ROOT, name), *arguments], cwd=elsewhere, capture_output=True,
                              text=True, timeout=120)


class Scripts(unittest.TestCase):
    def test_help(self):
        for name in SCRIPTS:
            with self.subTest(name):
                result = script(name, "--help")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertTrue(result.stdout.startswith(f"Usage: {name} "), result.stdout)
                self.assertNotIn("set -euo", result.stdout)

    def test_unknown_arguments_are_refused(self):
        for name in SCRIPTS:
            with self.subTest(name):
                result = script(name, "--no-such-option")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn("--no-such-option", result.stderr)
                self.assertIn("--help", result.stderr)

    def test_options_need_their_values(self):
        for name, option in (("test", "--preset"), ("test", "-R"), ("demo", "--results"), ("bench", "--results"), ("soak", "--seed"),
                             ("ten_minutes", "--wheel"), ("site", "--output")):
            with self.subTest(f"{name} {option}"):
                result = script(f"scripts/{name}", option)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(option, result.stderr)

    def test_unknown_preset_is_refused(self):
        result = script("scripts/test", "--preset", "fast")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("fast", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
