"""Processes that the suite starts: each in its own session, with a time limit, and with its last lines kept.

A stepped program (see programs/stepped.py) takes commands on its standard input and answers each with a line of JSON.
Several can be alive at the same time while one at a time does work: their starts, which take seconds for a framework,
overlap, and measurements can alternate between them. """

import json
import os
import re
import selectors
import signal
import subprocess
import time

KEPT_BYTES = 200_000  # of a program's standard error


class Failure(Exception):
    """Why a program could not be run, or did not finish."""


def describe_exit(code):
    """An exit status in words, with signals by name."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def end_session(process):
    """Ends a process and its children (compilers, workers), which share its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def last_words(path):
    """The end of a file of text, as lines."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - KEPT_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def run(command, environment, folder, limit, log):
    """Runs a program to its end, with all its output in the file `log`; Failure unless it ends with status 0."""
    with open(log, "wb") as output:
        try:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise Failure(f"cannot be started: {error}") from error
        try:
            code = process.wait(timeout=max(0.1, limit))
        except subprocess.TimeoutExpired:
            raise Failure(f"timeout: ran longer than {limit:.0f} s") from None
        finally:
            end_session(process)
    if code != 0:
        raise Failure(describe_exit(code))
    return process.pid


class Stepped:
    """One running stepped program. Failure from any method means that the program can no longer be used."""

    def __init__(self, command, environment, folder, log):
        self.log = log
        self.waiting = b""
        with open(log, "wb") as errors:
            try:
                self.process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
            except OSError as error:
                raise Failure(f"cannot be started: {error}") from error
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def answer(self, deadline):
        """The next line of the program, decoded."""
        while b"\n" not in self.waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not self.selector.select(left):
                raise Failure("timeout: gave no answer in time")
            piece = self.process.stdout.read(65536)
            if piece == b"":
                raise Failure(self.why_gone(deadline))
            self.waiting += piece or b""
        line, self.waiting = self.waiting.split(b"\n", 1)
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise ValueError("not an object")
        except ValueError:
            raise Failure(f"gave an answer that is not JSON: {line[:200].decode('utf-8', 'replace')!r}") from None
        return answer

    def why_gone(self, deadline):
        """Why the program closed its standard output."""
        try:
            code = self.process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return "timeout: closed its output, and did not end"
        # The shim's last lines follow the program's.
        words = [line for line in last_words(self.log) if not line.startswith("nimble: ")]
        missing = re.match(r"ModuleNotFoundError: (.*)", (words or [""])[-1])
        return f"not installed: {missing[1]}" if code == 1 and missing else describe_exit(code)

    def say(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended; the missing answer says how

    def begin_steps(self, count):
        self.say(f"run {count}")

    def finish_steps(self, count, deadline):
        answer = self.answer(deadline)
        for field, kind in (("steps", int), ("median_us", (int, float)), ("digest", str)):
            if not isinstance(answer.get(field), kind):
                raise Failure(f"gave an answer without {field!r}: {answer}")
        if answer["steps"] != count:
            raise Failure(f"made {answer['steps']} steps instead of {count}")
        return answer

    def begin_end(self):
        """Tells the program to end normally."""
        self.say("end")
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def finish_end(self, deadline):
        try:
            code = self.process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure("timeout: did not end in time after its last step") from None
        if code != 0:
            raise Failure(f"{describe_exit(code)} after its last step")

    def close(self):
        """Ends it, in whatever state."""
        end_session(self.process)
        self.selector.close()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
