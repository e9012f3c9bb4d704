"""What the tests of bundles share: saving one, running it, and changing what it says."""

import json
import subprocess

import harness
from harness import ProgramTest


class Bundle(ProgramTest):
    def run_program(self, args, mode=None, expect=0, timeout=300, **settings):
        if expect is not None:
            return super().run_program(args, mode, expect, timeout, **settings)
        return subprocess.run([harness.BUILD.program(args[0])] + [str(a) for a in args[1:]], text=True,
                              env=harness.BUILD.environment(mode, **settings), cwd=self.folder, capture_output=True,
                              timeout=timeout, check=False)

    def save(self, args, **settings):
        """Records a program with a bundle; what it says on standard error."""
        plain = self.run_program(args)
        settings = {"NIMBLE_TRACE": self.path("trace.json"), "NIMBLE_LOG": "info", **settings}
        done = self.run_program(args, mode="record", NIMBLE_CAPTURE="bundle", **settings)
        if args[0] != "digits":  # which prints times
            self.assertEqual(done.stdout, plain.stdout)
        return done.stderr

    def replay(self, *options, expect=0, **settings):
        return self.run_program(["nimble-replay", self.path("bundle"), *options], expect=expect, **settings)

    def ways(self, *options, expect=0, **settings):
        """The ways of a run, by name."""
        done = self.replay(*options, "--json", self.path("replay.json"), "--warmup", 1, "--repeat", 2, expect=expect,
                           **settings)
        report = self.read_json("replay.json")
        self.assertTrue(report["simulated"])
        return {way["way"]: way for way in report["ways"]}, done

    def manifest(self):
        return self.read_json("bundle/manifest.json")

    def write_manifest(self, manifest):
        with open(self.path("bundle/manifest.json"), "w", encoding="utf-8") as file:
            json.dump(manifest, file)

    def refused(self, *words, expect=2, options=()):
        """nimble-replay says one line with these words, and runs nothing."""
        done = self.replay(*options, expect=expect)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
