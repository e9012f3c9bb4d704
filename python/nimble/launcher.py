"""`python -m nimble run script.py`: becomes the `nimble` launcher beside libnimble.so, which preloads the library.

All options, checks and exit statuses are that launcher's (shim/launcher). This module adds what a PyTorch program needs: this
interpreter before a script, NIMBLE_GRAPHS, and the allocator. No PyTorch here. Not for use from threads: it ends in exec."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from nimble.errors import NimbleError
from nimble.options import OPTIONS
from nimble.version import VERSION

USAGE = """\
Usage: python -m nimble run [options] script.py [arguments]
       python -m nimble run [options] -- program [arguments]
       python -m nimble --version

Runs a Python script, or any program, with libnimble.so preloaded. Unless NIMBLE_MODE or --mode says otherwise, CUDA
graphs are rewritten (NIMBLE_GRAPHS=rewrite), which is what nimble.Nimble needs. PyTorch allocates its memory in stream order
(PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF become backend:cudaMallocAsync), unless either is set already.

Under --mode auto PyTorch modules are prepared once their calls repeat, with no change to the script; see
docs/reference/api-python.md, and --torch.

libnimble.so is the package's own, else the one that NIMBLE_LIBRARY names, else the one that was built in the checkout
which this package lies in (build/default), or installed with it. The
launcher `nimble` beside it does the rest; python -m nimble run --help has its options as well.
"""
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
ALLOCATOR = "backend:cudaMallocAsync"
USAGE_ERROR = 2  # as the launcher's
# Settings of a run whose graphs are rewritten. Any other setting is for another mode; one that, besides graphs, only `record`
# uses (a trace's name, a probe) requests a recording.
OF_GRAPHS = frozenset(["GRAPHS", "LIBRARY", *(
    name for name, option in OPTIONS.items()
    if name != "MODE" and (option.modes == ("any",) or "graphs" in option.modes and set(option.modes) - {"graphs"} != {"record"}))])


class Tools(NamedTuple):
    library: Path
    launcher: Path


def _launcher_of(library: Path) -> Optional[Path]:
    """The launcher of the tree that the library lies in: lib, lib64 or lib/ARCHITECTURE, with bin beside it."""
    for folder in list(library.parents)[1:4]:  # a list, since parents takes no slices up to Python 3.9
        launcher = folder / "bin" / "nimble"
        if launcher.is_file():
            return launcher
    return None


def find_tools(package: Path, named: str) -> Tools:
    """The library and its launcher, for the package in this folder, with NIMBLE_LIBRARY being `named` ("" where it is not set).
    Raises NimbleError where there is none."""
    candidates = [package / "lib" / "libnimble.so"]
    if named:
        candidates.append(Path(named))
        if not Path(named).is_file() and not candidates[0].is_file():
            raise NimbleError(f"NIMBLE_LIBRARY names no file: {named}")
    candidates.append(package.parent.parent / "build" / "default" / "lib" / "libnimble.so")
    if package.parts[-4:-1] == ("share", "nimble", "python"):  # where CMake has installed it
        candidates += [found for pattern in ("lib", "lib64", "lib/*") for found in
                       sorted(package.parents[3].glob(f"{pattern}/libnimble.so"))]
    for library in candidates:
        if library.is_file():
            launcher = _launcher_of(library.absolute())
            if launcher is None:
                raise NimbleError(f"{library} is there, but its launcher bin/nimble is not beside its folder: install all of it")
            return Tools(library.absolute(), launcher)
    raise NimbleError("libnimble.so is missing: build the checkout (scripts/setup; cmake --preset default; cmake --build "
                      "build/default), or set NIMBLE_LIBRARY to the one that is installed")


def split(words: List[str]) -> Tuple[List[str], List[str], bool]:
    """Our options, the program's words, and whether `--` stood between. As for the launcher, each option takes one value,
    unless it has one after `=` or is the help."""
    i = 0
    while i < len(words) and words[i].startswith("-") and len(words[i]) > 1:
        if words[i] == "--":
            return words[:i], words[i + 1:], True
        alone = words[i] in ("-h", "--help") or "=" in words[i]
        i += 1 if alone or words[i + 1:i + 2] == ["--"] else 2
    return words[:i], words[i:], False


def child_environment(before: Dict[str, str], options: Iterable[str], package: Path) -> Dict[str, str]:
    """The environment to start the launcher with, which sets LD_PRELOAD itself. `package`: this one's folder."""
    env = dict(before)
    given = {word.split("=", 1)[0] for word in options}
    if not env.get("NIMBLE_MODE") and "--mode" not in given:
        env["NIMBLE_MODE"] = "off"  # or the launcher would record
        if not env.get("NIMBLE_GRAPHS"):
            env["NIMBLE_GRAPHS"] = "rewrite"
    if not any(env.get(name) for name in ALLOCATOR_VARIABLES):
        for name in ALLOCATOR_VARIABLES:
            env[name] = ALLOCATOR
        _put_in_path(env, package / "startup")  # replaces what PyTorch cannot do then
    return env


