"""Helpers of the GPU tests of training: a net, data, and training loops that return their whole final state."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 50


class Net(nn.Module):
    """Branches of small convolutions, batch norm and dropout; classes, and features that a loss may use or not."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(32, 32, 1 + 2 * (i % 2), padding=i % 2, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.Conv2d(32, 16, 3, padding=1)) for i in range(4))
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(64, 10)
        # For few features cuBLAS has a kernel with 0 and 4 as adjacent arguments: 0x400000000, which may be an address.
        self.aside = nn.Linear(64, 100)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.cat([branch(x) for branch in self.branches], 1).mean((2, 3))
        x = self.drop(x)
        return {"classes": self.last(x), "features": self.aside(x), "best": x.argmax(1)}


class Checkpointing(nn.Module):
    """A block is run again in the backward, with the random numbers that it had."""

    def __init__(self, rate, **options):
        super().__init__()
        self.first, self.last, self.options = nn.Conv2d(3, 16, 3, 2), nn.Linear(16, 10), options
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Dropout(rate))
        self.drop, self.aside = nn.Dropout(0.3), nn.Linear(16, 4)

    def forward(self, x):
        x = self.drop(self.first(x))
        x = checkpoint(self.block, x, **self.options).mean((2, 3))
        return {"classes": self.last(x), "features": self.aside(self.drop(x))}


@pytest.fixture
def caches_of_its_own(tmp_path, monkeypatch):
    """torch.compile chooses by time how a sum is added up, and keeps that in a file: where processes share it, what one has chosen
    comes to another between two of its runs. What this process has of an earlier folder is no longer written to this one."""
    utils = pytest.importorskip("torch._inductor.utils")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "compiled/triton"))
    pytest.importorskip("torch._dynamo").reset()
    utils.clear_inductor_caches()


def images(size=8):
    return torch.randn(size, 3, 24, 24, device="cuda")


def labels(size=8):
    return torch.randint(10, (size,), device="cuda")


def loss_of(outputs, y):
    return nn.functional.cross_entropy(outputs["classes"].float(), y) + outputs["features"].float().pow(2).mean()


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


def grads(net):
    return {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}


def same(one, other):
    different = [name for name in one if not (one[name] is other[name] is None or torch.equal(one[name], other[name]))]
    assert not different and list(one) == list(other), different
    return True


def left(net, losses):
    """The whole state after training."""
    return {"losses": torch.stack(losses), **{k: v.clone() for k, v in net.state_dict().items()},
            **{"grad " + k: v for k, v in grads(net).items()}, "random": torch.cuda.get_rng_state()}


def train(call, net, count=STEPS, loss=loss_of, optimizer=None, data=images, sizes=(8,), clear=True, before=lambda i: None):
    optimizer = optimizer or sgd(net)
    torch.manual_seed(1)
    losses = []
    for i in range(count):
        before(i)
        size = sizes[i % len(sizes)]
        x, y = data(size), labels(size)
        if clear:
            optimizer.zero_grad()
        made = loss(call(x), y)
        made.backward()
        optimizer.step()
        losses.append(made.detach())
    return left(net, losses)


def train_by(step, net, count=STEPS, sizes=(8,), before=lambda i: None):
    torch.manual_seed(1)
    losses = []
    for i in range(count):
        before(i)
        size = sizes[i % len(sizes)]
        losses.append(step(images(size), labels(size)).detach().clone())
    return left(net, losses)


def step_of(net, optimizer, clear=True):
    def train(x, y):
        if clear:
            optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train


@pytest.fixture(autouse=True)
def deterministic():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture
def nets():
    net = Net().cuda()
    return net, copy.deepcopy(net)
