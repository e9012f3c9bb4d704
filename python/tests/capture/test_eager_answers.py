"""What asks whether a stream captures, and takes other ops then, is captured again with eager's answer."""

import copy
import gc
import random
import threading
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from torch.cuda import is_current_stream_capturing as by_value  # noqa: E402
from nimble import CaptureError, DiffersError, Nimble, step  # noqa: E402
from nimble.capture import constants  # noqa: E402
from nimble.capture.eager_answers import Answers  # noqa: E402
from nimble.guards import switches  # noqa: E402
import replaying  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import Net, only  # noqa: E402


@pytest.fixture
def backend(monkeypatch):
    made = ReplayingCapture()
    made.refuses_reads = True
    monkeypatch.setattr(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: made.capturing)
    yield made
    assert torch.cuda.graphs._cuda_isCurrentStreamCapturing() is False
    assert "nimble" not in torch.cuda.graphs._cuda_isCurrentStreamCapturing.__module__


def prepared(module, backend, *args, **more):
    return Nimble(module, backend=backend).prepare(*args, relaxed=True, **more)


def asks():
    return torch.cuda.is_current_stream_capturing()


def served(module, backend, x, others=(), **more):
    """The Nimble, whose calls have been compared with the module's."""
    model = prepared(module, backend, x, **more)
    for each in (x, *others):
        replays = backend.replays
        with torch.no_grad():
            assert torch.equal(model(each), copy.deepcopy(module)(each)) and backend.replays == replays + 1
    return model


NUMBERS = torch.arange(6.0).reshape(2, 3)
OTHERS = [torch.randn(2, 3), -NUMBERS]


@pytest.mark.parametrize("question", [asks, by_value, torch.cuda.graphs.is_current_stream_capturing,
                                      lambda: torch.cuda.graphs._cuda_isCurrentStreamCapturing()])
def test_what_asks_gets_eagers_answer(backend, capsys, question):
    model = served(only(lambda self, x: x * 2 + question()).eval(), backend, NUMBERS, OTHERS)
    assert backend.captures == 2
    assert [each.as_eager for each in model.report()] == [True]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith(
        "nimble: info: Given was captured as if no stream captured. It asks, and does something else while one does: output "
        "(float32[2, 3]) differs at [0, 0]: 0.0 eagerly, 1.0 by the graph. Now its graph computes what an eager run computes")


def test_what_asks_and_does_the_same_is_captured_once(backend, capsys):
    model = served(only(lambda self, x: x * (2 if asks() else 2)).eval(), backend, NUMBERS, OTHERS)
    assert backend.captures == 1 and capsys.readouterr().err == "" and not model.report()[0].as_eager


def test_what_does_not_ask_is_captured_once(backend):
    module = only(lambda self, x: x * 2 + backend.capturing).eval()
    with pytest.raises(DiffersError, match="0.0 eagerly, 1.0 by the graph"):
        prepared(module, backend, NUMBERS)
    assert backend.captures == 1


def test_what_differs_anyway_is_refused_with_the_first_difference(backend, capsys):
    def forward(self, x):
        return [x + asks(), x + 2 * backend.capturing]

    with pytest.raises(DiffersError, match=r"output\[0\] .* 0.0 eagerly, 1.0 by the graph"):
        prepared(only(forward).eval(), backend, NUMBERS)
    assert backend.captures == 2
    assert ("info: Given: capturing it as if no stream captured does not help: its graph does not compute what an eager run computes: "
            "output[1]") in capsys.readouterr().err


def test_nothing_is_left_of_what_is_refused(backend):
    class Other(Net):
        def forward(self, x):
            made = super().forward(x)
            self.seen = random.random() if asks() else None
            return {**made, "h": made["h"] + 2 * asks() + backend.capturing}

    net, x = Other().eval(), torch.randn(5, 4)
    before, states = copy.deepcopy(net.state_dict()), (torch.get_rng_state(), random.getstate())
    for training in (False, True):
        with pytest.raises(Exception):
            prepared(net.train(training), backend, x, training=training)
        assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
        assert all(map(torch.equal, net.state_dict().values(), before.values()))
        assert all(p.grad is None for p in net.parameters()) and getattr(net, "seen", None) is None


