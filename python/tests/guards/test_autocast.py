"""Autocast's dtype matters where a module begins it itself; and casts are kept until the outermost `with` ends, whether
or not it is enabled there."""

import contextlib

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


class Casting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu"):
            return self.inner(x)


@contextlib.contextmanager
def set_to(dtype):
    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", dtype)
    try:
        yield
    finally:
        torch.set_autocast_dtype("cpu", before)


def begun_with(dtype):
    return torch.autocast("cpu", dtype=dtype, enabled=False)


@pytest.mark.parametrize("within", [set_to, begun_with])
@pytest.mark.parametrize("trains", [False, True])
def test_what_a_module_casts_to_is_what_is_set(within, trains):
    module = Casting().train(trains)
    served = nimble.Nimble(module, backend=ReplayingCapture())
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16, torch.float16):
        with within(dtype), torch.set_grad_enabled(trains):
            x = torch.randn(5, 4)
            if not served.is_prepared(x):
                served.prepare(x, training=trains, relaxed=True)
            mine, its = served(x), module(x)
        assert mine.dtype is its.dtype is dtype and torch.equal(mine, its)
    assert len(served.report()) == (4 if trains else 2)


def test_what_a_module_casts_to_it_may_not_change():
    class Sets(Casting):
        def forward(self, x):
            torch.set_autocast_dtype("cpu", torch.float16)
            return super().forward(x)

    before = torch.get_autocast_dtype("cpu")
    try:
        with torch.no_grad(), pytest.raises(NimbleError, match="changes a switch"):
            nimble.Nimble(Sets().eval(), backend=ReplayingCapture()).prepare(torch.randn(5, 4), relaxed=True)
    finally:
        torch.set_autocast_dtype("cpu", before)


@pytest.mark.parametrize("around", [lambda: torch.autocast("cpu", enabled=False), lambda: torch.autocast("cuda", enabled=False),
                                    lambda: torch.autocast("cpu", torch.bfloat16)])
def test_a_step_that_comes_again_within_one_with(around):
    """Eager code keeps using the first one's casts, since the outermost `with` has not ended."""
    module = Casting()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def train(x):
        optimizer.zero_grad()
        module(x).float().square().mean().backward()
        optimizer.step()

    step = nimble.step(train, modules=[module], optimizers=[optimizer], backend=ReplayingCapture())
    for _ in range(6):
        with around():
            step(torch.randn(5, 4))
    with around():
        step(torch.randn(5, 4))
        with pytest.raises(NimbleError, match="again within one"):
            step(torch.randn(5, 4))
        with pytest.warns(UserWarning, match="several times within one"):
            step(torch.randn(5, 4))
