"""Record mode, in real processes: files that survive their process, programs left alone."""

import glob
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
        while not any(os.path.getsize(part) > 2_000_000 for part in glob.glob(trace + ".*.part")):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (part,) = glob.glob(trace + ".*.part")
        self.assertFalse(os.path.exists(trace))
        with open(part, encoding="utf-8") as file:
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


if __name__ == "__main__":
    harness.main()
