"""Training by graphs: what cannot be prepared runs eagerly with fallback, and changes nothing; gradients are
independent of each other."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from training_nets import only  # noqa: E402


def grads_of(model, module, count=4):
    torch.manual_seed(1)
    found = []
    for _ in range(count):
        module.zero_grad()
        loss = model(torch.randn(5, 4, requires_grad=True)).square().mean()
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in module.parameters())]
    return found


def steps_aside(module, backend, said):
    """It raises, and with fallback behaves like the module."""
    twin = copy.deepcopy(module)
    with pytest.raises(NimbleError, match=said):
        Nimble(module, backend=backend)(torch.randn(5, 4, requires_grad=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert all(map(torch.equal, grads_of(Nimble(module, fallback=True, backend=backend), module), grads_of(twin, twin)))
    return sum(said in str(each.message) for each in caught) == 1


def test_a_reentrant_checkpoint(backend):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 3)

        def forward(self, x):
            return self.last(checkpoint(self.first, x, use_reentrant=True))

    assert steps_aside(Net(), backend, "torch.autograd.grad cannot compute the gradients")


def test_a_backward_that_is_not_implemented_says_so(backend):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x / 2

        @staticmethod
        def backward(_ctx, _grad):
            raise NotImplementedError("no gradient of Half")

    net = only(lambda self, x: Half.apply(self.last(x)), last=nn.Linear(4, 3))
    with pytest.raises(NimbleError, match="torch.autograd.grad cannot compute the gradients: no gradient of Half"):
        Nimble(net, backend=backend)(torch.randn(5, 4))


def test_numbers_of_numpy(backend):
    numpy = pytest.importorskip("numpy")
    net = only(lambda self, x: self.last(x) * float(numpy.random.rand()), last=nn.Linear(4, 3))
    numpy.random.seed(0)
    with pytest.raises(NimbleError, match="random numbers by Python's `random`, NumPy"):
        Nimble(net, backend=backend)(torch.randn(5, 4))
    after = numpy.random.rand()
    numpy.random.seed(0)
    assert after == numpy.random.rand()


@pytest.mark.parametrize("norm", [False, True])
def test_modules_that_have_no_memory_yet(backend, norm):
    def lazy():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d() if norm else nn.LazyLinear(3))

    net, twin = lazy(), lazy()
    with pytest.raises(NimbleError, match="has no memory yet: run the module once before"):
        Nimble(net, backend=backend)(torch.randn(5, 4))
    model = Nimble(net, fallback=True, backend=backend)
    results = []
    with pytest.warns(UserWarning, match="no memory yet"):
        for each in (model, twin):
            torch.manual_seed(0)
            results.append([each(torch.randn(5, 4)).detach() for _ in range(4)])
    assert all(map(torch.equal, *results))
    y = model(torch.randn(5, 4))
    assert len(backend.graphs) == 2 and y.requires_grad  # it has been prepared since


def test_a_module_whose_parameters_are_several_tensors(backend):
    two = pytest.importorskip("torch.testing._internal.two_tensor")
    net = nn.Linear(4, 3)
    net.weight = nn.Parameter(two.TwoTensor(net.weight.data.clone(), net.weight.data.clone()))
    with pytest.raises(NimbleError, match="'weight' is a TwoTensor"):
        Nimble(net, backend=backend)(torch.randn(5, 4))


def test_a_tensor_attribute_that_the_module_assigns_is_put_back_where_it_fails(backend):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.utils.weight_norm(nn.Linear(4, 3))
    before = net.weight
    with pytest.raises(NimbleError):
        Nimble(net, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert net.weight is before


def test_gradients_of_one_backward_have_versions_of_their_own(backend):
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    model = Nimble(net, backend=backend)
    model(torch.randn(5, 4)).sum().backward()
    one, other = net[0].weight.grad, net[1].weight.grad
    weight = torch.ones_like(one, requires_grad=True)
    loss = (weight * one).sum()
    other.mul_(0.5)
    loss.backward()
    assert torch.equal(weight.grad, one)
