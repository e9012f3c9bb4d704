"""Writes this package's lines to the process's original stderr or to NIMBLE_LOG_FILE, by the rules of libnimble.so (shim/process/log.h).

Python's sys.stderr is the program's: it may have been replaced, or descriptor 2 may be one of the program's files.
Writing a line never raises, nor sends a signal. No PyTorch here. Any thread."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
from typing import Optional, Tuple

Identity = Optional[Tuple[int, int, int]]

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")  # as in shim/process/options.cpp
_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
_PATIENCE_MS = 20


def identity() -> Identity:
    """Which file descriptor 2 refers to."""
    try:
        facts = os.fstat(2)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, stat.S_IFMT(facts.st_mode)


# nimble.startup runs first, and stores its finding here.
start: Identity = identity()
try:
    _folder = os.getcwd()
except OSError:  # it has been deleted
    _folder = "/"
_failed = False


def may_go_to(descriptor: int) -> bool:
    """Whether lines of this package, or of libnimble.so, may go to the file that a descriptor refers to: anyone may have moved its
    position."""
    try:
        facts = os.fstat(descriptor)
        file = facts.st_dev, facts.st_ino, stat.S_IFMT(facts.st_mode)
        pattern = os.environ.get("NIMBLE_LOG_FILE")
        if file == start or not pattern:
            return file == start
        other = os.stat(os.path.join(_folder, file_name(pattern)))
    except OSError:
        return False
    return file[:2] == (other.st_dev, other.st_ino)


def say(line: str) -> None:
    """Writes a line, which includes its newline."""
    try:
        _say(line.encode("utf-8", "replace"))
    except (OSError, ValueError):
        pass


def _say(line: bytes) -> None:
    global _failed
    pattern = os.environ.get("NIMBLE_LOG_FILE")
    if pattern and not _failed:
        path = os.path.join(_folder, file_name(pattern))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            low = os.open(path, flags, 0o600)
        except OSError as error:
            _failed = True
            _to_stderr(f"nimble: error: NIMBLE_LOG_FILE: cannot open {path}: {error.strerror}. Messages go to stderr\n".encode())
        else:
            try:
                file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
            finally:
                os.close(low)
            try:
                _write(file, line)
            finally:
                os.close(file)
            return
    _to_stderr(line)


def _to_stderr(line: bytes) -> None:
    if start is None or identity() != start:
        return
    if not stat.S_ISREG(start[2]):  # a pipe's reader must not block the program
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if [event for _, event in poll.poll(_PATIENCE_MS)] != [select.POLLOUT]:
            return
    _write(2, line)


def _write(file: int, line: bytes) -> None:
    # The program may have restored SIGPIPE's default action, which Python disables.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pending = signal.sigpending()
        try:
            os.write(file, line)
        except OSError:
            ours = [each for each in _SIGNALS if each not in pending]
            if ours:
                signal.sigtimedwait(ours, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def file_name(pattern: str) -> str:
    """With %p and %r replaced; ranks other than the first write separate files, whatever the name says."""
    rank = next((int(value) for value in map(os.environ.get, _RANKS) if value and value.isdecimal()), 0)
    name, own = "", False
    parts = iter(pattern)
    for each in parts:
        letter = next(parts, "") if each == "%" else ""
        own = own or letter in ("p", "r") and letter != ""
        name += {"p": str(os.getpid()), "r": str(rank), "%": "%"}.get(letter, each + letter)
    regular = not os.path.exists(name) or os.path.isfile(name)
    if own or rank == 0 or not regular:
        return name
    root, ending = os.path.splitext(name)
    return f"{root}.{rank}{ending}"
