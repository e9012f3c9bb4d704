"""torch.compile(backend="nimble"): calls that repeat the last kind launch its CUDA graph while they are checked, and every check counts.
The GPU is a fake; runs with and without nimble_native."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from dynamo_tools import COMPARED, FIRST, check_same, compiler, served, why_traced  # noqa: E402
from nimble import native  # noqa: E402
from nimble.compile import traced_graph  # noqa: E402
from nimble.compile.graphed_call import Engine  # noqa: E402
from replaying import ReplayedGraph, ReplayingCapture  # noqa: E402

BEFORE = FIRST + COMPARED


@pytest.fixture(autouse=True, params=["as built", "python"])
def way(request, monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    if request.param == "python":
        monkeypatch.setattr(native, "watched", lambda *_: None)
        monkeypatch.setattr(native, "all_equal", native._all_equal)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Several parameters, the last of which is a buffer that nothing writes to."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(6, 6) for _ in range(4)])
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x):
        return self.layers(x) + self.shift


class Program:
    """A net that is compiled, and the same net without, with the fake graphs' launches and the kinds of calls."""

    def __init__(self, net, backend=None, **given):
        self.backend = backend or ReplayingCapture()
        self.nimble = compiler(self.backend)
        self.net, self.plain = net.eval(), copy.deepcopy(net).eval()
        self.compiled = torch.compile(self.net, backend=self.nimble, **given)
        self.order = []

    def call(self, times=1, x=None):
        with torch.no_grad():
            for _ in range(times):
                given = torch.randn(4, 6) if x is None else x
                check_same([self.compiled(given)], [self.plain(given)])

    def watch(self, monkeypatch):
        """From now on `order` has launches and checks."""
        order, original_replay, original_check = self.order, ReplayedGraph.replay, traced_graph._Kind.is_still
        monkeypatch.setattr(ReplayedGraph, "replay", lambda graph: order.append("launch") or original_replay(graph))
        monkeypatch.setattr(traced_graph._Kind, "is_still", lambda kind, given: order.append("check") or original_check(kind, given))
        return self

    def served(self):
        return served(self.nimble)


@pytest.fixture
def program(monkeypatch):
    made = Program(Net())
    made.call(BEFORE + 2)
    assert made.served() == 2
    return made.watch(monkeypatch)


def moved(tensor, of_plain):
    tensor.data = of_plain.data.clone()


def test_the_launch_comes_before_the_check(program):
    program.call(3)
    assert program.order == ["launch", "check"] * 3
    ((_, kind),) = [(report, report.graphs) for report in program.nimble.reports()]
    assert kind[0].runs_ahead and program.served() == 5 and program.backend.waits == 0


@pytest.mark.parametrize("number", range(9))
def test_weights_that_move(program, number):
    """The first is looked at before the launch; where another has moved, its outputs are not used."""
    tensors, plain = [*program.net.parameters(), program.net.shift], [*program.plain.parameters(), program.plain.shift]
    with torch.no_grad():
        plain[number].add_(1)
    moved(tensors[number], plain[number])
    launches = program.backend.replays
    program.call(1)
    assert program.served() == 2 and program.backend.replays - launches == program.backend.waits <= 1
    program.call(BEFORE + 2)
    assert program.served() > 2


def test_weights_that_are_written_to(program):
    with torch.no_grad():
        for mine, other in zip(program.net.parameters(), program.plain.parameters()):
            mine.mul_(2)
            other.mul_(2)
    program.call(2)
    assert program.served() == 4


def test_weights_that_are_swapped(program):
    """Each lies where another was."""
    for net in (program.net, program.plain):
        one, other = net.layers[1].weight, net.layers[3].weight
        one.data, other.data = other.data, one.data
    program.call(1)
    assert program.served() == 2


def test_a_switch_that_has_changed(program):
    enabled = torch.backends.cuda.flash_sdp_enabled()
    try:
        torch.backends.cuda.enable_flash_sdp(not enabled)
        program.call(1)
        assert program.served() == 2
    finally:
        torch.backends.cuda.enable_flash_sdp(enabled)
    program.call(2)
    assert program.served() == 4


@pytest.mark.parametrize("other", [lambda x: x[:3], lambda x: x.t().contiguous().t(), lambda x: torch.cat((x, x))])
def test_arguments_of_another_shape(other, monkeypatch):
    program = Program(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), dynamic=True)
    x = torch.randn(4, 6)
    program.call(BEFORE + 2, x)
    before = program.served()
    assert before
    program.call(1, other(x))
    assert program.served() == before
    program.call(1, x)
    assert program.served() == before + 1


