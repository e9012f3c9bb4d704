"""Shared by the benches that compare ways of running PyTorch, each in a separate process: the command line, the processes,
the device, and results kept as a table and as JSON. No PyTorch here. Threads may run processes at the same time.

scripts/eager and scripts/pytorch use it, by bench/eager and bench/pytorch.
"""

import argparse
import collections
import contextlib
import datetime
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A driver allocation for each tensor; the variable has two names.
DRIVER_ALLOCATIONS = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
TORCHS_ALLOCATIONS = {"PYTORCH_ALLOC_CONF": "backend:native", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
TAIL = 2000  # characters of a process's last output


class Failure(Exception):
    """Ends the bench with its text."""


class Done(NamedTuple):
    """A process that has ended. `status` is None after a timeout."""

    status: "int | None"
    output: str
    errors: str
    seconds: float

    def json(self):
        """The last object in its output, on its own line; ValueError where there is none."""
        lines = [line for line in self.output.splitlines() if line.startswith("{")]
        if not lines:
            raise ValueError("it has no results in it")
        return json.loads(lines[-1])


def environment(**settings):
    """This process's environment without Nimble's settings, so that each process runs the same kernels."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
    return own | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | settings


def under_nimble(command, env, build, log="warn"):
    """The command and environment of the same Python program with a build's libnimble.so and this tree's package."""
    paths = [str(ROOT / "python"), *filter(None, [env.get("PYTHONPATH")])]
    return ([command[0], "-m", "nimble", "run", "--log", log, *command[1:]],
            env | {"PYTHONPATH": os.pathsep.join(paths), "NIMBLE_LIBRARY": str(build / "lib/libnimble.so")})


def start(command, env, waits=False):
    """Starts it in a separate process group, so that its children are ended with it. `waits`: it waits, at a point of its
    choice, for a line from finish(). Its stderr goes into a file, `complaints`, since nothing reads it earlier."""
    complaints = tempfile.TemporaryFile("w+", errors="replace")
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=complaints, text=True,
                               errors="replace", env=env, process_group=0, stdin=subprocess.PIPE if waits else None)
    process.complaints = complaints
    return process


def wait_for_ready(process, limit):
    """Waits until it prints the line `ready`, or ends, or time runs out. Returns whether it is ready."""
    end, said = time.monotonic() + limit, b"\n"
    while (left := end - time.monotonic()) > 0 and select.select([process.stdout], [], [], left)[0]:
        said += (part := os.read(process.stdout.fileno(), 1 << 16))  # bypasses Python's buffer, which would hide a line
        if b"\nready\n" in said:
            return True
        if not part:
            break
    return False


def finish(process, limit):
    """Waits for a process, or ends it after `limit` seconds."""
    begin, status = time.monotonic(), None
    try:
        output, _ = process.communicate("go\n" if process.stdin else None, timeout=max(limit, 0))
        status = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # another process holds the pipe
            output = ""
    except BaseException:
        end(process)
        raise
    with process.complaints as file:
        file.seek(0)
        return Done(status, output, without_paths(file.read())[-TAIL:], time.monotonic() - begin)


def without_paths(text):
    """Removes this machine's paths."""
    return re.sub(r"[^\s\"']*/(?:site|dist)-packages/", "", text.replace(f"{ROOT}/", ""))


def give_up(process):
    """Ends a process without finish()."""
    end(process)
    process.communicate()
    process.complaints.close()


def end(process):
    """Ends it with all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(command, env, limit):
    return finish(start(command, env), limit)


def device(count=1):
    """The GPU and its driver, or the GPUs with their counts, as one line; empty where unknown."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=60)
        found = collections.Counter(done.stdout.strip().split("\n")[:count] if done.returncode == 0 else [])
        return "; ".join((f"{times} x " if times > 1 else "") + line.strip() for line, times in found.items())
    except (OSError, subprocess.TimeoutExpired):
        return ""


def visible_devices():
    """The number of GPUs that a process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len(list(filter(None, visible.split(","))))
    try:
        done = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(done.stdout.splitlines()) if done.returncode == 0 else 0


def parser(name):
    """A parser with the common options."""
    made = argparse.ArgumentParser(prog=name, usage=f"scripts/{name} [options]; see scripts/{name} --help", add_help=False,
                                   allow_abbrev=False)
    made.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    made.add_argument("--results", type=pathlib.Path)
    made.add_argument("--help", "-h", action="store_true")
    return made


def chosen(made, option, text, known):
    """The names in a comma-separated list; ends the program where one is unknown."""
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        made.error(f"{option}: {unknown[0]} is none of {', '.join(known)}")
    return names


def keep(folder, name, text, results):
    """Writes a table and its data, and says so."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{datetime.date.today()}-{name}"
    stem.with_suffix(".md").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nkept in {stem}.md and .json")


def program(name, usage, made, work):
    """Runs work(options) for the command line, and returns the exit status."""
    options = made.parse_args()
    if options.help:
        print(usage)
        return 0
    options.build = options.build.resolve()
    try:
        return work(options)
    except (Failure, OSError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
