"""nimble.auto of calls that train: the program's losses, gradients and state are the same as without it, to the bit."""

import contextlib

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
import torch.utils.checkpoint  # noqa: E402
from torch import nn  # noqa: E402
from nimble import settings  # noqa: E402
from nimble.auto import calls  # noqa: E402
from nimble.guards import switches  # noqa: E402
from nimble.nesting import nesting  # noqa: E402
from auto_tools import COMPARED, EAGER_FIRST, backend, graphs, said, served  # noqa: E402, F401

FIRST = EAGER_FIRST + COMPARED
if switches.why_not_trained() is not None:
    pytest.skip(switches.why_not_trained(), allow_module_level=True)


class Net(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(drop)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.norm(self.first(x)))))


class Two(Net):
    """A module with two outputs, one of which a program may ignore."""

    def forward(self, x):
        y = super().forward(x)
        return {"a": y * y, "b": torch.sin(y)}


@contextlib.contextmanager
def installed(backend, trains=True):
    auto = calls.install(settings.Settings(trains=trains), backend, clock=lambda: 0.0)
    try:
        yield auto
    finally:
        calls.uninstall()
        assert nesting.depth == 0


@pytest.fixture
def auto(backend):
    with installed(backend) as made:
        yield made


def train(net, steps, loss_of=lambda net, x, step: net(x).square().mean(), rate=0.1):
    """Everything that a program can observe of some steps."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net, torch.randn(4, 3), step)
        if loss is not None:
            loss.backward()
            seen.append(loss.detach())
        seen += [p.grad.clone() for p in net.parameters() if p.grad is not None]
        optimizer.step()
        seen.append(torch.rand(1))
    return seen + [t.clone() for t in net.state_dict().values()]


def both(backend, make, steps=FIRST + 6, **options):
    """A net trained with nimble.auto, after a check that it behaves like one without; and its AutoModule."""
    torch.manual_seed(0)
    plain = train(make(), steps, **options)
    torch.manual_seed(0)
    with installed(backend) as auto:
        net = make()
        ours = train(net, steps, **options)
        assert len(plain) == len(ours) and all(map(torch.equal, plain, ours))
        one = served(auto, net)
        one.lines = calls.lines_of(one)
        one.count = len(one.graphs())
        return one


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_training_is_served(backend, drop):
    one = both(backend, lambda: Net(drop))
    assert (one.compared, one.served, dict(one.eager)) == (COMPARED, 6, {"before it was prepared": EAGER_FIRST})
    assert backend.captures == 1 and "(forward), rewritten" in one.lines[0] and "(backward), rewritten" in one.lines[0]


def test_only_on_request(backend):
    with installed(backend, trains=False) as auto:
        net = Net()
        train(net, 9)
        assert backend.captures == 0 and dict(served(auto, net).eager) == {"training": 9}
        assert auto.report() == []  # which is as it should be


def test_evaluation_between(backend):
    def loss_of(net, x, step):
        if step % 3:
            net.train()
            return net(x).square().mean()
        net.eval()
        with torch.no_grad():
            net(x)
        return None

    one = both(backend, Net, 36, loss_of=loss_of)
    assert one.count == 2 and one.served > 16


def test_gradients_of_one_output(backend):
    one = both(backend, Two, FIRST + 9, loss_of=lambda net, x, step: net(x)["b"].sum())
    assert (one.served, one.compared) == (8, COMPARED + 1) and backend.captures == 2, "the backward of that output has a graph of its own"


def test_arguments_want_gradients(backend):
    torch.manual_seed(0)
    found = []
    for auto in (contextlib.nullcontext(), installed(backend)):
        torch.manual_seed(0)
        net = Net().requires_grad_(False)
        with auto:
            for _ in range(FIRST + 3):
                x = torch.randn(4, 3, requires_grad=True)
                net(x).sum().backward()
                found.append(x.grad)
    assert all(map(torch.equal, found[:FIRST + 3], found[FIRST + 3:]))
    assert backend.captures == 2  # one for gradients that are one element over and over, as sum() gives them


def test_two_forwards_before_their_backwards(backend):
    one = both(backend, Net, 12, loss_of=lambda net, x, step: (net(x) + net(x * 2)).mean())
    assert one.eager["while the previous call's backward was outstanding"] > 3 and one.served > 3


def test_a_backward_that_runs_twice(backend):
    def loss_of(net, x, step):
        loss = net(x).square().mean()
        loss.backward(retain_graph=True)
        return loss

    assert both(backend, Net, loss_of=loss_of).served == 6


def test_hooks_of_parameters_run_as_often(backend):
    runs = []

    def make():
        net = Net()
        runs.append(0)

        def hook(grad):
            runs[-1] += 1
            return grad * 2

        net.first.weight.register_hook(hook)
        return net

    assert both(backend, make).served == 6 and runs[0] == runs[1] == FIRST + 6


def penalty(net, x, step):
    x.requires_grad_()
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return slope.square().mean()


def test_gradients_that_are_differentiated(backend):
    one = both(backend, Net, 9, loss_of=penalty)
    assert backend.captures == 0 and one.eager["its gradients are differentiated themselves"] == 9 - EAGER_FIRST


@pytest.mark.parametrize("mode", [contextlib.nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
def test_gradients_that_are_differentiated_later(backend, mode):
    """The module runs again for these."""
    def loss_of(net, x, step):
        x.requires_grad_()
        with mode():
            made = net(x)
        if step % 10:
            return made.float().square().mean()
        (slope,) = torch.autograd.grad(made.float().sum(), x, create_graph=True)
        return slope.square().mean()

    def make():
        net = Net()
        net.norm = nn.Identity()
        return net

    assert both(backend, make, 32, loss_of=lambda net, x, step: loss_of(net, x, step + 1)).served > 20


def test_several_backwards_at_once_later(backend):
    """For example for a Jacobian."""
    slopes = []

    def loss_of(net, x, step):
        x.requires_grad_()
        made = net(x)
        if step % 8 == 7:
            slopes.extend(torch.autograd.grad(made, x, torch.eye(made.numel()).view(-1, *made.shape), retain_graph=True,
                                              is_grads_batched=True))
        return made.square().mean()

    def make():
        net = Net()
        net.norm = nn.Identity()
        return net

    assert both(backend, make, 32, loss_of=loss_of).served > 20
    assert len(slopes) == 8 and all(torch.equal(one, other) for one, other in zip(slopes[:4], slopes[4:]))


def test_and_cannot_be_where_the_module_does_not_do_the_same(auto, backend):
    net = Net(0.5)
    train(net, FIRST + 1, loss_of=lambda net, x, step: net(x.requires_grad_()).sum())
    with pytest.raises(RuntimeError, match="cannot be run again as it was"):
        penalty(net, torch.randn(4, 3), 0)


def test_a_backward_in_parts(backend):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.one(x) + self.two(x)

    def loss_of(net, x, step):
        loss = net(x).sum()
        for part in (net.one, net.two):
            for parameter, grad in zip(part.parameters(), torch.autograd.grad(loss, list(part.parameters()))):
                parameter.grad = grad
        return None

    one = both(backend, Sum, 9, loss_of=loss_of)
    assert backend.captures == 0 and one.eager["its backward runs in parts"] > 0


class OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def saved_elsewhere(y):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return torch.tanh(y)


def with_forward(forward):
    def make():
        made = type("Given", (nn.Module,), {"forward": lambda self, x: forward(self, self.net(x), x)})()
        made.net = Net()
        return made

    return make


@pytest.mark.parametrize("forward, why", [
    (lambda self, y, x: OwnBackward.apply(y), "its backward runs Python code"),
    (lambda self, y, x: (y.register_hook(lambda grad: grad * 2), y)[1], "it hooks into its backward"),
    (lambda self, y, x: saved_elsewhere(y), "it hooks into its backward"),
    (lambda self, y, x: torch.utils.checkpoint.checkpoint(torch.tanh, y, use_reentrant=False), "it "),
    (lambda self, y, x: torch.utils.checkpoint.checkpoint(torch.tanh, y, use_reentrant=True), "it"),
    (lambda self, y, x: (y.retain_grad(), y * 2)[1], "it calls"),
])
def test_backwards_that_are_not_seen_from_outside(backend, forward, why):
    one = both(backend, with_forward(forward), 9)
    assert backend.captures == 0 and any(reason.startswith(why) for reason in one.eager), one.eager


def test_backwards_that_need_nothing(backend):
    class Plus(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x + self.weight

    one = both(backend, Plus, 9)
    assert backend.captures == 0 and one.eager["its backward needs nothing of its forward"] > 0


def test_hooks_of_modules_for_the_backward(backend):
    def make():
        net = Net()
        net.last.register_full_backward_hook(lambda *_: None)
        return net

    assert both(backend, make, 9).eager["it has hooks"] > 0 and backend.captures == 0


def test_a_hook_or_a_frozen_parameter_that_comes_later(backend):
    def loss_of(net, x, step):
        if step == 9:
            net.first.weight.requires_grad_(False)
        if step == 20:
            net.last.register_full_backward_hook(lambda *_: None)
        return net(x).square().mean()

    one = both(backend, Net, 24, loss_of=loss_of)
    assert backend.captures == 2 and one.eager["it has hooks"] > 0


def test_what_is_written_between_forward_and_backward(backend):
    """As without Nimble: an error where it is needed, else nothing."""
    def loss_of(error):
        def made(net, x, step):
            loss = net(x).square().mean()
            with torch.no_grad():
                (net.last.weight if error else net.first.bias).mul_(1)
            return loss
        return made

    assert both(backend, Net, loss_of=loss_of(False)).served == 6
    with installed(backend) as auto:
        net = Net()
        train(net, FIRST + 1)
        assert graphs(auto, net) == 1
        with pytest.raises(RuntimeError):
            train(net, 1, loss_of=loss_of(True))
