"""accelerate: eager until calls repeat, and always where they may be for training."""

import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import NimbleError, accelerate  # noqa: E402


@pytest.fixture
def module():
    made = nn.Linear(3, 2).eval()
    made.runs = 0

    def count(*_):
        made.runs += 1

    made.register_forward_hook(count)
    return made


def test_prepares_itself_after_so_many_calls_of_a_kind(module, backend):
    model = accelerate(module, after=2, backend=backend)
    with torch.no_grad():
        for size in (1, 2, 1, 2):
            x = torch.randn(size, 3)
            assert torch.equal(model(x), module(x))
        assert backend.graphs == []
        for prepared, size in ((1, 1), (2, 2), (2, 1), (2, 2)):
            x = torch.randn(size, 3)
            assert torch.equal(model(x), module(x)) and len(backend.graphs) == prepared
    assert [r.signature for r in model.report()] == ["float32[1, 3]", "float32[2, 3]"]


def test_at_once(module, backend):
    model = accelerate(module, after=0, backend=backend)
    with torch.no_grad():
        model(torch.ones(1, 3))
    assert len(backend.graphs) == 1
    with pytest.raises(ValueError):
        accelerate(module, after=-1, backend=backend)


def test_gradients_are_never_lost(module, backend):
    warnings.simplefilter("error")  # nothing of it is worth a warning
    model = accelerate(module, after=0, backend=backend)
    model(torch.ones(1, 3)).sum().backward()
    assert module.weight.grad is not None
    module.requires_grad_(False)
    x = torch.ones(1, 3, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None and backend.graphs == []
    model(torch.ones(1, 3))  # nothing here requires any
    assert len(backend.graphs) == 1
    with torch.no_grad():
        module.train()
        model(torch.ones(2, 3))
        assert len(backend.graphs) == 1


def test_gradients_of_what_is_no_parameter(module, backend):
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.shift = module.requires_grad_(False), torch.zeros(2, requires_grad=True)

        def forward(self, x):
            return {"outputs": [self.inner(x) + self.shift]}

    shifted = Shifted().eval()
    model = accelerate(shifted, after=2, backend=backend)
    for number in range(5):
        model(torch.ones(1, 3))["outputs"][0].sum().backward()
    assert torch.equal(shifted.shift.grad, torch.full((2,), 5.0)) and backend.graphs == []
    with torch.no_grad():
        for number in range(3):
            model(torch.ones(1, 3))
    assert len(backend.graphs) == 1


def test_what_cannot_be_prepared(module, backend):
    def fails(*_):
        if backend.capturing:
            raise RuntimeError("cannot be")

    module.register_forward_hook(fails)
    x = torch.ones(1, 3)
    with torch.no_grad():
        model = accelerate(module, after=1, backend=backend)
        model(x)
        with pytest.warns(UserWarning, match="cannot be"):
            assert torch.equal(model(x), module(x))
        model = accelerate(module, after=0, fallback=False, backend=backend)
        with pytest.raises(NimbleError, match="cannot be"):
            model(x)
        with pytest.raises(NimbleError, match=r"args\[0\]"):
            model(object())
