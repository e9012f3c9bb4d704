"""nimble.step: the context of its calls: modes that observe each op, and the program's own autocast, which keeps casts
of weights."""

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
import nimble  # noqa: E402
from nimble.errors import NimbleError  # noqa: E402
from nimble.guards import switches  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, same, sgd, update  # noqa: E402


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is nn.functional.linear else result


class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.ops.aten.relu.default else result


def halved():
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor / 2, lambda tensor: tensor)


@pytest.mark.parametrize("mode", [Functions, Ops, pytest.param(halved, marks=pytest.mark.skipif(
    switches._SAVES_ELSEWHERE is None, reason="this PyTorch does not tell of hooks for what autograd saves"))])
def test_modes(mode):
    """Their changes stay, and the graph serves the calls before and after."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(14):
            with mode() if i in (1, 7, 8) else contextlib.nullcontext():
                yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 1 and same.backend.replays == 2 * 8


def test_anomalies_are_detected():
    net, backend = mlp(), ReplayingCapture()
    optimizer = sgd(net)
    step = nimble.step(lambda x: update(net, optimizer, net(x).sqrt().mean()), backend=backend)
    for _ in range(5):
        step(torch.ones(2, 4))
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="nan"):
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            step(torch.ones(2, 4))


def within_autocast(calls_of, cached=True, updates=True, evaluates=False):
    """calls_of: the number of calls in each `with`, in order."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            loss = net(x).float().square().mean()
            return update(net, optimizer, loss) if updates else loss

        step = wrap(train)
        for calls in calls_of:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
                for _ in range(calls):
                    yield step(torch.ones(2, 4)), net
                if evaluates:
                    yield net(torch.ones(2, 4)).float()

    return program


def test_one_call_in_each_autocast():
    assert same(within_autocast([1] * 8)) and same.backend.captures == 1


@pytest.mark.parametrize("evaluates", [True, False])
def test_several_calls_in_each_autocast_run_eagerly(evaluates):
    assert same(within_autocast([4] * 3, evaluates=evaluates)) and same.backend.captures == 0


def test_several_calls_that_change_no_weights():
    assert same(within_autocast([6] * 2, updates=False)) and same.backend.captures == 1


def test_autocast_that_keeps_no_casts():
    assert same(within_autocast([4] * 3, cached=False)) and same.backend.captures == 1


def test_a_second_call_in_an_autocast_whose_first_was_a_graphs():
    """Whose casts eager code would keep using."""
    backend, net = ReplayingCapture(), mlp()
    optimizer = sgd(net)
    step = nimble.step(lambda x: update(net, optimizer, net(x).float().square().mean()), backend=backend)
    for calls in [1] * 5 + [2]:
        with torch.autocast("cpu", torch.bfloat16):
            step(torch.ones(2, 4))
            if calls == 2:
                with pytest.raises(NimbleError, match="called again within one"):
                    step(torch.ones(2, 4))
                with pytest.warns(UserWarning, match="called several times within one") as caught:
                    step(torch.ones(2, 4))
                assert caught[0].filename == __file__


def test_a_leaf_that_is_returned():
    """A copy of it would not require gradients, nor have any."""
    backend, net = ReplayingCapture(), mlp()

    def train(x):
        noise = torch.zeros_like(x, requires_grad=True)
        net(x + noise).square().mean().backward()
        return {"noise": noise, "weight": net[0].weight}

    step = nimble.step(train, backend=backend)
    for _ in range(3):
        assert step(torch.ones(2, 4))["noise"].grad is not None
    with pytest.raises(NimbleError, match=r"output\['noise'\] requires gradients"):
        step(torch.ones(2, 4))


def test_an_output_with_python_attributes():
    backend, net = ReplayingCapture(), mlp()
    optimizer = sgd(net)

    def train(x):
        loss = update(net, optimizer, net(x).square().mean()).detach()
        loss.samples = len(x)
        return loss

    step = nimble.step(train, backend=backend)
    for _ in range(3):
        step(torch.ones(2, 4))
    with pytest.raises(NimbleError, match=r"output has Python attributes \('samples'\)"):
        step(torch.ones(2, 4))


@contextlib.contextmanager
def matmul_in_tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def attention_by_plain_kernels():
    return pytest.importorskip("torch.nn.attention").sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


def cudnn_that_repeats_itself():
    return torch.backends.cudnn.flags(enabled=True, deterministic=True)


@pytest.mark.parametrize("switched", [matmul_in_tf32, attention_by_plain_kernels, cudnn_that_repeats_itself,
                                      lambda: torch.device("cpu")])
def test_switches_that_kernels_are_chosen_by(switched):
    """Calls have a separate graph for each value; earlier graphs stay."""
    def program(wrap):
        net = nn.Linear(4, 12)
        optimizer = sgd(net)

        def train(x):
            q, k, v = net(x).chunk(3, -1)
            loss = update(net, optimizer, nn.functional.scaled_dot_product_attention(q, k, v).square().mean())
            return (loss, torch.get_float32_matmul_precision(), torch.backends.cuda.flash_sdp_enabled(),
                    torch.backends.cudnn.deterministic)

        step = wrap(train, [net], [optimizer])
        for i in range(16):
            with switched() if i % 3 == 1 else contextlib.nullcontext():
                yield step(torch.randn(2, 1, 8, 4)), net

    assert same(program) and same.backend.captures == 2
