#!/usr/bin/env python3
"""The demo in a build tree: that it ends well where all is well, and says what is wrong where something is.

Usage: demo_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = sys.argv[1:3]

# Stands in for digits: its weights are what the mode makes them, as if Nimble had changed the result.
IMPOSTOR = """#!/usr/bin/env python3
import json, os, sys
arguments = dict(zip(sys.argv, sys.argv[1:]))
if sys.argv[1] == "device":
    print("Simulated GPU")
else:
    json.dump({"steps": 3, "ops_per_step": 1, "host_us_per_step": 1, "gpu_us_per_step": 1, "accuracy": 1},
              open(arguments["--stats"], "w"))
    json.dump({"submissions": 3, "simulated": {"host_submit_us": 1}}, open(os.environ["SIMCUDA_REPORT"], "w"))
    open(arguments["--save"], "w").write("weights of mode " + os.environ["NIMBLE_MODE"])
"""


def demo(build, work, *arguments):
    """(status, lines) of a demo."""
    result = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "demo_run.py"), "--simulated", "--build", build,
                             "--work", work, *arguments], capture_output=True, text=True, timeout=600)
    return result.returncode, result.stdout.splitlines() + result.stderr.splitlines()


class Demo(unittest.TestCase):
    def test_real_program(self):
        with tempfile.TemporaryDirectory() as work:
            results = os.path.join(work, "results")
            status, lines = demo(BUILD, os.path.join(work, "demo"), "--epochs", "1", "--results", results)
            self.assertEqual(status, 0, "\n".join(lines))
            self.assertRegex(lines[-1], r"^demo: ok: .*driver submissions .*GPU \(simulated\).*identical to the bit$")
            kept = sorted(os.listdir(results))
            self.assertEqual([os.path.splitext(name)[1] for name in kept], [".json", ".txt"])
            with open(os.path.join(results, kept[0]), encoding="utf-8") as file:
                facts = json.load(file)
            self.assertTrue(facts["simulated"])
            self.assertGreater(facts["counters"]["steps_replayed"], 0)
            self.assertLess(facts["submissions_per_step"]["replay"], facts["submissions_per_step"]["off"])
            for line in lines:
                if re.search(r"GPU.* us", line):
                    self.assertIn("simulated", line)

    def test_changed_weights_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "bin"))
            os.makedirs(os.path.join(folder, "lib"))
            for name in ("bin/nimble", "lib/libnimble.so", "bin/nimble-analyze"):
                os.symlink(os.path.join(BUILD, name), os.path.join(folder, name))
            impostor = os.path.join(folder, "bin", "digits")
            with open(impostor, "w", encoding="utf-8") as file:
                file.write(IMPOSTOR)
            os.chmod(impostor, 0o755)
            status, lines = demo(folder, os.path.join(folder, "demo"))
            self.assertEqual(status, 1)
            self.assertRegex(lines[-1], "^demo: FAILED: the weights differ between off and record")

    def test_missing_build(self):
        with tempfile.TemporaryDirectory() as work:
            status, lines = demo("/no/such/build", os.path.join(work, "demo"))
            self.assertEqual(status, 1)
            self.assertRegex(lines[-1], "^demo: FAILED: .*digits")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
