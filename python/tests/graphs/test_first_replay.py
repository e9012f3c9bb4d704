"""A new graph is compared with an eager run of its preparation: what does something else while a stream captures is refused."""

import copy
import gc
import random
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import DiffersError, Nimble, NimbleError, accelerate  # noqa: E402
from nimble.guards import switches  # noqa: E402
import replaying  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import Net, only  # noqa: E402


@pytest.fixture
def backend(monkeypatch):
    made = ReplayingCapture()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: made.capturing)
    return made


def prepared(module, backend, *args, **more):
    return Nimble(module, backend=backend).prepare(*args, relaxed=True, **more)


def asks():
    return torch.cuda.is_current_stream_capturing()


def in_an_output(self, x):
    y = x * 2
    if asks():
        y[1, 2] += 1
    return {"pooled": x.sum(), "state": [y, None]}


def in_a_buffer(self, x):
    self.seen.copy_(x[0] + asks())
    return x * 2


def in_an_argument(self, x):
    x += 2 if asks() else 1
    return x.sum() * 0


def in_shape(self, x):
    return x[:, :2] * 1 if asks() else x * 1


def in_dtype(self, x):
    return (x * 2).double() if asks() else x * 2


def in_structure(self, x):
    return (x * 2,) if asks() else x * 2


def in_a_plain_value(self, x):
    return x * 2, 3 if asks() else 4


def in_a_number(self, x):
    return x.sum() + asks()


def in_a_complex_number(self, x):
    return torch.complex(x, x + asks()).to(torch.complex128)


def in_a_sign(self, x):
    return torch.zeros(2) * (-x[0, 0].sign() if asks() else x[0, 0].sign())


def in_bits_of_nan(self, x):
    return torch.tensor([0, 0x7FC00001 if asks() else 0x7FC00002], dtype=torch.int32).add(0).view(torch.float32)


CASES = [
    (in_an_output, r"output\['state'\]\[0\] \(float32\[2, 3\]\) differs at \[1, 2\]: 10.0 eagerly, 11.0 by the graph"),
    (in_a_buffer, r"'inner.seen' \(float32\[3\]\) differs at \[0\]: 0.0 eagerly, 1.0 by the graph"),
    (in_an_argument, r"args\[0\] \(float32\[2, 3\]\) differs at \[0, 0\]: 1.0 eagerly, 2.0 by the graph"),
    (in_shape, r"output is float32\[2, 3\] eagerly, float32\[2, 2\] by the graph"),
    (in_dtype, r"output is float32\[2, 3\] eagerly, float64\[2, 3\] by the graph"),
    (in_structure, "its outputs have another structure"),
    (in_a_plain_value, r"output\[1\] is 4 eagerly, 3 by the graph"),
    (in_a_number, r"output \(float32\[\]\) differs: 15.0 eagerly, 16.0 by the graph"),
    (in_a_complex_number, r"output \(complex128\[2, 3\]\) differs at \[0, 0\]: 0j eagerly, 1j by the graph"),
    (in_a_sign, r"output \(float32\[2\]\) differs at \[0\]: 0.0 eagerly, -0.0 by the graph"),
    (in_bits_of_nan, r"output \(float32\[2\]\) differs at \[1\]: 0x7fc00002 eagerly, 0x7fc00001 by the graph"),
]


def numbers():
    return torch.arange(6.0).reshape(2, 3)


def holding(forward):
    inner = only(forward)
    inner.register_buffer("seen", torch.full((3,), 7.0))
    return only(lambda self, x: self.inner(x), inner=inner).eval()


@pytest.mark.parametrize("forward, said", CASES)
def test_what_asks_whether_a_stream_captures_is_refused(backend, forward, said):
    module, x = holding(forward), numbers() + 1 if forward is in_a_sign else numbers()
    before, argument = module.inner.seen.clone(), x.clone()
    with pytest.raises(DiffersError, match=said) as caught:
        prepared(module, backend, x)
    text = str(caught.value)
    assert "is_current_stream_capturing" in text and "\n" not in text and isinstance(caught.value, NimbleError)
    assert torch.equal(module.inner.seen, before) and torch.equal(x, argument)


