"""The code of the pages: the tutorials that need no PyTorch run on the simulated driver, and say what it prints; C compiles; the rest is
read. The tutorial for PyTorch runs in python/tests/package/test_tutorial.py.

Usage: examples_test.py SOURCE_FOLDER BUILD_FOLDER C_COMPILER
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pages

ROOT, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
COMPILER = sys.argv[3]
END = "--- end of block"

# What the pieces of C call that are the program's own, and what they use of cuda.h.
AROUND_C = """#include <stdio.h>
#include "nimble/nimble.h"
typedef struct CUstream_st* CUstream;
typedef struct CUgraphExec_st* CUgraphExec;
int cuGraphLaunch(CUgraphExec graph, CUstream stream);
int cuGraphExecDestroy(CUgraphExec graph);
CUgraphExec capture(CUstream stream);
void step();
void prepare_input(void);
void example(CUstream stream);
void example(CUstream stream) {
  (void)stream;
"""


def all_blocks(*languages):
    for page in sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]):
        for block in pages.blocks(page.read_text(encoding="utf-8")):
            if block.language in languages:
                yield page.relative_to(ROOT), block


def plain(line):
    """A line with any numbers and any spaces."""
    return " ".join(re.sub(r"\d+(\.\d+)?", "N", line).split())


class Reading(unittest.TestCase):
    def test_blocks_are_of_known_languages(self):
        known = {"", "sh", "output", "python", "c", "json", "mermaid"}
        for page in ROOT.glob("docs/**/*.md"):
            self.assertEqual({block.language for block in pages.blocks(page.read_text(encoding="utf-8"))} - known, set(), page)

    def test_python(self):
        found = list(all_blocks("python"))
        self.assertGreater(len(found), 4)
        for page, block in found:
            with self.subTest(f"{page}:{block.line}"):
                ast.parse(block.text)

    def test_commands(self):
        found = list(all_blocks("sh"))
        self.assertGreater(len(found), 8)
        for page, block in found:
            with self.subTest(f"{page}:{block.line}"):
                done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_c(self):
        found = list(all_blocks("c"))
        self.assertGreater(len(found), 3)
        for page, block in found:
            with self.subTest(f"{page}:{block.line}"):
                done = subprocess.run([COMPILER, "-std=c99", "-Wall", "-Werror", "-Wno-strict-prototypes", "-fsyntax-only", "-I",
                                       str(ROOT / "include"), "-x", "c", "-"], input=AROUND_C + block.text + "\n}\n", text=True,
                                      capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


class WithoutPyTorch(unittest.TestCase):
    """In a folder that looks like the repository, so that what is written does not lie in the build."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        build = self.root / "build" / "default"
        build.mkdir(parents=True)
        for name in ("bin", "lib", "simcuda"):
            os.symlink(BUILD / name, build / name)
        os.symlink(ROOT / "examples", self.root / "examples")

    def test_any_program(self):
        self.assertGreater(self.lines_as_printed("any-program.md", self.root), 6)

    def test_ten_minutes(self):
        """What it installs is indented there, and comes from the build here."""
        self.assertGreater(self.lines_as_printed("ten-minutes.md", self.root / "build" / "default"), 15)

    def lines_as_printed(self, page, folder):
        """Runs the page's commands in a folder, and fails if a line of output that the page shows is not printed. Returns how many it shows."""
        found = pages.blocks((ROOT / "docs/tutorial" / page).read_text(encoding="utf-8"))
        commands = [block for block in found if block.language == "sh"]
        script = "set -e\n" + "".join(f"{block.text}\necho '{END}'\n" for block in commands)
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "LD_"))}
        variables["PATH"] = f"{BUILD / 'bin'}:{variables['PATH']}"
        done = subprocess.run(["bash"], input=script, env=variables, cwd=folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)
        said = done.stdout.split(END)
        expected = 0
        for block, following in zip(found, found[1:]):
            if block.language == "sh" and following.language == "output":
                lines = [plain(line) for line in said[commands.index(block)].split("\n")]
                for line in following.text.split("\n"):
                    at = next((i for i, each in enumerate(lines) if plain(line) in each), None)
                    self.assertIsNotNone(at, f"line {following.line}: {line}\n{said[commands.index(block)]}")
                    lines = lines[at + 1:]
                    expected += 1
        return expected


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
