"""nimble.step: Python values that a step reads, wherever they are: a change is detected, a count raises."""

import functools
import types
from collections import deque

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from step_programs import Average, mlp, raises, same, sgd, update  # noqa: E402


class Trainer:
    scale = 1.0

    def __init__(self):
        self.net = mlp()
        self.optimizer = sgd(self.net)
        self.value = 1.0

    def train(self, x):
        return update(self.net, self.optimizer, self.net(x).square().mean() * self.read())

    def read(self):
        return 1.0

    def write(self, value):
        self.value = value


class OfItsClass(Trainer):
    def read(self):
        return self.scale

    def write(self, value):
        OfItsClass.scale = value


class OfItsOwnInstead(Trainer):
    def read(self):
        return self.scale

    def write(self, value):
        self.scale = value


class OfAProperty(Trainer):
    @property
    def now(self):
        return self.value

    def read(self):
        return self.now


class OfABase(Trainer):
    def train(self, x):
        return super().train(x)

    def read(self):
        return self.value


class OfASlot(Trainer):
    class Settings:
        __slots__ = ("scale",)

    def __init__(self):
        super().__init__()
        self.settings = self.Settings()
        self.write(1.0)

    def read(self):
        return self.settings.scale

    def write(self, value):
        self.settings.scale = value


class OfAnArray(Trainer):
    def __init__(self):
        super().__init__()
        self.weights = pytest.importorskip("numpy").ones(3)

    def read(self):
        return float(self.weights[1])

    def write(self, value):
        self.weights[1] = value


class OfALongList(Trainer):
    def __init__(self):
        super().__init__()
        self.weights = [1.0] * 100

    def read(self):
        return sum(self.weights)

    def write(self, value):
        self.weights[80] = value


class OfListsInATuple(Trainer):
    def __init__(self):
        super().__init__()
        self.weights = ([1.0], [2.0])

    def read(self):
        return sum(self.weights[1])

    def write(self, value):
        self.weights[1].append(value)


class OfASet(Trainer):
    def __init__(self):
        super().__init__()
        self.weights = {1.0}

    def read(self):
        return sum(self.weights)

    def write(self, value):
        self.weights.clear()
        self.weights.add(value)


class OfADeque(Trainer):
    def __init__(self):
        super().__init__()
        self.weights = deque([1.0], maxlen=3)

    def read(self):
        return sum(self.weights)

    def write(self, value):
        self.weights[0] = value


class OfACriterion(Trainer):
    class Loss:
        def __init__(self):
            self.gamma = 1.0

        def __call__(self, y):
            return y.square().mean() * self.gamma

    def __init__(self):
        super().__init__()
        self.loss = self.Loss()

    def train(self, x):
        return update(self.net, self.optimizer, self.loss(self.net(x)))

    def write(self, value):
        self.loss.gamma = value


class OfTheObjectItself(Trainer):
    """The method that is called."""

    def __call__(self, x):
        return update(self.net, self.optimizer, self.net(x).square().mean() * self.value)


class OfASubmodule(Trainer):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Identity())
        self.optimizer = sgd(self.net)
        self.write(1.0)

    def read(self):
        return [layer for layer in self.net][1].temperature

    def write(self, value):
        self.net[1].temperature = value


class ByAnOperator(Trainer):
    class Number:
        def __init__(self, value):
            self.now = value

        def __gt__(self, other):
            return self.now > other

        def __int__(self):
            return int(self.now)

        def __neg__(self):
            return -self.now

        def __eq__(self, other):
            return self.now == other

    def __init__(self):
        super().__init__()
        self.number = self.Number(1.0)

    def read(self):
        return 1.0 if self.number > 0.75 else 0.5

    def write(self, value):
        self.number.now = value


class ByItsInteger(ByAnOperator):
    def read(self):
        return 1.0 + int(self.number)


class ByASign(ByAnOperator):
    def read(self):
        return -self.number


class ByBeingEqual(ByAnOperator):
    def read(self):
        return 1.0 if self.number == 1.0 else 0.5


settings = types.ModuleType("settings")
exec("SCALE = 1.0\ndef scaled(y):\n    return y * SCALE\n", settings.__dict__)


class OfAModule(Trainer):
    def read(self):
        return settings.SCALE

    def write(self, value):
        settings.SCALE = value


class OfAModulesFunction(OfAModule):
    def read(self):
        return settings.scaled(1.0)


class OfAClass(Trainer):
    def read(self):
        return Trainer.scale

    def write(self, value):
        Trainer.scale = value


READERS = [OfItsClass, OfItsOwnInstead, OfAProperty, OfABase, OfASlot, OfAnArray, OfALongList, OfListsInATuple, OfASet, OfADeque,
           OfACriterion, OfTheObjectItself, OfASubmodule, OfAModule, OfAModulesFunction, OfAClass, ByAnOperator, ByItsInteger, ByASign,
           ByBeingEqual]


@pytest.mark.parametrize("kind", READERS)
def test_a_value_that_changes_is_seen(kind):
    def program(wrap):
        kind.scale = Trainer.scale = settings.SCALE = 1.0
        trainer = kind()
        step = wrap(trainer if kind is OfTheObjectItself else trainer.train)
        for i in range(12):
            if i == 7:
                trainer.write(0.5)
            yield step(torch.randn(2, 4)), trainer.net

    try:
        assert same(program) and same.backend.captures == 2
    finally:
        kind.scale = Trainer.scale = 1.0


def helper(net, optimizer, average, x):
    loss = update(net, optimizer, net(x).square().mean())
    average.update(net)
    return loss


def by_a_helper(net, optimizer, average):
    return lambda x: helper(net, optimizer, average, x)


def by_another_name(net, optimizer, average):
    def run(x):
        loss = update(net, optimizer, net(x).square().mean())
        for each in [average]:
            each.update(net)
        return loss

    return run


def among_several(net, optimizer, average):
    several = ({"average": [average]},)

    def run(x):
        loss = update(net, optimizer, net(x).square().mean())
        several[0]["average"][0].update(net)
        return loss

    return run


def by_a_partial(net, optimizer, average):
    return functools.partial(helper, net, optimizer, average)


def by_a_wrapper(net, optimizer, average):
    class Wrapper:
        def __init__(self):
            self.optimizer, self.average, self.net = optimizer, average, net

        def zero_grad(self, set_to_none=True):
            self.optimizer.zero_grad(set_to_none)

        def step(self):
            self.optimizer.step()
            self.average.update(self.net)

    wrapper = Wrapper()
    return lambda x: update(net, wrapper, net(x).square().mean())


def by_a_decorated_function(net, optimizer, average):
    @torch.enable_grad()
    def run(x):
        return helper(net, optimizer, average, x)

    return run


@pytest.mark.parametrize("way", [by_a_helper, by_another_name, among_several, by_a_partial, by_a_wrapper, by_a_decorated_function])
def test_an_object_that_counts_raises(way):
    def program(wrap):
        net = mlp()
        average = Average(net)
        step = wrap(way(net, sgd(net), average), [net])
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, average.updates, average.value

    assert raises(program, "updates' has changed")
