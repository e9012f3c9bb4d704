"""What the integration tests share: the build's folders, and running a program under a mode of the shim."""

import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest


class Build:
    """The build folder, given as the first argument of each test."""

    def __init__(self, folder):
        self.bin = os.path.join(folder, "bin")
        self.library = os.path.join(folder, "lib", "libnimble.so")
        self.simcuda = os.path.join(folder, "simcuda")
        # A sanitizer's runtime must come before everything else, so tests of such builds preload it first.
        self.preload_first = os.environ.get("NIMBLE_TEST_PRELOAD", "")
        # They are many times slower, and try fewer orders.
        self.share = 0.1 if self.preload_first else 1.0

    def seeds(self, count):
        """The seeds 1 to `count`, or a share of them."""
        return range(1, 1 + max(2, int(count * self.share)))

    def program(self, name):
        return os.path.join(self.bin, name)

    def environment(self, mode=None, **settings):
        """The environment for a run: `mode` None is a run without the shim. Settings are variables, as text."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_"))}
        env["NIMBLE_CACHE"] = "none"  # tests depend on nothing that others have left
        env["LD_LIBRARY_PATH"] = f"{self.simcuda}:{os.path.dirname(self.library)}"
        if mode in ("replay", "auto"):
            env["NIMBLE_TUNE"] = "off"  # else which steps are replayed depends on timing
            env["NIMBLE_AUDIT"] = "0"  # or on what is believed: such audits have their own tests
        if mode == "auto":
            env["NIMBLE_AUTO_WAIT"] = "60000"  # or whether replay begins at all does
        if mode is not None:
            env["LD_PRELOAD"] = f"{self.preload_first}:{self.library}".strip(":")
            env["NIMBLE_MODE"] = mode
            env["NIMBLE_LOG"] = "warn"
            # Machines that run tests may stall for long: the watchdog has its own tests.
            env["NIMBLE_HOLD_US"] = "60000000"
        env.update({k: str(v) for k, v in settings.items()})
        return env


BUILD = None


class ProgramTest(unittest.TestCase):
    """A test with a scratch folder that is gone afterwards. `trust`: the evidence that it takes; None: by default, only what is
    proven."""

    trust = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_program(self, args, mode=None, expect=0, timeout=300, **settings):
        """Runs a program of the build; returns the finished process, with its output as text."""
        if self.trust is not None:
            settings.setdefault("NIMBLE_TRUST", self.trust)
        done = subprocess.run(
            [BUILD.program(args[0])] + [str(a) for a in args[1:]],
            env=BUILD.environment(mode, **settings), cwd=self.folder, text=True, capture_output=True, timeout=timeout)
        if expect is not None:
            self.assertEqual(done.returncode, expect, f"{args}: {done.stdout}\n{done.stderr}")
        return done

    def analyze(self, *args, expect=0):
        if self.trust is not None and "--trust" not in args and args[0] not in ("check", "code", "kernels"):
            args = *args, "--trust", self.trust
        return self.run_program(["nimble-analyze", *args], expect=expect)

    def make_schedule(self, args, rules=(), expect=0, policy=None):
        """Records a program and analyzes the trace; the path of the schedule. What depends on the host's timing is left
        out, since that differs from one run to the next."""
        self.run_program(args, mode="record", expect=expect, NIMBLE_TRACE=self.path("trace.json"))
        options = [word for rule in rules for word in ("--rules", rule)]
        if rules and self.trust is None:
            options += ["--trust", "declared"]
        if policy is not None:
            options += ["--policy", policy]
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments",
                     *options)
        return self.path("schedule.json")

    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)


def main():
    """Takes the build folder off the command line and runs the tests of the calling file."""
    global BUILD
    BUILD = Build(sys.argv.pop(1))
    result = unittest.main(verbosity=1, exit=False).result
    # As pytest says it, for the end of scripts/test.
    for why, count in collections.Counter(why for _, why in result.skipped).items():
        print(f"SKIPPED [{count}] {os.path.basename(sys.argv[0])}: {why}")
    sys.exit(not result.wasSuccessful() or result.testsRun == 0)
