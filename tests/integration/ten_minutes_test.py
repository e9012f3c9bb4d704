#!/usr/bin/env python3
"""scripts/ten_minutes on the simulated driver: that each step says what it found, and that a step that did not do what it says is
named and ends the walk.

Usage: ten_minutes_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "tests" / "docs"))

import pages  # noqa: E402

CAN_WHEEL = "import setuptools, pip, venv, ensurepip\ntry: import setuptools.command.bdist_wheel\nexcept ImportError: import wheel.bdist_wheel"

CACHE = tempfile.TemporaryDirectory()  # what one walk has proven of the kernels serves the next


def walk(*arguments, path=BUILD / "bin", **variables):
    """(status, output, error) of a walk. `path`: what comes first in PATH."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "LD_"))}
    env.update({"NIMBLE_CACHE": CACHE.name, "PATH": f"{path}:{env['PATH']}", **variables})
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "ten_minutes"), "--simulated", "--no-build", "--build", str(BUILD),
                           *map(str, arguments)], env=env, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout, done.stderr


class TenMinutes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def step(self, said, title):
        """What was printed of a step."""
        found = re.search(r"^\d+\. " + re.escape(title) + r"\n(.*?)(?=^\d+\. |^steps: )", said, re.MULTILINE | re.DOTALL)
        self.assertIsNotNone(found, f"{title}\n{said}")
        return found[1]

    def check(self, said, count):
        """The facts of each step from the first that both ways have."""
        self.assertRegex(self.step(said, "See what is there"), r"nimble \d+\.\d+\.\d+\n")
        self.assertRegex(self.step(said, "Run a program plainly"), r"device: Simulated GPU\n(.*\n)*   = [1-9]\d* steps, .* us \(simulated\)")
        self.assertRegex(self.step(said, "Record it"), r"   = [1-9]\d{3,} launches, copies and sets in trace\.json; the weights are the plain")
        self.assertRegex(self.step(said, "What does the GPU wait for?"), r"   = program order: [1-9].* us \(simulated\), .*what helps: the schedule")
        why = self.step(said, "Why is this kernel waiting?")
        self.assertRegex(why, r"\$ nimble-analyze --why (\d+) (\d+) trace.json\n     op \1 \(.*\n     op \2 \(.*\n     Not ordered:")
        self.assertIn("on the same stream", why)
        self.assertRegex(self.step(said, "Look at it in a browser"), "one file of [1-9][0-9]+ kB")
        self.assertRegex(self.step(said, "Make a schedule"), r"dependencies    [1-9](.*\n)*.*is 1 graph with up to [1-9]\d* branches")
        replayed = re.search(r"= (\d+) of (\d+) steps replayed", self.step(said, "Replay"))
        self.assertGreater(int(replayed[1]), 0)
        self.assertLess(int(replayed[1]), int(replayed[2]))
        self.assertIn("identical", self.step(said, "Compare"))
        self.assertRegex(said, rf"(?m)^steps: all {count} did what they say; \d+ s in all$")
        speed_up = re.search(r"(?m)^first speed-up: (\d+\.\d+) times \(simulated\): ", said)
        self.assertGreater(float(speed_up[1]), 1)
        self.assertRegex(said, "(?m)^what the GPU waits for: program order: ")
        self.assertRegex(said, "(?m)^why the kernel waits: op [0-9]+ needs nothing of op [0-9]+")
        self.assertRegex(said, "(?m)^left out: PyTorch: ")
        self.assertRegex(said, "(?m)^the driver is simulated, and so are all times on the device")

    def test_with_what_is_installed(self):
        page = self.folder / "page.md"
        status, said, error = walk("--installed", "--epochs", 1, "--transcript", page)
        self.assertEqual((status, error), (0, ""), said)
        self.check(said, 9)
        text = page.read_text(encoding="utf-8")
        self.assertNotIn(str(BUILD), text)
        # The tutorial is such a page: the same commands, with the same numbers of ops.
        ours, theirs = ([re.sub(r"--epochs \d+", "", block.text) for block in pages.blocks(each) if block.language == "sh"]
                        for each in (text, (ROOT / "docs/tutorial/ten-minutes.md").read_text(encoding="utf-8")))
        self.assertEqual(ours, theirs)

    def test_with_a_wheel(self):
        if subprocess.run([sys.executable, "-W", "ignore", "-c", CAN_WHEEL], capture_output=True, check=False).returncode != 0:
            self.skipTest("no pip, venv, or what makes wheels")
        status, said, error = walk("--epochs", 1, path="/nowhere", PYTHON=sys.executable, PIP_INDEX_URL="http://localhost:1")
        self.assertEqual((status, error), (0, ""), said)
        self.check(said, 11)
        self.assertRegex(self.step(said, "Make the wheel"), r"wheel: build/wheel/nimble_cuda-.*\.whl\n")
        self.assertRegex(self.step(said, "Install"), "Successfully installed nimble-cuda-")

    # What goes wrong.

    def fails(self, step, why, *arguments, **options):
        status, said, error = walk("--installed", "--epochs", 1, *arguments, **options)
        self.assertEqual(status, 1, said + error)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertRegex(error, rf"^ten_minutes: FAILED: step \d+ \({step}\): .*{why}")
        self.assertNotIn("speed-up:", said)

    def instead(self, name, script):
        """A folder whose program of that name is a script of the shell, in which `real` is the program of the build."""
        folder = self.folder / "instead"
        folder.mkdir()
        for each in ("nimble", "nimble-analyze"):
            path = folder / each
            path.write_text(f"#!/bin/bash\nreal={BUILD}/bin/{each}\n{script if each == name else ''}\nexec $real \"$@\"\n", encoding="utf-8")
            path.chmod(0o755)
        return folder

    def test_a_mode_that_records_nothing(self):
        self.fails("Record it", "no trace.json", NIMBLE_MODE="off")

    def test_no_step_is_replayed(self):
        script = 'if [[ " $* " == *" --mode replay "* ]]; then set -- "${@/#replay.json/replay.json}"; exec $real run --mode off -- "${@:9}"; fi'
        self.fails("Replay", "counters.json", path=self.instead("nimble", script))

    def test_the_schedule_of_another_program(self):
        """Its kernels have the same names, and other sizes."""
        script = f"""if [ "$*" = trace.json ]; then
          $real/../nimble run --trace other.json -- bin/digits train --epochs 1 --batch 16 >/dev/null 2>&1
          exec $real other.json
        fi""".replace("$real/../nimble", f"{BUILD}/bin/nimble")
        self.fails("Replay", "no step was replayed, and [1-9][0-9]* ops were submitted one by one", path=self.instead("nimble-analyze", script))

    def test_other_results(self):
        script = 'if [[ " $* " == *" --mode replay "* ]]; then $real "$@"; status=$?; printf x >>replay.weights; exit $status; fi'
        self.fails("Compare", "the weights differ", path=self.instead("nimble", script))

    def test_why_slow_puts_it_down_to_nothing(self):
        ledger = {"ops": 392, "entries": [], "causes": {}, "simulated": True, "idle_us": 1, "narrow_us": 1}
        script = f"if [ \"$1\" = why-slow ]; then echo '{json.dumps(ledger)}' >why.json; exit 0; fi"
        self.fails("What does the GPU wait for\\?", "found no op, or put no time down", path=self.instead("nimble-analyze", script))

    def test_what_is_missing_is_named(self):
        status, said, error = walk("--installed", "--build", self.folder)
        self.assertEqual((status, len(error.splitlines())), (1, 1), said)
        self.assertRegex(error, "^ten_minutes: FAILED: .*bin/digits is missing: scripts/demo builds it")
        status, said, error = walk("--wheel", self.folder / "none.whl")
        self.assertRegex(error, r"^ten_minutes: FAILED: step 1 \(Install\): there is no .*none\.whl")
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