@pytest.mark.parametrize("training", [False, True])
def test_state_is_as_before(backend, training):
    """Random numbers, statistics, arguments that are written to, and attributes that the first run makes."""
    class Other(Net):
        def forward(self, x):
            if not hasattr(self, "table"):
                self.table = torch.arange(5.0)
            x += 1
            made = super().forward(x)
            return {**made, "h": made["h"] + asks() + self.table.sum()}

    net, x = Other().train(training), torch.randn(5, 4)
    twin, given = copy.deepcopy(net), x.clone()
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate()
    model = prepared(net, backend, x, training=training)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1] and torch.equal(x, given)
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    for seed in (4, 5):
        with torch.set_grad_enabled(training):
            torch.manual_seed(seed)
            mine = model(given.clone())
            torch.manual_seed(seed)
            other = twin(given.clone())
        assert torch.equal(mine["y"], other["y"]) and torch.equal(mine["h"], other["h"])
        if training:
            mine["h"].sum().backward()
            other["h"].sum().backward()
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    assert all(one.grad is None and other.grad is None or torch.equal(one.grad, other.grad)
               for one, other in zip(net.parameters(), twin.parameters()))
    assert all(report.as_eager for report in model.report()[:2])


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_only_the_graph_that_is_used_is_kept(backend, monkeypatch, training, also):
    graphs = []
    made = replaying.ReplayedGraph.__init__
    monkeypatch.setattr(replaying.ReplayedGraph, "__init__", lambda self, *a: (graphs.append(weakref.ref(self)), made(self, *a))[1])
    module = only(lambda self, x: self.first(x) + asks() + (also and backend.capturing), first=nn.Linear(4, 3))
    gc.disable()
    try:
        model = None
        try:
            model = prepared(module, backend, torch.ones(2, 4), training=training)
        except DiffersError:
            assert also
        kinds = 2 if training else 1
        assert [graph() is None for graph in graphs] == [True] * kinds + [model is None] * kinds
    finally:
        gc.enable()


