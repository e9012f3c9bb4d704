"""Values that a step reads through names of functions, classes and modules, and changes after its last eager run: all
is as without Nimble."""

import functools
import operator
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


def reading(read, change, at=6):
    """A program whose steps have their loss by read(), which change() changes."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, read(net(x)).square().mean()))
        for i in range(12):
            if i == at:
                change()
            yield step(torch.randn(2, 4)), net

    return program


held = types.SimpleNamespace()
act = None


def set_global(value):
    global act
    act = value


@pytest.mark.parametrize("one, other", [(torch.sigmoid, torch.tanh), (operator.pos, operator.neg), (torch.sigmoid, lambda x: x * 3)])
@pytest.mark.parametrize("place", ["attribute", "global", "dictionary", "default", "keyword default", "partial"])
def test_functions_as_values(place, one, other):
    def by_default(y, f=one):
        return f(y)

    def by_keyword(y, *, f=one):
        return f(y)

    table, part = {}, functools.partial(lambda y, f: f(y))
    reads, change = {
        "attribute": (lambda y: held.f(y), lambda f: setattr(held, "f", f)),
        "global": (lambda y: act(y), set_global),
        "dictionary": (lambda y: table["f"](y), functools.partial(table.__setitem__, "f")),
        "default": (by_default, lambda f: setattr(by_default, "__defaults__", (f,))),
        "keyword default": (by_keyword, functools.partial(by_keyword.__kwdefaults__.__setitem__, "f")),
        "partial": (part, functools.partial(part.keywords.__setitem__, "f")),
    }[place]

    def program(wrap):
        change(one)
        yield from reading(reads, lambda: change(other))(wrap)

    assert same(program) and same.backend.replays > 0


def test_modules_as_values():
    one, other = types.ModuleType("one"), types.ModuleType("other")
    one.f, other.f = torch.sigmoid, torch.tanh

    def program(wrap):
        held.module = one
        yield from reading(lambda y: held.module.f(y), lambda: setattr(held, "module", other))(wrap)

    assert same(program) and same.backend.replays > 0

    def changed_within(wrap):
        held.module, one.f = one, torch.sigmoid
        yield from reading(lambda y: held.module.f(y), lambda: setattr(one, "f", torch.tanh))(wrap)

    assert same(changed_within)


class Settings:
    alpha = 1.0

    class Inner:
        beta = 1.0

    @classmethod
    def scale(cls):
        return cls.alpha

    @classmethod
    def get(cls):
        return cls


def alpha_of(settings):
    return settings.alpha


@pytest.mark.parametrize("read", [lambda y: y * held.settings.alpha, lambda y: y * Settings.scale(), lambda y: y * Settings.get().alpha,
                                  lambda y: y * alpha_of(Settings), lambda y: y * held.table["a"].alpha,
                                  functools.partial(lambda settings, y: y * settings.alpha, Settings)])
def test_classes_that_objects_lead_to(read):
    def program(wrap):
        Settings.alpha, held.settings, held.table = 1.0, Settings, {"a": Settings}
        yield from reading(read, lambda: setattr(Settings, "alpha", 3.0))(wrap)

    assert same(program) and same.backend.replays > 0


def test_classes_in_classes():
    def program(wrap):
        Settings.Inner.beta = 1.0
        yield from reading(lambda y: y * Settings.Inner.beta, lambda: setattr(Settings.Inner, "beta", 3.0))(wrap)

    assert same(program) and same.backend.replays > 0


def test_a_class_that_counts():
    class Meter:
        n = 0

        @classmethod
        def tick(cls):
            cls.n += 1

    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            Meter.tick()
            return update(net, optimizer, net(x).square().mean())

        step = wrap(train)
        for _ in range(6):
            yield step(torch.randn(2, 4)), net

    with pytest.raises(NimbleError, match="'.*Meter.n' has changed|Meter"):
        same(program)
    assert Meter.n >= 3


def test_what_an_optimizer_was_made_with():
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-self.defaults["lr"])

    def program(wrap):
        net = mlp()
        optimizer = Own(net.parameters(), lr=0.1)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(12):
            if i == 6:
                optimizer.defaults["lr"] = 0.01
            yield step(torch.randn(2, 4)), net

    assert same(program)


@pytest.mark.parametrize("before", [None, 6])
@pytest.mark.parametrize("at", range(1, 9))
def test_an_argument_that_is_written_from_some_call_on(at, before):
    """Even if another change happened at the previous call."""
    def program(wrap):
        net = mlp()
        optimizer, settings = sgd(net), types.SimpleNamespace(on=False)

        def train(x):
            if settings.on:
                x.mul_(0.5)
            return update(net, optimizer, net(x).square().mean())

        step = wrap(train)
        for i in range(14):
            if i == before:
                optimizer.param_groups[0]["lr"] = 0.05
            settings.on = i >= at
            x = torch.randn(2, 4)
            yield step(x), x, net

    assert same(program) and same.backend.replays > 0


@pytest.mark.parametrize("at", range(1, 7))
def test_buffers_that_are_written_from_some_call_on(at):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("m", torch.zeros(6))
            self.register_buffer("v", torch.ones(6))

        def forward(self, x):
            return F.batch_norm(x, self.m, self.v, training=self.training)

    def program(wrap):
        net = nn.Sequential(nn.Linear(4, 6), Norm(), nn.Linear(6, 3)).eval()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(14):
            if i == at:
                net.train()
            if i == 9:
                optimizer.param_groups[0]["lr"] = 0.05
            yield step(torch.randn(4, 4)), net

    assert same(program) and same.backend.replays > 0


@pytest.mark.parametrize("at", range(1, 7))
def test_state_that_is_made_late(at):
    def program(wrap):
        net = mlp()
        net[0].requires_grad_(False)
        optimizer = sgd(net, momentum=0.9)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(12):
            if i == at:
                net[0].requires_grad_(True)
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.replays > 0


def test_what_cannot_be_checked_after_a_run_raises_before_the_next():
    """The step has run, and the caller gets its result."""
    def program(wrap):
        net, many, ran = mlp(), [], []
        optimizer = sgd(net)

        def train(x):
            ran.append(1)
            if len(ran) == 3:  # in the last eager run
                many.extend(object() for _ in range(65))
            return update(net, optimizer, net(x).square().mean())

        step = wrap(train)
        for _ in range(6):
            yield step(torch.randn(2, 4)), len(ran), net

    assert raises(program, "'many' has 65 elements")


class Reshapes(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 300)

    def forward(self, x, size):
        return self.linear(x).reshape(size) * (2 if isinstance(size, torch.Size) else 1)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.skipif(torch.__version__ < "2.3", reason="this PyTorch takes a torch.Size apart")
def test_sizes_as_arguments(trains):
    module, x = Reshapes().train(trains), torch.randn(2, 3)
    model = nimble.Nimble(module, backend=ReplayingCapture())
    model.prepare(x, torch.Size([300, 2]), relaxed=True, training=trains)
    with torch.set_grad_enabled(trains):
        for size in (torch.Size([300, 2]), (300, 2), torch.Size([600]), [2, 300]):
            assert torch.equal(model(x, size), module(x, size))

    def program(wrap):
        net = Reshapes()
        optimizer = sgd(net)
        step = wrap(lambda x, size: update(net, optimizer, net(x, size).square().mean()))
        for _ in range(6):
            yield step(torch.randn(2, 3), torch.Size([300, 2])), net

    assert same(program) and same.backend.replays > 0
