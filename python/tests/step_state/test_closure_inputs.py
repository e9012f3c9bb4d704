"""The finds of a search in a function: the modules, optimizers and values that it refers to."""

import dataclasses
import functools
import itertools

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.objects.code_names import names_of, read_by  # noqa: E402
from nimble.step_state import closure_search  # noqa: E402
from nimble.step_state.closure_search import find  # noqa: E402


class Trainer:
    def __init__(self, net):
        self.net, self.count, self.scale = net, 0, 1.0
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.unread = 0

    def train(self, x):
        self.scheduler.step()
        self.add()
        return self.net(x) * self.scale

    def add(self):
        self.count += 1


def test_modules_optimizers_and_values():
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    trainer = Trainer(net)
    for function, modules in ((trainer.train, [net]), (functools.partial(Trainer.train, trainer), [net]),
                              (lambda: (net, [other]), [net, other]), (lambda n=net: n, [net]),
                              (lambda: (lambda: trainer.net), [net]), (lambda: trainer.add(), [])):
        assert [id(m) for m in find(function, [], []).modules] == [id(m) for m in modules]
    assert find(trainer.train, [other], []).modules == [other, net]
    assert find(trainer.train, [], []).optimizers == [trainer.optimizer]
    names = {slot.name for slot in find(trainer.train, [], []).slots}
    assert {"scale", "count", "scheduler.last_epoch"} <= names and "unread" not in names


def test_a_search_that_knows_the_names_finds_the_same_sooner(monkeypatch):
    walks = []
    walk = closure_search.Walk.depth_first
    monkeypatch.setattr(closure_search.Walk, "depth_first", lambda *given: (walks.append(1), walk(*given))[1])
    trainer = Trainer(nn.Linear(2, 2))
    first = find(trainer.train, [], [])
    before = len(walks)
    again = find(trainer.train, [], [], first.names)
    assert before > 1 and len(walks) == before + 1
    assert again.names == first.names and {slot.name for slot in again.slots} == {slot.name for slot in first.slots}
    # Code that reads more is found, too.
    trainer.add = lambda: trainer.unread
    names = {slot.name for slot in find(trainer.train, [], [], first.names).slots}
    assert names == {slot.name for slot in find(trainer.train, [], []).slots} and any("unread" in name for name in names)


def test_a_name_that_no_code_has_any_more_refuses_nothing():
    trainer = Trainer(nn.Linear(2, 2))
    trainer.numbers = iter([1])  # a step that reads it would be refused
    known = closure_search.Names(frozenset(("numbers",)), frozenset(("numbers",)))
    assert "numbers" not in find(trainer.train, [], [], known).names.named


table = [1]


def test_places_are_read_and_written():
    weights = [1.0, 2.0]

    def function(x, *, scale=3):
        return weights, table

    slots = {slot.name: slot for slot in find(function, [], []).slots}
    assert set(slots) == {"weights", "weights[0]", "weights[1]", "table", "table[0]", "a default.scale"}
    slots["weights[1]"].set(5.0)
    assert weights == [1.0, 5.0] and slots["weights[1]"].get() == 5.0
    weights.clear()
    assert slots["weights[1]"].get() is None
    slots["weights"].set("other")
    assert weights == "other"
    slots["table"].set("gone")
    assert table == "gone"


loss = stored = read = None


def test_a_global_is_none_that_shares_its_name_with_an_attribute():
    """As where a script keeps what a step returns, and the step's model returns an object."""
    def step(model):
        def inner(own=model):
            global stored
            stored = own.stored
            return read

        import os.path as loss  # noqa: F401
        return model.loss, inner

    assert {slot.name for slot in find(step, [], []).slots} == {"stored", "read"}
    assert {"loss", "stored", "read", "path"} <= names_of(step.__code__)


def test_what_refers_to_itself_and_what_is_large():
    loop = []
    loop.append(loop)
    many = list(range(1000))
    reached = find(lambda: (loop, many), [], [])
    assert {slot.name for slot in reached.slots} == {"loop", "loop[0]", "many"}
    many *= 100
    with pytest.raises(NimbleError, match="'many' has 100000 elements"):
        find(lambda: many, [], [])


def test_short_lists_in_what_is_large():
    """As transformers maps the packages that are installed."""
    packages = {f"package{number}": [f"distribution{number}"] for number in range(200)}
    reached = find(lambda: packages, [], [])
    assert {slot.name for slot in reached.slots} >= {"packages"}
    assert all(any(each is kept for kept in reached.containers) for each in (packages, *packages.values()))
    packages["deep"] = [[]]
    with pytest.raises(NimbleError, match="'packages' has 201 elements"):
        find(lambda: packages, [], [])
    packages["deep"] = list(range(65))
    with pytest.raises(NimbleError, match="'packages' has 201 elements"):
        find(lambda: packages, [], [])


def test_names_that_are_only_called():
    def train(x, trainer):
        trainer.step()
        trainer.both()
        trainer.many.run(*x)
        return [each.go(trainer.both) for each in x]

    assert {"step", "both", "run", "go"} <= names_of(train.__code__)
    assert {"both", "run", "many"} <= read_by(train.__code__) and not {"step", "go"} & read_by(train.__code__)


def test_what_dataclasses_make_is_not_called():
    @dataclasses.dataclass(order=True)
    class State:
        epoch: int = 0
        scale: float = 1.0

    net, state = nn.Linear(2, 2), State()
    assert {slot.name for slot in find(lambda x: net(x) * state.scale, [], []).slots} == {"net", "state", "state.scale", "state.__class__"}


def test_what_is_too_much_raises():
    net = nn.Linear(2, 2)
    many, numbers = [object() for _ in range(65)], list(range(20000))
    array = pytest.importorskip("numpy").zeros(100000)
    chain = None
    for _ in range(3000):
        chain = [chain]
    wide = [[[0] for _ in range(64)] for _ in range(64)]
    for function, said in ((lambda: (net, many), "which are too many"), (lambda: (net, numbers), "which are too many"),
                           (lambda: (net, array), "cannot be compared"), (lambda: (net, wide), "more than 4000 objects"),
                           (lambda: (net, chain), "without end")):
        with pytest.raises(NimbleError, match=said):
            find(function, [], [])


def test_by_way_of_which_functions():
    """The cause of an error may be far from the step, in a library's code."""
    numbers = itertools.count()

    def chain(length):
        function = lambda: next(numbers)  # noqa: E731
        for number in range(length):
            def function(inner=None, before=function):
                return before()

            function.__qualname__ = f"number_{number}"
        return function

    def said(length):
        with pytest.raises(NimbleError) as error:
            find(chain(length), [], [])
        return str(error.value)

    assert said(0).endswith("pass what it gives as an argument")
    assert said(1).endswith("as an argument (found by way of number_0, test_by_way_of_which_functions.<locals>.chain.<locals>.<lambda>)")
    assert "(found by way of number_8, number_7, number_6, ..., number_1, number_0, test_by" in said(9)


def test_libraries_are_not_looked_at():
    import random

    net = nn.Linear(2, 2)
    reached = find(lambda x: (nn.functional.cross_entropy(net(x), x), random.choice([1]), functools.reduce(max, [1])), [], [])
    assert {slot.name for slot in reached.slots} == {"net", "nn", "random", "functools"}
