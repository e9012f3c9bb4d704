"""Files that Nimble has not written: none is overwritten, whatever its name is and whoever opens it, in each mode. In real
processes."""

import json
import os
import subprocess
import time

import harness
from file_cases import PROFILE, FilesTest


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


if __name__ == "__main__":
    harness.main()
