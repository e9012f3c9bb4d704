"""The file of NIMBLE_LIVE, and `nimble top`, which reads it. In real processes."""

import json
import os
import re
import resource
import signal
import stat
import subprocess
import time

import harness
from file_cases import PROFILE, FilesTest


class Live(FilesTest):
    def top(self, name="live.json", *words, expect=0):
        done = subprocess.run([harness.BUILD.program("nimble"), "top", *words, self.path(name)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def kept(self, name="live.json"):
        text = self.text(name)
        self.assertEqual(len(text), 4096)
        return json.loads(text)

    def wait_for_text(self):
        self.wait_for(lambda: os.path.exists(self.path("live.json")) and os.path.getsize(self.path("live.json")) > 0)

    def test_a_program_is_seen_from_its_begin_to_its_end(self):
        process = self.start("steps", 20, "wait", NIMBLE_LIVE="live.json", NIMBLE_TRACE="trace.json")
        self.wait_for_text()
        self.assertEqual(stat.S_IMODE(os.stat(self.path("live.json")).st_mode), 0o600)
        self.assertRegex(self.top("live.json", "--once"), r"^ +[0-9.]+ s  record: recording\n$")
        first = self.kept()
        self.wait_for(lambda: self.kept()["number"] > first["number"])  # it goes on although no call comes
        self.assertEqual((first["pid"], first["ended"]), (process.pid, False))
        self.assertIn("own_files steps 20 wait", first["program"])
        self.go_on(process)
        self.assertTrue(self.kept()["ended"])
        self.assertRegex(self.top(), r"^ +[0-9.]+ s  record: [a-z]+  ended\n$")

    def test_what_is_replayed_is_counted(self):
        schedule = self.make_schedule(["answers", "step", 12, 12, 1, 0])
        plain = self.run_program(["answers", "step", 400, 400, 1, 0])
        done = self.run_program(["answers", "step", 400, 400, 1, 0], mode="replay", NIMBLE_SCHEDULE=schedule,
                                NIMBLE_LIVE="live.json", NIMBLE_STATS="stats.json")
        self.assertEqual(done.stdout, plain.stdout)
        counted, kept = self.read_json("stats.json"), self.kept()
        self.assertGreater(kept["steps_replayed"], 300)
        self.assertEqual({key: kept[key] for key in counted if key in kept}, {key: counted[key] for key in counted if key in kept})
        self.assertRegex(self.top(), r"replay: aside  [0-9.]+ steps/s replayed, [0-9]+ passed through, [0-9]+ diverged  .*graphs/s")

    def test_a_line_for_each_look(self):
        process = self.start("steps", 20, "wait", NIMBLE_LIVE="live.json", NIMBLE_TRACE="trace.json")
        self.wait_for_text()
        shown = subprocess.Popen([harness.BUILD.program("nimble"), "top", "--interval", "0.2", self.path("live.json")],
                                 stdout=subprocess.PIPE, text=True)
        time.sleep(2.5)
        self.go_on(process)
        lines = shown.communicate(timeout=60)[0].splitlines()
        self.assertGreaterEqual(len(lines), 3, lines)
        self.assertTrue(lines[-1].endswith("ended"), lines)
        seconds = [float(re.match(r" *([0-9.]+) s", line).group(1)) for line in lines]
        self.assertEqual(seconds, sorted(seconds))

    def test_one_that_was_killed_is_gone(self):
        process = self.start("steps", 20, "wait", NIMBLE_LIVE="live.json", NIMBLE_TRACE="trace.json")
        self.wait_for_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertIn("  gone\n", self.top())
        self.record("steps", 5, NIMBLE_LIVE="live.json")  # which takes the file over
        self.assertIn("  ended\n", self.top())

    def test_files_of_others_are_left_alone(self):
        self.write("live.json", PROFILE)
        said = self.record("steps", 5, NIMBLE_LIVE="live.json")
        self.assertEqual(self.text("live.json"), PROFILE)
        self.assertIn("was not written by Nimble", said)
        self.assertIn("no program of Nimble's keeps this file", self.top(expect=2))
        os.unlink(self.path("live.json"))
        os.symlink("elsewhere", self.path("live.json"))
        self.record("steps", 5, NIMBLE_LIVE="live.json")
        self.assertFalse(os.path.exists(self.path("elsewhere")))

    def test_two_processes_do_not_share_one(self):
        process = self.start("steps", 5, "wait", NIMBLE_LIVE="live.json", NIMBLE_TRACE="trace.json")
        self.wait_for_text()
        said = self.record("steps", 5, trace="other.json", NIMBLE_LIVE="live.json")
        self.assertIn("is being written by another process", said)
        self.assertEqual(self.kept()["pid"], process.pid)
        self.go_on(process)
        said = self.record("steps", 5, trace="other.json", NIMBLE_LIVE="live.%p.json")
        self.assertEqual(len([name for name in self.names() if re.fullmatch(r"live\.[0-9]+\.json", name)]), 1)

    def test_a_child_that_stays_does_not_keep_it(self):
        env = harness.BUILD.environment("record", NIMBLE_LIVE="live.json", NIMBLE_TRACE="trace.json")
        with subprocess.Popen([harness.BUILD.program("handler_exit"), "fork"], env=env, cwd=self.folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as parent:
            child = int(parent.stdout.readline())
            self.assertEqual(parent.wait(60), 0)
            held = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{child}/fd")]
            self.assertNotIn(self.path("live.json"), held)
            self.assertNotIn("is being written", self.record("steps", 5, NIMBLE_LIVE="live.json"))
            self.assertTrue(self.kept()["ended"])
            parent.communicate("\n", timeout=60)

    def test_it_takes_no_descriptor_where_there_are_few(self):
        env = harness.BUILD.environment("regions", NIMBLE_LIVE="live.json")
        done = subprocess.run([harness.BUILD.program("own_files"), "steps", "5"], env=env, cwd=self.folder, capture_output=True, text=True,
                              check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        self.assertFalse(os.path.exists(self.path("live.json")))
        self.assertIn("RLIMIT_NOFILE", done.stderr)

    def test_long_and_strange_names_fit(self):
        env = harness.BUILD.environment("regions", NIMBLE_LIVE="live.json")
        subprocess.run(["\x01" * 3000, "steps", "5"], executable=harness.BUILD.program("own_files"), env=env, cwd=self.folder,
                       capture_output=True, check=True)
        self.assertTrue(self.kept()["ended"])

    def test_half_a_text_is_none(self):
        self.record("steps", 5, NIMBLE_LIVE="live.json")
        whole = self.text("live.json")
        self.write("live.json", whole.replace(f'"end":{self.kept()["end"]}', '"end":777'))
        self.assertIn("keeps this file", self.top(expect=2))
        self.write("live.json", whole[:200])
        self.assertIn("keeps this file", self.top(expect=2))


if __name__ == "__main__":
    harness.main()
