"""Training by graphs: modules of all kinds, with hooks, shared parameters, strides; and those that raise."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.objects.memory import storage_address  # noqa: E402
from nimble.training.copies_out import Copies  # noqa: E402
from training_nets import both, data, grads, only, pair, replays, same, steps  # noqa: E402, F401


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
    """As autograd leaves them: a gradient has its parameter's strides, if the parameter does not share its memory."""
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
    where = {storage_address(p.grad) for p in module.parameters()}
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
    assert storage_address(one[0]) == storage_address(one[1]) != storage_address(other[0])
    versions = [each._version for each in one if each is not None]
    one[0].add_(1)  # as an optimizer does it, or who scales gradients
    assert [each._version for each in one if each is not None] == [versions[0] + 1, *versions[1:]]
    assert not any(each._is_view() for each in one if each is not None)


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
    runs_at = [i for i, each in enumerate(made) if each == "run"]
    assert len(runs_at) >= 3 and all(made[i - 1] == made[i + 1] == "clear" for i in runs_at) and made[0] == "clear"


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


@pytest.mark.parametrize("make", [lambda: torch.ones(3, requires_grad=True), lambda: nn.Linear(1, 3)(torch.ones(1))],
                         ids=["a leaf", "with a history"])
def test_buffers_that_require_gradients(backend, make):
    module = only(lambda self, x: self.last(x) * (self.scale if self.uses else 1), last=nn.Linear(4, 3), uses=True)
    module.register_buffer("scale", make())
    x = torch.randn(5, 4)
    with pytest.raises(NimbleError, match="depends on tensors that require gradients, and are neither arguments nor parameters"):
        Nimble(module, backend=backend).prepare(x, training=True)
    module.uses = False
    twin = only(lambda self, x: self.last(x), last=copy.deepcopy(module.last))
    Nimble(module, backend=backend)(x).square().sum().backward()
    twin(x).square().sum().backward()
    assert same(grads(module), grads(twin))


@pytest.mark.parametrize("known", [lambda p: {p}, lambda p: [frozenset((p,))], lambda p: {"some": {p: 1}}, lambda p: {id(p): 1},
                                   lambda p: ([id(p)],)])
def test_parameters_that_are_known_by_identity_raise(backend, known):
    module = nn.Linear(4, 3)
    module.known = known(module.bias)
    with pytest.raises(NimbleError, match="knows its parameter or buffer 'bias' by identity, in 'known"):
        Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)
    with torch.no_grad():
        assert torch.equal(Nimble(module, backend=backend)(torch.ones(5, 4)), module(torch.ones(5, 4)))


def test_parameters_in_containers(backend):
    """Where nothing is looked up by identity."""
    module = nn.Linear(4, 3)
    module.groups = [{"params": [module.weight, module.bias], "lr": 0.1}]
    module.names, module.optimizer = {"weight"}, torch.optim.SGD(module.parameters(), lr=0.1)
    Nimble(module, backend=backend).prepare(torch.randn(5, 4), training=True)


def test_a_module_of_torch_compile(pair, backend):
    config = pytest.importorskip("torch._functorch.config")
    if not hasattr(nn.Module, "compile") or not hasattr(config, "donated_buffer"):
        pytest.skip("this PyTorch has no Module.compile, or no donated buffers")
    for is_donated in (True, False):
        torch._dynamo.reset()
        with config.patch(donated_buffer=is_donated):  # pytest's way would leave PyTorch without the setting
            for m in pair:
                m.compile(backend="aot_eager")
                steps(m, m)
            module, twin = pair
            if is_donated:
                with pytest.raises(NimbleError, match="donated_buffer=False"):
                    Nimble(module, backend=backend).prepare(data()[0], training=True)
                continue
            model = Nimble(module, backend=backend).prepare(data()[0], training=True)
            assert same(steps(model, module), steps(twin, twin)) and replays(backend)[0] > 0


class Known(nn.Module):
    """Which looks up its scale by the parameter's identity."""

    def __init__(self, put, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.scale = scale
        put(self)

    def forward(self, x):
        return x * self.weight * self.scale(self)


class Table:
    def __init__(self, of):
        self.of = of


@pytest.mark.parametrize("put, scale", [
    (lambda net: setattr(net, "table", Table({net.weight: 3.0})), lambda net: net.table.of.get(net.weight, 1.0)),
    (lambda net: setattr(net, "table", Table({id(net.weight): 3.0})), lambda net: net.table.of.get(id(net.weight), 1.0)),
    (lambda net: setattr(net, "tied", (net.weight,)), lambda net: 3.0 if net.tied[0] is net.weight else 1.0),
    (lambda net: setattr(net, "tied", {"weight": net.weight}), lambda net: 3.0 if net.tied["weight"] is net.weight else 1.0),
    (lambda net: net.weight.register_hook(lambda grad: grad * 1) and None, lambda net: 3.0 if net.weight._backward_hooks else 1.0)])
def test_a_parameter_that_is_found_by_its_identity(put, scale, backend):
    """Not the stand-in, which is detected wherever it is kept."""
    model = Nimble(Known(put, scale), backend=backend)
    with pytest.raises(NimbleError, match="behaves differently with tensors that stand in for its parameters"):
        model(torch.ones(2, 4))


def test_kernels_that_never_do_the_same_are_no_reason(backend):
    class Trembles(nn.Linear):
        runs = 0

        def forward(self, x):
            Trembles.runs += 1
            return super().forward(x) + 1e-6 * Trembles.runs

    model = Nimble(Trembles(4, 3), backend=backend)
    model(torch.ones(2, 4)).sum().backward()
    assert [report.kind for report in model.report()] == ["forward", "backward"]
