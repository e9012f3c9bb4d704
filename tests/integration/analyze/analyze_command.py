"""What the tests of nimble-analyze's subcommands share: running one in a scratch folder, and traces for it."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/branches/trace.json"
ANALYZE = None  # the program
IS_SANITIZED = False


def branches_one_by_one(branches):
    """A trace whose program goes through the branches of its step one by one, each with two tensors one after the other
    from a pool that always hands out the same address."""
    lines, seq = [], 0

    def meta(event, **args):
        lines.append({"ph": "M", "pid": 1, "tid": 0, "name": event, "args": args})

    def call(kind, **args):
        nonlocal seq
        lines.append({"ph": "X", "pid": 1, "tid": 1, "ts": seq, "dur": 1, "name": kind, "cat": kind,
                      "args": {"seq": seq, "call": kind, **args}})
        seq += 1

    def launch(*pointers):
        call("launch", stream=0, fn=0, grid=[8, 1, 1], block=[128, 1, 1],
             params="".join(pointer.to_bytes(8, "little").hex() for pointer in pointers))

    meta("nimble.trace", version=2, nimble="test", program="test", device="none", driver=13000)
    meta("nimble.image", id=0, self_contained=True)
    meta("nimble.function", id=0, name="_Z1fPfPKf", image=0, params=[[0, 8], [8, 8]])
    meta("nimble.stream", id=0, context=0, kind="non_blocking")
    for i in range(branches + 1):
        call("alloc", addr=(i + 1) << 16, size=4096, memory="device")
    for _ in range(4):
        for i in range(branches):
            for source in (0, i + 1):
                call("alloc_async", stream=0, addr=1 << 30, size=4096)
                launch(1 << 30, (source + 1) << 16)
                launch((i + 2) << 16, 1 << 30)
                call("free_async", stream=0, addr=1 << 30)
        call("stream_synchronize", stream=0)
    meta("nimble.end", dropped=0)
    return "[\n" + ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n]\n"


class CommandTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def analyze(self, *arguments):
        """Believes signatures, by which the kernels of these traces are known."""
        if not {"check", "code", "kernels", "--trust", "--help", "--version"}.intersection(arguments):
            arguments = *arguments, "--trust", "observed"
        return subprocess.run([ANALYZE, *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)

    def make_trace(self, *arguments):
        path = self.folder / "made.json"
        subprocess.run([ROOT / "scripts/make_trace", "-o", path, *map(str, arguments)], check=True)
        return path

    def write(self, text, name="bad.json"):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def assert_refused(self, result, status, *parts):
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)


class TimedTraceTest(CommandTest):
    def timed_trace(self, *options):
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "60", "--steps", "5", *options, "-o", "trace.json"],
                       cwd=self.folder, check=True)
        return "trace.json"


def main():
    """Takes the options off the command line, and runs the tests of the calling file."""
    global ANALYZE, IS_SANITIZED
    parser = argparse.ArgumentParser()
    parser.add_argument("analyze", help="the nimble-analyze to test")
    parser.add_argument("--sanitized", action="store_true", help="it was built with a sanitizer: do not measure its speed")
    options, rest = parser.parse_known_args()
    ANALYZE = str(pathlib.Path(options.analyze).resolve())
    IS_SANITIZED = options.sanitized
    unittest.main(argv=[sys.argv[0], *rest])
