"""nimble.step: existing gradients at a call: a graph needs the same ones that it reads, or adds to, and leaves others
alone."""

import sys

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble.steps.step_grads import Grads  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, same, sgd  # noqa: E402


def critic():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))


def updated(optimizer, loss, set_to_none=True):
    optimizer.zero_grad(set_to_none=set_to_none)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("set_to_none", [True, False])
def test_two_networks_that_oppose_each_other(set_to_none):
    """Steps of the generator add to the critic's gradients, which those of the critic clear."""
    def program(wrap):
        generator, judge = mlp(), critic()
        makes, judges = sgd(generator), sgd(judge)
        second = wrap(lambda x, z: updated(judges, judge(generator(z).detach()).mean() - judge(x).mean(), set_to_none))
        first = wrap(lambda z: updated(makes, -judge(generator(z)).mean(), set_to_none))
        for _ in range(24):
            yield second(torch.randn(2, 3), torch.randn(2, 4)), first(torch.randn(2, 4)), generator, judge

    assert same(program) and same.backend.captures == 2


class Mutual:
    """Each is trained towards the other's detached output. Both steps find all optimizers."""

    def __init__(self):
        self.nets = [mlp(), mlp()]
        self.optimizers = {number: sgd(net) for number, net in enumerate(self.nets)}
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizers[0], 100)

    def of(self, number):
        def step(x):
            mine, other = self.nets[number], self.nets[1 - number]
            return updated(self.optimizers[number], (mine(x) - other(x).detach()).square().mean())

        return step


def test_two_networks_that_read_each_other(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._inductor.graph", raising=False)  # as where nothing was compiled

    def program(wrap):
        both = Mutual()
        steps = [wrap(both.of(number)) for number in range(2)]
        for _ in range(24):
            x = torch.randn(2, 4)
            yield [step(x) for step in steps], both.nets, [p.grad for net in both.nets for p in net.parameters()]

    assert same(program) and same.backend.captures == 2


def test_gradients_that_the_step_does_not_touch_stay_what_they_are():
    def program(wrap):
        net, other = mlp(), mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: updated(optimizer, (net(x) - other(x).detach()).square().mean()))
        for i in range(10):
            for p in other.parameters():
                p.grad = torch.full_like(p, float(i))
            yield step(torch.randn(2, 4)), net, [p.grad for p in other.parameters()]

    assert same(program) and same.backend.captures == 1


def test_an_optimizer_that_may_read_them_by_ways_of_its_own():
    """A gradient that no op was seen to read then counts as read."""
    class Own(torch.optim.SGD):
        pass

    def program(wrap):
        net, other = mlp(), mlp()
        optimizer, its = sgd(net), Own(other.parameters(), lr=0.1)
        step = wrap(lambda x: updated(optimizer, (net(x) - other(x).detach()).square().mean()), [net, other], [its])
        for i in range(10):
            if i in (0, 6):
                for p in other.parameters():
                    p.grad = torch.full_like(p, float(i))
            yield step(torch.randn(2, 4)), net, [p.grad for p in other.parameters()]

    assert same(program) and same.backend.captures == 2


