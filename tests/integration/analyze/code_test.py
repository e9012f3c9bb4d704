"""nimble-analyze code: what the kernels in a file touch."""

import json
import pathlib
import re
import struct
import subprocess
import sys

import analyze_command
from analyze_command import ROOT, CommandTest


def fatbin_of(ptx, arch):
    """One with one part: this PTX, not compressed, laid out as nvcc does it."""
    part = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(ptx), 0, 0, 0, 0, arch, 0, 0, 0, 0, 0) + ptx
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(part)) + part


class CodeTest(CommandTest):
    """nimble-analyze code: what the kernels in a file touch."""

    def setUp(self):
        super().setUp()
        self.ptx = (ROOT / "tests/unit/analyzer/kernel_code/ptx/kernels.ptx").read_bytes()
        # As a library embeds it.
        self.library = self.write(pathlib.Path(sys.executable).read_bytes() + b"\0" * 5 + fatbin_of(self.ptx, 90), "lib.so")

    def code(self, *arguments):
        return self.analyze("code", *arguments)

    def test_each_parameter_of_each_kernel_is_accounted_for(self):
        for file in self.library, self.write(self.ptx, "kernels.ptx"):
            done = self.code(file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("\nscale\n  compute_90 (PTX):\n    parameter 0, bytes 0-7: written\n"
                          "    parameter 1, bytes 8-15: read\n", done.stdout)
            self.assertIn("not understood: it may follow an address that it loads from memory", done.stdout)
            self.assertIn("variable a_global: written", done.stdout)

    def test_kernels_and_architectures_are_chosen(self):
        done = self.code(self.library, "--kernel", "scale|gather", "--arch", 90)
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if line and line[0] != " ")[:2],
                         [done.stdout.splitlines()[0], "gather"])
        self.assertIn("\nscale\n", done.stdout)
        self.assertNotIn("scatter", done.stdout)
        for arguments in (["--kernel", "scal"], ["--arch", "80"], ["--arch", "sm_90"]):
            self.assert_refused(self.code(self.library, *arguments), 2, "no kernel is what --kernel and --arch ask for")
        self.assert_refused(self.code(self.library, "--kernel", "("), 2, "--kernel: is not a regular expression")
        self.assert_refused(self.code(self.library, "--arch", "hopper"), 2, "--arch: hopper is no architecture")

    def test_the_summary_counts_what_is_proven(self):
        done = self.code(self.library, "--summary", "--json", "code.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^1 image\n")
        row = re.search(r"compute_90 +(\d+) +(\d+) +[\d.]+ %", done.stdout)
        kernels, proven = map(int, row.groups())
        self.assertGreater(proven, 20)
        self.assertIn(f"{kernels - proven:9}  it may follow an address that it loads from memory", done.stdout)
        report = json.loads((self.folder / "code.json").read_text())
        self.assertEqual((report["nimble_code"], len(report["kernels"])), (1, kernels))
        self.assertEqual(report["summary"]["targets"][0]["proven"], proven)
        scale = next(each for each in report["kernels"] if each["name"] == "scale")["findings"][0]
        self.assertEqual([(each["at"], each["reads"], each["writes"]) for each in scale["accesses"]],
                         [([0], False, True), ([8], True, False)])
        # It replaces its own file, and no other.
        self.assertEqual(self.code(self.library, "--summary", "--json", "code.json").returncode, 0)
        other = self.write("{}", "other.json")
        self.assert_refused(self.code(self.library, "--json", other), 1, "was not written by Nimble")
        self.assertEqual(self.code(self.library, "--summary", "--json", other, "--force").returncode, 0)

    def test_files_without_code_are_refused(self):
        self.assert_refused(self.code(sys.executable), 2, "holds no code for a GPU")
        self.assert_refused(self.code("gone.so"), 2, "gone.so: cannot be opened")
        self.assert_refused(self.code(self.folder), 2, "cannot be opened")
        self.assert_refused(self.code(), 2, "file is required")
        self.assertIn("--summary", self.code("--help").stdout)
        self.assertFalse(list(self.folder.glob("*.part")))

    def test_memory_is_bounded_by_the_largest_image_and_not_by_the_file(self):
        with open(self.folder / "large.so", "wb") as file:
            for i in range(300):
                file.write(bytes(1 << 20))
                file.write(fatbin_of(self.ptx, 90))
        done = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys\n"
                               "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
                               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
                               analyze_command.ANALYZE, "code", "large.so", "--summary", "--kernel", "scale"], cwd=self.folder,
                              stdout=subprocess.PIPE, check=True)
        if not analyze_command.IS_SANITIZED:
            self.assertLess(int(done.stdout), 64 << 10)


if __name__ == "__main__":
    analyze_command.main()