def test_nothing_of_the_graph_is_kept(backend, monkeypatch):
    graphs = []
    made = replaying.ReplayedGraph.__init__
    monkeypatch.setattr(replaying.ReplayedGraph, "__init__", lambda self, *a: (graphs.append(weakref.ref(self)), made(self, *a))[1])
    gc.disable()
    try:
        for training in (False, True):
            with pytest.raises(DiffersError):
                prepared(only(lambda self, x: self.first(x) + asks(), first=nn.Linear(4, 3)), backend, torch.ones(2, 4), training=training)
        assert len(graphs) == 3 and all(graph() is None for graph in graphs)
    finally:
        gc.enable()


def test_it_runs_eagerly_afterwards(backend):
    module, x = holding(in_an_output), numbers()
    with pytest.warns(UserWarning, match="running eagerly: its graph does not compute what an eager run computes"):
        model = Nimble(module, fallback=True, backend=backend).prepare(x, relaxed=True)
    replays = backend.replays
    assert torch.equal(model(x)["state"][0], x * 2) and backend.replays == replays and not model.is_prepared(x)
    assert [report.state for report in model.report()] == ["eager"]


def test_only_the_shape_that_differs_is_refused(backend):
    module = only(lambda self, x: x * 2 + (asks() and len(x) == 3)).eval()
    model = prepared(module, backend, torch.ones(2))
    with pytest.raises(DiffersError, match=r"differs at \[0\]"):
        model(torch.ones(3))
    replays = backend.replays
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 2.0)) and backend.replays == replays + 1


def test_a_module_that_prepares_itself(backend):
    model = accelerate(holding(in_an_output), after=1, backend=backend)
    model.nimble._options = Nimble(nn.Identity(), backend=backend).prepare(torch.ones(1), relaxed=True)._options
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert all(torch.equal(model(numbers())["state"][0], numbers() * 2) for _ in range(4))
    assert sum("differs at [1, 2]" in str(each.message) for each in caught) == 1




def test_a_module_that_is_not_deterministic_is_prepared_with_a_line(backend, capsys):
    runs = []

    def forward(self, x):
        runs.append(0)
        return x + len(runs)

    model = prepared(only(forward).eval(), backend, torch.zeros(2))
    assert model.is_prepared(torch.zeros(2))
    assert capsys.readouterr().err.count("info: Given is not deterministic: two eager runs from the same state differ") == 1
    assert len(runs) == 4  # two eager ones, the capture, and one to tell


def test_what_varies_does_not_hide_what_differs(backend):
    runs = []

    def forward(self, x):
        runs.append(0)
        return {"varies": x + len(runs), "asks": x + asks()}

    with pytest.raises(DiffersError, match=r"output\['asks'\] \(float32\[2\]\) differs at \[0\]: 0.0 eagerly, 1.0 by the graph"):
        prepared(only(forward).eval(), backend, torch.zeros(2))


def test_where_nothing_differs_nothing_runs_again(backend, capsys):
    runs = []
    prepared(only(lambda self, x: (runs.append(0), x * 2)[1]).eval(), backend, torch.ones(2))
    assert len(runs) == 3 and capsys.readouterr().err == ""


def test_other_ranks_are_not_kept_waiting(backend, capsys, monkeypatch):
    monkeypatch.setattr(switches, "has_other_ranks", lambda: True)
    model = prepared(holding(in_an_output), backend, numbers())
    assert model.is_prepared(numbers())
    assert "warning: Given: its graph differs from an eager run: output['state'][0]" in capsys.readouterr().err


STRANGE = torch.tensor([0x7FC00001, 0x7FC00000, -0x80000000, 0, 0x7F800000], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("made", [
    lambda: STRANGE, lambda: torch.ones(0), lambda: torch.tensor(float("nan")), lambda: STRANGE.to(torch.bfloat16),
    lambda: STRANGE.double(), lambda: STRANGE.to(torch.complex64), lambda: STRANGE.to(torch.complex128), lambda: STRANGE.half(),
    lambda: torch.ones(2, 3).t(), lambda: torch.ones(3, dtype=torch.bool), lambda: torch.ones(2, 2)[:, 0], lambda: torch.ones(1).expand(3),
])
def test_outputs_of_all_kinds(backend, capsys, made):
    value = made()
    module = only(lambda self, x: {"value": self.value.repeat_interleave(1, 0) if self.value.dim() else self.value.clone(),
                                   "view": self.value, "x": x, "none": None, "word": "a", "twice": [x * 2] * 2}).eval()
    module.register_buffer("value", value)
    model = prepared(module, backend, torch.ones(2))
    assert model.is_prepared(torch.ones(2)) and capsys.readouterr().err == ""


@pytest.mark.parametrize("training", [False, True])
def test_random_numbers_and_buffers_are_as_before(backend, capsys, training):
    net, x = Net().train(training), torch.randn(5, 4)
    twin = copy.deepcopy(net)
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate()
    model = prepared(net, backend, x, training=training)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    with torch.set_grad_enabled(training):
        torch.manual_seed(4)
        mine = model(x)
        torch.manual_seed(4)
        assert torch.equal(mine["y"], twin(x)["y"])
    assert capsys.readouterr().err == ""
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))