class Doubles(torch.autograd.Function):
    """A backward that does something else while a stream captures."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if by_value() else 1)


def test_a_backward_that_asks(backend):
    module = only(lambda self, x: Doubles.apply(self.first(x)), first=nn.Linear(4, 3))
    model = prepared(module, backend, torch.randn(2, 4), training=True)
    model(torch.randn(2, 4)).sum().backward()
    assert torch.equal(module.first.bias.grad, torch.full((3,), 2.0)) and [each.as_eager for each in model.report()] == [True, True]


def test_a_later_backward_that_asks(backend):
    """Of other outputs: it is captured at the next call."""
    class Second(Doubles):
        @staticmethod
        def backward(ctx, grad):
            return grad * (2 if asks() and alone else 1)

    alone = False
    module = only(lambda self, x: (self.first(x), Second.apply(self.last(x))), first=nn.Linear(4, 3), last=nn.Linear(4, 3))
    model = prepared(module, backend, torch.randn(2, 4), training=True)
    alone = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            model(torch.randn(2, 4))[1].sum().backward()
            assert torch.equal(module.last.bias.grad, torch.full((3,), 2.0))
            module.zero_grad()
    assert [each.as_eager for each in model.report()] == [False, False, True]


def positions(self, x):
    """As models of transformers build masks."""
    ids = torch.arange(x.shape[1]).unsqueeze(0)
    is_packed = (torch.diff(ids, prepend=ids[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    if not asks() and (is_packed[:, -1] == 0).all():
        return x * 2
    return x * 2 + is_packed.sum() + 1


def test_reads_of_constants_are_answered(backend, capsys):
    served(only(positions).eval(), backend, NUMBERS, OTHERS)
    assert "as if no stream captured, with the host's reads of constants answered. It asks" in capsys.readouterr().err


def test_no_read_is_answered_where_no_second_capture_is_made(backend):
    with pytest.raises(CaptureError, match="not permitted when stream is capturing"):
        prepared(only(lambda self, x: x * 2 if torch.arange(2)[1] else x).eval(), backend, NUMBERS)
    assert backend.captures == 1


@pytest.mark.parametrize("read", [
    lambda self, x: x.sum() > 0, lambda self, x: self.weight[0] > 0, lambda self, x: self.buffer[0] > 0, lambda self, x: self.table[0] == 0,
    lambda self, x: torch.rand(1) > -1, lambda self, x: (torch.arange(6) + x.flatten() > -99).all(), lambda self, x: TABLE[0] == 0,
    lambda self, x: torch.zeros(1).copy_(x[0, :1]) > -9, lambda self, x: torch.equal(x, x),
        lambda self, x: torch.empty(1, dtype=torch.int32)[0] <= 2**31 - 1])
def test_reads_of_anything_else_are_not(backend, capsys, read):
    module = only(lambda self, x: x * 2 if not asks() and read(self, x) else x, weight=nn.Parameter(torch.ones(2)), table=torch.arange(3))
    module.register_buffer("buffer", torch.ones(2))
    with pytest.raises(DiffersError, match="0 eagerly, 1.0 by the graph"):
        prepared(module.eval(), backend, NUMBERS)
    assert backend.captures == 2 and "not permitted when stream is capturing" in capsys.readouterr().err


TABLE = torch.arange(3)


def test_reads_in_a_backward(backend):
    class Reads(Doubles):
        @staticmethod
        def backward(ctx, grad):
            return grad * (2 if asks() else torch.arange(4)[1].item())

    module = only(lambda self, x: Reads.apply(self.first(x)), first=nn.Linear(4, 3))
    model = prepared(module, backend, torch.randn(2, 4), training=True)
    model(torch.randn(2, 4)).sum().backward()
    assert torch.equal(module.first.bias.grad, torch.full((3,), 2.0)) and model.report()[0].as_eager


def test_without_releases_that_tell_who_writes(backend, monkeypatch):
    monkeypatch.setattr("nimble.capture.eager_answers.can_follow", lambda: False)
    with pytest.raises(DiffersError):
        prepared(only(positions).eval(), backend, NUMBERS)
    served(only(lambda self, x: x + asks()).eval(), backend, NUMBERS)


def test_outputs_that_are_constant(backend):
    """Nothing of them is left copied on writing."""
    model = prepared(only(lambda self, x: (x + asks(), torch.arange(3), torch.zeros(2))).eval(), backend, NUMBERS)
    _, one, other = model(NUMBERS)
    assert torch.equal(one, torch.arange(3)) and torch.equal(other, torch.zeros(2))
    assert not any(map(torch._C._is_cow_tensor, (one, other)))


def test_other_threads_get_the_truth(backend):
    """Even those that the module starts."""
    def forward(self, x):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(asks()))
        thread.start()
        thread.join()
        return x + asks() + answers[0]

    with pytest.raises(DiffersError, match="0.0 eagerly, 2.0 by the graph"):
        prepared(only(forward).eval(), backend, NUMBERS)


class Third(torch.optim.SGD):
    """An optimizer of another library, with a check of its own."""

    def step(self, closure=None):
        return (lambda: asks())()


def test_optimizers_get_the_truth(backend, monkeypatch):
    """One that cannot be captured would freeze its number of steps: its check raises as ever."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
    told, checked = [], []

    def forward(self, x):
        told.append(Third([weight], 0.1).step())
        adam = torch.optim.Adam([weight])
        try:
            getattr(adam, "_accelerator_graph_capture_health_check", getattr(adam, "_cuda_graph_capture_health_check", None))()
            checked.append(False)
        except RuntimeError as error:
            checked.append("capturing CUDA graphs" in str(error) or "apturable" in str(error))
        return x + asks()

    weight = torch.ones(2)
    assert prepared(only(forward).eval(), backend, NUMBERS).report()[0].as_eager
    assert told == checked == TOLD_THE_TRUTH


