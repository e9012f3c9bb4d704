"""Failures while a module is prepared: a NimbleError, an eager run, or the module's own error. Copies, pickles."""

import copy
import gc
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from fake import FakeCapture  # noqa: E402
from nimble import Nimble, NimbleError, accelerate  # noqa: E402
from nimble.api.error_origin import raises_without_nimble  # noqa: E402
from nimble.capture import cuda_capture as capture  # noqa: E402
from nimble.capture.cuda_capture import first_reason, no_collection  # noqa: E402
from nimble.guards.signatures import Call  # noqa: E402
from nimble.steps import step_ops  # noqa: E402
from training_nets import only  # noqa: E402


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval())


def forces():
    def forward(self, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(self.first(x).tanh().sum(), x)[0]

    return only(forward, first=nn.Linear(4, 2)).eval()


def floats():
    return torch.arange(12.0).reshape(3, 4)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])


class Stateless(FakeCapture):
    """As CudaCapture is."""

    def __reduce__(self):
        return Stateless, ()


CASES = [
    (scripted, floats), (lambda: nn.Sequential(scripted(), nn.ReLU()).eval(), floats), (forces, floats),
    (lambda: only(lambda self, x: x.unsqueeze_(0) * 2).eval(), floats),
    (lambda: only(lambda self, x: self.first(x.t_()), first=nn.Linear(3, 2)), floats),
    (lambda: only(lambda self, x: x.resize_(4).fill_(1)).eval(), floats),
    (lambda: only(lambda self, x: x * 2).eval(), nested),
    (lambda: only(lambda self, x: x.dequantize() * 2).eval(),
     lambda: torch.quantize_per_tensor(floats(), 0.1, 0, torch.quint8)),
]


@pytest.mark.parametrize("made, argument", CASES)
def test_what_nimble_cannot_do_is_a_nimble_error_or_an_eager_run(backend, made, argument):
    torch.manual_seed(0)
    module = made()
    with pytest.raises(NimbleError):
        Nimble(module, backend=backend)(argument())
    model = Nimble(module, fallback=True, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            mine, other, x, y = None, None, argument(), argument()
            mine, other = model(x), module(y)
            pairs = [(mine, other), (x, y)]
            for one, its in pairs:
                assert all(map(torch.equal, one.unbind(), its.unbind())) if one.is_nested else torch.equal(one, its)
    assert sum("nimble: running eagerly" in str(each.message) for each in caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Nimble(module, fallback=True, backend=backend).prepare(argument())


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_the_modules_own_errors_are_raised_unchanged(backend, fallback, trains):
    runs = []

    def forward(self, x):
        runs.append(x)
        self.count.add_(1)
        if x.shape[0] == 3:
            raise KeyError("three")
        return self.first(x)

    module = only(forward, first=nn.Linear(4, 2)).train(trains)
    module.register_buffer("count", torch.zeros(()))
    model = Nimble(module, fallback=fallback, backend=backend)
    x = floats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(KeyError, match="three"):
                model(x)
            assert module.count.item() == 0 and all(each is not x for each in runs)
        with pytest.raises(KeyError, match="three"):
            model.prepare(x, training=trains)
        model(torch.ones(2, 4))
    assert backend.graphs


def test_an_interrupt_passes_through(backend):
    def forward(self, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Nimble(only(forward).eval(), fallback=True, backend=backend)(floats())


def test_an_error_while_it_is_looked_for_whose_it_is_leaves_all_as_it_was(backend):
    """Only an eager run with gradients succeeds, which must not affect the caller's."""
    def forward(self, x):
        self.count.add_(1)
        y = self.first(x)
        y.sum().backward()
        return y

    module = only(forward, first=nn.Linear(4, 2)).eval()
    module.register_buffer("count", torch.zeros(()))
    module.first.weight.grad = torch.ones(2, 4)
    with pytest.raises(NimbleError, match="cannot be prepared: RuntimeError"):
        Nimble(module, backend=backend)(floats())
    assert module.count.item() == 0 and module.first.weight.grad.tolist() == [[1.0] * 4] * 2 and module.first.bias.grad is None


def test_copies_of_arguments_have_a_history_where_these_have_one(backend):
    module, x = only(lambda self, x: x.add_(1)), torch.ones(2, requires_grad=True)
    assert raises_without_nimble(module, Call((x,), {}, True), backend)
    assert not raises_without_nimble(module, Call((x * 1,), {}, True), backend) and x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_and_pickles_have_no_graphs(copied):
    torch.manual_seed(0)
    model = Nimble(nn.Linear(4, 2).eval(), True, 3, backend=Stateless()).prepare(floats(), use_multi_stream=False)
    model(floats())
    made = copied(Nimble(nn.Linear(4, 2).eval(), True, 3, backend=Stateless()))
    assert not made.is_prepared(floats())
    other = copied(model) if copied is not copy.copy else made
    assert torch.equal(other(floats()), other.module(floats())) and model.is_prepared(floats())
    again = accelerate(nn.Linear(4, 2).eval(), after=0, backend=Stateless())
    with torch.no_grad():
        again(floats())
        assert torch.equal(copied(again)(floats()), again(floats()))


@pytest.mark.parametrize("words, said", [
    ("CUDA error: operation not permitted when stream is capturing\nSearch for `cudaErrorStreamCaptureUnsupported' in a page\n",
     "CUDA error: operation not permitted when stream is capturing"), ("\n one line ", "one line"), ("", "")])
def test_a_reason_is_one_line_of_what_went_wrong_first(words, said):
    try:
        try:
            raise RuntimeError(words)
        finally:
            raise ValueError("while that was ended")
    except ValueError as error:
        assert first_reason(error) == ("RuntimeError: " + said if said else "RuntimeError")


def test_the_collector_waits_while_anything_is_captured():
    for was_enabled in (True, False):
        (gc.enable if was_enabled else gc.disable)()
        try:
            with pytest.raises(KeyError), no_collection():
                assert not gc.isenabled()
                raise KeyError
            assert gc.isenabled() == was_enabled
        finally:
            gc.enable()


@pytest.mark.parametrize("error, is_unchanged", [(torch.cuda.OutOfMemoryError("no room"), False), (RuntimeError("not for these"), True)])
def test_what_cannot_be_compared(monkeypatch, error, is_unchanged):
    """If memory runs out it may have changed; values that cannot be compared are checked by version."""
    def same_bytes(*_):
        raise error

    monkeypatch.setattr(step_ops, "same_bytes", same_bytes)
    assert step_ops.is_unchanged(torch.ones(2), torch.ones(2)) is is_unchanged


def test_memory_that_may_be_written_ends_with_the_storage(monkeypatch):
    asked = []
    monkeypatch.setattr(capture.shim, "writes_only", lambda handle, ranges: asked.extend(ranges) or True)
    graph = capture.CudaGraph.__new__(capture.CudaGraph)
    graph._handle = 1
    whole = torch.zeros(1024)
    assert graph.writes_only([whole, whole[:1].expand(1 << 20), whole[512:], torch.ones(1).expand(1 << 20)])
    assert [size for _, size in asked] == [4096, 4096, 2048, 512]