@pytest.mark.parametrize("other", [torch.randn(1, 6), torch.randn(6, 4).t(), torch.randn(4, 6).double(), torch.randn(4, 1, 6)])
def test_shapes_that_follow_from_no_number(other):
    """Some would fit into the graph's memory, too."""
    nimble = compiler()
    weight = torch.randn(6)
    function = traced_graph.TracedGraph(lambda given: [given[0] * given[1]], lambda given: {1}, Engine(**nimble._engine), "name")
    for _ in range(BEFORE + 2):
        x = torch.randn(4, 6)
        check_same(function((x, weight)), [x * weight])
    check_same(function((other, weight)), [other * weight])
    assert function.served == 2
    x = torch.randn(4, 6)
    check_same(function((x, weight)), [x * weight])
    assert function.served == 3


def test_numbers_that_change():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.by = nn.Linear(6, 6), 3

        def forward(self, x):
            return self.linear(x) * self.by

    program = Program(Scaled(), dynamic=True)
    for by in (3, 5, 3, 7):  # symbolic once it has changed
        program.net.by = program.plain.by = by
        program.call(4 * BEFORE)
    program.net.by = program.plain.by = 3
    before = program.served()
    program.call(1)
    program.net.by = program.plain.by = 5
    program.call(2)
    assert program.served() == before + 3


def test_memory_that_is_gone(program):
    """Then nothing is launched before it is known that the weights are elsewhere."""
    for watch in program.backend.watches:
        watch.there = False
    program.call(1)
    assert program.order == ["check", "launch"]
    moved(program.net.shift, program.plain.shift)
    launches = program.backend.replays
    program.call(1)
    assert program.backend.replays == launches and program.backend.waits == 0


def test_a_graph_that_writes_is_checked_first(monkeypatch):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(6, 6), nn.Linear(6, 6)
            self.register_buffer("sum", torch.zeros(6))

        def forward(self, x):
            self.sum.add_(self.linear(x).sum(0))
            return self.other(x) + self.sum

    program = Program(Counting())
    program.call(BEFORE + 2)
    assert program.served() == 2
    program.watch(monkeypatch).call(2)
    assert program.order == ["check", "launch"] * 2
    moved(program.net.sum, program.plain.sum)
    moved(program.net.other.weight, program.plain.other.weight)
    program.call(1)
    check_same([program.net.sum], [program.plain.sum])
    assert not program.backend.waits


def test_blocks_in_their_order():
    """Each of them is expected after the one before it, and another one is not launched in vain."""
    blocks = nn.ModuleList([Net() for _ in range(4)]).eval()
    plain, backend = copy.deepcopy(blocks), ReplayingCapture()
    nimble = compiler(backend)
    for block in blocks:
        block.compile(backend=nimble)

    def call(numbers):
        with torch.no_grad():
            for number in numbers:
                x = torch.randn(4, 6)
                check_same([blocks[number](x)], [plain[number](x)])

    call([0, 1, 2, 3] * (BEFORE + 3))
    replays, before = backend.replays, served(nimble)
    call([0, 1, 2, 3, 3, 1, 2, 0, 0, 2, 1])
    assert served(nimble) == before + 11, nimble.reports()
    assert backend.replays == replays + 11 and not backend.waits
    moved(blocks[2].shift, plain[2].shift)
    call([0, 1, 2, 3] * (BEFORE + 4))
    assert backend.waits <= 2 and not why_traced(nimble)


def test_a_kind_that_is_let_go_is_no_longer_expected():
    """Although another came before it."""
    program = Program(nn.Sequential(nn.Linear(6, 6), nn.Tanh()), dynamic=True)
    one, other = torch.randn(4, 6), torch.randn(5, 6)
    for _ in range(4 * BEFORE):
        program.call(1, one)
        program.call(1, other)
    (function,) = program.nimble._live.all()[-1:]
    kinds = traced_graph._all(function._kinds)
    gone = function._after[function._last]
    assert gone in kinds
    function._remove(gone)
    assert gone not in function._after.values()
    before, graphs = program.served(), sum(len(report.graphs) for report in program.nimble.reports())
    for _ in range(BEFORE + 2):
        program.call(1, one)
        program.call(1, other)
    assert program.served() > before and sum(len(report.graphs) for report in program.nimble.reports()) == graphs + 1
    assert gone.call.graph is None
