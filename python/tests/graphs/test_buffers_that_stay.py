"""Buffers that each look finds as they were, but that are written to, and by a later call changed: a graph that is launched before the
look writes to them, too, where the module has changed and the call begins anew."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import Nimble  # noqa: E402
from nimble.graphs.graph_io import Options  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


class Counting(nn.Module):
    """Counts outliers, whether autograd is told that the count is written to or not."""

    def __init__(self, tells):
        super().__init__()
        self.tells = tells
        self.inner = nn.Linear(4, 3)
        self.register_buffer("outliers", torch.zeros(()))

    def forward(self, x):
        count = self.outliers if self.tells else self.outliers.data
        count += (x.abs() > 50).any()
        return self.inner(x.clamp(-50, 50))


def inputs(outliers):
    for i in range(12):
        x = torch.randn(5, 4)
        x[0, 0] = 77.0 if i in outliers else 0.0
        yield i, x


@pytest.fixture(params=[True, False], ids=["told", "by .data"])
def pair(request):
    torch.manual_seed(0)
    net = Counting(request.param)
    return net, copy.deepcopy(net)


def trained(net, optimizer):
    def train(x):
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return train


def test_of_a_step(pair):
    backend = ReplayingCapture()
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in pair]
    functions = [trained(*each) for each in zip(pair, optimizers)]
    functions[0] = nimble.step(functions[0], modules=[pair[0]], optimizers=[optimizers[0]], backend=backend)
    for i, x in inputs((4, 6, 9)):
        if i == 6:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 5e-4
        assert torch.equal(*(function(x) for function in functions))
        assert pair[0].outliers == pair[1].outliers
    assert backend.captures == 2 and pair[0].outliers == 3


def clips(net, optimizer):
    def train(x):
        net.inner.bias.data += (x.abs() > 50).any()
        return trained(net, optimizer)(x)

    return train


def test_parameters_that_a_step_writes_early(pair):
    backend = ReplayingCapture()
    optimizers = [torch.optim.SGD(net.inner.parameters(), lr=1e-3) for net in pair]
    functions = [clips(*each) for each in zip(pair, optimizers)]
    functions[0] = nimble.step(functions[0], modules=[pair[0]], optimizers=[optimizers[0]], backend=backend)
    for i, x in inputs((4, 6, 9)):
        if i == 6:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 5e-4
        assert torch.equal(*(function(x) for function in functions))
    assert backend.captures == 2


@pytest.mark.parametrize("trains", [True, False])
def test_of_a_module(pair, trains):
    net, twin = pair
    backend = ReplayingCapture()
    model = Nimble(net, backend=backend)
    model._options = Options(True, True)
    for each in pair:
        each.train(trains)
    with torch.set_grad_enabled(trains):
        for i, x in inputs((5, 8)):
            for each in pair if i == 5 else ():
                each.inner.weight = nn.Parameter(each.inner.weight.detach() * 2)
            mine, its = model(x), twin(x)
            assert torch.equal(mine, its) and net.outliers == twin.outliers
            if trains:
                mine.sum().backward(), its.sum().backward()
                assert torch.equal(net.inner.weight.grad, twin.inner.weight.grad)
    assert net.outliers == 2 and backend.replays > 0
