"""Processes of the benchmarks: run to their end, bare or under Nimble, on one of the drivers of a build."""

import json
import os
import subprocess
import tempfile
import time


class Failure(Exception):
    """A benchmark that could not be run, with the reason."""


def run(command, environment=None):
    """Runs a command to its end and returns (seconds, peak memory in bytes, stdout)."""
    with tempfile.TemporaryFile(mode="w+") as errors:
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=errors,
                                   text=True)
        output = process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise Failure(f"exit status {process.returncode} from: {' '.join(map(str, command))}\n{errors.read()[-2000:]}")
    return seconds, usage.ru_maxrss * 1024, output


def environment(build, driver):
    """That of a program on the driver in a folder of the build: simcuda or null_driver."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
    found["LD_LIBRARY_PATH"] = str(build / driver)
    found["NIMBLE_TUNE"] = "off"
    if driver == "null_driver":
        # What watches beside the recorder is no part of a call's cost in Nimble.
        found.update(NIMBLE_COVERAGE="off", NIMBLE_TIMING="none")
        # Threads that share a core wait longer for each other than a program without work for the GPU should.
        found["NIMBLE_HOLD_US"] = "10000000"
    return found


class Replayed:
    """A program that is recorded once on the driver that does nothing, and then runs bare or replayed. Names its files by
    `name`, in the folder `work`."""

    def __init__(self, build, work, name, command, rules=None):
        self.build, self.command = build, [build / "bin" / command[0], *command[1:]]
        self.trace, self.schedule, self.counters = (work / f"{name}.{kind}.json" for kind in ("trace", "schedule", "stats"))
        self.rules = ["--rules", rules] if rules else []
        self.environment = environment(build, "null_driver")

    def make_schedule(self, *arguments):
        self.run("record", *arguments)
        # Without segments that begin early: how many of those there are rests on the time that the recording took.
        run([self.build / "bin" / "nimble-analyze", self.trace, "-o", self.schedule, "--whole-segments", *self.rules])

    def run(self, mode, *arguments):
        """What the program prints."""
        program = [*self.command, *arguments]
        if mode != "bare":
            options = ["--mode", mode, "--trace", self.trace, "--schedule", self.schedule, "--stats", self.counters]
            program = [self.build / "bin" / "nimble", "run", *options, "--", *program]
        return run(program, self.environment)[2]

    def replay(self, least_steps, *arguments):
        """What the program prints, and replay's counters. Failure unless so many steps were replayed, and none diverged."""
        self.counters.unlink(missing_ok=True)
        output = self.run("replay", *arguments)
        try:
            counters = json.loads(self.counters.read_text())
        except OSError:
            raise Failure(f"{self.command[0].name}: nothing was replayed, so its figure means nothing") from None
        if counters["steps_replayed"] < least_steps or counters["divergences"]:
            raise Failure(f"{self.command[0].name} was not replayed as it should, so its figure means nothing: "
                          f"{json.dumps(counters)}")
        return output, counters