# Two eager runs, a capture and a run to tell; and two runs and a capture, again.
TOLD_THE_TRUTH = [False, False, True, False, False, False, True]


def test_pytorch_gets_the_truth(backend):
    """Synchronized batch norm, for one, reads on the host unless a stream captures."""
    frames = {}
    exec(compile("import torch\ndef ask():\n    return torch.cuda.is_current_stream_capturing()", "ask", "exec"), frames)
    for name, is_eager in (("torch.nn.modules._functions", False), ("torch", False), ("nimble.capture.cuda_capture", False),
                           ("torchvision.ops", True), ("transformers.masking_utils", True)):
        frames["__name__"] = name
        told = []

        def forward(self, x):
            told.append(frames["ask"]())
            return x + asks()

        assert prepared(only(forward).eval(), backend, NUMBERS).report()[0].as_eager
        assert told == [*TOLD_THE_TRUTH[:-1], not is_eager]


def test_steps_are_told_the_truth(backend):
    """They are not compared."""
    net, x = nn.Linear(3, 2), torch.ones(3)

    def function(x):
        with torch.no_grad():
            return net(x) + asks()

    fast = step(function, relaxed=True, backend=backend)
    made = [fast(x) - net(x) for _ in range(6)]
    assert torch.allclose(made[0], torch.zeros(2)) and torch.allclose(made[-1], torch.ones(2)) and backend.captures == 1


def test_other_ranks_are_not_kept_waiting(backend, capsys, monkeypatch):
    monkeypatch.setattr(switches, "has_other_ranks", lambda: True)
    model = prepared(only(lambda self, x: x + asks()).eval(), backend, NUMBERS)
    assert model.is_prepared(NUMBERS) and backend.captures == 1
    assert "warning: Given: its graph differs from an eager run: output" in capsys.readouterr().err


def test_a_nimble_inside(backend):
    inner = Nimble(only(lambda self, x: x + asks()).eval(), backend=backend)
    module = only(lambda self, x: self.inner(x) * 2, inner=inner).eval()
    model = prepared(module, backend, NUMBERS)
    assert model.report()[0].as_eager and all(torch.equal(model(x), x * 2) for x in (NUMBERS, *OTHERS))


def test_where_ops_cannot_be_watched_no_constant_is_followed(backend, monkeypatch):
    followed = []
    monkeypatch.setattr(constants.Constants, "call", lambda *_: followed.append(0))
    backend.capturing = True
    with Answers("cpu", as_eager=True).given(sees_ops=False):
        assert torch.arange(2)[1].item() == 1 and not asks() and not followed
    backend.capturing = False


def test_two_threads_at_once(backend, monkeypatch):
    """The answers go back in place once the last has left, whatever their order."""
    real = torch.cuda.graphs._cuda_isCurrentStreamCapturing
    first, second = Answers("cpu", as_eager=True), Answers("cpu")
    backend.capturing = True
    entered, left, told = threading.Event(), threading.Event(), []

    def other():
        with second.given(True):
            entered.set()
            left.wait(10)
            told.append(asks())

    thread = threading.Thread(target=other)
    with first.given(True):
        thread.start()
        entered.wait(10)
        told.append(asks())
    left.set()
    thread.join()
    backend.capturing = False
    assert told == [False, True] and torch.cuda.graphs._cuda_isCurrentStreamCapturing is real
    assert first.was_asked and second.was_asked
