"""Calls of a Nimble: each computes what the module computes, whichever graph serves it, or raises, or runs eagerly."""

import gc
import threading
import warnings
import weakref
from collections import OrderedDict, namedtuple

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError, NotLoadedError  # noqa: E402


Output = namedtuple("Output", "sum parts")


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.runs = 0

    def forward(self, x, pair=None, *, scale=1.0, flags=None):
        self.runs += 1
        y = self.layer(x) * scale
        if pair is not None:
            y = y + pair[0] - pair[1]["deep"]
        return Output(y, OrderedDict(a=[y * 2, y], text="as it is", weight=self.layer.weight, x=x, number=(3, None)))


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Nested().eval()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other


def arguments(size=2):
    return (torch.randn(size, 4), (torch.randn(size, 4), {"deep": torch.randn(4)})), {"scale": 0.5, "flags": ["x"]}


def test_calls_compute_what_the_module_computes(module, backend):
    model = Nimble(module, backend=backend)
    args, kwargs = arguments()
    assert model.prepare(*args, **kwargs) is model
    backend.calls.clear()
    for _ in range(3):
        args, kwargs = arguments()
        assert same(model(*args, **kwargs), module(*args, **kwargs))
    assert len(backend.graphs) == 1 and backend.calls == ["follow", "replay"] * 3


def test_outputs_are_the_callers(module, backend):
    model = Nimble(module, backend=backend)
    x = torch.randn(2, 4)
    first = model(x)
    kept = first.sum.clone()
    second = model(torch.randn(2, 4))
    assert torch.equal(first.sum, kept) and not torch.equal(first.sum, second.sum)
    first.sum.zero_()
    assert same(model(x), module(x))
    # Identity is preserved: outputs that are one tensor stay one; a parameter is the parameter, an argument the
    # argument.
    assert first.sum is first.parts["a"][1] and first.parts["weight"] is module.layer.weight and first.parts["x"] is x
    assert not first.sum.requires_grad


def test_static_outputs_are_the_graphs(module, backend):
    model = Nimble(module, static_outputs=True, backend=backend)
    x = torch.randn(2, 4)
    first = model(x)
    y = torch.randn(2, 4)
    second = model(y)
    assert first.sum is second.sum and torch.equal(first.sum, module(y).sum)


def test_static_inputs_are_not_copied(module, backend):
    model = Nimble(module, backend=backend)
    (x,), _ = model.static_inputs(torch.zeros(2, 4))
    version = x._version
    assert len(backend.graphs) == 1
    with torch.no_grad():
        x.fill_(2)
        assert same(model(x), module(torch.full((2, 4), 2.0)))
    assert x._version == version + 1 and len(backend.graphs) == 1


def test_dummies_may_be_the_tuple_of_arguments(module, backend):
    class Pair(nn.Module):
        def forward(self, pair):
            return pair[0] + pair[1]

    one, other = torch.ones(2, 4), (torch.ones(2, 4), {"deep": torch.ones(4)})
    assert Nimble(module, backend=backend).prepare((one, other)).is_prepared(one, other)
    assert Nimble(module, backend=backend).prepare([one, other]).is_prepared(one, other)
    assert Nimble(module, backend=backend).prepare(one).is_prepared(one)
    assert Nimble(Pair().eval(), backend=backend).prepare(((one, one),)).is_prepared((one, one))
    assert not Nimble(module, backend=backend).prepare(one).is_prepared(one, other)
    assert Nimble(module, backend=backend).prepare(dummy_inputs=(one, other)).is_prepared(one, other)
    assert Nimble(module, backend=backend).prepare(dummy_inputs=one).is_prepared(one)

    class Scaled(nn.Module):
        def forward(self, pair, scale):
            return pair[0] * scale

    model = Nimble(Scaled().eval(), backend=backend).prepare((one, one), scale=2)  # with others beside it, it is an argument
    assert model.is_prepared((one, one), scale=2)


def test_options_reach_the_capture(module, backend):
    model = Nimble(module, backend=backend)
    x = torch.zeros(1, 4)
    model.prepare(x)
    model.prepare(x, use_multi_stream=False)
    model.prepare(x, relaxed=True)
    model(torch.zeros(2, 4))  # prepares by itself, likewise
    assert backend.asked == [(True, False), (False, False), (True, True), (True, True)]
    assert len(model.report()) == 2


def test_strange_strides(backend):
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    model = Nimble(Twice().eval(), backend=backend)
    base = torch.arange(24.0)
    for view in (base.view(4, 6).t(), base.view(4, 6)[:, 1:3], base[:6].expand(4, 6), base[:4].view(4, 1).expand(4, 6),
                 torch.tensor(3.0).expand(2, 2), torch.zeros(0, 3), base.view(1, 2, 3, 4).to(memory_format=torch.channels_last)):
        for _ in range(2):
            assert torch.equal(model(view), view * 2)
        assert model(view).stride() == (view * 2).stride()
    assert len(backend.graphs) == 7


