"""Training by graphs: a Nimble's outputs, gradients and state are the module's, whatever is done with them."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import CaptureError, Nimble, NimbleError  # noqa: E402
from nimble.gradients import Copies  # noqa: E402
from nimble.static import storage  # noqa: E402

KEEPS = hasattr(torch._C, "_autograd") and hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")


class Net(nn.Module):
    """Batch norm, dropout, a counter, a parameter that is not used and one that wants no gradients; outputs of several kinds."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.fixed = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)

    def forward(self, x, bias=None):
        h = self.drop(torch.relu(self.norm(self.first(x))))
        y = self.last(h) * self.fixed
        return {"y": y if bias is None else y + bias, "h": h, "best": y.argmax(1), "weight": self.last.weight, "flag": 3}


def only(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def pair():
    """A module and its twin, which runs eagerly."""
    torch.manual_seed(0)
    module = Net()
    return module, copy.deepcopy(module)


def grads(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


def same(one, other):
    return list(one) == list(other) and all(
        one[name] is other[name] is None or torch.equal(one[name], other[name]) for name in one)


def both(call, twin, seed=5):
    """Runs both with the same random numbers; returns their results."""
    torch.manual_seed(seed)
    mine = call()
    torch.manual_seed(seed)
    return mine, twin()


def replays(backend):
    return [graph.replays - 3 for graph in backend.graphs]  # without those of preparing


def data(size=5):
    return torch.randn(size, 4), torch.randint(3, (size,))


def steps(f, module, count=6, optimizer=None, clear=True):
    """Trains; what comes of it: losses, parameters, buffers, random numbers."""
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(count):
        x, y = data()
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(f(x)["y"], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **{k: v.clone() for k, v in module.state_dict().items()},
            "random": torch.get_rng_state()}


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


def test_gradients_are_nobody_elses(pair, backend):
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

    with pytest.warns(UserWarning, match="backward of the one before it") as caught:
        for _ in range(2):
            mine, other = both(lambda: run(model, module), lambda: run(twin, twin))
            assert all(map(torch.equal, mine, other))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert replays(backend)[0] == 4  # of six


def test_a_forward_that_nobody_asks_for(pair, backend):
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
    """Where PyTorch does not tell that a graph is kept, or the graph has gone on all the same."""
    monkeypatch.setattr("nimble.training._graph_is_kept", lambda: False)
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


def test_hooks_run_as_ever(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend).prepare(data()[0], training=True)
    seen = []
    for m in (module, twin):
        m.last.weight.register_hook(lambda grad: grad * 2)
        if hasattr(m.first.weight, "register_post_accumulate_grad_hook"):
            m.first.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    assert same(steps(model, module), steps(twin, twin))
    assert all(map(torch.equal, seen[:6], seen[6:]))
    with pytest.raises(RuntimeError, match="x"):
        module.first.bias.register_hook(lambda grad: (_ for _ in ()).throw(RuntimeError("x")))
        model(data()[0])["y"].sum().backward()


def test_hooks_of_modules_and_of_tensors_inside(pair, backend):
    module, twin = pair
    for m in (module, twin):
        m.first.register_full_backward_hook(lambda _m, grad_in, grad_out: tuple(g if g is None else g * 3 for g in grad_in))
        m.norm.register_forward_hook(lambda _m, _a, out: out.register_hook(lambda grad: grad * 0.5) and None)
    model = Nimble(module, backend=backend).prepare(data()[0], training=True)
    assert same(steps(model, module), steps(twin, twin))
    count = len(backend.graphs)
    for m in (module, twin):
        m.last.register_full_backward_hook(lambda _m, grad_in, _out: tuple(g if g is None else g * 3 for g in grad_in))
    assert same(steps(model, module), steps(twin, twin)) and len(backend.graphs) > count


def test_parameters_that_want_gradients_or_none(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for _ in range(2):
        for wanted in (True, False):
            for m, f in ((module, model), (twin, twin)):
                m.zero_grad(set_to_none=True)
                m.first.requires_grad_(wanted)
            mine, other = both(lambda: model(data()[0])["y"].sum().backward(), lambda: twin(data()[0])["y"].sum().backward())
            assert same(grads(module), grads(twin)) and (module.first.weight.grad is not None) == wanted


@pytest.mark.skipif(not hasattr(torch.autograd, "_unsafe_preserve_version_counter"), reason="the fake needs that")
def test_arguments_that_are_written(backend):
    def forward(self, x, seen):
        seen.add_(1)
        x.relu_()
        return self.linear(x) * seen

    torch.manual_seed(0)
    module = only(forward, linear=nn.Linear(4, 2))
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=backend).prepare(torch.randn(5, 4), torch.zeros(()), training=True)
    mine, other = torch.zeros(()), torch.zeros(())
    for _ in range(3):
        x = torch.randn(5, 4)
        y = x.clone()
        outputs = model(x, mine), twin(y, other)
        for each in outputs:
            each.pow(2).sum().backward()
        assert torch.equal(*outputs) and torch.equal(x, y) and torch.equal(mine, other) and same(grads(module), grads(twin))
    with pytest.raises(NimbleError, match="writes to an argument that requires gradients"):
        model((torch.randn(5, 4, requires_grad=True) * 1), mine)


@pytest.mark.parametrize("forward, said", [
    (lambda self, x: x * outside, "neither arguments nor parameters"),
    (lambda self, x: x * self.plain, "neither arguments nor parameters"),
    (lambda self, x: (self.count.copy_((x * self.weight).sum()), x * self.weight)[1], "to a buffer"),
    (lambda self, x: (x.copy_(x * self.weight), x * self.weight)[1], r"writes what requires gradients to args\[0\]"),
    (lambda self, x: (self.weight.data.add_(1), x * self.weight)[1], None),
    (lambda self, x: (self.under_no_grad(), x * self.weight)[1], "writes to its parameter 'weight'"),
    (lambda self, x: (setattr(self.weight, "data", self.weight.data.clone()), x * self.weight)[1], "'weight' other memory"),
    (lambda self, x: (self.replace(), x * self.weight)[1], "replaces its buffer or parameter 'count'"),
    (lambda self, x: {"a": [x * self.weight, object()]}, r"output\['a'\]\[1\] is a object"),
    (lambda self, x: self.table(x.long()), "layout torch.sparse_coo"),
])
def test_what_a_graph_would_not_do_raises(backend, forward, said):
    module = only(forward, weight=nn.Parameter(torch.ones(1)), plain=torch.ones(1, requires_grad=True),
                  table=nn.Embedding(3, 2, sparse=True))
    module.register_buffer("count", torch.zeros(()))

    def write():
        with torch.no_grad():
            module.weight.add_(1)

    module.under_no_grad = write
    module.replace = lambda: setattr(module, "count", module.count + 1)
    count = module.count
    model = Nimble(module, backend=backend)
    if said is not None:
        with pytest.raises(NimbleError, match=said):
            model.prepare(torch.ones(2), training=True)
    assert module.count is count and module.count.item() == 0 and module.count.grad_fn is None


outside = torch.ones(1, requires_grad=True)


def test_nothing_to_differentiate(backend):
    module = only(lambda self, x: (x > 0, self.weight.detach() * x), weight=nn.Parameter(torch.ones(2)))
    model = Nimble(module, backend=backend).prepare(torch.ones(2), training=True)
    assert not any(t.requires_grad for t in model(torch.ones(2)))
    assert [r.kind for r in model.report()] == ["inference"]


def test_shared_and_recurrent_parameters(backend):
    """One parameter in two places; and a module that keeps its parameters in a list besides."""
    torch.manual_seed(0)
    module = only(lambda self, x: self.b(self.a(self.lstm(x)[0])), lstm=nn.LSTM(4, 4), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    module.b.weight = module.a.weight
    twin = copy.deepcopy(module)
    flat = list(map(id, module.lstm._flat_weights))
    model = Nimble(module, backend=backend)
    for _ in range(3):
        x = torch.randn(3, 2, 4)
        model(x).pow(2).sum().backward()
        twin(x).pow(2).sum().backward()
        assert same(grads(module), grads(twin)) and all(p.grad is not None for p in module.parameters())
    assert list(map(id, module.lstm._flat_weights)) == flat


def test_strides_of_gradients(backend):
    """As autograd leaves them: a parameter's gradient has its strides, where it has all its memory to itself."""
    torch.manual_seed(0)
    module = only(lambda self, x: self.conv(x) * self.table[:, :, :2, :2], conv=nn.Conv2d(4, 4, 3),
                  table=nn.Parameter(torch.randn(1, 4, 6, 6)[:, :, ::2, ::2]))
    module = module.to(memory_format=torch.channels_last)
    twin = copy.deepcopy(module)
    model = Nimble(module, backend=backend)
    x = torch.randn(2, 4, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    for m, f in ((module, model), (twin, twin)):
        f(x).sum().backward()
        m.x_grad, x.grad = x.grad, None
    for mine, other in zip([*module.parameters(), module], [*twin.parameters(), twin]):
        mine, other = (mine.x_grad, other.x_grad) if mine is module else (mine.grad, other.grad)
        assert torch.equal(mine, other) and mine.stride() == other.stride()
    assert module.conv.weight.grad.is_contiguous(memory_format=torch.channels_last)
    where = {storage(p.grad) for p in module.parameters()}
    assert len(where) == 1  # autograd has copied none again


def test_copies_of_gradients():
    dense, sliced = torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.empty(4, 6)[:, ::2]
    made = [torch.randn(2, 3, 4, 4), torch.randn(4, 3), None, torch.ones(()).expand(2, 3), torch.randn(3, 2).t(),
            torch.ones(2, dtype=torch.float64), torch.zeros(0, 3), torch.ones(())]
    likes = [dense, sliced] + [None] * 6
    copies = Copies(made, likes)
    one, other = copies(made), copies([each if each is None else each + 1 for each in made])
    assert one[2] is other[2] is None
    for mine, grad, more in zip(one, made, other):
        if grad is not None:
            assert torch.equal(mine, grad) and torch.equal(more, grad + 1) and mine.dtype == grad.dtype
            assert mine.data_ptr() % 16 == 0
    assert one[0].stride() == dense.stride() and [one[i].stride() for i in (1, 3, 4)] == [(3, 1), (3, 1), (1, 2)]
    assert storage(one[0]) == storage(one[1]) != storage(other[0])


def test_autocast(pair, backend):
    module, twin = pair
    model = Nimble(module, backend=backend)
    for m in (module, twin):
        m.last.weight.data = m.last.weight.data.clone()
    for _ in range(3):
        x = data()[0]

        def run(f, m):
            m.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = f(x)["y"]
            (y.float().pow(2).sum() * 1024).backward()
            return {"y": y, **grads(m)}

        assert same(*both(lambda: run(model, module), lambda: run(twin, twin)))
    assert len(backend.graphs) == 3


def test_autocast_keeps_no_copies_of_one_run_for_another(backend, monkeypatch):
    runs = []
    module = only(lambda self, x: (runs.append("run"), self.linear(x))[1], linear=nn.Linear(4, 2))
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: runs.append("clear"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Nimble(module, backend=backend).prepare(torch.ones(3, 4), training=True)
        made = list(runs)  # leaving autocast clears it, too
    assert len(made) >= 9 and made == ["clear", "run", "clear"] * (len(made) // 3)


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
    """A graph that has to make room while a backward of it is to come."""
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


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this PyTorch cannot compile")
def test_a_compiled_module(pair, backend):
    module, twin = pair
    calls = [torch.compile(m, backend="aot_eager") for m in pair]
    assert same(steps(Nimble(calls[0], backend=backend), module), steps(calls[1], twin)) and replays(backend)[0] == 6


def test_fallback(pair, backend):
    module, twin = pair
    module.scale = twin.scale = torch.ones(1, requires_grad=True)
    for m in (module, twin):
        m.register_forward_hook(lambda m, _, out: {**out, "y": out["y"] * m.scale})
    model = Nimble(module, fallback=True, backend=backend)
    with pytest.warns(UserWarning, match="running eagerly: an output depends on"):
        assert same(steps(model, module), steps(twin, twin))
    assert backend.graphs == []
