"""nimble.step: tensors that are no plain memory: sparse ones, those that have none yet, those that are made of others."""

import functools
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import raises, same, sgd, update  # noqa: E402


def sparse_forward_and_backward(wrap):
    net = nn.Embedding(10, 3, sparse=True)
    optimizer = sgd(net)
    step = wrap(lambda x: net(x).square().mean().backward(), [net])
    for _ in range(8):
        optimizer.zero_grad()
        step(torch.randint(10, (5,)))
        optimizer.step()
        yield net


def sparse_step(wrap, kind=torch.optim.SGD):
    net = nn.Embedding(10, 3, sparse=True)
    optimizer = kind(net.parameters(), lr=0.1)
    step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
    for _ in range(8):
        yield step(torch.randint(10, (5,))), net


@pytest.mark.parametrize("program", [sparse_forward_and_backward, sparse_step,
                                     functools.partial(sparse_step, kind=torch.optim.SparseAdam)])
def test_sparse_gradients(program):
    assert raises(program, "layout torch.sparse_coo")


def test_a_sparse_matrix_that_is_found():
    def program(wrap):
        net, near = nn.Linear(4, 3), torch.eye(5).to_sparse()
        step = wrap(lambda x: net(torch.sparse.mm(near, x)), [net])
        for i in range(12):
            if i == 6:
                near = torch.ones(5, 5).to_sparse()
            yield step(torch.randn(5, 4))

    assert same(program) and same.backend.captures == 2


def test_modules_that_have_no_memory_yet():
    def program(wrap):
        net = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

        def run(x):
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step = wrap(run)
        for _ in range(8):
            yield step(torch.randn(5, 4)), net

    assert same(program) and same.backend.captures == 1


def test_parameters_that_are_several_tensors():
    two = pytest.importorskip("torch.testing._internal.two_tensor")

    def program(wrap):
        net = nn.Linear(4, 3)
        net.weight = nn.Parameter(two.TwoTensor(net.weight.data.clone(), net.weight.data.clone()))
        step = wrap(lambda x: net(x).sum(), [net])
        for _ in range(5):
            y = step(torch.randn(5, 4))
            yield getattr(y, "a", y)

    assert raises(program, "whose memory a graph cannot follow", calls=0)


def test_a_tensor_attribute_that_the_step_assigns_is_put_back_where_it_fails():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.utils.weight_norm(nn.Linear(4, 3))
    optimizer, backend = sgd(net), ReplayingCapture()
    step = nimble.step(lambda x: update(net, optimizer, net(x).square().mean()), backend=backend)
    for _ in range(3):
        step(torch.randn(5, 4))
    before = net.weight
    with pytest.raises(NimbleError, match="a tensor attribute is another one"):
        step(torch.randn(5, 4))
    assert net.weight is before
