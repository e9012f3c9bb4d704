"""torch.compile(backend="nimble") with programs of all kinds: served by graphs where they can be, and right in any case. The GPU is a
fake."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from dynamo_tools import COMPARED, FIRST, check_same, compiler, nimble, served, why_traced  # noqa: E402,F401
from nimble.compile import traced_graph  # noqa: E402
from nimble.compile.graphed_call import MOST_GRAPHS  # noqa: E402

BEFORE = FIRST + COMPARED
CALLS = BEFORE + 3


def flat(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else [leaf for each in outputs for leaf in flat(each)] if isinstance(
        outputs, (list, tuple)) else [outputs]


def check(nimble, module, make, calls=CALLS, state=lambda module: [], **options):
    """Calls of the module, and of a copy that is not compiled, with the same arguments and random numbers."""
    plain = copy.deepcopy(module)
    compiled = torch.compile(module, backend=nimble, **options)
    for _ in range(calls):
        mine = make()
        want = copy.deepcopy(mine)
        random = torch.get_rng_state()
        got = flat(compiled(*mine))
        after = torch.get_rng_state()
        torch.set_rng_state(random)
        check_same([*got, *mine, *state(module)], [*flat(plain(*want)), *want, *state(plain)])
        assert torch.equal(after, torch.get_rng_state())
    return compiled


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


def x(rows=4):
    return (torch.randn(rows, 6),)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module(nimble, mode):
    with mode():
        check(nimble, Net().eval(), x, fullgraph=True)
    (report,) = nimble.reports()
    assert (report.served, report.compared) == (3, COMPARED) and report.as_traced == {"before it was prepared": FIRST}
    assert report.name.startswith("[0/0] forward (test_dynamo_backend.py:") and [each.state for each in report.graphs] == ["rewritten"]


def test_statistics_are_written(nimble):
    with torch.no_grad():
        check(nimble, Net().train(), x, state=lambda net: list(net.norm.buffers()))
    assert served(nimble) == 3


def test_graph_breaks_and_recompiles(nimble):
    class Broken(Net):
        scale = 1.0

        def forward(self, x):
            y = super().forward(x)
            torch._dynamo.graph_break()
            return y * self.scale, None, x.shape[0], y

    net = Broken().eval()
    with torch.no_grad():
        check(nimble, net, x)
        assert len(nimble.reports()) == 2 and served(nimble) == 6
        net.scale = 2.0
        check(nimble, net, x)
        net.train()
        check(nimble, net, x, state=lambda net: list(net.norm.buffers()))
    assert not why_traced(nimble)


@pytest.mark.parametrize("how", ["data", "assigned", "moved"])
def test_weights_elsewhere(nimble, how):
    net = Net().eval()
    with torch.no_grad():
        for _ in range(3):
            check(nimble, net, x)
            if how == "data":
                net.linear.weight.data = torch.randn(6, 6)
            elif how == "assigned":
                net.load_state_dict(Net().state_dict(), assign=True)
            else:
                net.double().float()
            net.linear.bias.add_(1)
    assert served(nimble) >= 9


def test_blocks_that_share_a_traced_graph(nimble, monkeypatch):
    blocks = nn.ModuleList([Net() for _ in range(5)]).eval()
    plain = copy.deepcopy(blocks)
    for block in blocks:
        block.compile(backend=nimble)

    def call(number, times):
        for _ in range(times):
            given = torch.randn(4, 6)
            check_same([blocks[number](given)], [plain[number](given)])

    with torch.no_grad():
        for _ in range(CALLS):
            for number in range(5):
                call(number, 1)
        assert served(nimble) == 15 and len(nimble.reports()) == 1
        monkeypatch.setattr(traced_graph, "MOST_ADDRESSES", 5)
        blocks[0].linear.weight.data = plain[0].linear.weight.data.clone()
        call(0, CALLS)
        assert why_traced(nimble) == {"its weights are in more than 5 places"}
        call(1, traced_graph._STALE)
        before = served(nimble)
        call(0, CALLS)  # another's graph makes room, which has not been used for long
        assert served(nimble) == before + 3
        for number in range(5):
            call(number, 2)


def test_a_cache_that_is_marked(nimble):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x, cache, place):
            cache.index_copy_(0, place, self.linear(x))
            return cache.sum(0), cache

    net, cache = Cached(), torch.zeros(8, 6)
    torch._dynamo.mark_static_address(cache)
    plain, others = copy.deepcopy(net), torch.zeros(8, 6)
    compiled = torch.compile(net, backend=nimble)
    with torch.no_grad():
        for call in range(CALLS):
            given, place = torch.randn(1, 6), torch.tensor([call % 8])
            got, want = compiled(given, cache, place), plain(given, others, place)
            check_same([*got, cache], [*want, others])
            assert got[1] is cache
    assert served(nimble) == 3


@pytest.mark.parametrize("without, moves", [(1.0000001, 5), (2.0, 9)])
def test_a_cache_that_is_another_one_each_time(monkeypatch, without, moves):
    """Graphs are made for new ones as long as those for others have paid for themselves."""
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    nimble = compiler(without=without)

    def function(x, cache):
        cache.mul_(0.5).add_(x)
        return cache + 1

    compiled, kept = torch.compile(function, backend=nimble), []
    with torch.no_grad():
        for _ in range(9):
            ours, theirs = torch.zeros(4, 6), torch.zeros(4, 6)
            torch._dynamo.mark_static_address(ours, guard=False)
            kept.append(ours)
            for _ in range(CALLS):
                (given,) = x()
                check_same([compiled(given, ours), ours], [function(given, theirs), theirs])
    assert served(nimble) == 3 * moves and (why_traced(nimble) == set()) == (moves == 9)
    assert sum(len(report.graphs) for report in nimble.reports()) <= 1


def test_arguments_that_are_written_and_returned(nimble):
    def function(x, y):
        x.mul_(2)
        y[0].add_(x.sum())
        return x, y.t(), y[:, 1:], x + y, y.view(-1)

    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            compiled = check(nimble, function, lambda: (torch.randn(4, 6), torch.randn(6, 6)[:4]))
            memory = torch.randn(8, 6)  # in the same memory
            for overlapping in (lambda m: (m[:4], m[2:6]), lambda m: (m[4:], m[:4])):
                other = memory.clone()
                check_same([*compiled(*overlapping(memory)), memory], [*function(*overlapping(other)), other])
    assert served(nimble) == 6 and why_traced(nimble) == {"its arguments share memory"}


def test_symbolic_sizes_are_bounded(nimble):
    net = Net().eval()
    with torch.no_grad():
        for rows in range(2, 2 + MOST_GRAPHS + 3):
            check(nimble, net, lambda: x(rows), calls=2, dynamic=True)
        assert served(nimble) == 0 and not any(report.compared for report in nimble.reports()[:-1]), "sizes that grow"
        for rows in range(2, 2 + MOST_GRAPHS + 3):
            check(nimble, net, lambda: x(rows), calls=MOST_GRAPHS + COMPARED, dynamic=True)
    assert served(nimble) >= MOST_GRAPHS and why_traced(nimble) == {f"its shapes are of more than {MOST_GRAPHS} kinds"}


def test_numbers_of_the_program(nimble):
    def function(x, factor, count):
        return x * factor + count

    def make(factor, count):
        return lambda: (torch.ones(3), factor, count)

    compiled = None
    for factor, count in ((0.5, 1), (1.5, 2), (-0.0, 2), (0.0, 2), (2.5, 3), (0.5, 1)):
        compiled = check(nimble, function, make(factor, count))
    assert served(nimble) >= 9 and compiled is not None


def test_functions_without_much(nimble):
    def identity(x):
        return x

    def only_views(x):
        return x.t(), x[0]

    def nothing_read():
        return torch.ones(3) * 2

    for function, make in ((identity, x), (only_views, x), (nothing_read, tuple)):
        check(nimble, function, make)
    assert why_traced(nimble) <= {"it has no ops", "it reads no tensor", "none of its arguments is a tensor"}


def test_autocast_inside(nimble):
    class Cast(Net):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
            return self.norm(y.float()), y

    with torch.no_grad():
        check(nimble, Cast().eval(), x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            check(nimble, Net().eval(), x)
    assert served(nimble) == 6


def test_hooks_and_random_numbers(nimble):
    net = Net().eval()
    net.linear.register_forward_hook(lambda module, given, output: output + 1)
    net.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    with torch.no_grad():
        check(nimble, net, x)
        check(nimble, nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), x)
    assert served(nimble) >= 6


def test_gradients_as_traced(nimble):
    net = Net().train()
    plain = copy.deepcopy(net)
    compiled = torch.compile(net, backend=nimble)
    for _ in range(CALLS):
        (given,) = x()
        for each in (compiled, plain):
            each(given).square().sum().backward()
        check_same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])
    assert served(nimble) == 0 and why_traced(nimble) == {"it computes gradients"}


def test_gradients_inside(nimble):
    net = nn.Linear(6, 6)

    def function(x):
        with torch.enable_grad():
            y = net(x)
        return y

    compiled = torch.compile(function, backend=nimble)
    with torch.no_grad():
        for _ in range(CALLS):
            (given,) = x()
            check_same([compiled(given)], [function(given)])
    assert served(nimble) == 0


def test_with_gradients_enabled_that_none_requires(nimble):
    check(nimble, Net().eval().requires_grad_(False), x)
    assert served(nimble) == 3


def test_ops_of_functions(nimble):
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    with torch.no_grad():
        check(nimble, function, x)
    assert served(nimble) == 0


def test_optimizers(nimble):
    """Compiled whole, as PyTorch documents: parameters and their state are written."""
    ours, theirs = nn.Linear(6, 6), nn.Linear(6, 6)
    theirs.load_state_dict(ours.state_dict())
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True) for net in (ours, theirs)]
    steps = [torch.compile(optimizers[0].step, backend=nimble), optimizers[1].step]
    for _ in range(2 * CALLS):
        for p, q in zip(ours.parameters(), theirs.parameters()):
            p.grad = torch.randn_like(p) if p.grad is None else p.grad.normal_()
            q.grad = p.grad.clone()
        for step in steps:
            step()
        check_same([p.detach() for p in ours.parameters()], [p.detach() for p in theirs.parameters()])
