"""Runs processes of the benchmarks to their end, bare or under Nimble, on one of a build's drivers."""

import json
import os
import subprocess
import tempfile
import time


# What nimble-analyze is to believe of the programs' kernels: they have no code but the host's, and a C++ name each.
TRUST = ("--trust", "declared")


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
    """The environment of a program on the driver in a folder of the build: simcuda or null_driver."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
    found["LD_LIBRARY_PATH"] = str(build / driver)
    found["NIMBLE_TUNE"] = "off"
    if driver == "null_driver":
        # Watchers besides the recorder are not part of a call's cost in Nimble.
        found.update(NIMBLE_COVERAGE="off", NIMBLE_TIMING="none", NIMBLE_AUDIT="0")
        # Threads that share a core wait for each other longer than a program without GPU work should.
        found["NIMBLE_HOLD_US"] = "10000000"
    return found


class Replayed:
    """A program that is recorded once on the null driver, and then runs bare or replayed. Names its files by `name`, in
    the folder `work`."""

    def __init__(self, build, work, name, command):
        self.build, self.command = build, [build / "bin" / command[0], *command[1:]]
        self.trace, self.schedule, self.counters = (work / f"{name}.{kind}.json" for kind in ("trace", "schedule", "stats"))
        self.environment = environment(build, "null_driver")

    def make_schedule(self, *arguments):
        self.run("record", *arguments)
        # Without segments that begin early: their number depends on the recording's timing.
        run([self.build / "bin" / "nimble-analyze", self.trace, "-o", self.schedule, "--whole-segments",
             *TRUST])

    def run(self, mode, *arguments):
        """The program's output."""
        program = [*self.command, *arguments]
        if mode != "bare":
            options = ["--mode", mode, "--trace", self.trace, "--schedule", self.schedule, "--stats", self.counters]
            program = [self.build / "bin" / "nimble", "run", *options, "--", *program]
        return run(program, self.environment)[2]

    def replay(self, least_steps, *arguments):
        """The program's output, and replay's counters. Failure unless `steps` were replayed, and none diverged."""
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
