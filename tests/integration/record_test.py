"""Record mode, in real processes: every way into the driver, files that survive their process, programs left alone."""

import json
import os
import signal
import subprocess
import time

import harness
from harness import ProgramTest


def calls_in(lines):
    """The calls of a trace, given as its lines, tolerating a last line that is not whole."""
    calls = []
    for line in lines[1:]:
        line = line.rstrip().rstrip(",")
        if not line.endswith("}"):
            break
        event = json.loads(line)
        if event["ph"] == "X" and event["pid"] == 1:
            calls.append(event)
    return calls


class WaysIn(ProgramTest):
    def check(self, way, launches="cuLaunchKernel"):
        plain = self.run_program(["ways_in", way])
        recorded = self.run_program(["ways_in", way], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.assertEqual(plain.stdout, recorded.stdout)
        with open(self.path("trace.json"), encoding="utf-8") as file:
            trace = json.load(file)
        seen = [e["args"]["call"] for e in trace if e["ph"] == "X" and e["pid"] == 1]
        self.assertEqual(seen.count(launches), 20, seen)
        self.assertEqual(sum(1 for call in seen if call.startswith("cuMemAlloc")), 2)
        self.assertEqual(sum(1 for call in seen if call.startswith("cuMemsetD32")), 2)
        self.assertEqual(sum(1 for call in seen if call.startswith("cuMemcpyDtoH")), 1)

    def test_linked(self):
        self.check("linked")

    def test_dlsym(self):
        self.check("dlsym")

    def test_proc_address(self):
        self.check("proc_address")

    def test_proc_address_v2_with_per_thread_streams(self):
        self.check("proc_address_v2", "cuLaunchKernel_ptsz")


class Record(ProgramTest):
    def test_off_mode_leaves_no_trace_and_changes_nothing(self):
        plain = self.run_program(["chaos", 20, 3])
        off = self.run_program(["chaos", 20, 3], mode="off")
        self.assertEqual((plain.stdout, plain.stderr), (off.stdout, off.stderr))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_program_without_a_gpu_leaves_no_trace(self):
        env = harness.BUILD.environment("record")
        subprocess.run(["ls"], env=env, cwd=self.folder, check=True, capture_output=True)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_program_in_disorder_computes_the_same_while_recorded(self):
        for seed in range(1, 6):
            plain = self.run_program(["chaos", 40, seed])
            recorded = self.run_program(["chaos", 40, seed], mode="record", SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, recorded.stdout)

    def test_the_file_is_whole_up_to_the_last_event_when_the_process_is_killed(self):
        trace = self.path("trace.json")
        process = subprocess.Popen(
            [harness.BUILD.program("chaos"), "100000000", "0"], env=harness.BUILD.environment("record", NIMBLE_TRACE=trace),
            cwd=self.folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (os.path.exists(trace) and os.path.getsize(trace) > 2_000_000):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open(trace, encoding="utf-8") as file:
            lines = file.readlines()
        calls = calls_in(lines)
        self.assertGreaterEqual(len(calls), (len(lines) - 20) * 0.4)
        seqs = [call["args"]["seq"] for call in calls]
        self.assertEqual(sorted(seqs), list(range(len(seqs))))
        # And the analyzer takes it.
        self.analyze(trace, "-o", self.path("schedule.json"), "--quiet")

    def test_a_file_that_cannot_be_written_does_not_stop_the_program(self):
        plain = self.run_program(["chaos", 10, 0])
        done = self.run_program(["chaos", 10, 0], mode="record", NIMBLE_TRACE="/nowhere/trace.json")
        self.assertEqual(plain.stdout, done.stdout)
        self.assertIn("/nowhere/trace.json", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_only_intercepted_names_are_exported(self):
        listing = subprocess.run(["nm", "-D", "--defined-only", harness.BUILD.library], text=True, capture_output=True, check=True)
        names = {line.split()[-1] for line in listing.stdout.splitlines()}
        strangers = {n for n in names if not (n.startswith("cu") and n[2].isupper()) and n != "dlsym"}
        self.assertEqual(strangers, set())
        needed = subprocess.run(["readelf", "-d", harness.BUILD.library], text=True, capture_output=True, check=True).stdout
        if not harness.BUILD.preload_first:
            self.assertNotIn("libstdc++", needed)
            self.assertNotIn("libcuda", needed)


if __name__ == "__main__":
    harness.main()
