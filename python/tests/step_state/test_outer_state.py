"""nimble.step: counts that modules keep elsewhere than in lists, dictionaries and attributes raise, and are undone."""

import itertools

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from step_programs import raises, same, sgd, update  # noqa: E402


class Keeping(nn.Module):
    """A count that its forward keeps elsewhere than in lists, dictionaries and attributes."""

    def __init__(self, kept, count):
        super().__init__()
        self.layer, self.kept, self.count = nn.Linear(4, 3), kept, count

    def forward(self, x):
        return self.layer(x) * self.count(self.kept)


class WithSlots:
    __slots__ = ("calls", "unset")

    def __init__(self):
        self.calls = 0


def count_in_slots(kept):
    kept.calls += 1
    return kept.calls


def count_in_a_set(kept):
    kept.add(len(kept))
    return len(kept)


def count_first(kept):
    kept[0] += 1
    return int(kept[0])


def yielded():
    yield 1.0
    yield from itertools.repeat(2.0)


@pytest.mark.parametrize("make, count, told", [
    (lambda: pytest.importorskip("numpy").zeros(2), count_first, lambda kept: kept.tolist()), (set, count_in_a_set, len),
    (lambda: bytearray(2), count_first, bytes), (WithSlots, count_in_slots, lambda kept: kept.calls)])
def test_a_forward_that_counts_elsewhere(make, count, told):
    def program(wrap):
        net = Keeping([make()], lambda kept: count(kept[0]))
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, told(net.kept[0])

    assert raises(program, "of the step changes")


@pytest.mark.parametrize("make", [itertools.count, lambda: itertools.cycle([1.0, 2.0]), lambda: iter([float(i) for i in range(20)]),
                                  lambda: (float(i) for i in range(20))])
def test_a_forward_that_takes_from_an_iterator(make):
    def program(wrap):
        net = Keeping(make(), next)
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net

    assert raises(program, "an iterator")


def test_iterators_that_stay_where_they_are():
    def program(wrap):
        net = Keeping([itertools.count(), itertools.cycle([1.0]), iter([1.0]), yielded(), {1}, bytearray(1), WithSlots()], lambda kept: 2.0)
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 1


calls = 0
table = {"calls": 0}


class Global(nn.Linear):
    def forward(self, x):
        global calls
        calls += 1
        return super().forward(x) * calls

    @classmethod
    def told(cls):
        return calls


class GlobalDictionary(nn.Linear):
    def forward(self, x):
        table["calls"] += 1
        return super().forward(x) * table["calls"]

    @classmethod
    def told(cls):
        return dict(table)


class OfTheClass(nn.Linear):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x) * self.calls

    @classmethod
    def told(cls):
        return cls.calls


def with_a_closure():
    calls = 0

    class Closure(nn.Linear):
        def forward(self, x):
            nonlocal calls
            calls += 1
            return super().forward(x) * calls

        @classmethod
        def told(cls):
            return calls

    return Closure


@pytest.mark.parametrize("make", [lambda: Global, lambda: GlobalDictionary, lambda: type("Mine", (OfTheClass,), {}), with_a_closure])
def test_a_forward_that_counts_outside_of_its_module(make):
    def program(wrap):
        global calls
        calls, table["calls"] = 0, 0
        kind = make()
        net = kind(4, 3)
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, kind.told()

    assert raises(program, "of the step changes")
