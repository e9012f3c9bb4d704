"""The context of a Nimble's call: where something observes the ops, the module itself runs, and no graph is made."""

import copy
import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from nimble import Nimble, NimbleError, accelerate  # noqa: E402
from nimble.guards import switches  # noqa: E402
from nimble.nesting import one_at_a_time  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import grads, same  # noqa: E402


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 10 if function is torch.sigmoid else result


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 10 if function is torch.ops.aten.sigmoid.default else result


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 2)

    def forward(self, x):
        return torch.sigmoid(self.first(x))


@pytest.fixture
def pair():
    torch.manual_seed(0)
    module = Net()
    return module, copy.deepcopy(module)


def replays(backend):
    return sum(graph.replays for graph in backend.graphs)


@pytest.mark.parametrize("mode", [Functions, Ops])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_modes(pair, backend, mode, trains, own):
    module, twin = (each.train(trains) for each in pair)
    model, x = Nimble(module, backend=backend), torch.randn(3, 4)
    with mode():
        assert torch.equal(model(x), twin(x)) and backend.graphs == []
        with pytest.raises(NimbleError, match="nothing is prepared under a torch function or dispatch mode"):
            model.prepare(x, training=trains)
    with torch.set_grad_enabled(trains):
        for _ in range(2):
            assert torch.equal(model(x), twin(x))
        ((x,), _) = model.static_inputs(x) if own else ((x,), {})
        model(x)
        count = replays(backend)
        with mode():
            assert torch.equal(model(x), twin(x))
        for_nothing = own and not trains  # what is launched before all looks is not seen by the mode, and is not what counts
        assert count > 0 and replays(backend) == count + for_nothing


def test_a_default_device_is_no_obstacle(pair, backend):
    if not hasattr(torch, "set_default_device"):
        pytest.skip("this PyTorch has no default device")
    model = Nimble(pair[0].eval(), backend=backend)
    with torch.device("cpu"), torch.no_grad():
        model(torch.ones(3, 4))
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("trains", [False, True])
def test_forward_mode_differentiation(pair, backend, trains):
    module, twin = (each.train(trains) for each in pair)
    model, x, t = Nimble(module, backend=backend), torch.randn(3, 4), torch.randn(3, 4)
    with torch.set_grad_enabled(trains):
        for _ in range(2):
            with forward_ad.dual_level():
                mine, other = (forward_ad.unpack_dual(f(forward_ad.make_dual(x, t))) for f in (model, twin))
            assert torch.equal(mine.tangent, other.tangent) and torch.equal(mine.primal, other.primal)
            model(x)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.skipif(not hasattr(torch, "func"), reason="this PyTorch has no torch.func")
def test_transforms(pair, backend, trains):
    module, twin = (each.train(trains) for each in pair)
    model, x = Nimble(module, backend=backend), torch.randn(3, 4)
    for _ in range(2):
        for transformed in (lambda f: torch.vmap(f)(x), lambda f: torch.func.grad(lambda y: f(y).sum())(x),
                            lambda f: torch.func.jacrev(f)(x), lambda f: torch.func.jvp(f, (x,), (x,))[1]):
            assert torch.allclose(transformed(model), transformed(twin))
        with torch.set_grad_enabled(trains):
            model(x)
            model(x[0])
    assert backend.graphs


@pytest.mark.skipif(switches._SAVES_ELSEWHERE is None, reason="this PyTorch does not tell of hooks for what autograd saves")
def test_hooks_for_what_autograd_saves(pair, backend):
    module, twin = pair
    model, x = Nimble(module, backend=backend), torch.randn(3, 4)
    for _ in range(2):
        for m, f in ((module, model), (twin, twin)):
            m.zero_grad()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
                f(x).sum().backward()
        assert same(grads(module), grads(twin))
        for m, f in ((module, model), (twin, twin)):
            m.zero_grad()
            checkpoint(f, x, use_reentrant=False).sum().backward()
        assert same(grads(module), grads(twin))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), torch.no_grad():
            model(x)
        count = len(backend.graphs)
        model(x).sum().backward()
    assert count > 0


@pytest.mark.skipif(not hasattr(torch.compiler, "is_compiling"), reason="this PyTorch does not tell whether it compiles")
@pytest.mark.parametrize("trains", [False, True])
def test_within_what_is_compiled(pair, backend, trains):
    module, twin = (each.train(trains) for each in pair)
    model, x = Nimble(module, backend=backend), torch.randn(3, 4)
    compiled = torch.compile(lambda x: model(x * 2) + 1, backend="aot_eager")
    for _ in range(3):
        with torch.set_grad_enabled(trains):
            y = compiled(x)
            assert torch.equal(y, twin(x * 2) + 1)
        if trains:
            y.sum().backward()
    assert [graph.replays - 4 for graph in backend.graphs][0] == 3


def test_profilers_and_anomaly_detection_are_no_obstacle(pair, backend):
    module, twin = pair
    model, x = Nimble(module, backend=backend), torch.randn(3, 4)
    for _ in range(2):
        with torch.profiler.profile(), torch.autograd.set_detect_anomaly(True):
            for f in (model, twin):
                f(x).sum().backward()
    assert same(grads(module), grads(twin)) and backend.graphs


def test_accelerate_within_what_is_prepared_or_captured(backend):
    inner = nn.Linear(4, 2).eval()
    call, x = accelerate(inner, after=0, backend=backend), torch.ones(3, 4)
    outer = type("Outer", (nn.Module,), {"forward": lambda self, x: call(x) + 1})().eval()
    with torch.no_grad():
        backend.capturing = True
        call(x)
        assert backend.graphs == []
        backend.capturing = False
        for count in (0, 1):
            Nimble(outer, backend=ReplayingCapture()).prepare(x, relaxed=True)(x)
            assert len(backend.graphs) == count
            call(x)
            assert [graph.replays for graph in backend.graphs] == [5 + count]


def test_two_threads_prepare_one_module():
    for trial in range(10):
        module = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
        parameters = list(module.parameters())
        models = [Nimble(module, backend=ReplayingCapture()) for _ in range(2)]
        failed = []

        def work(number):
            try:
                models[number].prepare(torch.randn(3 + number, 8), training=True, relaxed=True)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not failed and all(map(lambda one, other: one is other, parameters, module.parameters()))
        for number, model in enumerate(models):
            module.zero_grad()
            model(torch.randn(3 + number, 8)).square().sum().backward()
            assert all(p.grad is not None for p in parameters)


def test_one_at_a_time():
    inside, most = [], []

    @one_at_a_time
    def function(again):
        inside.append(1)
        most.append(len(inside))
        if again:
            function(False)  # of one thread
        else:
            threading.Event().wait(0.001)
        inside.pop()

    threads = [threading.Thread(target=function, args=(True,)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert max(most) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_waits_for_no_thread_of_its_parent():
    held, done = threading.Event(), threading.Event()

    @one_at_a_time
    def hold():
        held.set()
        done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        one_at_a_time(lambda: os._exit(7))()
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_module_that_prepares_itself(backend):
    """A call within its own forward, while it is prepared."""
    class Net(nn.Linear):
        def forward(self, x):
            Nimble(self, backend=backend).prepare(x, training=True)
            return super().forward(x)

    with pytest.raises(NimbleError, match="is being prepared already"):
        Nimble(Net(4, 2), backend=backend).prepare(torch.ones(3, 4), training=True)
