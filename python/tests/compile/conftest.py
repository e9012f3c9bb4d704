"""Shared by the tests of the Dynamo backend."""

import pytest


@pytest.fixture
def nimble(monkeypatch):
    """The backend, with graphs that are fakes. Nothing that was compiled before is left, nor anything after."""
    torch = pytest.importorskip("torch")
    from dynamo_tools import compiler

    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    yield compiler()
    torch._dynamo.reset()
