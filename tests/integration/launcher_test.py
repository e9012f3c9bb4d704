#!/usr/bin/env python3
"""The launcher, from outside: what `nimble run` hands to the program, and what it says where it cannot.

Usage: launcher_test.py NIMBLE PROBE_LIBRARY STATIC_PROGRAM SOURCE_FOLDER
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

from option_rows import option_rows

NIMBLE, PROBE, STATIC, SOURCE = sys.argv[1:5]
OPTIONS = option_rows(SOURCE)


def nimble(*arguments, **variables):
    """Runs nimble with a clean environment plus `variables`."""
    # The last one is for builds with the address sanitizer, which otherwise refuses any preload.
    environment = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "verify_asan_link_order=0", **variables}
    return subprocess.run([NIMBLE, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def run(*arguments, **variables):
    return nimble("run", "--library", PROBE, *arguments, **variables)


def seen_environment(*arguments, **variables):
    """The environment that a program sees which is run so."""
    result = run(*arguments, "--", "env", **variables)
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)


class Program(unittest.TestCase):
    def test_exit_status_is_the_programs(self):
        self.assertEqual(run("--", "sh", "-c", "exit 37").returncode, 37)
        self.assertEqual(run("--", "true").returncode, 0)

    def test_signal_is_the_programs(self):
        self.assertEqual(run("--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_library_is_loaded(self):
        self.assertIn("probe loaded", run("--", "true", PROBE_SAYS_SO="1").stderr)

    def test_quiet_where_all_is_fine(self):
        result = run("--", "echo", "hello")
        self.assertEqual((result.stdout, result.stderr), ("hello\n", ""))

    def test_arguments_pass_untouched(self):
        words = ["--", "--mode", "x y", "", "-h", "--help"]
        result = run("--", "printf", "[%s]", *words)
        self.assertEqual(result.stdout, "".join(f"[{word}]" for word in words))

    def test_double_dash_is_optional(self):
        self.assertEqual(run("--mode", "off", "printf", "%s", "--").stdout, "--")


class Environment(unittest.TestCase):
    def test_mode_is_record_unless_told_otherwise(self):
        self.assertEqual(seen_environment()["NIMBLE_MODE"], "record")
        self.assertEqual(seen_environment(NIMBLE_MODE="")["NIMBLE_MODE"], "record")
        self.assertEqual(seen_environment(NIMBLE_GRAPHS="off")["NIMBLE_MODE"], "record")

    def test_python_finds_the_package_in_mode_auto(self):
        """In a build tree: that of the checkout. Elsewhere: beside the launcher, or where CMake installs it."""
        def path_of(launcher, **variables):
            result = subprocess.run([launcher, "run", "--library", PROBE, "--mode", "auto", "--", "env"], capture_output=True,
                                    text=True, env={"PATH": os.environ["PATH"], "ASAN_OPTIONS": "verify_asan_link_order=0", **variables})
            self.assertEqual(result.returncode, 0, result.stderr)
            return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line).get("PYTHONPATH")

        with tempfile.TemporaryDirectory() as folder:
            launcher = os.path.join(folder, "a", "b", "bin", "nimble")
            os.makedirs(os.path.dirname(launcher))
            shutil.copy(NIMBLE, launcher)
            self.assertIsNone(path_of(launcher))
            for place in ("python/nimble/startup", "a/b/share/nimble/python/nimble/startup", "a/b/startup"):
                startup = os.path.join(folder, place)
                os.makedirs(startup)
                self.assertNotEqual(path_of(launcher), startup)
                open(os.path.join(startup, "sitecustomize.py"), "w").close()
                self.assertEqual(path_of(launcher), startup)
            self.assertEqual(path_of(launcher, PYTHONPATH="/x:"), startup + ":/x:")
            self.assertEqual(path_of(launcher, PYTHONPATH=startup + ":/x"), startup + ":/x")
            self.assertIsNone(path_of(launcher, NIMBLE_TORCH="off"))
            self.assertEqual(path_of(launcher, NIMBLE_TORCH="off", PYTHONPATH="/x"), "/x")

    def test_mode_is_off_where_graphs_are_rewritten(self):
        self.assertEqual(seen_environment(NIMBLE_GRAPHS="rewrite")["NIMBLE_MODE"], "off")
        self.assertEqual(seen_environment("--graphs", "rewrite")["NIMBLE_MODE"], "off")
        self.assertEqual(seen_environment("--graphs", "rewrite", "--mode", "auto")["NIMBLE_MODE"], "auto")
        self.assertEqual(seen_environment(NIMBLE_MODE="off")["NIMBLE_MODE"], "off")
        self.assertEqual(seen_environment("--mode", "replay", NIMBLE_MODE="off")["NIMBLE_MODE"], "replay")

    def test_every_option_sets_its_variable(self):
        values = {"MODE": "off", "LOG": "debug", "HOLD_US": "25"}
        for option in OPTIONS:
            value = values.get(option.name, "a%p.json")
            with self.subTest(option.flag):
                self.assertEqual(seen_environment(option.flag, value)[option.variable], value)
                self.assertEqual(seen_environment(f"{option.flag}={value}")[option.variable], value)

    def test_options_not_given_leave_their_variables(self):
        seen = seen_environment(NIMBLE_TRACE="kept.json")
        self.assertEqual(seen["NIMBLE_TRACE"], "kept.json")
        self.assertNotIn("NIMBLE_SCHEDULE", seen)

    def test_preload_of_the_user_is_kept_after_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            theirs = shutil.copy(PROBE, os.path.join(folder, "theirs.so"))
            self.assertEqual(seen_environment()["LD_PRELOAD"], PROBE)
            self.assertEqual(seen_environment(LD_PRELOAD=theirs)["LD_PRELOAD"], f"{PROBE}:{theirs}")
            nested = seen_environment(LD_PRELOAD=f"{PROBE}:{theirs}")
            self.assertEqual(nested["LD_PRELOAD"], f"{PROBE}:{theirs}")


class Help(unittest.TestCase):
    def test_help_lists_every_variable(self):
        text = nimble("--help").stdout
        self.assertGreater(len(OPTIONS), 0)
        for option in OPTIONS:
            self.check(text, f"{option.variable}={option.placeholder} ", option, option.default)

    def test_help_of_run_lists_every_option(self):
        text = nimble("run", "--help").stdout
        for option in OPTIONS:
            self.check(text, f"{option.flag} {option.placeholder} ", option, "record" if option.name == "MODE" else option.default)

    def check(self, text, title, option, default):
        """The option's entry: a line with modes, help and default, then one for each word that has a meaning."""
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("  " + title))
        self.assertIn(option.help, lines[at])
        self.assertIn("" if option.modes == ("any",) else f"({', '.join(option.modes)}) ", lines[at])
        if default:
            self.assertIn(f"[{default} {option.unit}]" if option.unit else f"[{default}]", lines[at])
        for i, (word, meaning) in enumerate(option.words):
            if meaning:
                self.assertEqual(lines[at + 1 + i].strip(), f"{word}: {meaning}")

    def test_version(self):
        result = nimble("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^nimble \d+\.\d+\.\d+\n")


