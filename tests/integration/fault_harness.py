"""A matrix, fault by mode of the shim: each cell is a run of the program `faults` under both, and is well where the program's
output, status and files are what they are under the fault alone."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile

import harness

TIMEOUT = 60
CORE_SLACK = 48 << 20  # what a core may be larger than the program's own
# What the shim may leave in the program's folder, by its name; the file with the name itself is whole.
OURS = re.compile(r"^\.?(trace|stats)\b.*$")


class Fault:
    """One row. `what`: words for the program; `start`: called in the new process, with the program's folder; `env`: more variables,
    for the shim or all; `wrap`: words before the program; `out`, `err`: a function that opens what stdout or stderr shall be; `ends`: the program's
    status, or the signal, under the fault alone: a program that came to nothing would show nothing."""

    def __init__(self, name, *what, start=None, env=None, wrap=None, out=None, err=None, ends=7):
        self.name, self.what, self.start, self.env, self.wrap = name, what, start, env or {}, wrap
        self.out, self.err, self.ends = out, err, ends


class Mode:
    """One column: variables for the shim, and what is preloaded."""

    def __init__(self, name, preload=True, **variables):
        self.name, self.preload, self.variables = name, preload, variables

    def environment(self):
        env = harness.BUILD.environment("off" if self.preload else None)
        for name in ("NIMBLE_MODE", "NIMBLE_LOG", "NIMBLE_HOLD_US"):
            env.pop(name, None)
        env.update(self.variables)
        return env


PLAIN = Mode("plain", preload=False)


def modes(schedule):
    """The columns. `schedule`: of the program's steps."""
    return [
        Mode("off"),
        Mode("graphs", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off"),
        Mode("record", NIMBLE_MODE="record"),
        Mode("replay", NIMBLE_MODE="replay", NIMBLE_SCHEDULE=schedule, NIMBLE_STATS="stats.json", NIMBLE_TUNE="off"),
        Mode("auto", NIMBLE_MODE="auto", NIMBLE_AUTO_WAIT="3000", NIMBLE_STATS="stats.json", NIMBLE_TUNE="off"),
        Mode("regions", NIMBLE_MODE="regions"),
        Mode("check", NIMBLE_MODE="check", NIMBLE_CHECK_EVERY="1", NIMBLE_STATS="stats.json"),
    ]


def recordings():
    """More columns: mode record with what else it can do."""
    def record(name, **variables):
        return Mode(name, NIMBLE_MODE="record", **variables)
    return [
        record("events", NIMBLE_TIMING="events"),
        record("probe", NIMBLE_PROBE="writes"),
        record("bundle", NIMBLE_CAPTURE="bundle", NIMBLE_BUNDLE="trace.bundle"),
        record("steps", NIMBLE_STEPS="20", NIMBLE_TRACE_LIMIT="1"),
        record("first", NIMBLE_PROBE="writes", NIMBLE_PROBE_FIRST="40", NIMBLE_PROBE_LIMIT="1", NIMBLE_TIMING="none"),
    ]


def some_recordings(number):
    """One of them, another for each number; all if the environment says NIMBLE_TEST_FAULTS=all."""
    every = recordings()
    return every if os.environ.get("NIMBLE_TEST_FAULTS") == "all" else [every[number % len(every)]]


def in_place_of_the_shim(what):
    """A column whose library is in the program's way."""
    library = os.path.join(os.path.dirname(harness.BUILD.library), "libbreaking.so")
    return Mode(f"break {what}", LD_PRELOAD=library, FAULT_BREAK=what)


class Seen:
    """What a run has left."""

    def __init__(self):
        self.status, self.out, self.err, self.files, self.wrong, self.core, self.ours = None, b"", b"", {}, [], None, {}

    def differences(self, plain):
        """What is otherwise than in the run `plain`, each in a few words."""
        found = list(self.wrong)
        if self.status != plain.status:
            found.append(f"status {describe(self.status)}, not {describe(plain.status)}")
        if self.out != plain.out:
            found.append("stdout: " + first_difference(plain.out, self.out))
        for name in sorted(plain.files.keys() | self.files.keys()):
            before, now = plain.files.get(name), self.files.get(name)
            if before != now:
                found.append(f"{name}: " + ("missing" if now is None else "not its own" if before is None else
                                            first_difference(before, now)))
        if (self.core is None) != (plain.core is None):
            found.append("a core" if self.core is not None else "no core")
        elif self.core is not None and self.core > plain.core + CORE_SLACK:
            found.append(f"a core of {self.core >> 20} MiB, not {plain.core >> 20}")
        return found


def describe(status):
    return "none: it hangs" if status is None else signal.Signals(-status).name if status < 0 else str(status)


def first_difference(before, now):
    before, now = before.decode(errors="replace").splitlines(), now.decode(errors="replace").splitlines()
    for old, new in zip(before, now):
        if old != new:
            return f"{new!r}, not {old!r}"
    if len(now) < len(before):
        return f"ends before {before[len(now)]!r}"
    return f"goes on with {now[len(before)]!r}" if len(now) > len(before) else "its ends of lines"


def is_whole(path, name):
    """Whether the file is one that its reader takes for a finished one."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        read = json.loads(text)
    except json.JSONDecodeError:
        return False
    return name != "trace.json" or (isinstance(read, list) and read[-1]["name"] == "nimble.end")


def run(fault, mode, words=(), **variables):
    """One cell; returns what was seen. Nothing of it stays."""
    with tempfile.TemporaryDirectory() as folder:
        work, own = os.path.join(folder, "work"), os.path.join(folder, "own")
        os.mkdir(work)
        os.mkdir(own)
        env = {**mode.environment(), **fault.env}
        for name, value in variables.items():
            env[name] = f"{env[name]}:{value}" if name == "LD_PRELOAD" and name in env else value
        command = [harness.BUILD.program("faults"), os.path.join(own, "file"), *fault.what, *words]
        if fault.wrap:
            # What wraps it is not under test.
            command = [*fault.wrap, "env", f"LD_PRELOAD={env.pop('LD_PRELOAD', '')}", *command]
        return finish(fault, command, env, folder)


def finish(fault, command, env, folder):
    work, own = os.path.join(folder, "work"), os.path.join(folder, "own")
    seen = Seen()
    with contextlib.ExitStack() as stack:
        def target(how, name):
            return stack.enter_context(how() if how else open(os.path.join(folder, name), "wb"))
        out, err = target(fault.out, "out"), target(fault.err, "err")
        process = subprocess.Popen(command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True, preexec_fn=lambda: fault.start and fault.start(work))
        try:
            seen.status = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):  # its remaining children, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for name in ("out", "err"):
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "rb") as file:
                setattr(seen, name, file.read())
    for name in os.listdir(own):
        with open(os.path.join(own, name), "rb") as file:
            seen.files[name] = file.read()
    look_at_work(work, seen)
    return seen


def look_at_work(work, seen):
    """The folder that the program runs in, where it writes nothing itself."""
    if not os.path.isdir(work):
        return
    for name in sorted(os.listdir(work)):
        path = os.path.join(work, name)
        if re.match(r"^core(\.\d+)?$", name):
            seen.core = os.stat(path).st_blocks * 512
        elif not OURS.match(name):
            seen.wrong.append(f"leaves a file {name}")
        elif name in ("trace.json", "stats.json"):
            if not is_whole(path, name):
                seen.wrong.append(f"{name} is cut")
            elif name == "stats.json":
                with open(path, encoding="utf-8") as file:
                    seen.ours[name] = json.load(file)
            else:
                seen.ours[name] = True


class Table:
    """The cells of several rows, printed when they are all there."""

    def __init__(self, columns):
        self.columns, self.rows, self.red = columns, [], []

    def add(self, fault, words=(), also=(), **variables):
        """Runs one row, of which `also` are more columns: returns the cells that are red."""
        plain = run(fault, PLAIN, words)
        again = run(fault, PLAIN, words)
        before = len(self.red)
        wrong = again.differences(plain)
        if plain.status != fault.ends:
            wrong.append(f"status {describe(plain.status)}, not {describe(fault.ends)}")
        if wrong:  # then nothing can be said of the cells
            self.red.append((fault.name, "plain", wrong))
        cells = []
        for mode in (*self.columns, *also):
            seen = run(fault, mode, words, **variables)
            found = seen.differences(plain)
            cells.append(("" if mode in self.columns else f"{mode.name} ") + ("ok" if not found else "RED"))
            if found:
                said = seen.err.decode(errors="replace").strip().splitlines()
                self.red.append((fault.name, mode.name, found + [f"(it said: {line})" for line in said[-2:]]))
        self.rows.append((fault.name, cells))
        return self.red[before:]

    def text(self):
        width = max([len(name) for name, _ in self.rows] + [5])
        lines = [" " * width + "  " + " ".join(f"{mode.name:>8}" for mode in self.columns)]
        lines += [f"{name:<{width}}  " + " ".join(f"{cell:>8}" for cell in cells) for name, cells in self.rows]
        lines += [f"{name}, {mode}: " + "; ".join(found) for name, mode, found in self.red]
        return "\n".join(lines)


# ---- what happens to a process before it starts ----

def closes(*descriptors):
    def start(_):
        for one in descriptors:
            os.close(one)
    return start


def limits(which, soft, hard=None):
    def start(_):
        most = resource.getrlimit(which)[1]
        resource.setrlimit(which, (soft, most if hard is None else hard))
    return start


def dead_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "wb", buffering=0)


def no_folder(folder):
    os.rmdir(folder)


def on_a_small_disk(bytes_, inodes):
    """Words that mount a folder of that size for the program alone; None where that cannot be had."""
    script = f'mount -t tmpfs -o size={bytes_},nr_inodes={inodes} none . && cd "$PWD" && exec "$@"'
    wrap = ["unshare", "-rm", "sh", "-c", script, "sh"]
    try:
        tried = subprocess.run([*wrap, "true"], capture_output=True, timeout=TIMEOUT, check=False)
    except OSError:
        return None
    return wrap if tried.returncode == 0 else None


def say(text):
    print(text, file=sys.stderr, flush=True)
