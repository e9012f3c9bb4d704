"""What the tests share: the build folder (NIMBLE_TEST_BUILD, or --build), and which of them this machine can run."""

import os
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent
TORCH_TESTS = ["test_accelerated.py", "test_module.py", "test_prepare.py", "test_signatures.py", "test_state.py", "test_gpu.py"]

try:
    import torch
except ImportError:
    torch = None

collect_ignore = TORCH_TESTS if torch is None else []


def pytest_addoption(parser):
    parser.addoption("--build", default=os.environ.get("NIMBLE_TEST_BUILD", str(PYTHON.parent / "build" / "default")),
                     help="the build folder whose libnimble.so and simcuda are tested")


def pytest_report_header(config):
    lines = [f"nimble: build folder {config.getoption('--build')}"]
    if torch is None:
        lines.append("nimble: no PyTorch for this interpreter: left out are " + ", ".join(TORCH_TESTS))
    return lines


def pytest_collection_modifyitems(items):
    from nimble import shim

    if torch is not None and torch.cuda.is_available() and shim.is_loaded():
        return
    why = pytest.mark.skip(reason="needs a GPU, and libnimble.so preloaded: python -m nimble run -- python -m pytest -m gpu")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(why)


@pytest.fixture(scope="session")
def build(request):
    folder = Path(request.config.getoption("--build"))
    if not (folder / "lib" / "libnimble.so").is_file():
        pytest.skip(f"no libnimble.so in {folder}")
    return folder


@pytest.fixture
def backend():
    from fake import FakeCapture

    return FakeCapture()
