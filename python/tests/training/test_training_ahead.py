"""Training forwards that are launched before the module is checked: their writes are published only where they fit."""

import copy
import random
import weakref

import pytest
import torch
from nimble.api.module import Nimble
from nimble.training import training
from nimble.training.training import TrainingGraph
from torch import nn
from replaying import ReplayingCapture
from training_nets import both, grads, only, same


class Net(nn.Module):
    """Two batch norms, a buffer that is never written, a counter that the output and the backward use."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.norms = nn.ModuleList([nn.BatchNorm1d(6), nn.BatchNorm1d(3)])
        self.register_buffer("shift", torch.arange(6.0))
        self.register_buffer("seen", torch.ones(()))

    def forward(self, x):
        self.seen.add_(1)
        h = torch.relu(self.norms[0](self.first(x))) + self.shift
        return self.norms[1](self.last(h)) / self.seen.log1p(), self.seen


BEGIN = TrainingGraph._begin


@pytest.fixture(autouse=True, params=[1, 100])
def as_on_a_gpu(monkeypatch, request):
    """The fake runs Python code where a graph runs kernels: for a changed module it runs other code, whose results must
    reach no one. Buffers are written by a separate graph, or by copies."""
    monkeypatch.setattr(training, "_MANY", request.param)

    def begin_or_spoil(graph, call, run):
        if graph.runs_ahead and graph.guard.difference() is not None:
            graph._forward.number += 1
            graph._forward.captured.replays += 1
            for each in (*(t for _, apart in graph._forward._to_buffers._kinds for t in apart), *(t.data for t in graph._results.made)):
                each.fill_(77)
        else:
            BEGIN(graph, call, run)

    monkeypatch.setattr(TrainingGraph, "_begin", begin_or_spoil)


@pytest.fixture
def pair():
    torch.manual_seed(3)
    module = Net()
    return module, copy.deepcopy(module)


def entry(model):
    return next(iter(model._graphs))


def step(f, module, x):
    """A step, its results, and the module's whole state after it."""
    module.zero_grad(set_to_none=True)
    y, seen = f(x)
    y.pow(2).sum().backward()
    with torch.no_grad():
        for p in module.parameters():
            if p.grad is not None:
                p.sub_(p.grad * 0.1)
    return {"y": y.detach().clone(), "seen": seen.clone(), **{k: v.clone() for k, v in module.state_dict().items()}, **{
        name + ".grad": grad for name, grad in grads(module).items()}}


def replace_weight(m):
    m.first.weight.data = m.first.weight.data * 2


def replace_statistics(m):
    m.norms[0].running_mean = m.norms[0].running_mean + 1


def write_statistics(m):
    m.norms[1].running_var.mul_(3)


def freeze(m):
    m.norms[0].train(not m.norms[0].training)


def hook(m):
    m.last.register_forward_hook(lambda _m, _a, out: out * 2)


def want_less(m):
    m.first.bias.requires_grad_(not m.first.bias.requires_grad)


def count_anew(m):
    m.seen = torch.ones(())


CHANGES = [replace_weight, replace_statistics, write_statistics, freeze, hook, want_less, count_anew, lambda m: None]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_changes_between_calls(pair, backend, seed):
    """A stale launch leaves no trace."""
    module, twin = pair
    model = Nimble(module, backend=backend, fallback=True).prepare(torch.randn(5, 4), training=True)
    assert entry(model).runs_ahead and [each.runs_ahead for each in model.report()] == [True, None]
    chosen, state = random.Random(seed), [{}, {}]
    for _ in range(12):
        change, times, x = chosen.choice(CHANGES), chosen.randint(1, 9), torch.randn(5, 4)
        for m in (module, twin):
            change(m)
        for _ in range(times):
            state = [step(model, module, x), step(twin, twin, x)]
            assert same(*state), change
    assert any(graph.replays > 10 for graph in backend.graphs)