def test_arguments_that_are_one_tensor(backend):
    class Adds(nn.Module):
        def forward(self, x, y):
            x += 1
            return x * y

    model = Nimble(Adds().eval(), backend=backend)
    for pair in ((torch.ones(2), torch.ones(2)), (lambda t: (t, t))(torch.ones(2))):
        for start in (1.0, 5.0):
            for each in pair:
                each.fill_(start)
            x = torch.full((2,), start)
            want = Adds()(x, x if pair[0] is pair[1] else torch.full((2,), start))
            assert torch.equal(model(*pair), want)
            assert torch.equal(pair[0], x)  # written in place, as the module does
    whole = torch.ones(4)
    with pytest.raises(NimbleError, match=r"writes to args\[0\], which shares memory with another argument"):
        model(whole[:2], whole[1:3])
    assert whole.tolist() == [1, 1, 1, 1]


def test_one_graph_for_each_kind_of_call_and_no_more_than_allowed(module, backend):
    model = Nimble(module, max_graphs=2, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1, 2, 1, 2):
            x = torch.randn(size, 4)
            assert same(model(x), module(x))
    assert len(backend.graphs) == 2
    with pytest.warns(UserWarning, match="more kinds of arguments than the 2 graphs") as caught:
        model(torch.randn(3, 4))
    assert caught[0].filename == __file__
    assert [g.closed for g in backend.graphs] == [True, False, False]
    assert [r.signature for r in model.report()] == ["float32[2, 4]", "float32[3, 4]"]
    x = torch.randn(1, 4)
    assert same(model(x), module(x)) and len(backend.graphs) == 4


def test_a_changed_module_is_prepared_again(module, backend):
    model = Nimble(module, backend=backend)
    x = torch.randn(2, 4)
    model.prepare(x, relaxed=True)
    model.prepare(torch.randn(1, 4), use_multi_stream=False)
    backend.graphs.pop()
    with torch.no_grad():
        module.layer.weight.mul_(3)  # in place: the graph reads it where it is
    assert same(model(x), module(x)) and len(backend.graphs) == 1
    module.layer.weight = nn.Parameter(torch.randn(4, 4))
    assert not model.is_prepared(x)
    assert same(model(x), module(x)) and len(backend.graphs) == 2
    assert backend.graphs[0].closed and backend.asked[2] == (True, True)
    handle = module.layer.register_forward_hook(lambda _module, _args, output: output + 1)
    assert same(model(x), module(x)) and len(backend.graphs) == 3
    handle.remove()
    assert same(model(x), module(x)) and len(backend.graphs) == 4


def test_a_module_that_changes_at_each_call_is_given_up(module, backend):
    model = Nimble(module, fallback=True, backend=backend)
    x = torch.randn(2, 4)
    with pytest.warns(UserWarning, match="changes again and again: a parameter or buffer has other storage"):
        for i in range(20):
            module.layer.weight.data = module.layer.weight.data.clone() + i
            assert same(model(x), module(x))
    assert len(backend.graphs) == 4
    # Changes with enough calls between them do not count.
    model = Nimble(module, backend=backend)
    for i in range(64):
        if i % 8 == 0:
            module.layer.weight.data = module.layer.weight.data.clone()
        assert same(model(x), module(x))


def test_what_trains_and_what_does_not(module, backend):
    """In eval mode a call trains if its arguments require gradients, or prepare() was told so; without gradients none
    does."""
    model = Nimble(module, backend=backend)
    x = torch.ones(1, 4)
    assert not model(x).sum.requires_grad
    assert model(x.clone().requires_grad_()).sum.requires_grad
    with torch.no_grad():
        assert not model(x.clone().requires_grad_()).sum.requires_grad
    assert [r.kind for r in model.report()] == ["inference", "forward", "backward", "inference"]
    model.prepare(x, training=True)
    assert model(x).sum.requires_grad
    model = Nimble(module.train(), backend=backend)
    assert model(x).sum.requires_grad
    with torch.no_grad():
        assert not model(x).sum.requires_grad
    assert [r.kind for r in model.report()] == ["forward", "backward", "inference"]
    module.requires_grad_(False)
    assert not model(x).sum.requires_grad
    assert [r.kind for r in model.report()] == ["inference", "inference"]


