"""Training by graphs: backwards that do more than compute gradients, by graphs that replay what was captured."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import grads, only, same  # noqa: E402

LOSSES = [lambda y: y.square().mean(), lambda y: y.sum()]  # the latter's gradient has other strides than the one that is prepared for


def counting():
    def forward(self, x):
        h = self.a(x)
        if h.requires_grad:
            h.register_hook(lambda _: self.count.add_(1) and None)
        return self.b(h)

    module = only(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    module.register_buffer("count", torch.zeros(1))
    return module


def recomputing():
    def forward(self, x):
        return self.b(checkpoint(self.block, self.a(x), use_reentrant=False, preserve_rng_state=False))

    return only(forward, a=nn.Linear(4, 4), block=nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), b=nn.Linear(4, 2))


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad + torch.randn_like(grad)


def drawing():
    return only(lambda self, x: self.b(self.drop(Noisy.apply(self.a(x)))), a=nn.Linear(4, 4), drop=nn.Dropout(), b=nn.Linear(4, 2))


@pytest.mark.parametrize("loss", LOSSES, ids=["its own way", "another way"])
@pytest.mark.parametrize("make", [counting, recomputing, drawing])
def test_each_backward_does_it_once(make, loss):
    torch.manual_seed(0)
    module = make()
    twin = copy.deepcopy(module)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    assert same(dict(module.state_dict()), before)
    results = []
    for net, call in ((twin, twin), (module, model)):
        torch.manual_seed(1)
        found = []
        for _ in range(4):
            net.zero_grad()
            y = call(torch.randn(3, 4))
            loss(y).backward()
            found += [y.detach(), *grads(net).values(), *(b.clone() for b in net.buffers())]
        results.append([*found, torch.get_rng_state()])
    assert all(map(torch.equal, *results))


class Recompute(torch.autograd.Function):
    """As in reversible networks."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        if ctx.block.asks:
            weight, bias, given = torch.autograd.grad(y, [ctx.block.weight, ctx.block.bias, x], grad)
            return given + weight.sum() + bias.sum(), None
        torch.autograd.backward(y, grad)
        return x.grad, None


def with_inner_backward(asks):
    torch.manual_seed(0)
    module = only(lambda self, x: self.head(Recompute.apply(self.stem(x), self.block)),
                  stem=nn.Linear(4, 4), block=nn.Linear(4, 4), head=nn.Linear(4, 2))
    module.block.asks = asks
    return module


@pytest.mark.parametrize("first", [None, 1.0])
def test_a_backward_that_leaves_gradients_raises(first):
    module = with_inner_backward(False)
    for p in module.parameters():
        p.grad = None if first is None else torch.full_like(p, first)
    before = [p.grad for p in module.parameters()]
    with pytest.raises(NimbleError, match="computes gradients of its own when it runs: 'block.weight'"):
        Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    assert all(p.grad is grad for p, grad in zip(module.parameters(), before))
    assert first is None or all((p.grad == first).all() for p in module.parameters())


def test_a_backward_that_computes_gradients_inside():
    module = with_inner_backward(True)
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        for net, call in ((twin, twin), (module, model)):
            call(x).square().sum().backward()
        assert same(grads(module), grads(twin)) and module.stem.weight.grad is not None


class Observe(torch.autograd.Function):
    """Largest values, along both dimensions."""

    @staticmethod
    def forward(ctx, x, most):
        most[0].copy_(torch.maximum(most[0] * 0.9, x.abs().max()))
        ctx.most = most
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.most[1].copy_(torch.maximum(ctx.most[1], grad.abs().max()))
        return grad, None


@pytest.mark.parametrize("loss", LOSSES, ids=["its own way", "another way"])
def test_a_buffer_that_both_ways_write(loss):
    """The backward's graph is so large when it is prepared that it stays unchanged."""
    torch.manual_seed(0)
    module = only(lambda self, x: self.b(Observe.apply(self.a(x), self.most)), a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    module.register_buffer("most", torch.tensor([0.0, 5.0]))
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    for i in range(4):
        x = torch.randn(3, 4)
        for call in (twin, model):
            (loss(call(x)) * 100 ** i).backward()
        assert torch.equal(module.most, twin.most)
    assert module.most[1] > 5
