"""Preparing: the module is left unchanged, and effects that a graph would not have raise."""

import random

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import CaptureError, Nimble, NimbleError  # noqa: E402


class Recording(nn.Module):
    """Writes to its buffers, and draws random numbers on its device."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.norm.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.inner = nn.Dropout(0.5)

    def forward(self, x):
        self.norm.seen.add_(1)
        return self.inner(self.norm(x)) + torch.rand(4)


def module_with(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made.eval()


def test_state_is_as_before(backend, monkeypatch):
    module = Recording().eval()
    module.norm.train()  # batch norm's statistics change within a module that is in eval mode
    module.inner.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    flags = [m.training for m in module.modules()]
    buffers = list(map(id, module.buffers()))
    torch.manual_seed(7)
    random.seed(7)
    states = torch.get_rng_state(), random.getstate()
    x = torch.randn(8, 4)
    torch.set_rng_state(states[0])
    seen = set()

    def changes(*_):  # what the module's own code may do
        module.inner.eval()
        seen.add((torch.is_autocast_cache_enabled(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))

    module.norm.register_forward_hook(changes)
    cleared = []
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: cleared.append(len(seen)))
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        Nimble(module, backend=backend).prepare(x)
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and torch.is_autocast_cache_enabled()
    assert seen == {(True, False, False)} and cleared[0] == 0
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert len(backend.random_states) == 2 and torch.equal(backend.random_states[-1], torch.get_rng_state())  # the first is a run's
    assert [m.training for m in module.modules()] == flags and list(map(id, module.buffers())) == buffers
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_calls_go_on_from_that_state(backend):
    torch.manual_seed(1)
    module = Recording().eval()
    module.norm.train()
    x = torch.randn(8, 4)
    torch.manual_seed(2)
    eager = [module(x + i) for i in range(4)]
    statistics = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(Recording().state_dict())
    model = Nimble(module, backend=backend).prepare(x)
    torch.manual_seed(2)
    for i in range(4):
        assert torch.equal(model(x + i), eager[i])
    for name, value in module.state_dict().items():
        assert torch.equal(value, statistics[name]), name


def test_state_is_as_before_where_preparing_fails(backend):
    module = Recording().eval()
    module.norm.train()

    def fails(*_):
        if backend.capturing:
            raise RuntimeError("not while capturing")

    module.inner.register_forward_hook(fails)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(CaptureError, match="in module 'inner': not while capturing") as raised:
        Nimble(module, backend=backend).prepare(torch.ones(3, 4))
    assert raised.value.place in ("inner",) and raised.value.reason == "not while capturing"
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_place_of_what_cannot_be_captured(backend):
    class Asks(nn.Module):
        def forward(self, x):
            if backend.capturing:
                raise RuntimeError("operation not permitted when stream is capturing")
            return x

    module = nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU(), Asks())).eval()
    with pytest.raises(CaptureError, match="in module '1.1': operation not permitted") as raised:
        Nimble(module, backend=backend).prepare(torch.ones(1))
    assert raised.value.place == "1.1"
    with pytest.raises(CaptureError, match="in the module itself"):
        Nimble(Asks().eval(), backend=backend).prepare(torch.ones(1))


def test_what_the_module_raises_itself_passes_through(backend):
    with pytest.raises(RuntimeError, match="mat1 and mat2") as raised:
        Nimble(nn.Linear(3, 3).eval(), fallback=True, backend=backend)(torch.ones(2, 2))
    assert not isinstance(raised.value, NimbleError)


def replaces_buffer(self, x):
    self.count = self.count + 1
    return x


def adds_buffer(self, x):
    self.register_buffer("more", x * 2)
    return x


def writes_parameter(self, x):
    self.weight.add_(1)
    return x * self.weight


def assigns(self, x):
    self.last = x * 2
    return x


def returns_hidden(self, x):
    return {"a": [x, object()]}


def returns_elsewhere(self, x):
    return x, torch.empty(2, device="meta")


@pytest.mark.parametrize("forward, said", [
    (replaces_buffer, "replaces its buffer 'inner.count'"),
    (adds_buffer, "replaces its buffer 'inner.more'"),
    (writes_parameter, "writes to its parameter 'inner.weight'"),
    (assigns, "assigns a tensor to its attribute 'inner.last'"),
    (returns_hidden, r"output\['a'\]\[1\] is a object"),
    (returns_elsewhere, r"output\[1\] is on meta"),
])
def test_what_a_graph_would_not_do_raises(backend, forward, said):
    inner = module_with(forward, weight=nn.Parameter(torch.ones(1)))
    inner.register_buffer("count", torch.zeros(1))
    module = module_with(lambda self, x: self.inner(x), inner=inner)
    count = inner.count
    with pytest.raises(NimbleError, match=said):
        Nimble(module, backend=backend).prepare(torch.ones(2))
    assert inner.count is count and inner.count.item() == 0 and list(dict(inner.named_buffers())) == ["count"]


def test_the_hosts_random_numbers_raise(backend):
    backend.draws_on_host = False
    for draw, said in ((lambda: torch.rand(1), "random numbers on the CPU"), (random.random, "Python's `random`")):
        module = module_with(lambda self, x, draw=draw: (draw(), x)[1])
        states = torch.get_rng_state(), random.getstate()
        with pytest.raises(NimbleError, match=said):
            Nimble(module, backend=backend).prepare(torch.ones(2))
        assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]


def test_arguments_on_another_device_raise(backend):
    with pytest.raises(NimbleError, match=r"args\[0\]\['x'\] is on meta, not on cpu"):
        Nimble(module_with(lambda self, x: x), backend=backend)({"x": torch.ones(2, device="meta")})
    with pytest.raises(NimbleError, match="neither an argument nor the module is on cpu"):
        Nimble(module_with(lambda self: 1), backend=backend).prepare()


def test_a_tensor_that_the_module_makes_once_is_fine(backend):
    def forward(self, x):
        if getattr(self, "table", None) is None:
            self.table = torch.arange(3.0)
        return x + self.table

    model = Nimble(module_with(forward), backend=backend).prepare(torch.zeros(3))
    assert model(torch.ones(3)).tolist() == [1, 2, 3] and backend.asked == [(True, False)]


def test_runs_see_what_a_first_run_sees(backend):
    """Else a position that each run advances would leave its table while the graph is prepared."""
    positions = []

    def forward(self, x, index):
        positions.append((int(self.position), int(index)))
        self.position.add_(1)
        index.add_(1)
        return x[index - 1]

    module = module_with(forward)
    module.register_buffer("position", torch.zeros((), dtype=torch.long))
    Nimble(module, backend=backend).prepare((torch.arange(3.0), torch.zeros((), dtype=torch.long)))
    executed = positions[:2] + positions[3:]  # the third was captured, which executes nothing on a GPU
    assert set(executed) == {(0, 0)}
    assert int(module.position) == 0


@pytest.mark.parametrize("draw, said", [(random.random, "Python's `random`"), ("numpy", "NumPy")])
def test_what_is_drawn_on_the_host_raises_also_where_that_is_the_device(draw, said):
    if draw == "numpy":
        draw = pytest.importorskip("numpy").random.rand

    class Mixes(torch.nn.Module):
        def forward(self, x):
            return x * float(draw())

    pytest.importorskip("torch", minversion="2.1")
    from replaying import ReplayingCapture

    with pytest.raises(NimbleError, match=said):
        Nimble(Mixes().eval(), backend=ReplayingCapture()).prepare(torch.ones(2), relaxed=True)


def test_attributes_are_what_they_were_where_preparing_fails(backend):
    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.ones(2)

        def forward(self, x):
            self.part = x * 2
            return self.part + 1

    module = Normed().eval()
    part = module.part
    with pytest.raises(NimbleError, match="assigns a tensor to its attribute 'part'"):
        Nimble(module, backend=backend).prepare(torch.ones(2))
    assert module.part is part
