"""Training by graphs: backwards of some of a forward's outputs each, with optimizers' steps and other forwards between."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import grads, only, same  # noqa: E402

KEEPS = hasattr(torch._C, "_autograd") and hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")


def actor_critic():
    torch.manual_seed(0)
    return only(lambda self, x: (self.actor(x), self.critic(x)), actor=nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)),
                critic=nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))


def with_trunk():
    def forward(self, x):
        h = self.trunk(x).tanh()
        return self.actor(h), self.critic(h)

    torch.manual_seed(0)
    return only(forward, trunk=nn.Linear(4, 4), actor=nn.Linear(4, 2), critic=nn.Linear(4, 1))


def pair(make):
    module = make()
    twin = copy.deepcopy(module)
    return (twin, twin), (module, Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True))


def test_what_one_backward_needs_may_be_written_before_another():
    results = []
    for module, call in pair(actor_critic):
        torch.manual_seed(1)
        optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (module.actor, module.critic)]
        for _ in range(4):
            for output, optimizer in zip(call(torch.randn(3, 4)), optimizers):
                optimizer.zero_grad()
                output.square().mean().backward()
                optimizer.step()
        results.append(dict(module.state_dict()))
    assert same(*results)


def test_what_a_backward_needs_is_written_before_it():
    for module, call in pair(with_trunk):
        pi, v = call(torch.randn(3, 4))
        pi.square().sum().backward(retain_graph=True)
        with torch.no_grad():
            module.critic.weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace|was written to since its forward"):
            v.square().sum().backward()


def test_a_forward_between_the_backwards_of_another():
    results = []
    for module, call in pair(actor_critic):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                pi, v = call(torch.randn(3, 4))
                pi.square().mean().backward()
                other = call(torch.randn(3, 4))  # eagerly, by the graph
                v.square().mean().backward()
                other[1].sum().backward()
        results.append(grads(module))
    assert same(*results)


def calls(model):
    (graph,) = model._graphs
    return graph.calls


@pytest.mark.parametrize("make, eager", [(actor_critic, 2), (with_trunk, 0)])
def test_outputs_whose_backward_never_comes(make, eager):
    """Calls wait for it as long as PyTorch could still run it."""
    (twin, _), (module, model) = pair(make)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            x = torch.randn(3, 4)
            outputs, other = model(x), twin(x)  # the outputs before live while this runs
            outputs[0].square().sum().backward()
            other[0].square().sum().backward()
    assert calls(model) == 5 - eager and len(caught) == min(eager, 1)
    assert same(grads(module), grads(twin))


def test_a_backward_that_comes_late_after_some_that_never_came():
    results = []
    for module, call in pair(actor_critic):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for late in (False, False, False, True, True):
                pi, v = call(torch.randn(3, 4))
                pi.square().mean().backward()
                kept = call(torch.randn(3, 4))
                kept[0].sum().backward()
                if late:
                    v.square().mean().backward()
                del pi, v, kept
        results.append(grads(module))
    assert same(*results)


def with_sum():
    def forward(self, x):
        h = x + self.shift  # of which a backward needs nothing, and so may run twice
        return self.actor(h), self.critic(h)

    torch.manual_seed(0)
    return only(forward, shift=nn.Parameter(torch.ones(4)), actor=nn.Linear(4, 2), critic=nn.Linear(4, 1))


def test_a_backward_that_shares_with_another_what_may_run_twice():
    results = []
    for module, call in pair(with_sum):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                pi, v = call(torch.randn(3, 4))
                pi.square().sum().backward()
                other = call(torch.randn(3, 4))
                (other[0].sum() + other[1].sum()).backward()
                v.square().sum().backward()
                del pi, v, other
        results.append(grads(module))
    assert same(*results)


def test_a_backward_that_cannot_be_captured_runs_eagerly():
    """Even for errors that are not Nimble's, such as out of memory."""
    class Full(ReplayingCapture):
        def capture(self, *_):
            raise MemoryError("none is left")

    results = []
    module = actor_critic()
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=Full()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    for each, call in ((twin, twin), (module, model)):
        torch.manual_seed(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                outputs = call(torch.randn(3, 4))
                outputs[0].square().sum().backward()
                del outputs
        results.append(grads(each))
    assert same(*results) and ["none is left" in str(each.message) for each in caught] == [True]


@pytest.mark.skipif(not KEEPS, reason="this PyTorch does not tell that a graph is kept")
def test_a_second_backward_without_the_graph_being_kept():
    for _, call in pair(with_trunk):
        pi, v = call(torch.randn(3, 4))
        loss = pi.sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_a_second_backward_that_needs_nothing_of_the_forward():
    for module, call in pair(lambda: only(lambda self, x: x + self.shift, shift=nn.Parameter(torch.zeros(4)))):
        loss = call(torch.randn(3, 4)).sum()
        loss.backward()
        loss.backward()
        assert module.shift.grad.tolist() == [6.0] * 4


def test_gradients_of_an_output_in_parts():
    """None of them needs tensors that another has released."""
    def forward(self, x, y):
        return self.a(x) + self.b(y)

    torch.manual_seed(0)
    module = only(forward, a=nn.Linear(4, 2), b=nn.Linear(4, 2))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    model = Nimble(module, backend=ReplayingCapture()).prepare(x, y, training=True, relaxed=True)
    for call in (module, model):
        output = call(x, y).sum()
        (one,) = torch.autograd.grad(output, module.a.weight)
        (other,) = torch.autograd.grad(output, module.b.weight)
        assert torch.equal(one, x.sum(0).expand(2, 4)) and torch.equal(other, y.sum(0).expand(2, 4))


def test_outputs_that_retain_gradients_inside_raise():
    def forward(self, x):
        h = self.a(x)
        h.retain_grad()
        return self.b(h), h

    module = only(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2))
    with pytest.raises(NimbleError, match="calls retain_grad"):
        Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
