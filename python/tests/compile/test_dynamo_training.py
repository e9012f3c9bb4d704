"""torch.compile(backend="nimble", options={"training": True}): forward and backward as graphs, with the gradients of
torch.compile(backend="aot_eager"), to the bit. The GPU is a fake."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from dynamo_tools import COMPARED, FIRST, check_same, compiler, nimble, served, why_traced  # noqa: E402,F401

CALLS = FIRST + FIRST + COMPARED + 3  # a backward waits for a first call of its forward
TRAINING = {"training": True}
FIRST_MODE = "under a torch function or dispatch mode"  # PyTorch checks custom ops in the first call of a forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 6)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.embedding = nn.LayerNorm(8), nn.Linear(8, 24), nn.Embedding(11, 8)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).sum(1) + x[..., :4], q


def both(module, nimble):
    """The module compiled, and a copy compiled by aot_eager."""
    plain = copy.deepcopy(module)
    return torch.compile(module, backend=nimble, options=TRAINING), torch.compile(plain, backend="aot_eager"), plain


def state(module):
    return [*module.state_dict().values(), *[p.grad for p in module.parameters()]]


def with_the_same_random_numbers(*functions):
    random = torch.get_rng_state()
    results = []
    for function in functions:
        torch.set_rng_state(random)
        results.append((function(), torch.get_rng_state()))
    assert all(torch.equal(results[0][1], after) for _, after in results)
    return [result for result, _ in results]


@pytest.mark.parametrize("module, make", [
    (Net, lambda: torch.randn(4, 6)), (Attention, lambda: torch.randint(10, (2, 5))),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.LazyLinear(3)), lambda: torch.randn(2, 3, 6, 6)),
], ids=["net", "attention", "convolution"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training(nimble, module, make, optimizer):
    ours = module()
    ours(make())  # lazy ones
    mine, other, plain = both(ours, nimble)
    steps = [optimizer(each.parameters(), lr=0.01) for each in (ours, plain)]
    for _ in range(CALLS):
        x = make()

        def step(function, optimizer):
            optimizer.zero_grad()
            outputs = function(x)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            loss = sum(output.square().mean() for output in outputs)
            loss.backward()
            optimizer.step()
            return [loss.detach(), *[output.detach() for output in outputs]]

        got, want = with_the_same_random_numbers(lambda: step(mine, steps[0]), lambda: step(other, steps[1]))
        check_same(got, want)
        check_same(state(ours), state(plain))
    assert served(nimble) >= 5 and why_traced(nimble) <= {FIRST_MODE}, nimble.reports()
    assert [report.name.split()[-1] for report in nimble.reports()] == ["backward", "forward"]
    shapes = [f"float32{list(p.shape)}" for p in ours.parameters() if p.dim() > 1]
    assert not any(shape in graph.signature for report in nimble.reports() for graph in report.graphs for shape in shapes), "weights are copied"


def test_inputs_that_require_gradients(nimble):
    ours = Net()
    mine, other, plain = both(ours, nimble)
    for _ in range(CALLS):
        x = torch.randn(4, 6)
        given = [x.clone().requires_grad_() for _ in range(2)]
        outputs = with_the_same_random_numbers(lambda: mine(given[0]), lambda: other(given[1]))
        tangent = torch.randn(4, 6)
        for output in outputs:
            output.backward(tangent)
        check_same([given[0].grad, *state(ours)], [given[1].grad, *state(plain)])
    assert served(nimble) >= 5


def test_forwards_before_backwards(nimble):
    """In any order, also twice."""
    ours = Net()
    mine, other, plain = both(ours, nimble)
    for _ in range(CALLS):
        losses = []
        for _ in range(3):
            x = torch.randn(4, 6)
            losses.append([y.square().sum() for y in with_the_same_random_numbers(lambda: mine(x), lambda: other(x))])
        for number in (1, 0, 2, 1):
            for loss in losses[number]:
                loss.backward(retain_graph=True)
        check_same(state(ours), state(plain))
    assert served(nimble) > 3 * CALLS


def test_frozen_and_without_gradients(nimble):
    ours = Net()
    ours.first.requires_grad_(False)
    mine, other, plain = both(ours, nimble)
    for call in range(2 * CALLS):
        x = torch.randn(4, 6)
        if call % 2:
            for y in with_the_same_random_numbers(lambda: mine(x), lambda: other(x)):
                y.sum().backward()
        else:
            with torch.no_grad():
                check_same(*[[y] for y in with_the_same_random_numbers(lambda: mine(x), lambda: other(x))])
        check_same(state(ours), state(plain))
    assert served(nimble) >= 8


def test_accumulated_gradients_and_symbolic_sizes(nimble):
    ours = Net()
    mine, other, plain = both(ours, nimble)
    for rows in (4, 5, 6):
        for _ in range(CALLS):
            x = torch.randn(rows, 6)
            for y in with_the_same_random_numbers(lambda: mine(x), lambda: other(x)):
                y.square().sum().backward()
            check_same(state(ours), state(plain))
    assert served(nimble) >= 12


def test_a_backward_that_never_comes(nimble):
    ours = Net().eval()
    mine, other, plain = both(ours, nimble)
    for _ in range(CALLS):
        x = torch.randn(4, 6)
        check_same([mine(x).detach()], [other(x).detach()])
    assert served(nimble) >= 2


def test_autocast_and_checkpoints(nimble):
    from torch.utils.checkpoint import checkpoint

    class Wrapped(Net):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = checkpoint(self.first, x, use_reentrant=False)
            return self.last(self.norm(torch.tanh(y).float()))

    ours = Wrapped()
    mine, other, plain = both(ours, nimble)
    for _ in range(CALLS):
        x = torch.randn(4, 6)
        for function in (mine, other):
            function(x).square().sum().backward()
        check_same(state(ours), state(plain))
    assert served(nimble) >= 5


def test_a_training_nimble_around_it(nimble):
    """Forward and backward become a part of its graphs."""
    from nimble import Nimble
    from fake import FakeCapture

    ours = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    plain = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend=nimble, options=TRAINING)

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = ours

        def forward(self, x):
            return compiled(x) * 2

    around = Nimble(Around().train(), fallback=True, backend=FakeCapture())
    for _ in range(CALLS):
        x = torch.randn(4, 6)
        around(x).square().sum().backward()
        (plain(x) * 2).square().sum().backward()
        for p, q in zip(ours.parameters(), plain.parameters()):
            assert torch.allclose(p.grad, q.grad, atol=1e-4)


def test_without_the_option(nimble):
    ours = Net()
    compiled = torch.compile(ours, backend=nimble)
    for _ in range(CALLS):
        compiled(torch.randn(4, 6)).sum().backward()
    assert why_traced(nimble) == {"it computes gradients"}


def test_without_parameters(nimble):
    compiled = torch.compile(lambda x: (x.sin() * x).sum(), backend=nimble, options=TRAINING)
    for _ in range(CALLS):
        x = torch.randn(4, requires_grad=True)
        compiled(x).backward()
        want = x.detach().clone().requires_grad_()
        torch.compile(lambda x: (x.sin() * x).sum(), backend="aot_eager")(want).backward()
        check_same([x.grad], [want.grad])
    assert served(nimble) >= 5


def test_the_setting_of_the_user(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setenv("NIMBLE_TORCH", "training")
    torch._dynamo.reset()
    nimble, ours = compiler(), Net()
    compiled = torch.compile(ours, backend=nimble)
    for _ in range(CALLS):
        compiled(torch.randn(4, 6)).sum().backward()
    assert served(nimble) >= 5
