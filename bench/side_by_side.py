"""What the benches have in common that hold ways of running PyTorch against one another, each way in a process of its own:
the command line, the processes, the device, and results kept as a table and as JSON. No PyTorch here. Threads may run
processes at the same time.

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
# An allocation of the driver's for each tensor; the variable has two names.
DRIVER_ALLOCATIONS = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
TORCHS_ALLOCATIONS = {"PYTORCH_ALLOC_CONF": "backend:native", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
TAIL = 2000  # characters of a process's last words


class Failure(Exception):
    """Ends the bench with its text."""


class Done(NamedTuple):
    """A process that has ended. `status` is None where it was ended for taking too long."""

    status: "int | None"
    output: str
    errors: str
    seconds: float

    def json(self):
        """The last object in its output, which has a line to itself; ValueError where there is none."""
        lines = [line for line in self.output.splitlines() if line.startswith("{")]
        if not lines:
            raise ValueError("it has no results in it")
        return json.loads(lines[-1])


def environment(**settings):
    """This process's, without Nimble's settings, such that each process has the same kernels."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
    return own | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | settings


def under_nimble(command, env, build, log="warn"):
    """The same Python program with libnimble.so of a build, and the package of this tree: its command and environment."""
    paths = [str(ROOT / "python"), *filter(None, [env.get("PYTHONPATH")])]
    return ([command[0], "-m", "nimble", "run", "--log", log, *command[1:]],
            env | {"PYTHONPATH": os.pathsep.join(paths), "NIMBLE_LIBRARY": str(build / "lib/libnimble.so")})


def start(command, env, waits=False):
    """In a process group of its own, so that it is ended with all that it has started. `waits`: for a line, which finish() sends
    it; where it waits is its own affair. What it complains of goes into a file, `complaints`, since nobody reads it before."""
    complaints = tempfile.TemporaryFile("w+", errors="replace")
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=complaints, text=True,
                               errors="replace", env=env, process_group=0, stdin=subprocess.PIPE if waits else None)
    process.complaints = complaints
    return process


def wait_for_ready(process, limit):
    """Until it says on a line of its own that it is `ready`, or has ended, or for so many seconds. Whether it is."""
    end, said = time.monotonic() + limit, b"\n"
    while (left := end - time.monotonic()) > 0 and select.select([process.stdout], [], [], left)[0]:
        said += (part := os.read(process.stdout.fileno(), 1 << 16))  # past Python's buffer, in which a line would wait unseen
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
        except subprocess.TimeoutExpired:  # something else holds the pipe
            output = ""
    except BaseException:
        end(process)
        raise
    with process.complaints as file:
        file.seek(0)
        return Done(status, output, without_paths(file.read())[-TAIL:], time.monotonic() - begin)


def without_paths(text):
    """Without where this machine keeps its files."""
    return re.sub(r"[^\s\"']*/(?:site|dist)-packages/", "", text.replace(f"{ROOT}/", ""))


def give_up(process):
    """One that nobody will finish()."""
    end(process)
    process.communicate()
    process.complaints.close()


def end(process):
    """With all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(command, env, limit):
    return finish(start(command, env), limit)


def device(count=1):
    """The GPU and its driver, or so many with how many of a kind they are, as one line; empty where nobody tells."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=60)
        found = collections.Counter(done.stdout.strip().split("\n")[:count] if done.returncode == 0 else [])
        return "; ".join((f"{times} x " if times > 1 else "") + line.strip() for line, times in found.items())
    except (OSError, subprocess.TimeoutExpired):
        return ""


def visible_devices():
    """How many GPUs a process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len(list(filter(None, visible.split(","))))
    try:
        done = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(done.stdout.splitlines()) if done.returncode == 0 else 0


def parser(name):
    """With the options that both have."""
    made = argparse.ArgumentParser(prog=name, usage=f"scripts/{name} [options]; see scripts/{name} --help", add_help=False,
                                   allow_abbrev=False)
    made.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    made.add_argument("--results", type=pathlib.Path)
    made.add_argument("--help", "-h", action="store_true")
    return made


def chosen(made, option, text, known):
    """The names in a list with commas; ends the program where one is not known."""
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        made.error(f"{option}: {unknown[0]} is none of {', '.join(known)}")
    return names


def keep(folder, name, text, results):
    """Writes a table and what it was made of, and says so."""
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