def test_fallback_runs_eagerly_and_says_so_once(module, backend):
    def fails(*_):
        if backend.capturing:
            raise RuntimeError("cannot be")

    module.layer.register_forward_hook(fails)
    x = torch.randn(2, 4)
    with pytest.raises(NimbleError, match="cannot be"):
        Nimble(module, backend=backend)(x)
    model = Nimble(module, fallback=True, backend=backend)
    with pytest.warns(UserWarning, match="running eagerly: .* 'layer': cannot be") as caught:
        model.prepare(x)
    assert len(caught) == 1
    runs, asked = module.runs, len(backend.asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(model(x), module(x))
        assert same(model(x, flags=slice(1)), module(x))  # which no signature can be made of
        with torch.enable_grad():
            assert model(x.clone().requires_grad_()).sum.requires_grad  # as the module by itself
    assert module.runs == runs + 5 and len(backend.asked) == asked + 1  # it was not tried again, but for the last, which trains
    with pytest.raises(NimbleError, match="there is no graph"):
        model.static_inputs(x)
    assert sorted((r.kind, r.state) for r in model.report()) == [("forward", "eager"), ("inference", "eager")]
    assert all("'layer': cannot be" in r.why for r in model.report())


def test_the_warning_names_the_users_line(module, backend):
    module.forward = lambda x: object()
    model = Nimble(module, fallback=True, backend=backend)
    with pytest.warns(UserWarning) as caught:
        model(torch.ones(1, 4))
    assert caught[0].filename == __file__
    model = Nimble(module, fallback=True, backend=backend)
    with pytest.warns(UserWarning) as caught:
        model.prepare(torch.ones(1, 4))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("training", [False, True])
def test_what_is_captured_goes_last(module, backend, training):
    """Other holders of its outputs are freed first: PyTorch's allocator warns of their freeing unless it is quiet."""
    model = Nimble(module, backend=backend).prepare(torch.ones(1, 4), training=training)
    (graph,) = model._graphs
    captured = graph._forward if training else graph._captured
    results, found = weakref.ref(graph._results), []
    weakref.finalize(captured, lambda: found.append(results() is None))
    backend.graphs.clear()
    del graph, captured, model
    gc.collect()
    assert found == [True]


def test_report(module, backend):
    model = Nimble(module, backend=backend).prepare(torch.zeros(2, 4))
    (report,) = model.report()
    assert (report.signature, report.state, report.nodes, report.streams) == ("float32[2, 4]", "rewritten", 9, 3)
    assert (report.own_us, report.rewritten_us, report.why) == (20.0, 10.0, "") and report.prepare_seconds > 0
    assert report.static_bytes == 4 * 4 * (2 + 2 + 2 + 4)  # x; the sum; twice the sum; the weight


def test_inference_mode_and_autocast(module, backend):
    model = Nimble(module, backend=backend)
    with torch.inference_mode():
        x = torch.randn(2, 4)
        assert same(model(x), module(x))
    assert same(model(torch.ones(2, 4)), module(torch.ones(2, 4))) and len(backend.graphs) == 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(2, 4)).sum.dtype == module(torch.ones(2, 4)).sum.dtype == torch.bfloat16
    assert len(backend.graphs) == 2


def test_threads(module, backend):
    model = Nimble(module, backend=backend)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for i in range(30):
            x = torch.randn(1 + i % 2, 4, generator=generator)
            if not torch.equal(model(x).sum, module(x).sum):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == [] and len(backend.graphs) == 2


def test_what_is_no_module_and_a_process_without_the_library():
    with pytest.raises(TypeError, match="not a function"):
        Nimble(lambda x: x)
    with pytest.raises(NotLoadedError, match="python -m nimble run script.py"):
        Nimble(nn.ReLU(), fallback=True)


def test_a_nimble_within_a_module_becomes_a_part_of_its_graph(backend):
    inner = Nimble(nn.Linear(3, 3).eval(), backend=backend)

    class Outer(nn.Module):
        def forward(self, x):
            return inner(x) + 1

    outer = Nimble(Outer().eval(), backend=backend).prepare(torch.ones(2, 3))
    assert len(backend.graphs) == 1 and not inner.report()
    with torch.no_grad():
        assert torch.equal(outer(torch.zeros(2, 3)), inner.module(torch.zeros(2, 3)) + 1)


def test_within_another_capture_the_module_runs(backend):
    model = Nimble(nn.Linear(3, 3).eval(), backend=backend).prepare(torch.ones(2, 3))
    backend.capturing = True
    backend.calls.clear()
    with torch.no_grad():
        model(torch.ones(2, 3))
    assert not backend.calls


def test_tensors_without_elements_share_no_memory(backend):
    class OpWrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(0))

        def forward(self, x, y):
            x.add_(1)
            self.seen.add_(1)
            return x.sum() + y.sum()

    model = Nimble(OpWrites().eval(), backend=backend)
    with torch.no_grad():
        for _ in range(3):
            assert model(torch.randn(0, 3), torch.randn(0, 3)).item() == 0


def test_a_module_that_raises_for_names_that_it_does_not_know(backend):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.settings = nn.Linear(3, 2), {"scale": 2.0}

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return self.__dict__["settings"][name]

        def forward(self, x):
            return self.linear(x) * self.scale

    module = Own().eval()
    model = Nimble(module, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3)
            assert torch.equal(model(x), module(x))
