"""Writes this package's lines to the process's original stderr or to NIMBLE_LOG_FILE, by the rules of libnimble.so (shim/process/log.h).

Python's sys.stderr is the program's: it may have been replaced, or descriptor 2 may be one of the program's files.
Writing a line never raises, nor sends a signal. No PyTorch here. Any thread."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import stat
import threading
from typing import Optional, Set, Tuple

Identity = Optional[Tuple[int, int, int]]

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")  # as in shim/options/options.cpp
_SIGNALS = {errno.EPIPE: signal.SIGPIPE, errno.EFBIG: signal.SIGXFSZ}  # that a write which fails so sends
_PATIENCE_MS = 20
_RWF_APPEND = 0x10  # Linux's; os has it from Python 3.10 on


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
    if stat.S_ISREG(start[2]):  # stdout may be the same file, by a descriptor with a position of its own
        at_end = os.lseek(2, 0, os.SEEK_CUR) >= os.fstat(2).st_size
        _write(2, line, -1 if at_end else 0)
    else:  # a pipe's reader must not block the program
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        if [event for _, event in poll.poll(_PATIENCE_MS)] == [select.POLLOUT]:
            _write(2, line)


def _write(file: int, line: bytes, append_from: Optional[int] = None) -> None:
    """`append_from`: the line goes to the file's end; -1 moves the position there, 0 does not."""
    # The program may have restored SIGPIPE's default action, which Python disables.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS.values())
    try:
        pending = signal.sigpending()
        try:
            if append_from is None:
                os.write(file, line)
            else:
                os.pwritev(file, [line], append_from, _RWF_APPEND)
        except OSError as error:
            if error.errno in _SIGNALS:
                _consume(_SIGNALS[error.errno], pending)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _consume(number: signal.Signals, before: Set[signal.Signals]) -> None:
    """Takes the signal that a write of this thread has sent to it. Others' signals stay, and what was pending before."""
    info = signal.sigtimedwait([number], 0)
    if info is None:
        return
    from_kernel = info.si_code == 0 and info.si_pid == os.getpid()
    if not from_kernel or number in before and number not in signal.sigpending():  # the two were one
        signal.pthread_kill(threading.get_ident(), number)


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
