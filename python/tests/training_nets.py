"""Helpers of the tests of training: a net and its twin, and loops that run both."""

import copy

import pytest
import torch
from torch import nn


class Net(nn.Module):
    """Batch norm, dropout, a counter, an unused parameter and one that requires no gradients; outputs of several
    kinds."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.fixed = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

    def forward(self, x, bias=None):
        h = self.drop(torch.relu(self.norm(self.first(x))))
        y = self.last(h) * self.fixed
        return {"y": y if bias is None else y + bias, "h": h, "best": y.argmax(1), "weight": self.last.weight, "flag": 3}


def only(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made


def grads(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def same(one, other):
    return list(one) == list(other) and all(
        one[name] is other[name] is None or torch.equal(one[name], other[name]) for name in one)


def both(call, twin, seed=5):
    """Runs both with the same random numbers; returns their results."""
    torch.manual_seed(seed)
    mine = call()
    torch.manual_seed(seed)
    return mine, twin()


def replays(backend):
    return [graph.replays - 4 for graph in backend.graphs]  # without those of preparing


def data(size=5):
    return torch.randn(size, 4), torch.randint(3, (size,))


def steps(f, module, count=6, optimizer=None, clear=True):
    """Trains; returns the results: losses, parameters, buffers, random numbers."""
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(count):
        x, y = data()
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(f(x)["y"], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **{k: v.clone() for k, v in module.state_dict().items()},
            "random": torch.get_rng_state()}


@pytest.fixture
def pair():
    """A module and its twin, which runs eagerly."""
    torch.manual_seed(0)
    module = Net()
    return module, copy.deepcopy(module)
