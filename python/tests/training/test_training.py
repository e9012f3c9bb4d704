"""Training by graphs: a Nimble's outputs, gradients and state are the module's, in whatever order calls are made."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import CaptureError, Nimble, NimbleError  # noqa: E402
from training_nets import both, data, grads, only, pair, replays, same, steps  # noqa: E402, F401

KEEPS = hasattr(torch._C, "_autograd") and hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")


@pytest.mark.parametrize("clear", [True, False])
def test_steps_are_the_modules(pair, backend, clear):
    module, twin = pair
    model = Nimble(module, backend=backend).prepare(data()[0], training=True)
    assert same(steps(model, module, clear=clear), steps(twin, twin, clear=clear))
    assert same(grads(module), grads(twin)) and module.unused.grad is None and module.fixed.grad is None
    assert replays(backend)[0] == 6 and len(set(steps(model, module)["losses"].tolist())) == 6


def test_state_is_as_before(pair, backend):
    module, _ = pair
    module.last.weight.grad = torch.ones(3, 6)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    parameters = list(map(id, module.parameters()))
    buffers = list(map(id, module.buffers()))
    runs = []
    module.last.weight.register_hook(lambda grad: runs.append(grad))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    module.drop.register_forward_hook(lambda *_: module.norm.eval() and None)
    Nimble(module, backend=backend).prepare(torch.randn(5, 4, generator=torch.Generator()), training=True)
    assert module.norm.training and torch.equal(torch.get_rng_state(), state)
    assert same(module.state_dict(), before)
    assert list(map(id, module.parameters())) == parameters and list(map(id, module.buffers())) == buffers
    assert runs == [] and module.last.weight.grad.tolist() == torch.ones(3, 6).tolist()
    assert [p.grad is None for p in module.parameters()].count(False) == 1
    assert [p.requires_grad for p in module.parameters()] == [True] * 7 + [False] or module.fixed.requires_grad is False


def test_state_is_as_before_where_capturing_fails(pair, backend):
    module, _ = pair

    def fails(*_):
        if backend.capturing:
            raise RuntimeError("not while capturing")

    module.drop.register_forward_hook(fails)
    weight = module.last.weight
    with pytest.raises(CaptureError, match="in module 'drop': not while capturing"):
        Nimble(module, backend=backend).prepare(data()[0], training=True)
    assert module.last.weight is weight and module.norm.num_batches_tracked.item() == 0


def test_outputs_of_each_kind(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    x = data()[0]
    mine, other = both(lambda: model(x), lambda: twin(x))
    assert torch.equal(mine["y"], other["y"]) and torch.equal(mine["best"], other["best"]) and mine["flag"] == 3
    assert mine["y"].requires_grad and mine["h"].requires_grad and not mine["best"].requires_grad
    assert mine["weight"] is module.last.weight
    kept = {name: mine[name].detach().clone() for name in ("y", "h", "best")}
    mine["y"].sum().backward()
    model(x * 2)
    assert all(torch.equal(mine[name], kept[name]) for name in kept)


def test_gradients_to_arguments(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for _ in range(3):
        x, bias = torch.randn(5, 4, requires_grad=True), torch.randn(3, requires_grad=True)
        scale = torch.ones((), requires_grad=True)

        def run(f, x=x, bias=bias, scale=scale):
            f(x * scale, bias=bias)["y"].pow(2).sum().backward()
            result = x.grad, bias.grad, scale.grad
            x.grad = bias.grad = scale.grad = None
            return result

        mine, other = both(lambda: run(model), lambda: run(twin))
        assert all(map(torch.equal, mine, other))
    assert len(backend.graphs) == 3  # a forward, a backward, and one for gradients of y alone
    plain = torch.randn(5, 4)
    model(plain, bias=torch.zeros(3))["y"].sum().backward()  # which is another kind of call
    assert len(backend.graphs) == 5


def test_gradients_are_not_shared(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    kept = []
    for i in range(4):
        x = data()[0]

        def run(f, m, x=x):
            m.zero_grad(set_to_none=True)
            f(x)["y"].sum().backward()
            return [p.grad for p in m.parameters() if p.grad is not None]

        mine, other = both(lambda: run(model, module), lambda: run(twin, twin))
        kept.append((mine, other))
    for mine, other in kept:  # those of earlier steps are as they were
        assert len(mine) == 6 and all(map(torch.equal, mine, other))
        for grad in mine:
            grad.mul_(2)  # and are apart from each other
        assert all(torch.equal(grad, its * 2) for grad, its in zip(mine, other))


def test_accumulated_gradients(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for _ in range(3):
        for i in range(3):
            x = data()[0]
            mine, other = both(lambda: model(x)["y"].sum().backward(), lambda: twin(x)["y"].sum().backward(), i)
        assert same(grads(module), grads(twin))
        for p in [*module.parameters(), *twin.parameters()]:
            if p.grad is not None:
                p.grad.zero_()


def test_a_second_forward_before_the_firsts_backward(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend).prepare(data()[0], training=True)
    a, b, c = (data()[0] for _ in range(3))

    def run(f, m):
        m.zero_grad()
        first, second = f(a), f(b)
        result = [first["y"].detach().clone(), second["y"].detach().clone()]
        first["y"].sum().backward()
        result += [g for g in grads(m).values() if g is not None]
        third = f(c)  # while the second still waits
        (second["y"].sum() + third["y"].pow(2).sum()).backward()
        return result + [g for g in grads(m).values() if g is not None]

    with pytest.warns(UserWarning, match="previous call's backward") as caught:
        for _ in range(2):
            mine, other = both(lambda: run(model, module), lambda: run(twin, twin))
            assert all(map(torch.equal, mine, other))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert replays(backend)[0] == 4  # of six


def test_an_unrequested_forward(pair, backend):
    module, _ = pair
    model = Nimble(module, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            model(data()[0])
        loss = model(data()[0])["y"].sum()
        loss.backward()
        loss = model(data()[0])["y"].sum() + 0 * loss.detach()  # the last loss lives while this runs
        loss.backward()
    assert replays(backend)[0] == 5


def test_a_backward_twice(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend).prepare(data()[0], training=True)
    x, z = data()[0], data()[0]

    def run(f, m):
        m.zero_grad()
        loss = f(x)["y"].pow(2).sum()
        loss.backward(retain_graph=True)
        if KEEPS:
            f(z)  # runs eagerly
        loss.backward()
        return grads(m)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, other = both(lambda: run(model, module), lambda: run(twin, twin))
    assert same(mine, other)
    with pytest.raises(RuntimeError, match="second time"):
        loss = model(x)["h"].sum()
        made = loss * loss
        made.backward()
        made.backward()


def test_a_backward_that_comes_too_late(pair, backend, monkeypatch):
    """Where PyTorch does not show that a graph is kept, or the graph has been replayed meanwhile."""
    monkeypatch.setattr("nimble.training.training.graph_is_kept", lambda: False)
    module, _ = pair
    model = Nimble(module, backend=backend)
    loss = model(data()[0])["y"].sum()
    loss.backward(retain_graph=True)
    model(data()[0])
    with pytest.raises(NimbleError, match="has run another one since"):
        loss.backward()


def test_what_is_written_between_forward_and_backward(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for m, f in ((twin, twin), (module, model)):
        loss = f(data()[0])["y"].sum()
        with torch.no_grad():
            m.last.weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace|was written to since its forward"):
            loss.backward()
        loss = f(data()[0])["y"].sum()
        with torch.no_grad():
            m.last.bias.mul_(2)  # which no backward needs
        loss.backward()


def test_no_second_derivatives(pair, backend):
    module, _ = pair
    model = Nimble(module, backend=backend)
    x = torch.randn(5, 4, requires_grad=True)
    with pytest.raises(NimbleError, match="create_graph=True"):
        torch.autograd.grad(model(x)["y"].sum(), x, create_graph=True)


def test_gradients_of_some_outputs(backend):
    """Those of parameters that the others depend on stay None, so that the optimizer leaves them alone."""
    torch.manual_seed(0)
    module = only(lambda self, x: (self.a(x), self.b(x), self.c(self.a(x))), a=nn.Linear(4, 2), b=nn.Linear(4, 2),
                  c=nn.Linear(2, 2))
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    for which in [(0,), (1,), (2,), (0, 2), (0, 1, 2), (0,), (1,), (2,), (0, 2), (0,)]:
        x = torch.randn(5, 4)
        for m, f in ((module, model), (twin, twin)):
            m.zero_grad(set_to_none=True)
            outputs = f(x)
            sum(outputs[i].pow(2).sum() for i in which).backward()
            optimizer = torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1)
            optimizer.step()  # which changes what is saved
        assert same(grads(module), grads(twin)) and same(module.state_dict(), twin.state_dict())
    assert len(backend.graphs) == 5  # a forward, and the first four patterns
    assert replays(backend) == [10, 1, 2, 1, 1]
    assert [r.kind for r in model.report()] == ["forward"] + ["backward"] * 4


def test_shapes_and_modes_in_one_nimble(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for _ in range(2):
        for size in (2, 5):
            x = data(size)[0]
            mine, other = both(lambda: model(x)["y"].sum().backward(), lambda: twin(x)["y"].sum().backward())
            assert same(grads(module), grads(twin))
        for m in (module, twin):
            m.eval()
        with torch.no_grad():
            assert torch.equal(model(x)["y"], twin(x)["y"])
        for m in (module, twin):
            m.train()
    kinds = [r.kind for r in model.report()]
    assert kinds.count("forward") == 2 and kinds.count("inference") == 1
    assert same(module.state_dict(), twin.state_dict())


def test_graphs_that_went_have_their_backward(pair, backend):
    """A graph that is evicted while its backward is outstanding."""
    module, twin = pair
    model = Nimble(module, max_graphs=1, backend=backend)
    x = data()[0]

    def run(f):
        outputs = f(x)
        with torch.no_grad():
            f(data()[0])
        (outputs["y"].sum() + outputs["h"].sum()).backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(lambda: run(model), lambda: run(twin))
    assert same(grads(module), grads(twin))
    assert [g.closed for g in backend.graphs] == [False, False, False]
