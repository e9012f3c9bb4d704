"""Modules whose first run does something that no later one does: after preparing has undone it, they would never do it
again."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import only  # noqa: E402


def centered(self, x):
    h = self.a(x)
    if not self.is_ready:
        with torch.no_grad():
            self.mean.copy_(h.mean(0))
        self.is_ready = True
    return h - self.mean


def following(self, x):
    """Its buffer continues from the first run's value."""
    h = self.a(x)
    with torch.no_grad():
        if not getattr(self, "is_begun", False):
            self.mean.copy_(h.mean(0))
            self.is_begun = True
        self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
    return h - self.mean


def by_parameter(self, x):
    if not self.is_ready:
        with torch.no_grad():
            self.a.bias.data.copy_(-x.mean(0)[:3])
        self.is_ready = True
    return self.a(x)


def module_with(forward):
    torch.manual_seed(0)
    module = only(forward, a=nn.Linear(4, 3), drop=nn.Dropout(), norm=nn.BatchNorm1d(3), is_ready=False, count=0, size=None)
    module.register_buffer("mean", torch.zeros(3))
    return module


def model_of(module, **options):
    model = Nimble(module, backend=ReplayingCapture(), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.prepare(torch.randn(5, 4), training=module.training, relaxed=True)


@pytest.mark.parametrize("forward, training", [(centered, True), (centered, False), (following, True), (following, False),
                                               (by_parameter, True), (by_parameter, False)])
def test_what_the_first_run_initialises(forward, training):
    module = module_with(forward).train(training)
    twin = copy.deepcopy(module)
    attributes = set(module.__dict__)
    said = "writes to its parameter" if forward is by_parameter else "first run writes to a buffer as later ones do not"
    with pytest.raises(NimbleError, match=said):
        model_of(module)
    assert not module.is_ready and set(module.__dict__) == attributes and not module.mean.any()
    model = model_of(module, fallback=True)
    for _ in range(3):
        x = torch.randn(5, 4)
        with torch.set_grad_enabled(training):
            assert torch.equal(model(x), twin(x))
    assert torch.equal(module.mean, twin.mean) and torch.equal(module.a.bias, twin.a.bias)
    assert model_of(module).report()[0].kind == ("forward" if training else "inference")  # it has run


def counting(self, x):
    self.count += 1
    h = self.norm(self.drop(self.a(x)))
    self.mean.add_(1)
    return h


def noting(self, x):
    self.size = x.shape[0]
    return counting(self, x)


def making(self, x):
    if not self.is_ready:
        self.is_ready, self.table = True, torch.arange(3.0)
    return counting(self, x) * self.table


@pytest.mark.parametrize("forward", [counting, noting, making])
@pytest.mark.parametrize("training", [False, True])
def test_counters_and_what_is_noted_once(forward, training):
    module = module_with(forward).train(training)
    twin = copy.deepcopy(module)
    model = model_of(module)
    for _ in range(3):
        x, results = torch.randn(5, 4), []
        for call in (model, twin):
            torch.manual_seed(1)
            with torch.set_grad_enabled(training):
                results.append(call(x))
        assert torch.equal(*results) and all(map(torch.equal, module.buffers(), twin.buffers()))
    assert len(model.report()) == (2 if training else 1)
