"""Proofs of kernels' code in the user's cache folder, in real processes: a second process makes none, and whatever becomes of the
folder, programs compute what they computed."""

import os
import random
import re
import shutil
import subprocess
import unittest

import harness
from harness import ProgramTest

PROGRAM = ["beliefs", "flag", "steps", 20, "believed_code.simcuda", 15]


class Proofs(ProgramTest):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache/nimble/proofs")
        self.plain = self.run_program(PROGRAM).stdout

    def run_kept(self, mode="record", **settings):
        """How many proofs were made, and how many were there; None if the log does not say."""
        settings.setdefault("NIMBLE_CACHE", self.cache)
        settings.setdefault("NIMBLE_LOG", "info")
        done = self.run_program(PROGRAM, mode=mode, **{k: v for k, v in settings.items() if v is not None})
        self.assertEqual(done.stdout, self.plain, done.stderr)
        self.said = done.stderr
        found = re.search(r"proofs: (\d+) made, (\d+) read from the cache", done.stderr)
        return found and tuple(int(n) for n in found.groups())

    def files(self):
        return sorted(os.path.join(self.cache, name) for name in os.listdir(self.cache))

    def trace(self):
        """The definitions of kernels in the trace."""
        with open(self.path("trace.json"), encoding="utf-8") as file:
            return [line for line in file if '"nimble.function"' in line]

    def test_a_second_process_makes_none(self):
        made, kept = self.run_kept()
        self.assertGreater(made, 0)
        self.assertEqual(kept, 0)
        self.assertEqual(len(self.files()), made)
        first = self.trace()
        self.assertEqual(self.run_kept(), (0, made))
        self.assertEqual(self.trace(), first)
        self.assertEqual(os.stat(self.cache).st_mode & 0o777, 0o700)
        self.assertEqual(self.run_kept("auto"), (0, made))
        self.assertEqual(self.run_kept("off", NIMBLE_GRAPHS="rewrite"), (0, made))

    def test_a_process_without_it_says_nothing_of_it(self):
        self.assertIsNone(self.run_kept(NIMBLE_CACHE="none"))
        self.assertFalse(os.path.exists(self.cache))

    def test_the_users_cache_folder_is_the_default(self):
        os.mkdir(self.path("home"))
        made, _ = self.run_kept(NIMBLE_CACHE="", HOME=self.path("home"), XDG_CACHE_HOME="")
        self.cache = self.path("home/.cache/nimble/proofs")
        self.assertEqual(len(self.files()), made)
        os.mkdir(self.path("xdg"))
        self.run_kept(NIMBLE_CACHE="", HOME=self.path("home"), XDG_CACHE_HOME=self.path("xdg"))
        self.cache = self.path("xdg/nimble/proofs")
        self.assertEqual(len(self.files()), made)

    def test_damaged_files_are_made_anew(self):
        made, _ = self.run_kept()
        chance = random.Random(1)
        first = self.trace()
        good = {}
        for path in self.files():
            with open(path, "rb") as file:
                good[path] = file.read()
        for round in range(6):
            for path, content in good.items():
                damaged = bytearray(content)
                if round == 0:
                    damaged = damaged[:len(damaged) // 2]
                elif round == 1:
                    damaged = bytearray()
                elif round == 2:
                    damaged += b"more"
                else:
                    for _ in range(round):
                        damaged[chance.randrange(len(damaged))] ^= chance.randrange(1, 256)
                with open(path, "wb") as file:
                    file.write(damaged)
            self.assertEqual(self.run_kept(), (made, 0))
            self.assertEqual(self.trace(), first)
            self.assertEqual(self.run_kept(), (0, made))

    def test_a_file_of_another_kernel_is_none(self):
        made, _ = self.run_kept()
        names = self.files()
        if len(names) < 2:
            self.skipTest("the program has one kernel")
        shutil.copy(names[0], names[1])
        self.assertEqual(self.run_kept(), (1, made - 1))

    def test_links_and_folders_of_others_are_left_alone(self):
        self.run_kept()
        kept = self.path("elsewhere")
        os.rename(self.cache, kept)
        os.symlink(kept, self.cache)
        before = os.listdir(kept)
        self.assertEqual(self.run_kept()[1], 0)
        self.assertIn("proofs are not kept in", self.said)
        self.assertEqual(os.listdir(kept), before)
        os.unlink(self.cache)
        os.rename(kept, self.cache)
        os.chmod(self.cache, 0o777)
        self.assertEqual(self.run_kept()[1], 0)
        self.assertIn("others may write to", self.said)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to give a folder away")
    def test_a_folder_of_another_user_is_left_alone(self):
        self.run_kept()
        os.chown(self.cache, 65534, 65534)
        before = self.files()
        self.assertEqual(self.run_kept()[1], 0)
        self.assertIn("belongs to another user", self.said)
        self.assertEqual(self.files(), before)
        os.makedirs(self.path("home"))
        os.chown(self.path("home"), 65534, 65534)
        self.assertIsNone(self.run_kept(NIMBLE_CACHE="", HOME=self.path("home"), XDG_CACHE_HOME=""))
        self.assertEqual(os.listdir(self.path("home")), [])

    def test_a_folder_that_cannot_be_made_is_no_error(self):
        for place in ("/proc/nimble/proofs", "/dev/null/proofs"):
            made, kept = self.run_kept(NIMBLE_CACHE=place)
            self.assertGreater(made, 0)
            self.assertEqual(kept, 0)
            self.assertEqual(self.said.count("proofs are not kept in"), 1, self.said)
        self.assertIsNone(self.run_kept(NIMBLE_CACHE="", HOME="/proc/1/nothing", XDG_CACHE_HOME=""))

    def test_a_full_disk_is_no_error(self):
        # A page of memory as a disk, in a name space of its own.
        os.makedirs(self.cache)
        mount = f"mount -t tmpfs -o size=4k,mode=700 none {self.cache}"
        if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, timeout=60).returncode != 0:
            self.skipTest("no file system can be mounted")
        arguments = " ".join([harness.BUILD.program(PROGRAM[0]), *(str(each) for each in PROGRAM[1:])])
        environment = harness.BUILD.environment("auto", NIMBLE_CACHE=self.cache, NIMBLE_LOG="info")
        done = subprocess.run(["unshare", "-rm", "sh", "-c", f"{mount}; LD_PRELOAD=$PRELOADED {arguments}; ls {self.cache}"],
                              env={**environment, "LD_PRELOAD": "", "PRELOADED": environment["LD_PRELOAD"]},
                              cwd=self.folder, text=True, capture_output=True, timeout=300)
        self.assertEqual(done.stdout.splitlines()[0], self.plain.strip(), done.stderr)
        self.assertEqual(done.stderr.count("No space left on device"), 1, done.stderr)
        self.assertNotIn(".part", done.stdout)

    def test_many_processes_at_once(self):
        arguments = [harness.BUILD.program(PROGRAM[0]), *(str(each) for each in PROGRAM[1:])]
        environment = harness.BUILD.environment("auto", NIMBLE_CACHE=self.cache, NIMBLE_LOG="info")
        processes = [subprocess.Popen(arguments, env=environment, cwd=self.folder, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(20)]
        for process in processes:
            output, said = process.communicate(timeout=300)
            self.assertEqual((process.returncode, output), (0, self.plain), said)
            self.assertNotIn("not what the code says", said)
        self.assertFalse([path for path in self.files() if path.endswith(".part")])
        made, kept = self.run_kept()
        self.assertEqual((made, kept), (0, len(self.files())))


if __name__ == "__main__":
    harness.main()