class Errors(unittest.TestCase):
    def check(self, result, status, *texts):
        self.assertEqual(result.returncode, status, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def test_usage(self):
        self.check(nimble(), 2, "nimble --help")
        self.check(nimble("fly"), 2, "fly")
        self.check(nimble("run"), 2, "no program")
        self.check(nimble("run", "--mode", "off"), 2, "no program")
        self.check(nimble("run", "--no-such-option", "1", "--", "true"), 2, "no-such-option")
        self.check(run("--mode", "--", "true"), 2, "--mode")

    def test_unknown_mode(self):
        self.check(run("--mode", "reply", "--", "true"), 2, "NIMBLE_MODE=reply", "record, replay")
        self.check(run("--", "true", NIMBLE_MODE="reply"), 2, "NIMBLE_MODE=reply")

    def test_library_not_there(self):
        self.check(nimble("run", "--library", "/nowhere/libnimble.so", "--", "true"), 2, "/nowhere/libnimble.so")

    def test_library_that_preload_cannot_name(self):
        with tempfile.TemporaryDirectory(prefix="with space ") as folder:
            library = shutil.copy(PROBE, folder)
            self.check(nimble("run", "--library", library, "--", "true"), 2, "space", library)

    def test_library_is_looked_for_beside_the_launcher(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "bin"))
            os.makedirs(os.path.join(folder, "lib"))
            launcher = shutil.copy(NIMBLE, os.path.join(folder, "bin", "nimble"))

            def alone(*arguments):
                return subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=60)

            self.check(alone("run", "--", "true"), 2, "libnimble.so", "--library")
            library = shutil.copy(PROBE, os.path.join(folder, "lib", "libnimble.so"))
            self.assertIn(f"LD_PRELOAD={library}", alone("run", "--", "env").stdout)

    def test_program_not_found(self):
        self.check(run("--", "no-such-program"), 127, "not found", "no-such-program")
        self.check(run("--", "./no-such-program"), 127, "not found", "./no-such-program")
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "a.py")
            open(script, "w", encoding="ascii").close()
            self.check(subprocess.run([NIMBLE, "run", "--library", PROBE, "a.py"], cwd=folder, capture_output=True, text=True, timeout=60),
                       127, "python3 a.py")

    def test_program_not_executable(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "data")
            open(path, "w", encoding="utf-8").close()
            self.check(run("--", path), 126, path)
            self.check(run("--", "data", PATH=folder), 126, path)
            self.check(run("--", folder), 126, folder, "folder")

    def test_interpreter_not_found(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script")
            with open(path, "w", encoding="utf-8") as script:
                script.write("#!/no/such/interpreter\n")
            os.chmod(path, 0o755)
            self.check(run("--", path), 127, path, "interpreter")

    def test_static_program_runs_with_a_word_of_warning(self):
        self.check(run("--", STATIC), 23, STATIC, "statically linked")

    def test_script_of_a_static_interpreter_gets_the_warning_too(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script")
            with open(path, "w", encoding="utf-8") as script:
                script.write(f"#!{STATIC}\n")
            os.chmod(path, 0o755)
            self.check(run("--", path), 23, path, "statically linked")

    def test_set_user_id_program_runs_with_a_word_of_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            if os.geteuid() == 0:
                path = shutil.copy(shutil.which("true"), folder)
                os.chown(path, 65534, 65534)
                os.chmod(path, 0o755 | stat.S_ISUID)
                self.check(run("--", path), 0, path, "gains privileges")
            else:  # only root can make one: take one that every Debian has
                self.check(run("--", "su", "--version"), 0, "gains privileges")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
