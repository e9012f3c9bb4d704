"""Shared by all tests: the build folder (NIMBLE_TEST_BUILD), and which tests this machine can run."""

import os
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("NIMBLE_TEST_BUILD", str(PYTHON.parent / "build" / "default")))


def has_gpu():
    from nimble import shim

    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() and shim.is_loaded()


def pytest_collection_modifyitems(items):
    if not any("gpu" in item.keywords for item in items) or has_gpu():
        return
    why = pytest.mark.skip(reason="needs a GPU, and libnimble.so preloaded: python -m nimble run -- python -m pytest -m gpu")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(why)


@pytest.fixture(scope="session")
def build():
    for each in ("lib/libnimble.so", "simcuda/libcuda.so.1"):
        if not (BUILD / each).is_file():
            pytest.skip(f"no {each} in {BUILD}")
    return BUILD


@pytest.fixture(autouse=True)
def versions_of_dictionaries(monkeypatch):
    """Words are read as under libnimble.so, by a replacement where there is none."""
    from nimble import shim
    from nimble.guards import dict_versions
    import dict_versions_tools

    if shim.words_updater() is None and sys.version_info < (3, 13):
        monkeypatch.setattr(dict_versions, "_update", lambda: dict_versions_tools.update)


@pytest.fixture(autouse=True)
def lines(monkeypatch):
    """Lines go where pytest captures them: it replaces descriptor 2 by its own files, and lines do not follow it there
    (test_log.py)."""
    from nimble import log

    monkeypatch.setattr(log, "say", lambda line: sys.stderr and sys.stderr.write(line))


@pytest.fixture
def backend():
    from fake import FakeCapture

    return FakeCapture()
