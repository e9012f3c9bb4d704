"""nimble.step: containers that a step writes, and objects that count by an operator: both raise."""

import functools
from collections import Counter, deque

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from step_programs import mlp, raises, same, sgd, update  # noqa: E402
from test_step_values import Trainer  # noqa: E402


def appended(history, loss):
    history.append(loss)


def counted(history, loss):
    history["n"] = history.get("n", 0) + 1


def added(history, loss):
    history.add(len(history))


def extended(history, loss):
    history[len(history)] = loss


@pytest.mark.parametrize("make, put", [(list, appended), (functools.partial(deque, maxlen=100), appended), (Counter, counted),
                                       (set, added), (dict, extended)])
def test_a_container_that_is_written_raises(make, put):
    def program(wrap):
        net, history = mlp(), make()
        optimizer = sgd(net)

        def run(x):
            loss = update(net, optimizer, net(x).square().mean())
            put(history, loss.detach())
            return loss

        step = wrap(run)
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, dict(history) if isinstance(history, dict) else list(history)

    assert raises(program, "has changed")


def test_a_short_list_in_a_large_dictionary_is_compared():
    """Not written, it is served; another value is seen."""
    factors = {f"factor{number}": [1.0] for number in range(200)}

    def program(wrap, changed=False):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean() * factors["factor150"][0]))
        for i in range(10):
            if i == 7 and changed:
                factors["factor150"][0] = 2.0
            yield step(torch.randn(2, 4)), net
        factors["factor150"][0] = 1.0

    assert same(program) and same.backend.replays > 0
    assert same(functools.partial(program, changed=True))


def test_an_operator_that_counts_raises():
    class Steps:
        done = 0

        def __iadd__(self, other):
            self.done += other
            return self

    def program(wrap):
        trainer = Trainer()
        trainer.steps = Steps()

        def train(x):
            trainer.steps += 1
            return trainer.train(x)

        step = wrap(train)
        for _ in range(7):
            yield step(torch.randn(2, 4)), trainer.steps.done

    assert raises(program, "done' has changed")


def test_numbers_that_are_called_as_methods_are():
    """The code calls optimizer.step(), and counts in trainer.step elsewhere."""
    def program(wrap):
        trainer = Trainer()
        step = wrap(trainer.train)
        for i in range(20):
            trainer.step = trainer.backward = i
            yield step(torch.randn(2, 4)), trainer.net

    assert same(program) and same.backend.captures == 1
