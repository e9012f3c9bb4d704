"""Changes of a module outside of its calls, and a program's unordered streams: here their work runs as late as
possible."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.api.error_origin import raises_without_nimble  # noqa: E402
from nimble.auto.gradients import again  # noqa: E402
from nimble.graphs import restore  # noqa: E402
from nimble.graphs.restore import restored_afterwards  # noqa: E402
from nimble.guards.signatures import Call  # noqa: E402
from nimble.guards.state_keeper import StateKeeper  # noqa: E402
from fake import FakeCapture  # noqa: E402


@pytest.fixture
def backend():
    return FakeCapture()


@pytest.fixture
def rests():
    """How many calls were counted whenever no work was left: during a preparation, and at its end."""
    return []


def begun(backend, rests, fails=lambda: False, once=False):
    """A module that counts its calls on an unordered stream. `fails`: called in each; `once`: it does not count while
    that stream has work."""
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            if not (once and backend.to_do):
                backend.to_do.append(lambda: self.calls.data.add_(1))  # no version tells
            if fails():
                raise ValueError("not here")
            return self.layer(x)

    module = Beside().eval()
    backend.at_rest = lambda: rests.append(float(module.calls))
    backend.to_do.append(lambda: module.calls.data.add_(1))
    return module


@pytest.mark.parametrize("training", [False, True])
def test_a_preparation_that_fails(backend, rests, training):
    module = begun(backend, rests, lambda: backend.capturing)
    with pytest.raises(NimbleError, match="not here"):
        Nimble(module, backend=backend).prepare(torch.ones(3), training=training)
    assert rests[0] == rests[-1] == 1 and not backend.to_do
    assert max(rests) > 1, "its runs have counted, too"


@pytest.mark.parametrize("training", [False, True])
def test_calls_that_fall_back(backend, rests, training):
    module = begun(backend, rests, lambda: backend.capturing)
    module.train(training)
    model = Nimble(module, backend=backend, fallback=True)
    with pytest.warns(UserWarning, match="running eagerly"):
        for _ in range(3):
            model(torch.ones(3))
    backend.wait(None)
    assert float(module.calls) == 1 + 3


@pytest.mark.parametrize("training", [False, True])
def test_a_preparation_whose_first_run_works_beside(backend, rests, training):
    module = begun(backend, rests, once=True)
    Nimble(module, backend=backend).prepare(torch.ones(3), training=training)
    assert rests[0] == rests[-1] == 1 and max(rests) > 1 and not backend.to_do


def test_what_is_kept_is_kept_before_the_first_run(backend, rests, monkeypatch):
    """Copies may wait for their turn on the device, while such a stream does not: nothing runs before the copies."""
    order = []
    module = begun(backend, rests, lambda: order.append("run"))
    backend.at_rest = lambda: order.append("at rest")

    class Keeper(StateKeeper):
        def __init__(self, *given):
            super().__init__(*given)
            order.append("kept")

    monkeypatch.setattr(restore, "StateKeeper", Keeper)
    Nimble(module, backend=backend).prepare(torch.ones(3))
    assert order[:4] == ["at rest", "kept", "at rest", "run"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_tells_whose_an_error_is(backend, rests, fails):
    module = begun(backend, rests, lambda: fails)
    assert raises_without_nimble(module, Call((torch.ones(3),), {}, False, False), backend) == fails
    assert rests == [1, 1, 2, 1] and not backend.to_do


def test_a_run_for_gradients_that_are_differentiated(backend, rests):
    module = begun(backend, rests)
    x = torch.ones(3, requires_grad=True)
    again(lambda: module, type(module).forward, backend, x.device, Call((x,), {}, False, True)).sum().backward()
    assert rests == [1, 1, 2, 1] and not backend.to_do and x.grad is not None


@pytest.mark.parametrize("which", [2, 3, 4])
def test_all_is_put_back_where_waiting_fails(backend, rests, which):
    module = begun(backend, rests)
    random, waits = torch.get_rng_state(), []
    waiting = backend.wait

    def wait(device):
        waiting(device)
        waits.append(device)
        if len(waits) == which:
            raise RuntimeError("not now")

    backend.wait = wait
    with pytest.raises(RuntimeError, match="not now"), restored_afterwards(module, backend, torch.device("cpu")):
        module(torch.ones(3))
        torch.rand(1)
    backend.wait = waiting
    backend.wait(None)
    assert float(module.calls) == 1 and torch.equal(torch.get_rng_state(), random)
