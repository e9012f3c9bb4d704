"""Each row of the table of options reaches all that is made from it: the library's check of its value, the page, the man page and the
Python package's view. (`nimble --help` and the launcher's flags: launcher_test.py. The parsed values: the unit tests.)

Usage: options_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from option_rows import option_rows

SOURCE, BUILD = sys.argv[1:3]
OPTIONS = option_rows(SOURCE)
TABLE, PAGE, MODULE = "include/nimble/internal/options.def", "docs/reference/options.md", "python/nimble/options.py"
MAN_PAGE = os.path.join(BUILD, "share", "man", "man1", "nimble.1")
ROW = """
NIMBLE_CHOICE(new_thing, bool, "no", "record, auto",
  "Whether there is a thing, \\"new\\" (or not).",
  NIMBLE_WORD(false, "no", "none")
  NIMBLE_WORD(true, "yes", "one, new"))
"""


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def script(root, *arguments):
    return subprocess.run([sys.executable, os.path.join(root, "scripts", "options"), *arguments], capture_output=True, text=True, timeout=60)


def with_value(option, value):
    """What a process says that starts with this value."""
    preload = ":".join(filter(None, [os.environ.get("NIMBLE_TEST_PRELOAD"), os.path.join(BUILD, "lib", "libnimble.so")]))
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload, option.variable: value}
    return subprocess.run(["true"], env=environment, capture_output=True, text=True, timeout=60).stderr


class Rows(unittest.TestCase):
    def test_the_library_refuses_what_is_out_of_range_and_says_what_counts(self):
        for option in OPTIONS:
            wrong = {"choice": ["no-such-word", option.default.upper()], "flag": ["true"],
                     "integer": [str(option.least - 1), str(option.most + 1), "many"]}.get(option.kind, [])
            if option.name == "LOG":
                wrong = []  # with its first line, and not before: the log's own tests
            for value in wrong:
                with self.subTest(f"{option.variable}={value}"):
                    said = with_value(option, value)
                    self.assertRegex(said, rf"^nimble: error: {option.variable}={re.escape(value)} is not (one of|a number of) .*: "
                                           rf"using {re.escape(option.default)}\n$")
            right = {"choice": [word for word, _ in option.words], "flag": ["on", "off"], "integer": [str(option.least), str(option.most)]}
            for value in right.get(option.kind, ["a"]):
                with self.subTest(f"{option.variable}={value}"):
                    self.assertEqual(with_value(option, value), "")

    def test_the_page(self):
        page = read(SOURCE, PAGE)
        for option in OPTIONS:
            with self.subTest(option.name):
                section = page.split(f"\n## {option.variable}\n")[1].split("\n## ")[0]
                self.assertIn(f"`{option.flag} {option.placeholder}`: {option.help}\n", section)
                for word, meaning in option.words:
                    self.assertIn(f"- `{word}`: {meaning}\n" if meaning else "", section + "\n")
                row = next(line for line in page.splitlines() if line.startswith(f"| [`{option.variable}`]"))
                for part in (option.values, option.default, ", ".join(option.modes)):
                    self.assertIn(part, row)

    def test_the_man_page(self):
        shown = read(MAN_PAGE).replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").splitlines()
        for option in OPTIONS:
            with self.subTest(option.name):
                at = shown.index(f"{option.flag} {option.placeholder}, {option.variable}")
                self.assertTrue(shown[at + 1].startswith(option.help))
                self.assertIn(f"default {option.default})" if option.default else "", shown[at + 1])
                self.assertIn(", ".join(option.modes) if option.modes != ("any",) else "", shown[at + 1])
                for word, meaning in option.words:
                    if meaning:
                        self.assertEqual(shown[shown.index(f".IP {word} 10", at) + 1], meaning)

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_the_man_page_is_as_roff_wants_it(self):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", MAN_PAGE], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_python_package(self):
        found = {}
        exec(compile(read(SOURCE, MODULE), MODULE, "exec"), found)
        self.assertEqual(list(found["OPTIONS"]), [option.name for option in OPTIONS])
        for option in OPTIONS:
            seen = found["OPTIONS"][option.name]
            self.assertEqual((seen.default, seen.modes, seen.words, seen.separator),
                             (option.default, option.modes, tuple(word for word, _ in option.words), option.separator))


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for part in ("scripts/options", "python/nimble/version.py", TABLE, PAGE, MODULE):
            os.makedirs(os.path.join(self.root, os.path.dirname(part)), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, part), os.path.join(self.root, part))

    def edit(self, path, pattern, replacement):
        changed, count = re.subn(pattern, replacement, read(self.root, path), count=1, flags=re.MULTILINE)
        self.assertEqual(count, 1, pattern)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(changed)

    def refused(self, *words):
        done = script(self.root, "--check")
        self.assertEqual(done.returncode, 1, done.stdout)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_what_is_written_is_up_to_date(self):
        self.assertEqual(script(SOURCE, "--check").stderr, "")

    def test_files_that_are_out_of_date(self):
        for path in (PAGE, MODULE):
            with self.subTest(path):
                self.edit(path, r"NIMBLE_HOLD_US|HOLD_US", "HOLD")
                self.refused(path, "out of date")
                self.assertEqual(script(self.root).returncode, 0)
                self.assertEqual(script(self.root, "--check").returncode, 0)
                os.remove(os.path.join(self.root, path))
                self.refused(path, "out of date")
                self.assertEqual(script(self.root).returncode, 0)

    def test_a_new_row_is_all_it_takes(self):
        self.edit(TABLE, r"^NIMBLE_LIST\(rules,", lambda match: ROW + match.group(0))
        self.refused("out of date")
        self.assertEqual(script(self.root).returncode, 0)
        self.assertEqual(script(self.root, "--check").returncode, 0)
        self.assertEqual(script(self.root, "--man", os.path.join(self.root, "man", "nimble.1")).returncode, 0)
        for path, texts in ((PAGE, ["## NIMBLE_NEW_THING", "`--new-thing WORD`: Whether there is a thing, \"new\" (or not).", "- `yes`: one, new"]),
                            (MODULE, ['"NEW_THING": Option("no", ("record", "auto"), words=("no", "yes"))']),
                            ("man/nimble.1", ["\\fBNIMBLE_NEW_THING\\fR", "one, new"])):
            for text in texts:
                self.assertIn(text, read(self.root, path))

    def test_rows_that_are_none(self):
        good = read(self.root, TABLE)
        for pattern, replacement, *words in (
                (r'^NIMBLE_PATH\(schedule, "schedule.json", ', "NIMBLE_PATH(schedule, ", "NIMBLE_PATH(schedule", "4 columns"),
                (r"^NIMBLE_LIST\(rules,", "NIMBLE_TEXT(rules,", "NIMBLE_TEXT"),
                (r"they stay as they are\"\)", 'they stay as they are"', "not closed")):
            with self.subTest(replacement):
                self.edit(TABLE, pattern, replacement)
                self.refused(*words)
                with open(os.path.join(self.root, TABLE), "w", encoding="utf-8") as file:
                    file.write(good)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
