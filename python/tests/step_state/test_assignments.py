"""nimble.step: assignments by modules, their hooks and the step during a capture raise, and are undone."""

import collections
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 3), 0
        self.noted = {"mean": torch.zeros(()), "shapes": [], "last": None}
        self.shape, self.settings = None, type("Settings", (), {"calls": 0})()

    def forward(self, x):
        y = self.layer(x)
        self.shape = [tuple(y.shape), 0.5]  # the same each time, for all who look
        self.note(y)
        return y

    def note(self, y):
        pass

    def told(self):
        return self.calls, self.noted, self.settings.calls, self.shape


class InADictionary(Noting):
    def note(self, y):
        self.noted["mean"] = y.mean().detach()


class OfAnotherKey(Noting):
    def note(self, y):
        self.noted[len(self.noted)] = 1


class InAList(Noting):
    def note(self, y):
        self.noted["shapes"].append(y.shape)


class ByCounting(Noting):
    def note(self, y):
        self.calls += 1


class InAnObject(Noting):
    def note(self, y):
        self.settings.calls += 1


@pytest.mark.parametrize("kind", [InADictionary, OfAnotherKey, InAList, ByCounting, InAnObject])
def test_a_forward_that_puts_something_somewhere(kind):
    def program(wrap):
        net = kind()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, net.told()

    assert raises(program, "of the step changes" if kind is not InADictionary else "assigns a tensor to its attribute")


def test_a_forward_that_puts_the_same_each_time():
    def program(wrap):
        net = Noting()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, net.told()

    assert same(program) and same.backend.captures == 1


def put(kept):
    return lambda module, given, output: kept.__setitem__("output", output.detach())


def put_before(kept):
    return lambda module, given: kept.__setitem__("calls", kept.get("calls", 0) + 1)


def put_backward(kept):
    return lambda module, given, output: kept.__setitem__("calls", kept.get("calls", 0) + 1)


@pytest.mark.parametrize("register, make", [
    (lambda net, hook: net[0].register_forward_hook(hook), put), (lambda net, hook: net.register_forward_pre_hook(hook), put_before),
    (lambda net, hook: net[2].register_full_backward_hook(hook), put_backward),
    (lambda net, hook: nn.modules.module.register_module_forward_hook(hook), put)])
def test_a_hook_of_a_module_that_puts_something_somewhere(register, make):
    def program(wrap):
        net, kept = mlp(), {}
        optimizer = sgd(net)
        handle = register(net, make(kept))
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        try:
            for _ in range(8):
                yield step(torch.randn(2, 4)), net, kept
        finally:
            handle.remove()

    assert raises(program, "kept")


def test_what_a_hook_reads():
    def program(wrap):
        net, scale = mlp(), [1.0]
        optimizer = sgd(net)
        net[0].register_forward_hook(lambda module, given, output: output * scale[0])
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(10):
            scale[0] = 0.5 if i >= 6 else 1.0
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


def test_a_count_in_an_array_is_put_back():
    numpy = pytest.importorskip("numpy")

    def program(wrap):
        net, calls, fixed = mlp(), numpy.zeros(2), numpy.ones(2)
        optimizer = sgd(net)
        fixed.flags.writeable = False

        def train(x):
            calls[0] += fixed[0]
            return update(net, optimizer, net(x).square().mean())

        step = wrap(train)
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, calls.tolist()

    assert raises(program, "'calls' has changed")


