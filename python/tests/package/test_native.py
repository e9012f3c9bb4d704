"""nimble_native: where it is found, and that the package does the same without it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD

PYTHON = Path(__file__).resolve().parent.parent.parent
# What serves calls, and the guards before it.
SERVED = ("tests/guards", "tests/api/test_calls_that_repeat.py", "tests/compile/test_dynamo_calls.py", "tests/compile/test_compiled_function.py")


@pytest.fixture
def library():
    """What is beside it, built or not."""
    if not (BUILD / "lib" / "nimble_native.abi3.so").is_file():
        pytest.skip(f"no nimble_native.abi3.so in {BUILD}")
    return BUILD / "lib" / "libnimble.so"


def loaded(package=PYTHON, named=""):
    """The file of nimble_native in a process with the package of that folder."""
    script = "from nimble import native; print(native.module and native.module.__spec__.origin, native.all_equal([int], [0]))"
    env = {k: v for k, v in os.environ.items() if not k.startswith("NIMBLE_")}
    done = subprocess.run([sys.executable, "-B", "-c", script], cwd=package, env={**env, "NIMBLE_LIBRARY": str(named)}, capture_output=True,
                          text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.fixture
def package(tmp_path):
    """A copy of the package, without libraries."""
    shutil.copytree(PYTHON / "nimble", tmp_path / "nimble", ignore=shutil.ignore_patterns("lib", "bin", "__pycache__"))
    return tmp_path


def test_it_lies_beside_the_library(package, library):
    assert loaded(package) == ["None", "True"]
    assert loaded(package, library) == [str(library.with_name("nimble_native.abi3.so")), "True"]
    (package / "nimble" / "lib").mkdir()
    own = shutil.copy(library.with_name("nimble_native.abi3.so"), package / "nimble" / "lib")
    assert loaded(package, library) == [str(own), "True"]


def test_one_that_cannot_be_loaded_is_left_out(package, library):
    (package / "nimble" / "lib").mkdir()
    (package / "nimble" / "lib" / "nimble_native.abi3.so").write_bytes(b"not a library")
    assert loaded(package) == ["None", "True"]
    assert loaded(package, library)[0] == str(library.with_name("nimble_native.abi3.so"))


def test_one_of_another_version_is_left_out(package, library):
    file = package / "nimble" / "native.py"
    text, count = re.subn(r"^_INTERFACE = \d+", "_INTERFACE = 0", file.read_text(), flags=re.MULTILINE)
    assert count == 1
    file.write_text(text)
    assert loaded(package, library) == ["None", "True"]


def test_what_serves_calls_is_the_same_without_it(library):
    """This run has it; another one of the same tests does not."""
    pytest.importorskip("torch", minversion="2.1")
    from nimble import native

    if native.module is None:
        pytest.skip("this run has none itself")
    done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--without-native", *SERVED],
                          cwd=PYTHON, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
