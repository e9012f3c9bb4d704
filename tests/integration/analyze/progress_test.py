"""What takes more than two seconds says how far it is, on a terminal alone."""

import contextlib
import os
import pty
import subprocess
import threading
import time

import analyze_command
from analyze_command import TimedTraceTest


class ProgressTest(TimedTraceTest):
    """What takes more than two seconds says how far it is, on a terminal alone."""

    def on_a_terminal(self, seconds, stderr_is_terminal=True):
        """What comes on standard error where the trace is a pipe that gets its second half after so long."""
        text = self.timed_trace("--device-times")
        text = (self.folder / text).read_bytes()
        fifo = self.folder / "slow.json"
        os.mkfifo(fifo)

        def write():
            with open(fifo, "wb") as out:
                out.write(text[:len(text) // 2])
                out.flush()
                time.sleep(seconds)
                out.write(text[len(text) // 2:])

        writer = threading.Thread(target=write)
        writer.start()
        ours, theirs = pty.openpty() if stderr_is_terminal else os.pipe()
        done = subprocess.run([analyze_command.ANALYZE, "slow.json", "--no-schedule", "--quiet"], cwd=self.folder, stderr=theirs,
                              stdout=subprocess.DEVNULL, timeout=60, check=False)
        writer.join()
        os.close(theirs)
        os.set_blocking(ours, False)
        said = b""
        with contextlib.suppress(OSError):
            while more := os.read(ours, 4096):
                said += more
        os.close(ours)
        fifo.unlink()
        self.assertEqual(done.returncode, 0, said)
        return said.decode()

    def test_after_two_seconds(self):
        said = self.on_a_terminal(3)
        self.assertIn("\rreading slow.json: 2 s", said)
        self.assertTrue(said.endswith("\r\x1b[K"), repr(said))

    def test_not_before_and_not_elsewhere(self):
        self.assertEqual(self.on_a_terminal(0.1), "")
        self.assertEqual(self.on_a_terminal(3, stderr_is_terminal=False), "")


if __name__ == "__main__":
    analyze_command.main()
