"""nimble.step: what its code reads without naming each: in modules within modules, of parameters, all attributes of an object. And
copies of a step."""

import argparse
import copy
import pickle
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from fake import FakeCapture  # noqa: E402
from step_programs import mlp, same, sgd, update  # noqa: E402


class Sparse(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.cost = 0.01

    def penalty(self):
        return self.cost * self.weight.abs().sum()


class OfSparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Sparse(4, 6), Sparse(6, 3)

    def forward(self, x):
        return self.second(self.first(x).relu())


def apply_to(net, kept):
    net.apply(lambda module: kept.append(module.penalty()) if isinstance(module, Sparse) else None)
    return sum(kept)


@pytest.mark.parametrize("penalty", [
    lambda net: sum(each.penalty() for each in net.modules() if hasattr(each, "penalty")),
    lambda net: sum(each.cost * each.weight.abs().sum() for each in net.children()),
    lambda net: sum(each.cost * each.weight.abs().sum() for _, each in net.named_modules() if isinstance(each, Sparse)),
    lambda net: apply_to(net, [])])
def test_attributes_of_modules_that_the_step_goes_through(penalty):
    def program(wrap):
        net = OfSparse()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean() + penalty(net)))
        for i in range(9):
            if i == 6:
                net.first.cost = 0.1
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


def test_attributes_of_parameters_and_buffers():
    def program(wrap):
        net = mlp()
        net.register_buffer("mean", torch.ones(()))
        optimizer = sgd(net)
        net.mean.weight = 1.0
        for p in net.parameters():
            p.decay = 0.0

        def train(x):
            decay = sum(p.decay * p.square().sum() for p in net.parameters())
            return update(net, optimizer, net(x).square().mean() + decay + net.mean * net.mean.weight)

        step = wrap(train)
        for i in range(12):
            if i == 5:
                net[0].weight.decay = 0.1
            if i == 8:
                net.mean.weight = 2.0
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 3


class Options:
    def __init__(self):
        self.beta = 1.0


class WithMethods(Options):
    def told(self):
        return "options"


@pytest.mark.parametrize("make", [lambda: argparse.Namespace(beta=1.0), lambda: types.SimpleNamespace(beta=1.0), Options, WithMethods])
@pytest.mark.parametrize("read", [lambda options: nn.functional.smooth_l1_loss(*options[1:], **vars(options[0])),
                                  lambda options: options[1].square().mean() * options[0].__dict__["beta"]])
def test_attributes_that_are_read_as_a_dictionary(make, read):
    def program(wrap):
        net, options = mlp(), make()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, read((options, net(x), torch.zeros(2, 3)))))
        for i in range(9):
            if i == 6:
                options.beta = 0.25
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


@pytest.mark.parametrize("read", [lambda net: vars(net)["scale"], lambda net: net.__dict__["scale"], lambda net: vars(net[0])["scale"]])
def test_attributes_of_modules_that_are_read_as_a_dictionary(read):
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        net.scale = net[0].scale = 1.0
        step = wrap(lambda x: update(net, optimizer, (net(x) * read(net)).square().mean()))
        for i in range(9):
            if i == 6:
                net.scale = net[0].scale = 2.0
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


def test_an_attribute_that_comes_to_a_dictionary_of_them():
    def program(wrap):
        net, options = mlp(), argparse.Namespace()
        optimizer = sgd(net)
        options.reduction = "mean"
        step = wrap(lambda x: update(net, optimizer, nn.functional.smooth_l1_loss(net(x), torch.zeros(2, 3), **vars(options))))
        for i in range(9):
            if i == 6:
                options.beta = 0.25
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def test_a_module_of_another_class():
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(9):
            if i == 6:
                net[0].__class__ = Doubled
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


def test_the_order_of_a_dictionary():
    def program(wrap):
        net, weights = mlp(), {"a": 1.0, "b": 2.0}
        optimizer = sgd(net)

        def train(x):
            loss = net(x).square().mean()
            for weight in weights.values():
                loss = loss * weight + 1
            return update(net, optimizer, loss)

        step = wrap(train)
        for i in range(9):
            if i == 6:
                weights["a"] = weights.pop("a")
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


class Copied(FakeCapture):
    def __reduce__(self):
        return Copied, ()


class Trainer:
    def __init__(self, wrap):
        self.net = mlp()
        self.optimizer = sgd(self.net)
        self.step = wrap(self.train)

    def train(self, x):
        return update(self.net, self.optimizer, self.net(x).square().mean())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda trainer: pickle.loads(pickle.dumps(trainer))])
def test_copies(copied):
    trainer = Trainer(lambda function: nimble.step(function, fallback=True, backend=Copied()))
    for _ in range(4):
        trainer.step(torch.ones(2, 4))
    before = trainer.net[0].weight.detach().clone()
    other = copied(trainer)
    assert trainer.step.report() and not other.step.report()
    assert other.step.function.__self__ is other
    assert other.step(torch.ones(2, 4)).shape == ()
    assert not torch.equal(other.net[0].weight, before) and torch.equal(trainer.net[0].weight, before)
