"""The version is written once, in python/nimble/version.py, and everything says it.

Usage: version_test.py SOURCE_FOLDER PROGRAM...
"""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
PROGRAMS = sys.argv[2:]
VERSION = re.search(r'^VERSION = "(.*)"$', (ROOT / "python/nimble/version.py").read_text(encoding="utf-8"), re.MULTILINE).group(1)


class Version(unittest.TestCase):
    def test_programs_say_it(self):
        self.assertEqual(len(PROGRAMS), 3)
        for program in PROGRAMS:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
            self.assertRegex(done.stdout, rf"^{re.escape(pathlib.Path(program).name)} {re.escape(VERSION)}\n")

    def test_no_other_file_has_it(self):
        """What builds or reads the sources; the library's is held against the package's by python/tests/package/test_shim.py."""
        found = []
        for folder in ("include", "shim", "analyzer", "replayer", "python/nimble", "cmake", "scripts", "."):
            paths = (ROOT / folder).rglob("*") if folder != "." else ROOT.glob("*")
            found += [str(path.relative_to(ROOT)) for path in paths
                      if path.is_file() and path.suffix in ("", ".h", ".in", ".cpp", ".def", ".py", ".txt", ".cmake", ".json", ".toml")
                      and f'"{VERSION}"' in path.read_text(encoding="utf-8", errors="replace")]
        self.assertEqual(found, ["python/nimble/version.py"])

    def test_the_changelog_has_it(self):
        headings = re.findall(r"^## \[(.*?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(headings[0][0], "Unreleased")
        self.assertIn(VERSION, [name for name, _ in headings])
        for name, date in headings[1:]:
            self.assertRegex(f"{name}{date}", r"^\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