@pytest.mark.parametrize("kind", ["output", "buffer"])
def test_random_numbers_and_statistics_of_a_forward_that_does_something_else(backend, kind):
    """From the same state: dropout draws the same, and batch norm begins with the same statistics."""
    class Other(Net):
        def forward(self, x):
            made = super().forward(x)
            if asks():
                (made["h"] if kind == "output" else self.norm.running_mean).data[..., 0] += 1
            return made

    net, x = Other(), torch.randn(5, 4)
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    with pytest.raises(DiffersError, match=r"output\['h'\].* at \[0, 0\]" if kind == "output" else r"'norm.running_mean'.* at \[0\]"):
        prepared(net, backend, x, training=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, net.state_dict().values(), before.values()))
    assert all(p.grad is None for p in net.parameters())


class Doubles(torch.autograd.Function):
    """A backward that does something else while a stream captures."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if asks() else 1)


@pytest.mark.parametrize("with_grad, name", [(False, "'first.weight'"), (True, r"args\[0\]")])
def test_gradients(backend, with_grad, name):
    module = only(lambda self, x: Doubles.apply(self.first(x)), first=nn.Linear(4, 3)).eval()
    x = torch.randn(2, 4, requires_grad=with_grad)
    with pytest.raises(DiffersError, match=rf"the gradient of {name} \(float32"):
        prepared(module, backend, x, training=True)


def test_a_training_module_that_is_not_deterministic(backend, capsys):
    runs = []

    class Grows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            runs.append(0)
            return grad * len(runs)

    module = only(lambda self, x: Grows.apply(self.first(x)), first=nn.Linear(4, 3))
    x = torch.randn(2, 4)
    assert prepared(module, backend, x, training=True).is_prepared(x)
    assert "Given is not deterministic" in capsys.readouterr().err


def writes(self, x):
    x += 2 if asks() and self.asks else 1
    return self.first(x * 0)


def test_a_training_module_that_writes_to_an_argument(backend):
    module = only(writes, first=nn.Linear(4, 3), asks=True)
    with pytest.raises(DiffersError, match=r"args\[0\] \(float32\[2, 4\]\) differs at \[0, 0\]: 1.0 eagerly, 2.0 by the graph"):
        prepared(module, backend, torch.zeros(2, 4), training=True)


@pytest.mark.parametrize("training", [False, True])
def test_the_graphs_own_arguments_are_as_given(backend, training):
    model = prepared(only(writes, first=nn.Linear(4, 3), asks=False).train(training), backend, torch.zeros(2, 4), training=training)
    with torch.set_grad_enabled(training):
        (x,), _ = model.static_inputs(torch.zeros(2, 4))
    assert x.eq(0).all()


def test_a_run_to_tell_changes_nothing_of_what_was_found(backend, capsys):
    """Here that each call raises a version."""
    runs = []

    def forward(self, x):
        runs.append(0)
        self.seen += 1
        return self.first(x) * len(runs)

    module = only(forward, first=nn.Linear(4, 3))
    module.register_buffer("seen", torch.zeros(()))
    model = prepared(module, backend, torch.zeros(2, 4), training=True)
    version = module.seen._version
    model(torch.zeros(2, 4))
    assert "Given is not deterministic" in capsys.readouterr().err and module.seen == 1 and module.seen._version > version


def test_a_later_backward_that_does_something_else_stays_without_a_graph(backend):
    """Of other outputs: it is captured at the next call."""
    class Second(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * (2 if asks() and alone else 1)

    alone = False
    module = only(lambda self, x: (self.first(x), Second.apply(self.last(x))), first=nn.Linear(4, 3), last=nn.Linear(4, 3))
    model = prepared(module, backend, torch.randn(2, 4), training=True)
    alone = True
    x = torch.randn(2, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            model(x)[1].sum().backward()
            assert torch.equal(module.last.bias.grad, torch.full((3,), 2.0))
            module.zero_grad()
    assert sum("a backward stays without a graph: DiffersError" in str(each.message) for each in caught) == 1
