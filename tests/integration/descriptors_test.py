"""Descriptors and signals are the program's: in every mode a program has the numbers that it has without Nimble, no line of ours is
in a file of its own, and no write of ours ends it."""

import fcntl
import glob
import os
import resource
import stat
import subprocess
import threading

import harness
from harness import ProgramTest

STEPS = 60

# How the program issues its steps, and the settings of the mode.
MODES = {
    "off": ("plain", {"NIMBLE_MODE": "off"}),
    "record": ("plain", {"NIMBLE_MODE": "record"}),
    "events": ("plain", {"NIMBLE_MODE": "record", "NIMBLE_TIMING": "events"}),
    "steps": ("plain", {"NIMBLE_MODE": "record", "NIMBLE_STEPS": "1000000"}),
    "probe": ("plain", {"NIMBLE_MODE": "record", "NIMBLE_PROBE": "writes"}),
    "bundle": ("plain", {"NIMBLE_MODE": "record", "NIMBLE_CAPTURE": "bundle"}),
    "replay": ("plain", {"NIMBLE_MODE": "replay"}),
    "saved": ("plain", {"NIMBLE_MODE": "replay", "NIMBLE_TUNE": "start", "NIMBLE_TUNE_SAVE": "on"}),
    "auto": ("plain", {"NIMBLE_MODE": "auto"}),
    "regions": ("region", {"NIMBLE_MODE": "regions"}),
    "graphs": ("graph", {"NIMBLE_MODE": "off", "NIMBLE_GRAPHS": "rewrite"}),
}
# What each mode logs by its end, so that a test in which nothing is logged fails.
SAYS = {"record": "wrote ", "events": "wrote ", "steps": "wrote ", "probe": "wrote ", "bundle": "Next: nimble-replay",
        "replay": "steps replayed", "saved": "steps replayed", "auto": "steps replayed", "graphs": "graph 1"}


def closes(*numbers):
    def close():
        for number in numbers:
            try:
                os.close(number)
            except OSError:
                pass
    return close


def limits(which, soft):
    return lambda: resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))


