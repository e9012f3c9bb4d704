"""Traces under names that end in .zst: the same lines, compressed, whatever ends the recording. In real processes."""

import ctypes
import ctypes.util
import glob
import json
import os
import random
import resource
import signal
import subprocess

import harness
from file_cases import PROFILE, FilesTest

FRAME = b"\x28\xb5\x2f\xfd"


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t)]


class Damaged(Exception):
    pass


def unpacked(data):
    """The text, and whether the last frame is whole."""
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd"))
    zstd.ZSTD_createDStream.restype = ctypes.c_void_p
    zstd.ZSTD_decompressStream.restype = ctypes.c_size_t
    zstd.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.POINTER(Buffer), ctypes.POINTER(Buffer)]
    zstd.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    stream, text, left = zstd.ZSTD_createDStream(), [], 0
    source, target = ctypes.create_string_buffer(data, len(data)), ctypes.create_string_buffer(1 << 20)
    given = Buffer(ctypes.addressof(source), len(data), 0)
    while given.at < given.size or taken.at == taken.size:
        taken = Buffer(ctypes.addressof(target), len(target), 0)
        left = zstd.ZSTD_decompressStream(stream, taken, given)
        if zstd.ZSTD_isError(ctypes.c_size_t(left)):
            raise Damaged(given.at)
        text.append(target.raw[:taken.at])
    zstd.ZSTD_freeDStream(stream)
    return b"".join(text).decode(), left == 0


class PackedTrace(FilesTest):
    def text(self, name):
        with open(self.path(name), "rb") as file:
            data = file.read()
        if not data.startswith(b"\x50\x2a\x4d\x18"):
            return data.decode()
        text, whole = unpacked(data)
        self.assertTrue(whole or name.endswith(".part"), name)
        return text

    def test_the_lines_are_the_same(self):
        for name in ("trace.json", "trace.json.zst"):
            self.record("steps", 6000, trace=name)
        self.assertEqual(self.calls(), self.calls("trace.json.zst"))
        self.assertEqual(self.calls(), 12001)
        sizes = [os.path.getsize(self.path(name)) for name in ("trace.json", "trace.json.zst")]
        self.assertLess(10 * sizes[1], sizes[0], sizes)
        schedules = []
        for name in ("trace.json", "trace.json.zst"):
            self.analyze(name, "-o", "schedule.json", "--quiet")
            schedules.append({key: value for key, value in self.read_json("schedule.json").items() if "digest" not in key and "trace" not in key})
        self.assertEqual(*schedules)

    def test_a_kill_leaves_what_was_written(self):
        process = self.start("steps", 6000, "wait", NIMBLE_TRACE="trace.json.zst")
        self.wait_for(lambda: any(os.path.getsize(part) > 10_000 for part in glob.glob(self.path("*.part"))))
        process.send_signal(signal.SIGKILL)
        process.wait()
        (part,) = self.leftovers()
        self.assertGreater(self.calls(part, whole=False), 500)
        done = self.analyze("trace.json.zst", "-o", "schedule.json")
        self.assertIn(f"reading {os.path.basename(part)}", done.stderr)

    def test_the_limit(self):
        said = self.record("steps", 100_000, trace="trace.json.zst", NIMBLE_TRACE_LIMIT=1)
        self.assertIn("NIMBLE_TRACE_LIMIT", said)
        size = os.path.getsize(self.path("trace.json.zst"))
        self.assertTrue(0.6 * (1 << 20) < size <= 1 << 20, size)
        self.assertGreater(self.calls("trace.json.zst"), 10_000)  # uncompressed there is room for some 6000

    def test_wherever_the_disk_is_full_the_file_can_be_read(self):
        ends = 0
        for size in [400, 900, 1500, 3000, 9000, 9500, *range(10_000, 60_000, 7_000)]:
            name = f"{size}.json.zst"
            env = harness.BUILD.environment("record", NIMBLE_TRACE=name)
            done = subprocess.run([harness.BUILD.program("own_files"), "steps", "6000"], env=env, cwd=self.folder, capture_output=True,
                                  text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
            self.assertEqual(done.returncode, 0, done.stderr)
            if os.path.exists(self.path(name)):
                self.assertGreaterEqual(self.calls(name), 0 if size < 12_000 else 100)
                self.assertIn("nimble.stopped", self.text(name))
                ends += 1
            for part in glob.glob(self.path(f"{size}.*.part")):
                self.calls(os.path.basename(part), whole=False)
            self.assertIn("File too large", done.stderr)
        self.assertGreater(ends, 5, "larger files end properly")

    def test_without_its_header_it_is_no_trace(self):
        self.record("steps", 500, trace="trace.json.zst")
        env = harness.BUILD.environment("record", NIMBLE_TRACE="trace.json.zst")
        name = "".join(random.Random(1).choices("".join(map(chr, range(33, 127))), k=4000))  # which is not compressed much
        done = subprocess.run([name, "steps", "500"], executable=harness.BUILD.program("own_files"), env=env, cwd=self.folder,
                              capture_output=True, text=True, check=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200)))
        self.assertIn("cannot write the trace", done.stderr)
        self.assertEqual(self.names(), ["trace.json.zst"])
        self.assertEqual(self.calls("trace.json.zst"), 1001)

    def test_what_is_ours_is_replaced_and_what_is_others_is_not(self):
        for _ in range(2):
            self.record("steps", 10, trace="trace.json.zst")
            self.assertEqual(self.names(), ["trace.json.zst"])
        theirs = FRAME + PROFILE.encode()
        with open(self.path("trace.json.zst"), "wb") as file:
            file.write(theirs)
        said = self.record("steps", 10, trace="trace.json.zst")
        with open(self.path("trace.json.zst"), "rb") as file:
            self.assertEqual(file.read(), theirs)
        self.assertIn("was not written by Nimble", said)
        (other,) = set(self.names()) - {"trace.json.zst"}
        self.assertEqual(self.calls(other), 21)

    def test_it_is_read_while_it_is_written(self):
        self.record("steps", 200_000, trace="trace.json.zst", NIMBLE_STEPS=50)
        self.assertTrue(100 < self.calls("trace.json.zst") < 400_000)
        self.assertIn("steps found", self.text("trace.json.zst"))

    def test_what_comes_after_the_end_is_in_it(self):
        self.run_program(["chaos", 40, 3], mode="record", NIMBLE_TRACE="trace.json.zst", NIMBLE_TIMING="events")
        events = json.loads(self.text("trace.json.zst"))
        self.assertEqual(events[-1]["name"], "nimble.end")
        self.assertTrue(any(event.get("pid") == 2 and event["ph"] == "X" for event in events))

    def test_a_recording_of_graphs(self):
        self.run_program(["answers", "graph", 4], mode="off", NIMBLE_GRAPHS="rewrite", NIMBLE_TRACE="graphs.json.zst")
        events = json.loads(self.text("graphs.json.zst"))
        self.assertEqual((events[0]["name"], events[-1]["name"]), ("nimble.trace", "nimble.end"))


if __name__ == "__main__":
    harness.main()