def test_optimizers_that_hooks_of_parameters_call():
    def program(wrap):
        net = mlp()
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

        def step_of(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(step_of)

        def train(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step = wrap(train, modules=[net])
        for i in range(10):
            if i == 6:
                for optimizer in optimizers.values():
                    optimizer.param_groups[0]["lr"] = 0.01
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


@pytest.mark.parametrize("of", ["a module", "an optimizer", "a tensor"])
def test_what_a_hook_of_a_parameter_reads(of):
    def program(wrap):
        net, scale, weight = mlp(), [1.0], torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1) if of == "an optimizer" else sgd(net)
        (net[0].weight if of == "a module" else weight).register_hook(lambda grad: grad * scale[0])

        def train(x):
            return update(net, optimizer, (net(x) * weight).square().mean())

        def through(x):  # which names the optimizer alone
            optimizer.zero_grad()
            loss = (x[:, :3] * optimizer.param_groups[0]["params"][0]).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(through if of == "an optimizer" else train)
        for i in range(10):
            scale[0] = 0.5 if i >= 6 else 1.0
            weight.grad = None
            yield step(torch.randn(2, 4)), net, weight

    assert same(program) and same.backend.captures == 2


def test_a_hook_of_a_parameter_that_puts_something_somewhere():
    def program(wrap):
        net, norms = mlp(), {}
        optimizer = sgd(net)
        net[0].weight.register_hook(lambda grad: norms.__setitem__("weight", grad.norm()))
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, norms

    assert raises(program, "norms")


class Drawing(nn.Module):
    """From a generator of its own."""

    def __init__(self, generator, draw):
        super().__init__()
        self.layer, self.held, self.draw = nn.Linear(4, 3), [generator], draw

    def forward(self, x):
        return self.layer(x) * self.draw(self.held[0])


@pytest.mark.parametrize("make, draw", [
    (lambda: random.Random(0), lambda generator: generator.random()),
    (lambda: pytest.importorskip("numpy").random.default_rng(0), lambda generator: generator.random()),
    (torch.Generator, lambda generator: torch.rand((), generator=generator))])
def test_a_forward_that_draws_from_a_generator_of_its_module(make, draw):
    def program(wrap):
        net = Drawing(make(), draw)
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net

    assert raises(program, "a generator of its own")


class Made(collections.OrderedDict):
    """As libraries' dictionaries of classes: makes its values on access."""

    def __getitem__(self, key):
        return super().__getitem__(key)()

    def values(self):
        raise AssertionError("not all of it was asked for")

    items = copy = values


ACTIVATIONS = Made(relu=nn.ReLU, tanh=nn.Tanh)


class Lazy(dict):
    """A dictionary that makes its values once, on the first access."""

    def __missing__(self, key):
        self[key] = nn.Tanh()
        return self[key]

    def get(self, key, default=None):
        return self[key]


LAZY = Lazy()


@pytest.mark.parametrize("where", [ACTIVATIONS, LAZY])
@pytest.mark.parametrize("named", ["by its module", "by the step", "held"])
def test_dictionaries_that_make_what_they_are_asked_for(where, named):
    """They are inspected, without calling their methods."""
    name = "ACTIVATIONS" if where is ACTIVATIONS else "LAZY"
    before = dict.copy(where) if where is LAZY else {key: dict.get(where, key) for key in dict.keys(where)}

    class Global(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            if named == "held":
                self.where = self._where = where

        def forward(self, x):
            y = self.layer(x)
            return y if named == "by the step" else (ACTIVATIONS if name == "ACTIVATIONS" else LAZY)["tanh"](y)

    def program(wrap):
        net = Global()
        optimizer = sgd(net)

        def train(x):
            y = net(x)
            if named == "by the step":
                y = (ACTIVATIONS if name == "ACTIVATIONS" else LAZY)["tanh"](y)
            return update(net, optimizer, y.square().mean())

        step = wrap(train)
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, [key for key in dict.keys(where)]

    try:
        assert same(program) and same.backend.recorded
        if where is ACTIVATIONS:
            assert {key: dict.get(where, key) for key in dict.keys(where)} == before
    finally:
        LAZY.clear()


class BothWays(dict):
    """Which also has its keys by their values."""

    def __init__(self, **items):
        super().__init__(items)
        self.keys_of = {value: key for key, value in items.items()}

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.keys_of[value] = key


class Adding(Noting):
    def note(self, y):
        self.both["calls"] = len(self.both.keys_of)

    def told(self):
        return [dict(self.both), dict(self.both.keys_of)]


class Reordering(Noting):
    def note(self, y):
        self.recent.move_to_end(next(iter(self.recent)))

    def told(self):
        return list(self.recent)


class CountingIn(Noting):
    """Of a list's own attributes."""

    def note(self, y):
        self.many.count_of_calls += 1

    def told(self):
        return self.many.count_of_calls


@pytest.mark.parametrize("kind", [Adding, Reordering, CountingIn])
def test_containers_that_keep_more_than_what_they_hold(kind):
    def program(wrap):
        net = kind()
        net.both, net.recent = BothWays(one=-1), collections.OrderedDict(a=1, b=2, c=3)
        net.many = type("Many", (list,), {})([1])
        net.many.count_of_calls = 0
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, net.told()

    assert raises(program, "a module of the step changes")