def _put_in_path(env: Dict[str, str], folder: Path) -> None:
    """Prepends the folder to PYTHONPATH, if the path can be expressed."""
    if os.pathsep not in str(folder):
        env["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [env.get("PYTHONPATH")])])


def main(words: List[str]) -> int:
    """Runs the command line; returns only where that fails, or for help, with the exit status."""
    package = Path(__file__).absolute().parent
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if words else USAGE_ERROR
    if words[0] == "--version":
        print(f"nimble {VERSION}")
        return 0
    if words[0] != "run":
        return _complain(f"unknown command: {words[0]}; see python -m nimble --help")
    options, program, marked = split(words[1:])
    try:
        tools = find_tools(package, os.environ.get("NIMBLE_LIBRARY", ""))
    except NimbleError as error:
        return _complain(str(error))
    command = [str(tools.launcher), "run"]
    if not any(word.split("=", 1)[0] == "--library" for word in options):
        command += ["--library", str(tools.library)]
    if any(word in ("-h", "--help") for word in options):
        print(USAGE, flush=True)
        os.execv(command[0], [*command, "--help"])
    if not program:
        return _complain("no script to run; see python -m nimble --help")
    if not marked:
        program = [sys.executable, *program]
    sys.stdout.flush()
    env = dict(os.environ)
    if _found_by_the_working_folder(package):
        _put_in_path(env, package.parent)
    env = child_environment(env, options, package)
    os.execve(command[0], [*command, *options, "--", *program], env)


def _found_by_the_working_folder(package: Path) -> bool:
    """Whether `python -m` has found the package in the working folder, as in a checkout: a script looks beside itself."""
    return bool(sys.path) and package.parent == Path(sys.path[0] or os.curdir).absolute()


def nimble() -> int:
    """The command `nimble` of an installed package: the launcher itself, as docs/reference/nimble.md has it. But to run Python
    without a setting for a recording or a mode, it does what `python -m nimble run` does: a PyTorch program needs no
    recording."""
    words = sys.argv[1:]
    if words[:1] == ["run"] and runs_python(words[1:], os.environ):
        options, program, _ = split(words[1:])
        return main(["run", *options, "--", *program])
    return _become_tool("nimble")


def runs_python(words: List[str], env: Mapping[str, str]) -> bool:
    """Whether these words after `run` start a Python interpreter, with no setting among them or in the environment but those of
    graphs."""
    options, program, _ = split(words)
    settings = {word.split("=", 1)[0][2:].replace("-", "_").upper() for word in options if word.startswith("-")}
    settings |= {name[len("NIMBLE_"):] for name, value in env.items() if name.startswith("NIMBLE_") and value}
    return (bool(program) and re.fullmatch(r"(python|pypy)[0-9.]*", os.path.basename(program[0])) is not None
            and settings <= OF_GRAPHS)


def nimble_analyze() -> int:
    return _become_tool("nimble-analyze")


def nimble_replay() -> int:
    return _become_tool("nimble-replay")


def _become_tool(name: str) -> int:
    try:
        tools = find_tools(Path(__file__).absolute().parent, os.environ.get("NIMBLE_LIBRARY", ""))
    except NimbleError as error:
        return _complain(str(error))
    program = tools.launcher.parent / name
    if not program.is_file():
        return _complain(f"{name} is not beside {tools.launcher}: install all of it")
    os.execv(program, [str(program), *sys.argv[1:]])


def _complain(text: str) -> int:
    print(f"nimble: {text}", file=sys.stderr)
    return USAGE_ERROR