def test_the_launch_comes_before_the_look(pair, backend, monkeypatch):
    module, twin = pair
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    monkeypatch.setattr(TrainingGraph, "_begin", BEGIN)
    graph, order = entry(model), backend.calls
    del order[:]  # those of preparing
    look = graph.guard.difference
    monkeypatch.setattr(graph.guard, "difference", lambda: order.append("look") or look())
    x = torch.randn(5, 4)
    assert same(step(model, module, x), step(twin, twin, x))
    assert order[:3] == ["follow", "replay", "look"]
    del order[:]
    backend.watches[-1].there = False  # its memory may be gone
    assert same(step(model, module, x), step(twin, twin, x))
    assert order[:3] == ["look", "follow", "replay"]


def test_nothing_is_written_where_the_look_finds_a_change(pair, backend):
    module, _ = pair
    model = Nimble(module, backend=backend, fallback=True).prepare(torch.randn(5, 4), training=True)
    forward, before = backend.graphs[0], {k: v.clone() for k, v in module.state_dict().items()}
    module.last.weight.data = torch.zeros_like(module.last.weight)
    before["last.weight"] = module.last.weight.detach().clone()
    replays, after = forward.replays, {}
    model._graph_instead_of = lambda graph, call: after.update({k: v.clone() for k, v in module.state_dict().items()})
    model(torch.randn(5, 4))
    assert forward.replays == replays + 1 and same(before, after)


def test_gradients_that_are_still_to_come(pair, backend):
    """Statistics are written without telling autograd, as batch norm does: an eager forward keeps the values that it
    needs."""
    module, twin = pair
    module.seen, twin.seen = torch.ones(()), torch.ones(())  # of whose writing autograd is told
    for m in (module, twin):
        m.forward = lambda x, m=m: m.norms[1](m.last(torch.relu(m.norms[0](m.first(x)))))
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert entry(model).runs_ahead

    def run(f, eager):
        second = eager(torch.randn(5, 4)).sum()
        first = f(torch.randn(5, 4)).pow(2).sum()
        (first + second).backward()

    both(lambda: run(model, module), lambda: run(twin, twin))
    assert same(grads(module), grads(twin)) and same(module.state_dict(), twin.state_dict())


@pytest.mark.parametrize("build", [
    lambda m: m.register_buffer("view", m.seen.view(1)),
    lambda m: setattr(m.norms[1], "running_mean", m.norms[0].running_mean[:3]),
    lambda m: setattr(m, "plain", m.seen.view(1)),
], ids=["a view", "a part", "in a plain attribute"])
def test_buffers_that_share_memory(backend, build):
    """Each is written in place, and so no launch precedes its check."""
    torch.manual_seed(3)
    module = Net()
    build(module)
    twin = Net()
    build(twin)
    twin.load_state_dict(module.state_dict())
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead and [each.runs_ahead for each in model.report()] == [False, None]
    for _ in range(3):
        x = torch.randn(5, 4)
        assert same(step(model, module, x), step(twin, twin, x))
    replace_weight(module)
    replace_weight(twin)
    assert same(step(model, module, x), step(twin, twin, x))