def accumulating(replace):
    """Adds to the existing gradient, and drops or replaces it."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            for p in net.parameters():
                p.grad = p.grad * 0.5 if replace else None
            return loss

        step = wrap(train)
        given = [torch.ones_like(p) for p in net.parameters()]
        for i in range(10):
            with torch.no_grad():
                for p, grad in zip(net.parameters(), given):
                    p.grad = grad.fill_(i) if i < 6 else torch.full_like(p, float(i))
            yield step(torch.randn(2, 4)), net

    return program


@pytest.mark.parametrize("replace", [True, False])
def test_what_is_added_to_and_dropped_has_to_be_there_again(replace):
    assert same(accumulating(replace)) and same.backend.captures == 5


def test_what_is_read_before_it_is_dropped():
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            norm = torch.stack([p.grad.norm() for p in net.parameters()])
            return updated(optimizer, net(x).square().mean()), norm

        step = wrap(train)
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        for _ in range(8):
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.replays > 0


def test_one_is_held_when_another_graph_is_captured():
    """And keeps holding it: nothing writes to it, whatever graphs are made and freed."""
    backend, net = ReplayingCapture(), mlp()
    step = nimble.step(lambda x: net(x).square().mean().backward(), [net], backend=backend)
    x = torch.ones(2, 4)
    for i in range(7):
        step(x)
        if i in (2, 5):
            net.zero_grad(set_to_none=True)
    held = [p.grad for p in net.parameters()]  # the second graph adds to what is the first one's
    for i in range(2):
        net.zero_grad(set_to_none=True)
        before = [grad.clone() for grad in held]
        with pytest.warns(UserWarning, match="gradients .* are still referenced") if i == 0 else pytest.MonkeyPatch.context():
            step(x * 2)
        assert all(map(torch.equal, held, before))


def clamped(net):
    for p in net.parameters():
        p.grad.data = p.grad.data.clamp(-0.01, 0.01)


def turned(net):
    net[0].weight.grad.data = net[0].weight.grad.data.t()


def wanting(net):
    net[0].weight.grad.requires_grad_()


def given_by_what_wants(net):
    net[0].weight.grad.mul_(torch.ones((), requires_grad=True))


@pytest.mark.parametrize("clears", ["inside", "outside"])
@pytest.mark.parametrize("change", [clamped, turned, wanting, given_by_what_wants])
@pytest.mark.parametrize("always", [True, False])
def test_gradients_that_are_given_other_memory(change, clears, always):
    """Between the calls: the next one leaves its own again."""
    def program(wrap):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
        optimizer = sgd(net)

        def train(x):
            if clears == "inside":
                optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step = wrap(train, [net], [optimizer])
        for i in range(10):
            if clears == "outside":
                optimizer.zero_grad(set_to_none=True)
            loss = step(torch.randn(2, 4))
            yield loss, net, [(p.grad, p.grad.requires_grad, p.grad.is_leaf) for p in net.parameters()]
            if always or i == 6:
                change(net)
            if change is clamped:
                optimizer.step()

    assert same(program) and same.backend.captures == 1 and same.backend.replays > 8


def test_what_has_held_the_memory_that_was_given_away():
    """A gradient that has other memory by now: nothing writes to it."""
    backend, net = ReplayingCapture(), mlp()
    step = nimble.step(lambda x: (net.zero_grad(), net(x).square().mean().backward())[0], [net], backend=backend)
    x = torch.ones(2, 4)
    for _ in range(6):
        step(x)
    held = [p.grad.data for p in net.parameters()]
    before = [grad.clone() for grad in held]
    clamped(net)
    with pytest.warns(UserWarning, match="gradients .* are still referenced"):
        step(x * 2)
    assert all(map(torch.equal, held, before))
    del held
    replays = backend.replays
    step(x)
    assert backend.replays > replays


def test_memory_of_gradients_is_there_as_long_as_their_graph():
    parameter, grad = nn.Parameter(torch.ones(3)), torch.full((3,), 2.0)
    grads = Grads([parameter], [None], [grad], [False], [0])
    parameter.grad = grad
    where = grad.data_ptr()
    del grad
    grads.put()
    parameter.grad.data, parameter.grad = torch.zeros(3), None
    others = [torch.empty(3) for _ in range(99)]
    assert where not in [other.data_ptr() for other in others] and grads.fit() and not grads.are_held()
    grads.put()
    assert parameter.grad.data_ptr() == where and parameter.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("tells", [True, False])
def test_gradients_that_only_autograd_has_saved(monkeypatch, tells):
    """A learned step size: the program reads the last gradients after the next call. Where PyTorch does not show a
    tensor's users, autograd reports that it was written to."""
    if not tells:
        monkeypatch.setattr("nimble.steps.step_grads._uses", sys.getrefcount)
    elif not hasattr(torch.Tensor, "_use_count"):
        pytest.skip("this PyTorch does not tell")

    def program(wrap):
        net, alpha, last = mlp(), torch.ones((), requires_grad=True), None
        optimizer = sgd(net)

        def train(x):
            optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step = wrap(train, [net], [optimizer])
        for _ in range(8):
            loss = step(torch.randn(2, 4))
            if last is not None:
                alpha.grad = None
                last.backward()
            last = sum((alpha * p.grad).square().sum() for p in net.parameters())
            optimizer.step()
            yield loss, alpha.grad, net

    if tells:
        assert same(program)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            same(program)


def test_gradients_that_are_added_to_and_that_autograd_has_saved():
    """Eager code raises, too."""
    def program(wrap):
        net, alpha = mlp(), torch.ones((), requires_grad=True)

        def train(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step = wrap(train, [net])
        for i in range(9):
            last = (alpha * net[0].weight.grad).sum() if i > 0 else None
            loss = step(torch.randn(2, 4))
            raised = False
            if last is not None:
                try:
                    last.backward()
                except RuntimeError as error:
                    raised = "modified by an inplace operation" in str(error)
            yield loss, raised, net[0].weight.grad

    assert same(program) and same.backend.replays > 0
