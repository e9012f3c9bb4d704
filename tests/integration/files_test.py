"""Files: none is overwritten that Nimble has not written, a recording has a name of its own until it ends, and ends by itself
where it has a bound, its disk is full, or enough steps have come. In real processes."""

import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
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


class FilesOfOthers(FilesTest):
    def test_the_programs_own_trace_stays(self):
        said = self.record("steps", 100, "write", "trace.json", "steps", 100, trace=None)
        self.assertEqual(self.text("trace.json"), PROFILE)
        self.assertEqual(self.calls("trace.nimble.json"), 401)
        self.assertEqual(self.names(), ["trace.json", "trace.nimble.json"])
        self.assertIn("trace.json was not written by Nimble and is left alone: wrote trace.nimble.json. "
                      "Next: nimble-analyze trace.nimble.json\n", said)

    def test_one_that_the_program_has_open_stays(self):
        self.record("open", "trace.json", "steps", 100)
        self.assertEqual(self.text("trace.json"), PROFILE)
        self.assertEqual(self.calls("trace.nimble.json"), 201)

    def test_one_that_was_there_before_stays(self):
        for text in (PROFILE, "", "[\n", '[{"ph":"M","name":"process_name"}]', "{", "\0" * 2000, '{"nimble_schedule": 6}'):
            with self.subTest(text[:40]):
                self.write("trace.json", text)
                self.record("steps", 10)
                self.assertEqual(self.text("trace.json"), text)
                self.assertEqual(self.calls("trace.nimble.json"), 21)

    def test_one_of_ours_is_replaced(self):
        self.record("steps", 10)
        self.assertEqual(self.calls(), 21)
        said = self.record("steps", 20)
        self.assertEqual(self.calls(), 41)
        self.assertEqual(self.names(), ["trace.json"])
        self.assertIn("wrote trace.json. Next: nimble-analyze trace.json\n", said)
        # Also one that was reformatted, and one that was cut off.
        self.write("trace.json", json.dumps(self.read_json("trace.json"), indent=1))
        self.record("steps", 10)
        self.assertEqual(self.calls(), 21)
        self.write("trace.json", self.text("trace.json")[:2000])
        self.record("steps", 10)
        self.assertEqual(self.calls(), 21)
        self.assertEqual(self.names(), ["trace.json"])

    def test_one_of_ours_that_is_protected_stays(self):
        self.record("steps", 10)
        os.chmod(self.path("trace.json"), 0o400)
        said = self.record("steps", 20)
        self.assertEqual((self.calls(), self.calls("trace.nimble.json")), (21, 41))
        self.assertIn("trace.json is write-protected and is left alone", said)

    def test_names_in_its_place_are_looked_at_as_well(self):
        self.write("trace.json", PROFILE)
        self.write("trace.nimble.json", PROFILE)
        os.mkdir(self.path("trace.nimble.2.json"))
        for _ in range(2):
            self.record("steps", 10)
            self.assertEqual(self.calls("trace.nimble.3.json"), 21)
        self.assertEqual((self.text("trace.json"), self.text("trace.nimble.json")), (PROFILE, PROFILE))
        self.write("noending", PROFILE)
        self.record("steps", 10, trace="noending")
        self.assertEqual(self.calls("noending.nimble"), 21)

    def test_links_are_not_followed(self):
        for target, is_folder in (("target", False), ("nowhere", False), ("sub", True)):
            with self.subTest(target):
                if is_folder:
                    os.mkdir(self.path(target))
                elif target == "target":
                    self.write(target, PROFILE)
                os.symlink(target, self.path("trace.json"))
                said = self.record("steps", 10)
                self.assertTrue(os.path.islink(self.path("trace.json")))
                self.assertEqual(self.calls("trace.nimble.json"), 21)
                self.assertIn("trace.json is a link and is left alone", said)
                self.assertFalse(os.path.exists(self.path("nowhere")))
                os.unlink(self.path("trace.json"))
        self.assertEqual(self.text("target"), PROFILE)
        self.assertEqual(os.listdir(self.path("sub")), [])
        # Nor one to a trace of ours.
        os.rename(self.path("trace.nimble.json"), self.path("other.json"))
        os.symlink("other.json", self.path("trace.json"))
        self.record("steps", 20)
        self.assertEqual((self.calls("other.json"), self.calls("trace.nimble.json")), (21, 41))

    def test_what_is_no_file_is_written_as_it_is(self):
        said = self.record("steps", 10, trace="/dev/null")
        self.assertIn("wrote /dev/null", said)
        self.assertEqual(self.names(), [])
        os.mkfifo(self.path("pipe"))
        reader = subprocess.Popen(["cat", self.path("pipe")], stdout=subprocess.PIPE, text=True)
        self.run_program(["own_files", "steps", 10], mode="record", NIMBLE_TRACE=self.path("pipe"))
        events = json.loads(reader.communicate(timeout=60)[0])
        self.assertEqual(events[-1]["name"], "nimble.end")
        done = self.run_program(["own_files", "steps", 10], mode="record", NIMBLE_TRACE="/dev/stdout")
        self.assertIn("10 steps", done.stdout)
        self.assertIn('"nimble.end"', done.stdout)
        self.assertEqual(self.names(), ["pipe"])

    def test_a_pipe_without_a_reader_is_not_waited_for(self):
        os.mkfifo(self.path("pipe"))
        done = self.run_program(["own_files", "steps", 10], mode="record", NIMBLE_TRACE=self.path("pipe"), timeout=60)
        self.assertIn("10 steps", done.stdout)
        self.assertIn("cannot write the trace", done.stderr)
        schedule = self.make_schedule(["own_files", "steps", 40])
        done = self.run_program(["own_files", "steps", 10], mode="replay", NIMBLE_SCHEDULE=schedule,
                                NIMBLE_STATS=self.path("pipe"), timeout=60)
        self.assertIn("10 steps", done.stdout)

    def test_a_folder_that_is_not_there_or_is_read_only(self):
        said = self.record("steps", 10, trace="nowhere/trace.json")
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn("cannot write the trace nowhere/trace.json: No such file or directory", said)
        for name in ("trace.json/", "/proc/trace.json"):
            self.assertEqual(len(self.record("steps", 10, trace=name).splitlines()), 1)
        self.assertEqual(self.names(), [])

    def test_modes_whatever_the_mask_is(self):
        for mask in ("0", "077", "0777"):
            with self.subTest(mask):
                self.record("umask", mask, "steps", 10, trace=f"{mask}.json")
                self.assertEqual(self.mode(f"{mask}.json"), 0o600)
        process = self.start("umask", "0", "steps", 10, "wait")
        self.wait_for(self.leftovers)
        (part,) = self.leftovers()
        self.assertEqual(self.mode(part), 0o600)
        self.go_on(process)
        self.assertEqual(self.mode("trace.json"), 0o600)

    def test_the_program_goes_elsewhere(self):
        os.mkdir(self.path("sub"))
        self.record("steps", 10, "chdir", "sub", "steps", 10)
        self.assertEqual((self.calls(), self.names(), os.listdir(self.path("sub"))), (41, ["sub", "trace.json"], []))
        self.record("steps", 10, "move", "sub", "sub2", "steps", 10, trace="sub/trace.json")
        self.assertEqual(self.calls("sub2/trace.json"), 41)

    def test_the_program_closes_what_it_does_not_know(self):
        self.record("steps", 1000, "close", "steps", 1000)
        self.assertEqual((self.calls(), self.leftovers()), (4001, []))

    def test_two_at_once_have_files_of_their_own(self):
        first = self.start("steps", 10, "wait", "steps", 10)
        self.wait_for(self.leftovers)
        second = self.start("steps", 20, "wait")
        self.wait_for(lambda: len(self.leftovers()) == 2)
        _, said = self.go_on(second)
        self.assertIn("trace.json is being recorded by another process", said)
        self.assertEqual((self.calls("trace.nimble.json"), os.path.exists(self.path("trace.json"))), (41, False))
        _, said = self.go_on(first)
        self.assertEqual((self.calls(), self.calls("trace.nimble.json")), (41, 41))
        # And if the first ends first. The existing file was finished before these begin: file times have the precision
        # of a kernel tick.
        for name in ("trace.json", "trace.nimble.json"):
            os.utime(self.path(name), (time.time() - 5, time.time() - 5))
        time.sleep(0.1)  # to set the times is a change, too, and that is told to a tick as well
        first, second = self.start("steps", 30, "wait"), self.start("steps", 40, "wait")
        self.wait_for(lambda: len(self.leftovers()) == 2)
        self.go_on(first)
        self.go_on(second)
        self.assertEqual(sorted([self.calls(), self.calls("trace.nimble.json")]), [61, 81])
        self.assertEqual(self.names(), ["trace.json", "trace.nimble.json"])

    def test_children_that_record_to_one_name(self):
        for _ in range(20):  # a busy machine may have one end before another begins
            for name in self.names():
                os.remove(self.path(name))
            self.record("fork", "fork", "steps", 50, "write", "other", "steps", 50)
            for name in self.names()[1:]:
                self.assertEqual(self.calls(name), 201)
            if len(self.names()) == 5:
                break  # or one had ended when another began, which then replaces its trace
        self.assertEqual(self.names(), ["other", "trace.json", "trace.nimble.2.json", "trace.nimble.3.json", "trace.nimble.json"])


