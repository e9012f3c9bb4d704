"""PyTorch's switches that kernels are chosen by, between the calls of a Nimble and within them."""

import contextlib
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.guards import switches  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

SWITCHES = {
    "cudnn.benchmark": (torch.backends.cudnn, "benchmark"),
    "cudnn.tf32": (torch.backends.cudnn, "allow_tf32"),
    "matmul.tf32": (torch.backends.cuda.matmul, "allow_tf32"),
    "matmul.half": (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
}


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture(params=SWITCHES, ids=SWITCHES)
def switch(request):
    """(its value, switched(): a context in which the value is inverted)"""
    where, name = SWITCHES[request.param]
    before = getattr(where, name)

    @contextlib.contextmanager
    def switched():
        setattr(where, name, not before)
        try:
            yield
        finally:
            setattr(where, name, before)

    with switched():  # which leaves another of PyTorch's words for the same
        pass
    return lambda: getattr(where, name), switched


class Net(nn.Module):
    """As kernels of another precision would."""

    def __init__(self, is_on):
        super().__init__()
        self.is_on = (is_on,)
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x) * (3.0 if self.is_on[0]() else 2.0)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("way", ["like the last", "by name", "in its own memory"])
def test_calls_under_others(switch, way, training, backend):
    is_on, switched = switch
    module = Net(is_on).train(training)
    model = Nimble(module, backend=backend).prepare(torch.ones(2, 4), relaxed=True)
    x = torch.randn(2, 4)
    if way == "in its own memory":
        (x,), _ = model.static_inputs(x)
        x.data.copy_(torch.randn(2, 4))

    def check(times):
        for _ in range(times):
            ours = model(x=x) if way == "by name" else model(x)
            theirs = module(x)
            assert torch.equal(ours, theirs)
            if training:
                for gradients in zip(*(torch.autograd.grad(out.sum(), list(module.parameters())) for out in (ours, theirs))):
                    assert torch.equal(*gradients)

    check(3)
    with switched():
        check(3)
    made = backend.captures
    for _ in range(6):  # each has a graph
        check(2)
        with switched():
            check(2)
            assert model.is_prepared(x=x) if way == "by name" else model.is_prepared(x)
    assert backend.captures == made and len(model.report()) >= 2


def test_one_that_leaves_another(switch, backend):
    """Each call would change it, but no replay."""
    is_on, switched = switch

    class Sets(Net):
        def forward(self, x):
            out = super().forward(x)
            sets[0]()
            return out

    stack = contextlib.ExitStack()
    sets = [lambda: stack.enter_context(switched())]
    with stack:
        with pytest.raises(NimbleError, match="the module, .* changes a switch of PyTorch .*restore it within"):
            Nimble(Sets(is_on).eval(), backend=backend).prepare(torch.ones(2, 4), relaxed=True)

    def puts_back():
        with switched():
            pass

    sets[0] = puts_back
    module = Sets(is_on).eval()
    assert torch.equal(Nimble(module, backend=backend).prepare(torch.ones(2, 4), relaxed=True)(torch.ones(2, 4)), module(torch.ones(2, 4)))


def test_what_another_thread_sets_stays(switch, backend):
    """These are global. Graphs prepared meanwhile may have kernels of both kinds."""
    is_on, switched = switch
    before, stack = is_on(), contextlib.ExitStack()

    class Slow(Net):
        def forward(self, x):
            if is_on() == before:
                other = threading.Thread(target=stack.enter_context, args=(switched(),))
                other.start()
                other.join()
            return super().forward(x)

    with stack:
        with pytest.raises(NimbleError, match="or another thread meanwhile, changes a switch"):
            Nimble(Slow(is_on).eval(), backend=backend).prepare(torch.ones(2, 4), relaxed=True)
        assert is_on() != before


@pytest.mark.skipif(not hasattr(torch._C, "_cuda_tunableop_enable"), reason="this PyTorch tunes nothing")
def test_tunable_ops():
    before = switches.kernels()
    torch._C._cuda_tunableop_enable(True)
    try:
        assert switches.kernels() is not before
    finally:
        torch._C._cuda_tunableop_enable(False)
    assert switches.kernels() is before
