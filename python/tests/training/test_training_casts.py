"""Autocast's own casts in a backward: graphs have separate casts."""

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from nimble import Nimble  # noqa: E402
from nimble.graphs.graph_io import Options  # noqa: E402
from replaying import Ops, ReplayedGraph, ReplayingCapture  # noqa: E402


class Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class ByFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        return Product.apply(x @ self.second, self.first)


class Checkpointed(ByFunction):
    def inner(self, x):
        return torch.relu(x @ self.second) @ self.first

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=False)


@pytest.fixture(autouse=True)
def replays_cast_nothing(monkeypatch):
    """Replays would cast the fake's ops again."""
    replay = ReplayedGraph.replay

    def outside(self):
        with torch.autocast("cpu", enabled=False):
            replay(self)

    monkeypatch.setattr(ReplayedGraph, "replay", outside)


@pytest.mark.parametrize("kind", [ByFunction, Checkpointed])
@pytest.mark.parametrize("within", [True, False])
def test_gradients_of_weights_that_change(kind, within):
    torch.manual_seed(1)
    mine, its = kind().train(), kind().train()
    its.load_state_dict(mine.state_dict())
    model = Nimble(mine, backend=ReplayingCapture())
    model._options = Options(True, True)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (mine, its)]
    for _ in range(8):
        x = torch.randn(4, 6)
        for run, optimizer in zip((model, its), optimizers):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = run(x).sum()
                if within:
                    loss.backward()
            if not within:
                loss.backward()
            optimizer.step()
        for one, other in zip(mine.parameters(), its.parameters()):
            assert torch.equal(one, other) and torch.equal(one.grad, other.grad)


def test_whether_casts_are_kept_is_of_another_kind():
    torch.manual_seed(1)
    mine, its = nn.Linear(16, 16).train(), nn.Linear(16, 16).train()
    its.load_state_dict(mine.state_dict())

    class Twice(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(self.layer(x).relu())

    model, theirs = Nimble(Twice(mine), backend=ReplayingCapture()), Twice(its)
    model.prepare(torch.ones(32, 16), training=True, relaxed=True)
    for is_kept in (True, True, False, False, True, False):
        x = torch.randn(32, 16)
        for run, layer in ((model, mine), (theirs, its)):
            layer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=is_kept):
                loss = run(x).float().square().sum()
            loss.backward()
        assert torch.equal(mine.weight.grad, its.weight.grad)


@pytest.mark.parametrize("is_kept", [True, False])
def test_inference_has_the_kernels_of_eager_runs(is_kept):
    """Casts that autocast keeps require gradients, by which torch.matmul chooses."""
    torch.manual_seed(1)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = x.transpose(0, 1)
            return self.first(self.second(self.first(x)).relu())

    module, x = Module().eval(), torch.randn(3, 5, 8)
    backend, eager = ReplayingCapture(), Ops()
    model = Nimble(module, backend=backend)
    model._options = Options(True, True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=is_kept):
        with eager:
            module(x)
        torch.clear_autocast_cache()
        for _ in range(3):
            assert torch.equal(model(x), module(x))
            torch.clear_autocast_cache()
            module.first.weight.mul_(2)
    (captured,) = [[str(op[0]) for op in entry._captured._ops] for entry in model._graphs]
    made = [str(op[0]) for op in eager.made]
    assert captured == made and captured.count("aten._to_copy.default") == (5 if is_kept else 7)
