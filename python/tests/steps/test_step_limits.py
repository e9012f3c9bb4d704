"""nimble.step: a Nimble within a step, and arguments that are not functions."""

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.step_state.closure_search import find  # noqa: E402
from test_step import WARM, nets, same, sgd, steps, training  # noqa: E402, F401


def test_a_nimble_within_a_step(nets, backend):
    """It runs as its module, which the search finds."""
    net, twin = nets
    model = nimble.Nimble(net, backend=backend).prepare(torch.randn(5, 4), training=True)
    step = nimble.step(training(model, sgd(net)), backend=backend)
    assert same(steps(step, net), steps(training(twin, sgd(twin)), twin))
    assert [g.replays for g in backend.graphs] == [4, 4, 8 - WARM]
    assert find(step.function, [], []).modules == [net]
    assert model(torch.randn(5, 4)).requires_grad and backend.graphs[0].replays == 5


def test_nothing_is_found(backend):
    with pytest.raises(NimbleError, match="no module or optimizer is found"):
        nimble.step(lambda x: x, backend=backend)(torch.ones(1))
    with pytest.raises(TypeError):
        nimble.step(3, backend=backend)


def test_arguments_that_require_gradients(nets, backend):
    net, _ = nets
    step = nimble.step(lambda x: net(x).sum().backward(), backend=backend)
    with pytest.raises(NimbleError, match="requires gradients, which a step"):
        step(torch.ones(2, 4, requires_grad=True))
    fallback = nimble.step(lambda x: net(x).sum().backward(), fallback=True, backend=backend)
    x = torch.ones(2, 4, requires_grad=True)
    with pytest.warns(UserWarning, match="the step runs eagerly"):
        fallback(x)
    assert x.grad is not None
