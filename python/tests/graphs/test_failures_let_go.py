"""A failed capture keeps no memory: neither its run's tensors, nor arguments of calls. Python's collector is off."""

import gc
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from fake import FakeCapture  # noqa: E402
from nimble.errors import CaptureError, NimbleError  # noqa: E402
from nimble.capture.cuda_graph import quietly  # noqa: E402

CALLS = 10


@pytest.fixture(autouse=True)
def no_collection():
    """Some of PyTorch's own objects are left to the collector, once: those imported when a module first runs."""
    nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 1, 1, requires_grad=True)).sum().backward()
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Fails:
    """A net whose run fails as `how` says when it is captured; and its calls' tensors."""

    def __init__(self, how, trains=True):
        self.backend, self.how, self.seen = FakeCapture(), how, []
        self.net = nn.Linear(4, 4).train(trains)

    def forward(self, x, into):
        made = self.net(x)
        self.seen.append(weakref.ref(made))
        if self.how == "puts into its argument":
            into.append(1)
        if self.how != "puts into its argument" and self.backend.capturing:
            raise ValueError("own") if self.how == "raises" else RuntimeError("CUDA error: not while capturing")
        return torch.relu(made)

    def calls(self, call):
        """The errors of `count` calls."""
        raised = []
        for _ in range(CALLS):
            x = torch.ones(3, 4)
            self.seen.append(weakref.ref(x))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(x, [])
            except Exception as error:
                raised.append(str(error))
        return raised

    def are_left(self):
        self.backend.graphs.clear()
        return [each() for each in self.seen if each() is not None]


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("how", ["raises", "is no capture's", "puts into its argument"])
def test_a_step(how, fallback):
    fails = Fails(how)
    optimizer = torch.optim.SGD(fails.net.parameters(), lr=0.1)

    def train(x, into):
        optimizer.zero_grad()
        loss = fails.forward(x, into).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = nimble.step(train, modules=[fails.net], fallback=fallback, backend=fails.backend)
    raised = fails.calls(step)
    assert not raised if fallback else len(raised) >= 3 and len(set(raised)) == 1
    assert not fails.are_left()


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("how", ["raises", "is no capture's", "puts into its argument"])
def test_a_module(how, trains, fallback):
    fails = Fails(how, trains)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = fails.net

        def forward(self, x, into):
            return fails.forward(x, into)

    model = nimble.Nimble(Module().train(trains), fallback=fallback, backend=fails.backend)
    with torch.set_grad_enabled(trains):
        raised = fails.calls(model)
    assert not raised if fallback else len(raised) == CALLS and len(set(raised)) == 1
    assert not fails.are_left()


@pytest.mark.parametrize("error", [NimbleError("why"), CaptureError("why", "a.b"), CaptureError("why")])
def test_the_same_error_again(error):
    try:
        raise error from ValueError("inner")
    except NimbleError as raised:
        again = raised.again()
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error) and again.args == error.args
    assert again.__traceback__ is again.__cause__ is again.__context__ is None


def test_what_is_called_quietly_raises_and_is_not_kept():
    class Held:
        pass

    held = Held()
    known = weakref.ref(held)

    def fail(of):
        raise ValueError("inner")

    with pytest.raises(ValueError, match="inner"):
        quietly(lambda held=held: fail(held))
    del held
    assert known() is None
