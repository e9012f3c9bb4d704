"""nimble.auto of calls that train: the context of a call, gradients that differ, and modules that are freed."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
import torch.utils.checkpoint  # noqa: E402
from torch import nn  # noqa: E402
from auto_tools import COMPARED, EAGER_FIRST, backend, graphs, said, served  # noqa: E402, F401
from test_auto_training import FIRST, Net, auto, both, installed, train  # noqa: E402, F401


@pytest.mark.parametrize("switch, why", [
    (lambda: torch.autograd.detect_anomaly(check_nan=False), "within anomaly detection"),
    (lambda: torch.autograd.graph.save_on_cpu(), "under hooks for what autograd saves"),
])
def test_what_is_around_the_call(auto, backend, switch, why):
    net = Net()
    train(net, FIRST + 1)
    one = served(auto, net)
    with switch():
        train(net, 2)
    assert one.eager[why] == 2 and one.served == 1


def test_a_graph_whose_gradients_differ_is_not_believed(backend, said):
    def spoil(graph):
        if isinstance(graph.outputs, list):
            graph.outputs[0].data.add_(1)

    backend.spoil = spoil
    one = both(backend, Net, 9)
    assert one.served == 0 and one.count == 0 and "its graph differs from an eager run: gradient 0 (float32[8, 3]) differs" in said.getvalue()


def test_nor_one_whose_gradients_differ_later(backend, said):
    """The program's own first backwards run both ways."""
    def spoil(graph):
        if isinstance(graph.outputs, list) and graph.replays > COMPARED:
            graph.outputs[0].data.add_(1)

    backend.spoil = spoil
    one = both(backend, Net)
    assert one.served == 1 and one.count == 0 and "gradient 0 (float32[8, 3]) differs" in said.getvalue()


def test_gradients_that_are_never_the_same(auto, backend, said):
    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            y = x * self.weight
            y.sum()
            return torch.sin(y)

    net = Changing()
    original = torch.autograd.grad
    noise = iter(range(1, 10**6))
    try:
        torch.autograd.grad = lambda *a, **k: [g + next(noise) if g is not None else g for g in original(*a, **k)]
        train(net, EAGER_FIRST + 3)
    finally:
        torch.autograd.grad = original
    one = served(auto, net)
    assert one.eager["its gradients are not the same each time"] > 0 and one.served == 0 and "does not" not in said.getvalue()


def test_graphs_go_with_the_module(auto, backend):
    net = Net()
    train(net, FIRST + 1)
    gone = weakref.ref(net)
    parameter = weakref.ref(net.first.weight)
    del net
    gc.collect()
    assert gone() is None and parameter() is None and backend.closed >= 1


def test_a_module_that_has_gone_before_its_backward(auto, backend):
    net = Net()
    train(net, FIRST + 1)
    weight = net.first.weight
    weight.grad = None
    loss = net(torch.randn(4, 3)).sum()
    del net
    gc.collect()
    loss.backward()
    assert weight.grad is not None


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch has no grad_dtype")
def test_gradients_of_another_dtype(backend):
    """As a program may set it between calls."""
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(3.0).to(torch.bfloat16))

        def forward(self, x):
            return ((x + self.weight) * torch.arange(3.0).sin()).sum()

    def run(net):
        found = []
        torch.manual_seed(1)
        for number in range(2 * FIRST + 6):
            if number == FIRST + 2:
                net.weight.grad_dtype = torch.float32
            net(torch.randn(4, 3)).backward()
            found.append(net.weight.grad.double())
            net.weight.grad = None
        return found

    plain = run(Sums())
    with installed(backend) as auto:
        net = Sums()
        assert all(map(torch.equal, run(net), plain))
        assert backend.captures == 2 and served(auto, net).served > 2