class ModesWithoutFiles(FilesTest):
    """Modes that read and write no trace and no schedule, beside files of those names: a profiler's, say."""

    MODES = {"off": {"mode": "off"}, "auto": {"mode": "auto"}, "regions": {"mode": "regions"},
             "check": {"mode": "check", "NIMBLE_CHECK_EVERY": 1}, "graphs": {"mode": "off", "NIMBLE_GRAPHS": "rewrite"}}
    PROGRAMS = (["own_files", "steps", 200], ["regions", "region", 12], ["rewritten", "branches", 3])
    NAMES = ("schedule.json", "trace.json")

    def facts(self):
        """What another process may see of the files."""
        found = {}
        for name in self.names():
            told = os.lstat(self.path(name))
            found[name] = (self.text(name), told.st_ino, told.st_mode, told.st_mtime_ns, told.st_ctime_ns)
        return found

    @staticmethod
    def computed(done):
        """Without what Nimble answered to a begin of a region."""
        return [line for line in done.stdout.splitlines() if not line.startswith("begin:")]

    def test_files_of_their_names_stay(self):
        for program in self.PROGRAMS:
            plain = self.computed(self.run_program(program))
            for mode, settings in self.MODES.items():
                for text in (PROFILE, "{", ""):
                    with self.subTest(program=program, mode=mode, text=text[:10]):
                        for name in self.NAMES:
                            self.write(name, text)
                        before = self.facts()
                        done = self.run_program(program, **settings)
                        self.assertEqual((self.facts(), self.computed(done)), (before, plain))
                        for name in self.NAMES:
                            self.assertNotIn(name, done.stderr)

    def test_files_that_the_program_writes_meanwhile_are_its_own(self):
        words = ["steps", 60, "open", "trace.json", "write", "schedule.json", "steps", 60, "remove", "schedule.json", "steps", 60]
        plain = self.run_program(["own_files", *words])
        for mode, settings in self.MODES.items():
            with self.subTest(mode=mode):
                os.remove(self.path("trace.json"))
                done = self.run_program(["own_files", *words], **settings)
                self.assertEqual((self.names(), self.text("trace.json"), done.stdout), (["trace.json"], PROFILE, plain.stdout))


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
