"""For the tests of torch.compile(backend="nimble"): a compiler with a fake for the GPU, and comparisons with eager runs."""

import itertools

import pytest
import torch

from nimble.compile.dynamo_backend import NimbleCompiler
from replaying import ReplayingCapture

FIRST, COMPARED = 1, 3  # calls of a kind before a graph serves


@pytest.fixture
def nimble(monkeypatch):
    """compiler(). Nothing that Dynamo compiled before is left, nor anything after."""
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    yield compiler()
    torch._dynamo.reset()


def compiler(backend=None, without=2.0, **engine):
    """A NimbleCompiler on whose clock a run without a graph takes `without` times as long as one with it."""
    clock = itertools.cycle((0.0, 1.0, 0.0, without)).__next__
    return NimbleCompiler(backend or ReplayingCapture(), **{"clock": clock, "has_room": lambda device: True, **engine})


def served(nimble):
    return sum(report.served for report in nimble.reports())


def why_traced(nimble):
    """The reasons for calls as traced, but those of calls before a graph was prepared."""
    return {why for report in nimble.reports() for why in report.as_traced} - {"before it was prepared"}


def places(values):
    """For each tensor the first of them on the same storage, and the distance."""
    first, found = {}, []
    for number, each in enumerate(values):
        if isinstance(each, torch.Tensor) and each.numel() > 0:
            same, offset = first.setdefault(each.untyped_storage().data_ptr(), (number, each.storage_offset()))
            found.append((same, each.storage_offset() - offset, each.shape, each.stride(), each.dtype, each.requires_grad,
                          each.is_inference()))
        else:
            found.append(type(each))
    return found


def check_same(got, want):
    """Lists of tensors and others, to the bit, with the same sharing of memory."""
    assert len(got) == len(want)
    for number, (one, other) in enumerate(zip(got, want)):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other) or torch.equal(one.isnan(), other.isnan()) and torch.equal(
                one.nan_to_num(), other.nan_to_num()), (number, one, other)
        else:
            assert one == other and type(one) is type(other), (number, one, other)
    for number, (one, other) in enumerate(zip(places(got), places(want))):
        assert one == other, (number, one, other)
