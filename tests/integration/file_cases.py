"""Shared by the tests of files: a recording of the program own_files, started or run, and what it leaves in its folder."""

import glob
import json
import os
import shutil
import stat
import subprocess
import time

import harness
from harness import ProgramTest

PROFILE = '{"my": "profile"}\n' * 50  # what own_files writes


class FilesTest(ProgramTest):
    def record(self, *words, trace="trace.json", expect=0, **settings):
        """Records own_files; its output is what it is without Nimble. Returns what was said."""
        settings.setdefault("NIMBLE_LOG", "info")
        if trace:
            settings["NIMBLE_TRACE"] = trace
        done = self.run_program(["own_files", *words], mode="record", expect=expect, timeout=60, **settings)
        here = self.folder
        self.folder = self.path("plain")  # without Nimble, in a folder of its own
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder)
        for name in words:
            if str(name).startswith("sub"):
                os.makedirs(self.path(str(name)), exist_ok=True)
        try:
            plain = self.run_program(["own_files", *words], expect=expect, timeout=60)
        finally:
            shutil.rmtree(self.folder)
            self.folder = here
        self.assertEqual(done.stdout, plain.stdout)
        return done.stderr

    def start(self, *words, mode="record", **settings):
        """Starts own_files, which has come to its word `wait`."""
        env = harness.BUILD.environment(mode, NIMBLE_LOG="info", **settings)
        process = subprocess.Popen([harness.BUILD.program("own_files"), *map(str, words)], env=env, cwd=self.folder, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def go_on(self, process):
        out, said = process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0, said)
        return out, said

    def text(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def names(self):
        return sorted(os.listdir(self.folder))

    def mode(self, name):
        return stat.S_IMODE(os.lstat(self.path(name)).st_mode)

    def calls(self, name="trace.json", whole=True):
        """How many sets the trace holds: two for each step, and one at the program's begin."""
        text = self.text(name)
        if not whole:
            text = text[:text.rfind("\n")].rstrip(",") + "]"
        events = json.loads(text)
        self.assertEqual(events[0]["name"], "nimble.trace")
        if whole:
            self.assertEqual(events[-1]["name"], "nimble.end")
        return sum(1 for event in events if event["ph"] == "X" and event["pid"] == 1 and event["cat"] == "set")

    def leftovers(self, name="trace.json"):
        return glob.glob(self.path(name) + ".*.part")

    def wait_for(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
