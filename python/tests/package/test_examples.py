"""examples/pytorch: their messages for wrong arguments, and on a GPU that their results are equal to the bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "pytorch").glob("*.py"))


def run(*words):
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})


def test_there_are_two():
    assert [path.stem for path in EXAMPLES] == ["resnet50_inference", "resnet50_training"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_words(path):
    done = run(path, "--help")
    assert done.returncode == 0 and "--steps" in done.stdout and "--side" in done.stdout, done.stderr
    done = run(path, "--steps", "0")
    assert done.returncode == 2 and "1 or more" in done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_on_a_gpu(path):
    done = run("-m", "nimble", "run", path, "--steps", "5", "--side", "64")
    assert done.returncode == 0 and "equal to the bit" in done.stdout, done.stdout + done.stderr
