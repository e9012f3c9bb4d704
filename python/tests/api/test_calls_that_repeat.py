"""Calls of a Nimble that launch before they check, or without flattening their arguments: what they save, and what they
must still see."""

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from nimble import Nimble  # noqa: E402
from nimble.guards import switches  # noqa: E402
from nimble.guards.signatures import Call, Repeated  # noqa: E402


class Seen(TorchFunctionMode):
    """Records which PyTorch functions are called."""

    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.functions.append(function)
        return function(*args, **(kwargs or {}))


class TestRunningAhead:
    """A graph that writes to nothing is launched before its guard is checked."""

    @pytest.fixture
    def module(self):
        return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()

    def test_a_call_checks_after_the_launch(self, module, backend, monkeypatch):
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        (graph,) = model._graphs
        assert graph.runs_ahead and model.report()[0].runs_ahead
        monkeypatch.setattr(type(graph.guard), "difference", lambda self: backend.calls.append("look"))
        backend.calls.clear()
        model(torch.ones(2, 3))
        assert backend.calls == ["follow", "replay", "look"]

    def test_what_does_not_fit_any_more_is_thrown_away(self, module, backend):
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        module[0].weight.data = torch.randn(3, 3)
        with torch.no_grad():
            assert torch.equal(model(torch.ones(2, 3)), module(torch.ones(2, 3)))
        assert len(backend.graphs) == 2 and [graph.calls for graph in model._graphs] == [1]

    def test_memory_of_weights_stays_until_then(self, module, backend):
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        (graph,) = model._graphs
        before = module[0].weight.data_ptr()
        module[0].weight.data = torch.randn(3, 3)
        assert before in [t.data_ptr() for t in graph._read]

    def test_memory_that_is_taken_away_is_not_read(self, module, backend):
        """Frees memory the way sharding libraries do."""
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        weight, value = module[0].weight, module[0].weight.detach().clone()
        storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
        storage.resize_(0)
        backend.watches[0].there = False
        replays = len(backend.calls)
        with pytest.raises(Exception):
            model(torch.ones(2, 3))  # the module itself cannot run, either
        assert "replay" not in backend.calls[replays:]
        storage.resize_(value.numel() if not hasattr(weight, "untyped_storage") else value.numel() * 4)
        with torch.no_grad():
            weight.copy_(value)
            assert torch.equal(model(torch.ones(2, 3)), module(torch.ones(2, 3)))

    def test_where_memory_has_gone_a_call_looks_first(self, module, backend, monkeypatch):
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        (graph,), (watch,) = model._graphs, backend.watches
        assert set(backend.watched) == {t.data_ptr() for t in module.state_dict().values()}
        monkeypatch.setattr(type(graph.guard), "difference", lambda self: backend.calls.append("look"))
        watch.there = False
        backend.calls.clear()
        for _ in range(2):
            model(torch.ones(2, 3))
        assert backend.calls == ["look", "follow", "replay"] * 2

    def test_nothing_is_watched_for_what_is_gone(self, module, backend):
        model = Nimble(module, max_graphs=1, backend=backend)
        for size in (1, 2):
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model(torch.ones(size, 3))
        assert [watch.there for watch in backend.watches] == [False, True]

    @pytest.mark.parametrize("what", ["buffer", "same bits", "input", "training", "attribute", "made"])
    def test_what_writes_does_not(self, module, backend, what):
        class OpWrites(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = module
                self.register_buffer("count", torch.zeros(3))
                self.plain = torch.zeros(3)

            def forward(self, x):
                if what == "attribute":
                    self.plain += 1
                if what == "made" and not hasattr(self, "later"):
                    self.later = torch.zeros(3)
                if what == "buffer":
                    self.count += 1
                if what == "same bits":
                    self.count.copy_(torch.zeros(3))
                if what == "input":
                    x += 1
                return self.inner(x)

        writes = OpWrites().eval()
        if what == "training":
            module[1].train()
        model = Nimble(writes, backend=backend).prepare(torch.ones(2, 3))
        assert [graph.runs_ahead for graph in model._graphs] == [False] == [each.runs_ahead for each in model.report()]

    def test_what_may_write_unseen_does_not(self, module, backend):
        """A kernel that no op stands for may write, while preparing, just the values that are there."""
        backend.writes_are_known = False
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        assert [graph.runs_ahead for graph in model._graphs] == [False] == [each.runs_ahead for each in model.report()]

    def test_what_may_be_sent_to_other_ranks_does_not(self, module, backend, monkeypatch):
        monkeypatch.setattr("nimble.guards.switches.has_other_ranks", lambda: True)
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        assert [graph.runs_ahead for graph in model._graphs] == [False]

    def test_what_draws_random_numbers_does_not(self, module, backend, monkeypatch):
        states = [torch.get_rng_state()]  # another one for each time that it is asked

        def next_state(device):
            states.append(states[-1].clone())
            states[-1][0] += 1
            return states[-1]

        monkeypatch.setattr(backend, "random_state", next_state)
        monkeypatch.setattr(backend, "set_random_state", lambda device, state: None)
        model = Nimble(module, backend=backend).prepare(torch.ones(2, 3))
        assert [graph.runs_ahead for graph in model._graphs] == [False]


class TestCallsThatRepeat:
    """A call like the previous one is recognized without flattening its arguments; no other call is mistaken for it."""

    @pytest.fixture
    def model(self, backend, monkeypatch):
        class Sum(nn.Module):
            def forward(self, x, y=None, times=1):
                return (x if y is None else x + 2 * y) * times

        apart = []

        class Counted(Call):
            def __init__(self, *arguments):
                apart.append(arguments)
                super().__init__(*arguments)

        monkeypatch.setattr("nimble.api.module.Call", Counted)
        made = Nimble(Sum().eval(), backend=backend)
        made.apart = apart
        with torch.no_grad():
            yield made

    def called(self, model, *args, **kwargs):
        """Whether its arguments were flattened. The result is the module's in any case."""
        before = len(model.apart)
        expected = model.module(*args, **kwargs)
        result = model(*args, **kwargs)
        assert torch.equal(result, expected) and result.dtype == expected.dtype
        return len(model.apart) > before

    def test_they_are_not_taken_apart(self, model):
        assert [self.called(model, torch.full((2, 3), float(i))) for i in range(4)] == [True, False, False, False]
        assert [self.called(model, torch.full((2, 3), float(i)), torch.ones(2, 3)) for i in range(3)] == [True, False, False]
        assert self.called(model, torch.ones(2, 3)), "another one has come since"

    @pytest.mark.parametrize("other", [
        lambda: torch.ones(3, 2), lambda: torch.ones(1, 2, 3), lambda: torch.ones(2, 3, dtype=torch.float64),
        lambda: torch.arange(6.0).view(3, 2).t(), lambda: torch.ones(2, 3, requires_grad=True),
        lambda: nn.Parameter(torch.ones(2, 3)), lambda: torch.ones(1, 3).expand(2, 3), lambda: torch.ones(2, 1)])
    def test_other_tensors_are(self, model, other):
        for _ in range(2):
            self.called(model, torch.zeros(2, 3))
        assert self.called(model, other())

    def test_other_arguments_are(self, model):
        x, y = torch.randn(2, 3), torch.randn(2, 3)
        for _ in range(2):
            self.called(model, x, y)
        assert self.called(model, x, x), "one tensor twice"
        assert self.called(model, x)
        assert self.called(model, x, y=y) and self.called(model, x, y, 2) and self.called(model, x, y, times=3)

    @pytest.mark.parametrize("mode", [lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad])
    def test_other_modes_are(self, model, mode):
        model.module.weight = nn.Parameter(torch.ones(3))
        x = torch.ones(2, 3)
        for _ in range(2):
            model(x)
        before = len(model.apart)
        with mode():
            model._trains = True
            model(x)
        assert len(model.apart) > before
        model.module.train()
        model(x)
        assert len(model.apart) > before + 1

    def test_with_the_graphs_own_inputs_all_checks_come_after(self, model, backend, monkeypatch):
        for _ in range(2):
            self.called(model, torch.ones(2, 3))
        (own,), _ = model.static_inputs(torch.ones(2, 3))
        monkeypatch.setattr(Repeated, "fits", lambda self, *_: backend.calls.append("fits") or True)
        monkeypatch.setattr(switches, "why_not_replayed", lambda: backend.calls.append("modes"))
        backend.calls.clear()
        model(own)
        assert backend.calls == ["launch", "follow", "replay", "modes", "fits"]
        model(torch.ones(2, 3))
        assert backend.calls[5:] == ["modes", "fits", "follow", "replay"]

    @pytest.mark.parametrize("what", ["memory", "capture", "preparing", "mode"])
    def test_what_is_launched_ahead_is_not_what_counts(self, model, backend, monkeypatch, what):
        for _ in range(2):
            self.called(model, torch.ones(2, 3))
        (own,), _ = model.static_inputs(torch.ones(2, 3))
        assert not self.called(model, own)
        monkeypatch.setattr(model, "module", type(model.module)().eval())
        monkeypatch.setattr(model.module, "forward", lambda x: x + 100)
        backend.calls.clear()
        if what == "memory":
            backend.watches[0].there = False
        if what == "capture":
            backend.capturing = True
        if what == "preparing":
            monkeypatch.setattr("nimble.nesting.nesting.preparing", 1)
        expected = torch.ones(2, 3) + (0 if what == "memory" else 100)
        seen = Seen()
        with seen if what == "mode" else contextlib.nullcontext():
            output = model(own)
        assert torch.equal(output, expected) and ("launch" in backend.calls) == (what in ("preparing", "mode"))
        assert seen.functions == ([torch.Tensor.add] if what == "mode" else [])

    def test_and_are_believed(self, model, backend):
        for _ in range(2):
            self.called(model, torch.ones(3, 3))
        (own,), _ = model.static_inputs(torch.ones(3, 3))
        own.copy_(torch.arange(9.0).view(3, 3))
        assert not self.called(model, own)
        own.t_()  # in place
        assert self.called(model, own) and len(backend.graphs) == 2

    def test_a_graph_that_has_gone_is_not_run(self, model, backend):
        for _ in range(2):
            self.called(model, torch.ones(2, 3))
        model.module.register_forward_hook(lambda *_: None)
        assert self.called(model, torch.ones(2, 3)) and len(backend.graphs) == 2
        assert backend.graphs[0].closed and not self.called(model, torch.ones(2, 3))

    def test_within_another_capture_the_module_runs(self, model, backend):
        for _ in range(2):
            self.called(model, torch.ones(2, 3))
        backend.capturing = True
        backend.calls.clear()
        self.called(model, torch.ones(2, 3))
        assert not backend.calls


def test_graphs_go_at_once(backend):
    """The next graph needs their memory: none waits for the garbage collector."""
    import gc
    import weakref

    gc.collect()
    gc.disable()
    try:
        for training in (False, True):
            model = Nimble(nn.Linear(3, 2).train(training), backend=backend).prepare(torch.ones(2, 3), training=training)
            with torch.set_grad_enabled(training):
                model(torch.ones(2, 3))
            graphs = [weakref.ref(graph) for graph in model._graphs]
            del model
            assert len(graphs) == 1 and graphs[0]() is None
    finally:
        gc.enable()
