"""`python -m nimble run`, from outside: what the program sees, its exit status, and the messages where it cannot be
run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nimble import NimbleError
from nimble.launcher import OF_GRAPHS, child_environment, find_tools, runs_python, split
from nimble.options import OPTIONS

PYTHON = Path(__file__).resolve().parent.parent.parent
STARTUP = PYTHON / "nimble" / "startup"
BOTH = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@pytest.fixture
def nimble(build, tmp_path):
    """Runs python -m nimble in a scratch folder, where see.py prints what it sees."""
    (tmp_path / "see.py").write_text("import json, os, sys\n"
                                     "print(json.dumps([sys.argv[1:], sys.executable, dict(os.environ)]))\n")

    def run(*words, cwd=tmp_path, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "PYTORCH_", "LD_"))}
        env.update(PYTHONPATH=str(PYTHON), PYTHONDONTWRITEBYTECODE="1", NIMBLE_LIBRARY=str(build / "lib" / "libnimble.so"))
        env.update(variables)
        return subprocess.run([sys.executable, "-m", "nimble", *words], env=env, cwd=cwd, capture_output=True, text=True,
                              timeout=50)

    return run


def seen(done):
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_script_under_the_library(nimble, build):
    words = ["--mode", "x y", "", "--", "-h"]
    arguments, executable, env = seen(nimble("run", "see.py", *words))
    assert arguments == words and os.path.samefile(executable, sys.executable)
    assert env["LD_PRELOAD"] == str(build / "lib" / "libnimble.so")
    assert (env["NIMBLE_MODE"], env["NIMBLE_GRAPHS"]) == ("off", "rewrite")
    assert [env[name] for name in BOTH] == ["backend:cudaMallocAsync"] * 2


@pytest.mark.parametrize("before", ["", "/elsewhere"])
def test_a_script_finds_the_package_of_the_checkout_that_runs_it(nimble, tmp_path, before):
    (tmp_path / "find.py").write_text("import nimble; print(nimble.__file__)")
    here = str(PYTHON / "nimble" / "__init__.py")
    done = nimble("run", str(tmp_path / "find.py"), cwd=PYTHON, PYTHONPATH=before)
    assert done.stdout.strip() == here, done.stderr
    env = seen(nimble("run", str(tmp_path / "see.py"), cwd=PYTHON, PYTHONPATH=before))[2]
    assert env["PYTHONPATH"] == f"{STARTUP}:{PYTHON}" + (":/elsewhere" if before else "")
    assert seen(nimble("run", "see.py"))[2]["PYTHONPATH"] == f"{STARTUP}:{PYTHON}", "which was there already"


def test_a_program(nimble):
    assert nimble("run", "--", "sh", "-c", "echo $NIMBLE_GRAPHS").stdout == "rewrite\n"
    assert seen(nimble("run", "--log", "error", "--", sys.executable, "see.py"))[2]["NIMBLE_LOG"] == "error"


@pytest.mark.parametrize("words, does", [
    ("python x.py", True), ("-- python x.py", True), ("--graphs rewrite -- /usr/bin/python3.11 -m x", True), ("--log error pypy3 x", True),
    ("-- python-x x.py", False), ("-- ./train", False), ("", False), ("--mode record -- python x.py", False),
    ("--trace=t.json -- python x.py", False), ("--help", False), ("-h python x.py", False), ("--log -- python x.py", True),
    ("--auto-limit 1 --tune=off python x.py", True), ("--probe writes -- python x.py", False), ("--capture=bundle python x.py", False),
    ("--timing events -- python x.py", False), ("--torch off -- python x.py", False),
])
def test_when_the_wheels_command_is_python_m_nimble(words, does):
    assert runs_python(words.split(), {}) == does
    for variable in ("NIMBLE_MODE", "NIMBLE_TRACE", "NIMBLE_PROBE"):
        assert not runs_python(words.split(), {variable: "x"})
        assert runs_python(words.split(), {variable: "", "NIMBLE_LOG": "warn", "PATH": "x"}) == does


def test_settings_of_graphs_are_those_that_say_so():
    """All options of the library: those that do not concern a recording would be ignored."""
    assert OF_GRAPHS - {"LIBRARY"} <= OPTIONS.keys() and len(OPTIONS) > 20
    for name in OF_GRAPHS - {"LIBRARY", "GRAPHS", "LOG", "LOG_FILE"}:
        assert "graphs" in OPTIONS[name].modes, name
    assert not OF_GRAPHS & {"MODE", "TRACE", "PROBE", "STEPS", "SCHEDULE", "TORCH"}


@pytest.mark.parametrize("words", [["run", "--"], ["run"], ["run", "--log", "error", "--"]])
def test_the_wheels_command_on_a_python(nimble, words):
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'nimble'; from nimble.launcher import nimble; sys.exit(nimble())"]
    env = seen(nimble("run", "--mode", "off", "--graphs", "off", "--", "env", "-u", "NIMBLE_MODE", "-u", "NIMBLE_GRAPHS", *command,
                      *words, sys.executable, "see.py"))[2]
    assert (env["NIMBLE_MODE"], env["NIMBLE_GRAPHS"]) == ("off", "rewrite")
    assert [env[name] for name in BOTH] == ["backend:cudaMallocAsync"] * 2


def test_a_preload_is_kept(nimble, build):
    other = str(build / "lib" / "libpreload_probe.so")
    assert seen(nimble("run", "see.py", LD_PRELOAD=other))[2]["LD_PRELOAD"] == f"{build / 'lib' / 'libnimble.so'}:{other}"


def test_the_library_that_is_named_is_the_one(nimble, build):
    other = str(build / "lib" / "libpreload_probe.so")
    assert seen(nimble("run", "see.py", NIMBLE_LIBRARY=other))[2]["LD_PRELOAD"] == other
    assert seen(nimble("run", "--library", other, "see.py"))[2]["LD_PRELOAD"] == other


def test_what_the_user_has_set_stays(nimble):
    env = seen(nimble("run", "see.py", NIMBLE_MODE="replay", NIMBLE_SCHEDULE="/none"))[2]
    assert env["NIMBLE_MODE"] == "replay" and "NIMBLE_GRAPHS" not in env
    env = seen(nimble("run", "--mode", "auto", "see.py"))[2]
    assert env["NIMBLE_MODE"] == "auto" and "NIMBLE_GRAPHS" not in env
    env = seen(nimble("run", "see.py", NIMBLE_GRAPHS="off"))[2]
    assert env["NIMBLE_GRAPHS"] == "off"
    assert seen(nimble("run", "--graphs=off", "see.py"))[2]["NIMBLE_GRAPHS"] == "off"
    for name in BOTH:
        env = seen(nimble("run", "see.py", **{name: "expandable_segments:True"}))[2]
        assert {n: env[n] for n in BOTH if n in env} == {name: "expandable_segments:True"}
        assert env["PYTHONPATH"] == str(PYTHON), "nothing is to be left out"


def test_exit_status_is_the_programs(nimble):
    assert nimble("run", "--", "sh", "-c", "exit 37").returncode == 37
    assert nimble("run", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert nimble("run", "--", "/none/there").returncode == 127
    assert nimble("run", "missing.py").returncode == 2  # Python's


@pytest.mark.parametrize("words, status, stdout, stderr", [
    ([], 2, "Usage: python -m nimble run", ""),
    (["--help"], 0, "Usage: python -m nimble run", ""),
    (["run", "--help"], 0, "--mode", ""),
    (["run"], 2, "", "no script to run"),
    (["run", "--mode"], 2, "", "no script to run"),
    (["run", "--mode", "nonsense", "see.py"], 2, "", "NIMBLE_MODE=nonsense"),
    (["run", "--no-such", "1", "see.py"], 2, "", "--no-such"),
    (["walk"], 2, "", "unknown command: walk"),
])
def test_help_and_complaints(nimble, words, status, stdout, stderr):
    done = nimble(*words)
    assert done.returncode == status and stdout in done.stdout and stderr in done.stderr
    assert bool(done.stdout) == bool(stdout) and bool(done.stderr) == bool(stderr)


def test_the_library_is_looked_for_in_order(tmp_path):
    def tree(folder, launcher=True):
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libnimble.so").touch()
        if launcher:
            (folder / "bin").mkdir()
            (folder / "bin" / "nimble").touch()
        return folder / "lib" / "libnimble.so", folder / "bin" / "nimble"

    package = tmp_path / "checkout" / "python" / "nimble"
    package.mkdir(parents=True)
    with pytest.raises(NimbleError, match="build the checkout"):
        find_tools(package, "")
    with pytest.raises(NimbleError, match="names no file: /none"):
        find_tools(package, "/none")
    built = tree(tmp_path / "checkout" / "build" / "default")
    assert find_tools(package, "") == built
    named = tree(tmp_path / "installed")
    assert find_tools(package, str(named[0])) == named
    deep = tmp_path / "installed" / "lib" / "x86_64-linux-gnu"
    deep.mkdir()
    shutil.copy(named[0], deep)
    assert find_tools(package, str(deep / "libnimble.so")) == (deep / "libnimble.so", named[1])
    prefix = tmp_path / "prefix"
    shared = prefix / "share" / "nimble" / "python" / "nimble"  # where CMake installs the package
    shared.mkdir(parents=True)
    with pytest.raises(NimbleError, match="build the checkout"):
        find_tools(shared, "")
    installed = tree(prefix)
    assert find_tools(shared, "") == installed
    (prefix / "lib64").mkdir()
    shutil.move(installed[0], prefix / "lib64")
    assert find_tools(shared, "") == (prefix / "lib64" / "libnimble.so", installed[1])
    own = tree(package)
    assert find_tools(package, str(named[0])) == own
    bare = tree(tmp_path / "bare", launcher=False)
    shutil.rmtree(package / "lib")
    with pytest.raises(NimbleError, match="launcher bin/nimble is not beside"):
        find_tools(package, str(bare[0]))


def test_words_are_split_as_the_launcher_does():
    assert split(["a.py", "-x"]) == ([], ["a.py", "-x"], False)
    assert split(["--mode", "off", "a.py", "--", "b"]) == (["--mode", "off"], ["a.py", "--", "b"], False)
    assert split(["--mode=off", "--", "a", "--"]) == (["--mode=off"], ["a", "--"], True)
    assert split(["-h", "a.py"]) == (["-h"], ["a.py"], False)
    assert split(["--mode", "--", "a"]) == (["--mode"], ["a"], True)
    assert split(["--mode"]) == (["--mode"], [], False)
    assert child_environment({"NIMBLE_MODE": ""}, [], PYTHON / "nimble")["NIMBLE_MODE"] == "off"
