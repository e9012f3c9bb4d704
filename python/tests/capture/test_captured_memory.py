"""Tensors of a capture are dropped with its graph, which does so quietly (nimble/capture/cuda_graph.py): PyTorch's allocator warns of each
that something else drops later."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
import fake  # noqa: E402
import nimble  # noqa: E402
from nimble import Nimble  # noqa: E402


class Dropped:
    def __init__(self):
        self.were_gone = []  # for each graph that has ended, whether its outputs were
        self.graphs = []

    def by(self, make):
        """The same of the graphs of what make() leaves."""
        made = make()
        gc.collect()
        for graph in self.graphs:
            if graph() is not None:  # a real one has no Python code, which leads to tensors, and no list leads to it
                graph()._function, graph()._touches = None, list
                graph().owner.graphs.clear()
        self.were_gone.clear()
        del made
        gc.collect()
        return self.were_gone


@pytest.fixture
def dropped(monkeypatch):
    ended = Dropped()

    def let_go(kept):
        outputs = [weakref.ref(each) for each in fake.tensors(kept[0])]
        kept.clear()
        ended.were_gone.append(all(each() is None for each in outputs))

    class Graph(fake.FakeGraph):
        def __init__(self, function, outputs, *more, **named):
            self._kept = [outputs]
            super().__init__(function, outputs, *more, **named)
            weakref.finalize(self, let_go, self._kept)
            ended.graphs.append(weakref.ref(self))

        @property
        def outputs(self):
            return self._kept[0]

        @outputs.setter
        def outputs(self, value):
            self._kept[:] = [value]

    monkeypatch.setattr(fake, "FakeGraph", Graph)
    return ended


def network():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_of_a_module(dropped):
    def make():
        model = Nimble(network().eval(), backend=fake.FakeCapture()).prepare(torch.randn(3, 4))
        model(torch.randn(3, 4))
        return model

    assert dropped.by(make) == [True]


def test_of_a_module_that_trains(dropped):
    def make():
        net = network()
        model = Nimble(net, backend=fake.FakeCapture()).prepare(torch.randn(3, 4), training=True)
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
        net.zero_grad(set_to_none=True)
        return model

    ended = dropped.by(make)
    assert len(ended) >= 2 and all(ended)


def test_of_a_step(dropped):
    def make():
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def train(x):
            optimizer.zero_grad()
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = nimble.steps.steps.Step(train, [net], [optimizer], nimble.graphs.graph_io.Options(), False, 8, fake.FakeCapture())
        for _ in range(6):
            step(torch.randn(3, 4))
        net.zero_grad(set_to_none=True)
        return step

    ended = dropped.by(make)
    assert ended and all(ended)


def test_that_is_kept_is_seen(dropped):
    def make():
        model = Nimble(network().eval(), backend=fake.FakeCapture(), static_outputs=True).prepare(torch.randn(3, 4))
        kept.append(model(torch.randn(3, 4)))
        return model

    kept = []
    assert dropped.by(make) == [False]
