"""Files that Nimble writes: a recording has a name of its own until it ends, and ends by itself where it has a bound, its disk
is full, or enough steps have come. In real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import harness
from file_cases import PROFILE, FilesTest


class Leftovers(FilesTest):
    def killed(self, *words):
        process = self.start("steps", 500, *words, "wait")
        time.sleep(0.3)  # what is pushed is written within 50 ms
        process.send_signal(signal.SIGKILL)
        process.wait()

    def test_what_a_kill_leaves_is_found_and_named(self):
        self.killed()
        (part,) = self.leftovers()
        self.assertGreater(self.calls(part, whole=False), 500)
        done = self.analyze("trace.json", "-o", "schedule.json")
        self.assertIn(f"trace.json does not exist; reading {os.path.basename(part)}, which an interrupted recording has left",
                      done.stderr)
        self.assertIn("Written: schedule.json", done.stdout)
        self.analyze(part, "--quiet")
        # It stays, and does not keep others from the name.
        self.record("steps", 10)
        self.assertEqual((self.calls(), self.leftovers()), (21, [part]))
        self.killed()
        newer = max(self.leftovers(), key=os.path.getmtime)
        done = self.analyze("trace.json", "--no-schedule")
        self.assertIn(f"nimble-analyze {os.path.basename(newer)}", done.stderr)
        os.unlink(self.path("trace.json"))
        done = self.analyze("trace.json", expect=2)
        for each in self.leftovers():
            self.assertIn(f"nimble-analyze {os.path.basename(each)}\n", done.stderr)

    def test_a_recording_that_goes_on_is_named(self):
        process = self.start("steps", 500, "wait")
        time.sleep(0.3)
        done = self.analyze("trace.json", "--no-schedule")
        self.assertIn("which is still being recorded", done.stderr)
        self.go_on(process)

    def test_a_profile_in_its_place_is_no_trace(self):
        self.record("steps", 100, "write", "trace.json")
        done = self.analyze("trace.json", expect=2)
        self.assertIn("nimble-analyze trace.nimble.json\n", done.stderr)


class Bounds(FilesTest):
    def stopped(self, name="trace.json"):
        notes = [event for event in self.read_json(name) if event["name"] == "nimble.stopped"]
        self.assertEqual(len(notes), 1)
        return notes[0]["args"]["why"]

    def test_the_limit(self):
        said = self.record("steps", 6000, NIMBLE_TRACE_LIMIT=1)
        self.assertEqual(said.count("recording ends here"), 1, said)
        self.assertIn("NIMBLE_TRACE_LIMIT", self.stopped())
        size = os.path.getsize(self.path("trace.json"))
        self.assertTrue(0.8 * (1 << 20) < size <= 1 << 20, size)
        self.assertTrue(500 < self.calls() < 12001)
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")

    def test_it_has_its_name_and_nothing_of_ours_is_open_while_the_program_goes_on(self):
        process = self.start("steps", 6000, "wait", "steps", 1000, NIMBLE_TRACE_LIMIT=1)
        self.wait_for(lambda: os.path.exists(self.path("trace.json")))
        before = self.text("trace.json")
        time.sleep(0.1)
        files = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        self.assertFalse([file for file in files if "trace" in file], files)
        self.go_on(process)
        self.assertEqual(self.text("trace.json"), before)

    def test_no_limit(self):
        self.record("steps", 6000, NIMBLE_TRACE_LIMIT=0)
        self.assertEqual(self.calls(), 12001)

    def test_the_largest_file_is_reached(self):
        for limit in (300_000, 100_001, 40_000):
            with self.subTest(limit):
                said = self.record("fsize", limit, "steps", 3000, trace=f"{limit}.json")
                self.assertEqual(said.count("File too large"), 1, said)
                self.assertIn("File too large", self.stopped(f"{limit}.json"))
                self.assertLessEqual(os.path.getsize(self.path(f"{limit}.json")), limit)
                self.analyze(f"{limit}.json", "--no-schedule", "--quiet")

    def test_no_room_at_all(self):
        for limit in (0, 10, 100):
            said = self.record("fsize", limit, "steps", 100)
            self.assertEqual(self.names(), [])
            self.assertEqual(len(said.splitlines()), 1, said)

    def test_steps_that_are_marked(self):
        said = self.record("steps", 20, "marked", 50, NIMBLE_STEPS=10)
        self.assertIn("10 steps as marked", said)
        self.assertEqual(self.calls(), 1 + 2 * 20 + 2 * 10)
        done = self.analyze("trace.json", "-o", "schedule.json")
        self.assertIn("10 times", done.stdout)

    def test_steps_that_are_not_marked(self):
        process = self.start("steps", 3000, "wait", "steps", 1000, NIMBLE_STEPS=30)
        self.wait_for(lambda: os.path.exists(self.path("trace.json")))
        _, said = self.go_on(process)
        self.assertIn("steps found (NIMBLE_STEPS=30)", said)
        self.assertTrue(60 < self.calls() <= 6001, self.calls())
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")

    def test_steps_are_found_where_others_use_all_cores(self):
        cores, others = os.sched_getaffinity(0), []
        try:
            os.sched_setaffinity(0, {min(cores)})
            others += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
            said = self.run_program(["own_files", "steps", 300000], mode="record", NIMBLE_TRACE="trace.json", NIMBLE_STEPS=30,
                                    NIMBLE_LOG="info").stderr
        finally:
            for other in others:
                other.kill()
                other.wait()
            os.sched_setaffinity(0, cores)
        self.assertIn("steps found (NIMBLE_STEPS=30)", said)

    def test_steps_that_do_not_come(self):
        self.record("steps", 20, NIMBLE_STEPS=1000)
        self.assertEqual(self.calls(), 41)
        self.record("marked", 20, NIMBLE_STEPS=1000)
        self.assertEqual(self.calls(), 41)

    def test_wrong_settings_are_said(self):
        said = self.record("steps", 10, NIMBLE_STEPS="many", NIMBLE_TRACE_LIMIT="-1")
        self.assertIn("NIMBLE_STEPS=many is not a number of steps", said)
        self.assertIn("NIMBLE_TRACE_LIMIT=-1 is not a number of MiB", said)


class OtherFiles(FilesTest):
    def test_schedules(self):
        self.record("steps", 100)
        self.write("schedule.json", "mine\n")
        done = self.analyze("trace.json")
        self.assertEqual(self.text("schedule.json"), "mine\n")
        self.assertEqual(self.mode("schedule.nimble.json"), 0o600)
        self.assertIn("schedule.json was not written by Nimble and is left alone: the schedule is schedule.nimble.json", done.stderr)
        self.assertIn("nimble run --mode replay --schedule schedule.nimble.json", done.stdout)
        for option, name in (("-o", "schedule.json"), ("--dot", "dot"), ("--json", "report.json")):
            with self.subTest(option):
                self.write(name, "mine\n")
                done = self.analyze("trace.json", option, name, "--quiet", expect=1)
                self.assertEqual(self.text(name), "mine\n")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn("--force", done.stderr)
                self.analyze("trace.json", option, name, "--quiet", "--force")
                self.assertNotEqual(self.text(name), "mine\n")
                self.analyze("trace.json", option, name, "--quiet")  # ours now
                self.assertEqual(self.mode(name), 0o600)
                os.unlink(self.path(name))
                os.symlink("elsewhere", self.path(name))
                self.analyze("trace.json", option, name, "--quiet", expect=1)
                self.assertFalse(os.path.exists(self.path("elsewhere")))
                os.unlink(self.path(name))
                self.write(name, "")  # as mktemp does
                self.analyze("trace.json", option, name, "--quiet")
        self.analyze("trace.json", "-o", "/dev/null", "--quiet")
        self.assertEqual(self.leftovers("schedule.json"), [])

    def test_counters(self):
        self.record("steps", 100)
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")
        replay = {"NIMBLE_SCHEDULE": "schedule.json", "NIMBLE_STATS": "stats.json", "NIMBLE_LOG": "info"}
        self.write("stats.json", "mine\n")
        done = self.run_program(["own_files", "steps", 100], mode="replay", **replay)
        self.assertEqual(self.text("stats.json"), "mine\n")
        self.assertGreater(self.read_json("stats.nimble.json")["steps_replayed"], 0)
        self.assertEqual(self.mode("stats.nimble.json"), 0o600)
        self.assertIn("stats.json was not written by Nimble and is left alone: the counters are in stats.nimble.json", done.stderr)
        os.unlink(self.path("stats.json"))
        for _ in range(2):
            self.run_program(["own_files", "steps", 100], mode="replay", **replay)
            self.assertEqual(self.read_json("stats.json")["nimble_stats"], 1)

    def test_choices_are_saved_in_schedules_alone(self):
        self.record("steps", 100)
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")
        os.chmod(self.path("schedule.json"), 0o640)
        replay = {"NIMBLE_TUNE": "start", "NIMBLE_TUNE_SAVE": "on", "NIMBLE_LOG": "info"}
        done = self.run_program(["own_files", "steps", 300], mode="replay", NIMBLE_SCHEDULE="schedule.json", **replay)
        self.assertIn("schedule.json: saved the fastest way there", done.stderr)
        self.assertIn("tuned", self.read_json("schedule.json"))
        self.assertEqual(self.mode("schedule.json"), 0o640)
        before = self.text("schedule.json")
        os.symlink("schedule.json", self.path("link.json"))
        done = self.run_program(["own_files", "steps", 300], mode="replay", NIMBLE_SCHEDULE="link.json",
                                **{**replay, "NIMBLE_TUNE": "always"})
        self.assertIn("link.json: is a link", done.stderr)
        self.assertTrue(os.path.islink(self.path("link.json")))
        self.assertEqual(self.text("schedule.json"), before)

    def test_choices_are_saved_where_the_schedule_was_read(self):
        self.record("steps", 100)
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")
        os.mkdir(self.path("other"))
        settings = {"NIMBLE_SCHEDULE": "schedule.json", "NIMBLE_TUNE": "start", "NIMBLE_TUNE_SAVE": "on"}
        done = self.run_program(["own_files", "steps", 200, "chdir", "other", "steps", 100], mode="replay", NIMBLE_LOG="info",
                                **settings)
        self.assertIn("schedule.json: saved the fastest way there", done.stderr)
        self.assertIn("tuned", self.read_json("schedule.json"))
        # Not in another one that has taken its place.
        self.analyze("trace.json", "-o", "schedule.json", "--quiet")
        process = self.start("steps", 300, "wait", mode="replay", **settings)
        self.analyze("trace.json", "-o", "new.json", "--quiet")
        os.replace(self.path("new.json"), self.path("schedule.json"))
        _, said = self.go_on(process)
        self.assertIn("schedule.json: has changed since it was read", said)
        self.assertNotIn("tuned", self.read_json("schedule.json"))

    def test_graphs(self):
        self.write("graphs.json", PROFILE)
        done = self.run_program(["rewritten", "branches", 3], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TRACE="graphs.json",
                                NIMBLE_LOG="info")
        self.assertEqual(self.text("graphs.json"), PROFILE)
        self.assertEqual(self.mode("graphs.nimble.json"), 0o600)
        self.assertIn("Next: nimble-analyze graphs.nimble.json", done.stderr)

    def bundle(self, **settings):
        done = self.run_program(["bundled", 8], mode="record", NIMBLE_CAPTURE="bundle", NIMBLE_LOG="info", **settings)
        return done.stderr

    def test_bundles(self):
        self.bundle()
        self.assertEqual(self.mode("bundle"), 0o700)
        for name in os.listdir(self.path("bundle")):
            self.assertEqual(self.mode(f"bundle/{name}"), 0o600)
        self.assertIn("bundle: a step", self.bundle())  # ours: another one takes its place
        self.assertEqual(self.names(), ["bundle", "trace.json"])
        self.write("bundle/notes", "mine\n")
        self.bundle()
        self.assertEqual(self.text("bundle/notes"), "mine\n")
        # As from a bundle that has more images than its replacement.
        manifest = self.read_json("bundle/manifest.json")
        more = f"image-{len(manifest['images'])}.bin"
        manifest["images"].append({"file": more, "bytes": 0, "digest": "0" * 16})
        self.write("bundle/manifest.json", json.dumps(manifest))
        self.write(f"bundle/{more}", "")
        self.assertIn("Next: nimble-replay bundle\n", self.bundle())
        self.assertFalse(os.path.exists(self.path(f"bundle/{more}")))
        for name in ("memory.bin", "manifest.json", "trace.json", "image-0.bin"):
            with self.subTest(name):
                folder = self.path(f"of-{name}")
                os.mkdir(folder)
                self.write(f"{folder}/{name}", "mine\n")
                said = self.bundle(NIMBLE_BUNDLE=folder)
                self.assertEqual((self.text(f"{folder}/{name}"), os.listdir(folder)), ("mine\n", [name]))
                other = folder + ".nimble" if "." not in f"of-{name}" else self.path(f"of-{name.replace('.', '.nimble.')}")
                self.assertIn(f"Next: nimble-replay {other}", said)
                self.run_program(["nimble-replay", other])
        os.symlink("bundle", self.path("link"))
        self.assertIn("link is a link and is left alone", self.bundle(NIMBLE_BUNDLE="link"))
        self.write("file", "mine\n")
        self.assertIn("file is not a folder and is left alone", self.bundle(NIMBLE_BUNDLE="file"))

    def test_reports_of_replayed_bundles(self):
        self.bundle()
        self.write("report.json", "mine\n")
        done = self.run_program(["nimble-replay", "bundle", "--json", "report.json"], expect=1)
        self.assertIn("--force", done.stderr)
        self.assertEqual(self.text("report.json"), "mine\n")
        for words in (["--force"], []):
            self.run_program(["nimble-replay", "bundle", "--json", "report.json", *words])
        self.assertEqual((self.read_json("report.json")["nimble_replay"], self.mode("report.json")), (1, 0o600))


if __name__ == "__main__":
    harness.main()
