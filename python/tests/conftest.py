"""What the tests share: the build folder (NIMBLE_TEST_BUILD), and which of them this machine can run."""

import os
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent
TORCH_TESTS = ["test_accelerated.py", "test_module.py", "test_prepare.py", "test_signatures.py", "test_state.py", "test_gpu.py"]

try:
    import torch

    old = tuple(map(int, torch.__version__.split(".")[:2])) < (1, 13)
    why_no_torch = f"PyTorch {torch.__version__} is older than 1.13" if old else ""
except ImportError:
    why_no_torch = "no PyTorch for this interpreter"

collect_ignore = TORCH_TESTS if why_no_torch else []


BUILD = Path(os.environ.get("NIMBLE_TEST_BUILD", str(PYTHON.parent / "build" / "default")))


def pytest_report_header():
    lines = [f"nimble: build folder {BUILD}"]
    if why_no_torch:
        lines.append(f"nimble: {why_no_torch}: left out are {', '.join(TORCH_TESTS)}")
    return lines


def pytest_collection_modifyitems(items):
    from nimble import shim

    if not why_no_torch and torch.cuda.is_available() and shim.is_loaded():
        return
    why = pytest.mark.skip(reason="needs a GPU, and libnimble.so preloaded: python -m nimble run -- python -m pytest -m gpu")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(why)


@pytest.fixture(scope="session")
def build():
    if not (BUILD / "lib" / "libnimble.so").is_file():
        pytest.skip(f"no libnimble.so in {BUILD}")
    return BUILD


@pytest.fixture
def backend():
    from fake import FakeCapture

    return FakeCapture()