def test_what_may_write_unseen(backend):
    backend.writes_are_known = False
    model = Nimble(Net(), backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead and [each.runs_ahead for each in model.report()] == [False, None]


def test_what_may_be_sent_to_other_ranks(backend, monkeypatch):
    monkeypatch.setattr("nimble.guards.switches.has_other_ranks", lambda: True)
    model = Nimble(Net(), backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead


def test_statistics_that_share_memory(backend):
    """Whose versions do not show writes."""
    made = [only(lambda self, x: self.norm(self.linear(x)), linear=nn.Linear(4, 6), norm=nn.BatchNorm1d(6)) for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    for m in made:
        both_of_them = torch.ones(12)
        m.norm.running_mean, m.norm.running_var, m.norm.num_batches_tracked = both_of_them[:6], both_of_them[6:], None
    model = Nimble(made[0], backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead
    x = torch.randn(5, 4)
    assert torch.equal(model(x), made[1](x)) and same(made[0].state_dict(), made[1].state_dict())


def test_random_numbers_are_drawn_where_the_graph_fits(backend, monkeypatch):
    torch.manual_seed(3)
    module, twin = (only(lambda self, x: (nn.functional.dropout(self.norm(self.linear(x)), 0.5, True), torch.rand(())),
                         linear=nn.Linear(4, 4), norm=nn.BatchNorm1d(4)) for _ in range(2))
    twin.load_state_dict(module.state_dict())
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert entry(model).runs_ahead

    def spoiled(graph, call, run):
        if graph.guard.difference() is not None:
            torch.rand(17)  # as the graph would
        spoil(graph, call, run)

    spoil = TrainingGraph._begin
    monkeypatch.setattr(TrainingGraph, "_begin", spoiled)
    for _ in range(3):
        mine, other = both(lambda: model(torch.randn(5, 4)), lambda: twin(torch.randn(5, 4)))
        assert all(map(torch.equal, mine, other))
        for m in (module, twin):
            m.linear.weight.data = m.linear.weight.data * 2
        graph, mine = entry(model), None  # no backward is to come
        mine, other = both(lambda: model(torch.randn(5, 4)), lambda: twin(torch.randn(5, 4)))
        assert all(map(torch.equal, mine, other)) and entry(model) is not graph and entry(model).runs_ahead
        assert same(module.state_dict(), twin.state_dict())
        mine = None


@pytest.mark.skipif(not hasattr(torch.autograd, "_unsafe_preserve_version_counter"), reason="the fake needs that")
def test_plain_tensors_that_are_written(backend):
    def forward(self, x):
        self.count += 1
        return self.linear(x) * self.count

    made = [only(forward, linear=nn.Linear(4, 4), count=torch.zeros(())) for _ in range(2)]
    module, twin = made
    twin.load_state_dict(module.state_dict())
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead
    for _ in range(3):
        x = torch.randn(5, 4)
        assert torch.equal(model(x), twin(x)) and torch.equal(module.count, twin.count)


def test_the_watch_ends_with_the_graph(pair, backend):
    module, _ = pair
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    (watch,) = backend.watches
    assert set(p.data_ptr() for p in module.parameters()) <= set(backend.watched)
    graph = weakref.ref(entry(model))
    replace_weight(module)
    model.prepare(torch.randn(5, 4), training=True)
    assert graph() is None and not watch.there and backend.watches[-1].there


class Hidden:
    """Ways by which a module's code may reach a buffer."""


@pytest.mark.parametrize("hide", [lambda buffer: buffer, lambda buffer: buffer[:3]], ids=["the tensor itself", "a part of it"])
def test_buffers_that_are_read_in_unknown_ways(backend, hide):
    """The code reads its own write, by another name."""
    def forward(self, x):
        h = self.norm(self.linear(x))
        return h * self.hidden.buffer.mean()

    def build():
        torch.manual_seed(3)
        module = only(forward, linear=nn.Linear(4, 6), norm=nn.BatchNorm1d(6))
        module.hidden = Hidden()
        module.hidden.buffer = hide(module.norm.running_var)
        return module

    module, twin = build(), build()
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    assert not entry(model).runs_ahead
    for _ in range(3):
        x = torch.randn(5, 4)
        (mine, other) = model(x), twin(x)
        mine.pow(2).sum().backward()
        other.pow(2).sum().backward()
        assert torch.equal(mine, other) and same(grads(module), grads(twin))
        assert same(module.state_dict(), twin.state_dict())


def test_what_it_writes_to_stays_as_long_as_the_graph():
    """Also where the module has other buffers by then, and the graph knows nothing of the module: if they were replaced
    between the check and the copies, the copies would write to foreign memory."""
    module = Net()
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(5, 4), training=True, relaxed=True)
    graph = entry(model)
    buffers = [module.seen, *(t for norm in module.norms for t in norm.buffers())]
    places = {t.data_ptr() for t in buffers}
    graph.forget_module()
    for buffer in buffers:
        buffer.data = torch.zeros_like(buffer)
    assert places == {t.data_ptr() for targets, _ in graph._forward._to_buffers._kinds for t in targets}