class InEachMode(ProgramTest):
    def files(self):
        return {name: self.text(name) for name in ("out.txt", "data.out", "redirected.out", "seized.out", "child.txt")
                if os.path.exists(self.path(name))}

    def text(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def settings(self, mode):
        """The environment of a mode, with all files that it can write."""
        work, settings = MODES[mode]
        settings = {"NIMBLE_TRACE": self.path("trace.json"), "NIMBLE_STATS": self.path("stats.json"), "NIMBLE_LOG": "info",
                    "NIMBLE_BUNDLE": self.path("bundle"), "NIMBLE_SCHEDULE": self.path(f"{work}.json"), **settings}
        kind = settings.pop("NIMBLE_MODE")
        if kind == "replay" and not os.path.exists(self.path("plain.json")):
            self.run_program(["descriptors", "plain", STEPS], mode="record", expect=5, NIMBLE_TRACE=self.path("first.json"))
            self.analyze(self.path("first.json"), "-o", self.path("plain.json"), "--quiet", "--whole-segments")
        return work, harness.BUILD.environment(kind, **settings)

    def run_in(self, mode, *what, expect=5, before=None, env=None, stderr=subprocess.PIPE, steps=STEPS, **popen):
        """Runs the program in a mode, or without Nimble where it is None; its files, and what was on stderr."""
        for name in ("out.txt", "data.out", "redirected.out", "seized.out", "child.txt"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        work, environment = self.settings(mode) if mode else (what[0], harness.BUILD.environment(None))
        what = what if mode else what[1:]
        environment.update(env or {})
        done = subprocess.run([harness.BUILD.program("descriptors"), work, str(steps), *what], env=environment, cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=stderr, timeout=120, preexec_fn=before, **popen)
        said = (done.stderr or b"").decode()
        self.assertEqual(done.returncode, expect, f"{mode} {what}: {said}")
        self.assertEqual(done.stdout, b"")
        return self.files(), said

    def plain(self, mode, *what, **how):
        return self.run_in(None, MODES[mode][0], *what, **how)

    def same(self, *what, before=None, **how):
        """In each mode the program's files are what they are without Nimble."""
        for mode in MODES:
            with self.subTest(mode=mode):
                expected, _ = self.plain(mode, *what, before=before)
                found, said = self.run_in(mode, *what, before=before, **how)
                self.assertEqual(expected, found, said)
                yield mode, said


class Descriptors(InEachMode):
    def test_modes_say_something(self):
        for mode, said in self.same("none"):
            self.assertIn(SAYS.get(mode, ""), said, mode)
        self.assertTrue(os.path.exists(self.path("bundle/manifest.json")))

    def test_fd2_and_others_that_are_closed_at_the_start(self):
        for numbers in ((2,), (0, 1, 2), (0,), (1,)):
            for mode, said in self.same("data", "lowest", before=closes(*numbers)):
                self.assertIn("row\n" * STEPS, self.text("data.out"))
                if 2 in numbers:
                    self.assertEqual(said, "")

    def test_the_lowest_free_number_is_the_programs(self):
        for _ in self.same("lowest"):
            self.assertEqual(self.text("out.txt").count("number"), 1)

    def test_threads_of_ours_take_no_number_for_a_moment(self):
        library = os.path.join(os.path.dirname(harness.BUILD.library), "libslow_open.so")
        os.mkfifo(self.path("pipe"))
        ways = [("record", {"NIMBLE_TRACE": "/dev/full"}), ("record", {"NIMBLE_TRACE": "/dev/null"}), ("record", {}),
                ("record", {"NIMBLE_TRACE": self.path("pipe")}), ("record", {"NIMBLE_LOG_FILE": self.path("said.txt")}),
                ("record", {"NIMBLE_TRACE": "/dev/full", "NIMBLE_LOG_FILE": self.path("said too.txt")}),
                ("bundle", {}), ("replay", {}), ("auto", {"NIMBLE_RULES": os.devnull})]
        for mode, variables in ways:
            with self.subTest(mode=mode, variables=variables):
                preload = f"{harness.BUILD.environment('off')['LD_PRELOAD']}:{library}"
                expected, _ = self.plain(mode, "lowest", steps=600)
                with subprocess.Popen(["cat", self.path("pipe")], stdout=subprocess.DEVNULL) as reader:
                    found, said = self.run_in(mode, "lowest", env={**variables, "LD_PRELOAD": preload}, steps=600)
                    reader.kill()
                self.assertEqual(expected, found, said)
                self.assertEqual(self.text("out.txt").count("number"), 1)

    def test_stderr_that_the_program_replaces(self):
        for _ in self.same("redirect"):
            self.assertEqual(set(self.text("redirected.out").splitlines()), {"row"})

    def test_numbers_that_the_program_takes(self):
        for _ in self.same("seize"):
            self.assertEqual(set(self.text("seized.out").splitlines()), {"row"})

    def test_a_recording_goes_on_after_the_program_has_closed_its_file(self):
        self.run_in("record", "seize")
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet")
        with open(self.path("trace.json"), encoding="utf-8") as file:
            self.assertIn("nimble.end", file.read())

    def test_who_waits_for_the_end_of_stderr_is_not_kept_waiting(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                if os.path.exists(self.path("go")):
                    os.remove(self.path("go"))
                work, environment = self.settings(mode)
                child = subprocess.Popen([harness.BUILD.program("descriptors"), work, str(STEPS), "closes"], env=environment,
                                         cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                too_long = threading.Timer(60, child.kill)
                too_long.start()
                self.assertEqual(child.stdout.read(), b"")  # the end comes while the program runs on
                child.stderr.read()
                self.assertIsNone(child.poll())
                with open(self.path("go"), "w", encoding="utf-8"):
                    pass
                self.assertEqual(child.wait(60), 5)
                too_long.cancel()
                child.stdout.close()
                child.stderr.close()
                expected, _ = self.plain(mode, "closes")
                self.assertEqual(self.text("out.txt"), expected["out.txt"])

    def test_programs_that_it_starts_have_no_descriptor_of_ours(self):
        for _ in self.same("child", env={"NIMBLE_LOG_FILE": self.path("said.txt")}):
            pass

    def test_handlers_are_the_programs_and_run_on_its_threads(self):
        for _ in self.same("handlers"):
            self.assertIn("signal 10: 60 times, handler its own\n", self.text("out.txt"))
            self.assertIn("on its thread\n", self.text("out.txt"))

    def test_threads_that_are_cancelled(self):
        for _ in self.same("cancelled"):
            self.assertIn("begun\n", self.text("out.txt"))
            self.assertIn("to its end", self.text("out.txt"))

    def test_stderr_whose_reader_has_gone(self):
        for what in ("none", "handlers"):
            for mode in MODES:
                with self.subTest(mode=mode, what=what):
                    expected, _ = self.plain(mode, what)
                    reader, writer = os.pipe()
                    os.close(reader)
                    found, _ = self.run_in(mode, what, stderr=writer)
                    os.close(writer)
                    self.assertEqual(expected, found)

    def test_stderr_whose_reader_does_not_read(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                expected, _ = self.plain(mode, "none")
                reader, writer = os.pipe()
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
                os.write(writer, b"x" * 4096)
                found, _ = self.run_in(mode, "none", stderr=writer)
                os.close(reader)
                os.close(writer)
                self.assertEqual(expected, found)

    def test_files_beyond_the_limit(self):
        for what in (("limited",), ("limited", "handlers")):
            for mode, _ in self.same(*what, env={"NIMBLE_LOG_FILE": self.path("said.txt")}):
                if mode == "record":
                    self.assertLessEqual(max(os.path.getsize(trace) for trace in glob.glob(self.path("trace*"))), 1000)

    def test_stderr_beyond_the_limit(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                expected, _ = self.plain(mode, "limited")
                with open(self.path("errors.txt"), "wb+") as file:
                    file.write(b"x" * 1000)
                    file.flush()
                    found, _ = self.run_in(mode, "limited", stderr=file)
                self.assertEqual(expected, found)
                self.assertTrue(self.text("errors.txt").startswith("x" * 1000))  # lines before the first step are there

    def test_a_pipe_that_is_the_trace_and_whose_reader_goes(self):
        expected, _ = self.plain("record", "handlers")
        os.mkfifo(self.path("pipe"))

        def read():
            with open(self.path("pipe"), "rb", buffering=0) as pipe:
                pipe.read(1)

        reader = threading.Thread(target=read)
        reader.start()
        found, said = self.run_in("record", "handlers", env={"NIMBLE_TRACE": self.path("pipe")})
        reader.join()
        self.assertEqual(expected, found)
        self.assertIn("Broken pipe", said)

    def test_few_descriptors(self):
        for most in (6, 8, 16, 64, 512):
            for mode, said in self.same("none", "lowest", before=limits(resource.RLIMIT_NOFILE, most)):
                if MODES[mode][1]["NIMBLE_MODE"] == "record":
                    self.assertEqual("not recording" in said, most < 256, said)


class LogFile(InEachMode):
    def test_lines_go_there(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                said = self.path(f"said-{mode}.txt")
                _, errors = self.run_in(mode, "none", env={"NIMBLE_LOG_FILE": said})
                self.assertEqual(errors, "")
                if mode not in SAYS:
                    self.assertFalse(os.path.exists(said))
                    continue
                self.assertIn(SAYS[mode], self.text(said))
                self.assertEqual(stat.S_IMODE(os.stat(said).st_mode), 0o600)

    def test_they_are_appended(self):
        with open(self.path("said.txt"), "w", encoding="utf-8") as file:
            file.write("before\n")
        self.run_in("record", "none", env={"NIMBLE_LOG_FILE": "said.txt"})
        self.assertRegex(self.text("said.txt"), "^before\nnimble: info: ")

    def test_names(self):
        self.run_in("record", "none", env={"NIMBLE_LOG_FILE": "said-%p.txt"})
        self.assertRegex(os.path.basename(glob.glob(self.path("said-*.txt"))[0]), r"said-\d+\.txt")
        self.run_in("record", "none", env={"NIMBLE_LOG_FILE": "of-%r.txt", "RANK": "3"})
        self.assertTrue(os.path.exists(self.path("of-3.txt")))
        self.run_in("record", "none", env={"NIMBLE_LOG_FILE": "all.txt", "RANK": "3"})
        self.assertTrue(os.path.exists(self.path("all.3.txt")))

    def test_where_it_cannot_be_opened(self):
        os.symlink(self.path("elsewhere.txt"), self.path("link.txt"))
        for file, why in (("no/folder/said.txt", "No such file or directory"), ("link.txt", "it is a link")):
            _, errors = self.run_in("record", "none", env={"NIMBLE_LOG_FILE": file})
            self.assertEqual(errors.count("NIMBLE_LOG_FILE"), 1, errors)
            self.assertIn(why, errors)
            self.assertIn("wrote ", errors)
        self.assertFalse(os.path.exists(self.path("elsewhere.txt")))

    def test_after_the_program_has_closed_it(self):
        self.run_in("record", "seize", env={"NIMBLE_LOG_FILE": "said.txt", "NIMBLE_TIMING": "bad"})
        self.assertIn("wrote ", self.text("said.txt"))
        self.assertEqual(set(self.text("seized.out").splitlines()), {"row"})

    def test_it_is_full(self):
        expected, _ = self.plain("record", "none")
        found, errors = self.run_in("record", "none", env={"NIMBLE_LOG_FILE": "/dev/full"})
        self.assertEqual((expected, errors), (found, ""))


if __name__ == "__main__":
    harness.main()
