"""nimble.log in real processes: lines reach the stderr of the process's start, or NIMBLE_LOG_FILE, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent.parent
HEAD = "import contextlib, io, os, signal, sys\nfrom nimble import log\n"


def run(folder, program, environment=None, **popen):
    return subprocess.run([sys.executable, "-c", HEAD + program], cwd=folder, text=True, timeout=60, stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": str(PYTHON), **(environment or {})}, **popen)


def test_stderr(tmp_path):
    done = run(tmp_path, "log.say('nimble: info: this\\n')", stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "nimble: info: this\n")


@pytest.mark.parametrize("program", [
    # Python's own stderr is the program's.
    "with contextlib.redirect_stderr(io.StringIO()) as text: log.say('this\\n')\nprint(repr(text.getvalue()))",
    "sys.stderr = None\nlog.say('this\\n')\nprint(repr(''))",
])
def test_what_the_program_puts_in_place_of_it(tmp_path, program):
    done = run(tmp_path, program, stderr=subprocess.PIPE)
    assert (done.stdout, done.stderr) == ("''\n", "this\n")


def test_a_file_of_the_programs_that_has_its_number(tmp_path):
    run(tmp_path, "os.dup2(os.open('own.txt', os.O_WRONLY | os.O_CREAT, 0o600), 2)\nlog.say('this\\n')\nos.write(2, b'row\\n')",
        stderr=subprocess.PIPE)
    assert (tmp_path / "own.txt").read_text() == "row\n"


def test_closed_at_the_start(tmp_path):
    program = "file = os.open('own.txt', os.O_WRONLY | os.O_CREAT, 0o600)\nos.dup2(file, 2)\nlog.say('this\\n')\nprint('fine')"
    done = run(tmp_path, program, preexec_fn=lambda: os.close(2))
    assert done.stdout == "fine\n" and (tmp_path / "own.txt").read_text() == ""


def test_a_dead_pipe_raises_no_signal(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    for program, status in (("log.say('this\\n')", 0), ("os.write(2, b'this')", -13)):
        done = run(tmp_path, "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + program, stderr=writer)
        assert done.returncode == status
    os.close(writer)


@pytest.mark.parametrize("send", ["os.kill(os.getpid(), signal.SIGXFSZ)", "os.system(f'kill -XFSZ {os.getpid()}')"])
def test_a_signal_of_others_is_left_to_the_program(tmp_path, send):
    program = f"""
import resource, threading
resource.setrlimit(resource.RLIMIT_FSIZE, (4, resource.RLIM_INFINITY))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXFSZ])
counts = []
def work(first):
    if first:
        {send}
    log.say('this is too long\\n')
    taken = 0
    while signal.sigtimedwait([signal.SIGXFSZ], 0):
        taken += 1
    counts.append(taken)
for first in (False, True, False):
    thread = threading.Thread(target=work, args=[first])
    thread.start()
    thread.join()
print(counts)"""
    with open(tmp_path / "err.txt", "wb") as err:
        assert run(tmp_path, program, stderr=err).stdout == "[0, 1, 0]\n"


def test_a_file_that_stdout_is_too(tmp_path):
    with open(tmp_path / "both.txt", "wb") as out, open(tmp_path / "both.txt", "wb") as err:
        subprocess.run([sys.executable, "-c", HEAD + "os.write(1, b'row\\n')\nlog.say('this\\n')"], stdout=out, stderr=err,
                       env={**os.environ, "PYTHONPATH": str(PYTHON)}, check=True)
    assert (tmp_path / "both.txt").read_text() == "row\nthis\n"
    with open(tmp_path / "err.txt", "wb") as err:
        run(tmp_path, "os.write(2, b'begun\\n')\nlog.say('this\\n')\nos.write(2, b'done\\n')", stderr=err)
    assert (tmp_path / "err.txt").read_text() == "begun\nthis\ndone\n"


def test_the_file(tmp_path):
    done = run(tmp_path, "os.chdir('/')\nlog.say('this\\n')\nlog.say('that\\n')", {"NIMBLE_LOG_FILE": "said-%r.txt", "RANK": "2"},
               stderr=subprocess.PIPE)
    assert done.stderr == "" and (tmp_path / "said-2.txt").read_text() == "this\nthat\n"
    assert (tmp_path / "said-2.txt").stat().st_mode & 0o777 == 0o600
    run(tmp_path, "log.say('this\\n')", {"NIMBLE_LOG_FILE": "all.txt", "RANK": "2"})
    assert (tmp_path / "all.2.txt").read_text() == "this\n"


def test_a_file_that_cannot_be_opened(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    done = run(tmp_path, "log.say('this\\n')\nlog.say('that\\n')", {"NIMBLE_LOG_FILE": "link"}, stderr=subprocess.PIPE)
    assert done.stderr.splitlines()[1:] == ["this", "that"] and "cannot open" in done.stderr and not (tmp_path / "elsewhere").exists()
