"""Helpers of the tests of nimble.step: programs that run eagerly and under Nimble, and comparisons of their results."""

import random
import sys
import warnings

import torch
from torch import nn

import nimble
from nimble import NimbleError
from nimble.steps.steps import _without_history
from replaying import ReplayingCapture


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), **{"lr": 0.1, **options})


def update(net, optimizer, loss):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


class Average:
    """An average of a network's weights, with a count on the host that decides the weight of new values."""

    def __init__(self, net):
        self.value, self.updates = [p.detach().clone() for p in net.parameters()], 0

    def update(self, net):
        self.updates += 1
        with torch.no_grad():
            for mine, its in zip(self.value, net.parameters()):
                mine.lerp_(its, 1 / (1 + self.updates))


def plain(value):
    """A comparable copy: for tensors their current values."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().to_dense() if value.is_sparse else value.detach()
        return str(dense.dtype), tuple(dense.shape), str(dense.tolist())
    if isinstance(value, nn.Module):
        return plain(value.state_dict())
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value


def left_by(program, backend=None, **options):
    """The results of a program: a generator, which gets the wrapper for its function, and whether that is Nimble's. An
    error of Nimble's ends it, and is part of the result."""
    torch.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)

    def wrap(function, modules=(), optimizers=(), **more):
        if backend is None:
            return lambda *args, **kwargs: _without_history(function(*args, **kwargs))
        return nimble.step(function, modules, optimizers, backend=backend, **{**options, **more})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = []
        try:
            for each in program(wrap):
                left.append(plain(each))
                del each  # else the next call would find its gradients held
        except NimbleError as error:
            left.append(error)
        return left


def same(program, draws_on_host=True, **options):
    """Whether a program has the same results under Nimble. same.backend is the backend that it ran on."""
    backend = same.backend = ReplayingCapture()
    backend.draws_on_host = draws_on_host
    mine, its = left_by(program, backend, **options), left_by(program)
    if mine and isinstance(mine[-1], NimbleError):
        raise mine[-1]
    return mine == its


def raises(program, said, draws_on_host=True, calls=3):
    """Whether Nimble raises this in the end, and behaves like the program until then. With fallback all is the same."""
    backend = same.backend = ReplayingCapture()
    backend.draws_on_host = draws_on_host
    mine, its = left_by(program, backend), left_by(program)
    assert isinstance(mine[-1], NimbleError) and said in str(mine[-1]), mine[-1]
    return mine[:-1] == its[:len(mine) - 1] and len(mine) - 1 == calls and same(program, draws_on_host, fallback=True)
