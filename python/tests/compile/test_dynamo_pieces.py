"""torch.compile(backend="nimble") of graphs with symbolic sizes, in pieces: what is cut, and what could go wrong between pieces, by name. The
GPU is a fake."""

import copy
import gc
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from dynamo_tools import check_same, compiler, pieces_of, served, why_traced  # noqa: E402
from nimble import CaptureError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

LENGTHS = (3, 5, 4, 9, 7, 6, 8, 11, 10)
SERVED = len(LENGTHS) - 5  # as traced, as traced with buffers, three compared


@pytest.fixture(autouse=True)
def no_lines_at_exit(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def nimble(backend):
    return compiler(backend)


def many(x, times=4):
    """Enough ops for a piece."""
    for _ in range(times):
        x = torch.tanh(x * 1.5 + 0.25)
    return x


def arguments(length):
    return torch.randn(4, 6), torch.randn(length, 6)


def check(nimble, function, make=arguments, state=(), lengths=LENGTHS, kept=None):
    """Calls of the function and of a copy that is not compiled, with more and other rows in the second argument. Whatever calls return
    is kept, and compared after each."""
    plain = copy.deepcopy(function)
    compiled, ours, theirs = torch.compile(function, backend=nimble), *(kept or ([], []))
    for length in lengths:
        mine = make(length)
        want = copy.deepcopy(mine)
        torch._dynamo.maybe_mark_dynamic(mine[1], 0)
        random = torch.get_rng_state()
        with torch.no_grad():
            expected = plain(*want)
            after = torch.get_rng_state()
            torch.set_rng_state(random)
            ours.extend((*compiled(*mine), *mine))
        theirs.extend((*expected, *want))
        check_same([*ours, *[getattr(function, name) for name in state]], [*theirs, *[getattr(plain, name) for name in state]])
        assert torch.equal(after, torch.get_rng_state())
    return compiled


def test_a_growing_cache(nimble, backend):
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x, past):
            new = many(self.one(x))
            past = torch.cat([past, new])
            return past, self.two(many(torch.softmax(new @ past.t(), -1) @ past))

    check(nimble, Step())
    first, second = pieces_of(nimble)
    assert backend.captures == 2 and first.served == second.served == SERVED
    (report,) = nimble.reports()
    assert (report.served, report.compared) == (SERVED, 3) and report.as_traced == {"before it was prepared": 2}
    assert len(report.graphs) == 2 and first.name.endswith(", piece 1 of 2")


@pytest.mark.parametrize("function, served_calls", [
    (lambda x, past: (many(past).sum(0),), None),  # all of it is symbolic
    (lambda x, past: (many(past).sum(0) + many(x, 1),), None),  # few ops are not
    (lambda x, past: (torch.as_strided(many(x), (6, 4), (1, 6)) + past.sum(),), None),  # it looks around tensors
    (lambda x, past: (torch.vmap(lambda row: many(row) + past.sum())(x),), None),  # tensors are not what they seem
])
def test_what_is_not_cut(nimble, backend, function, served_calls):
    check(nimble, function)
    assert not pieces_of(nimble) and backend.captures == 0 and len(nimble.reports()) == 1


def test_without_symbolic_sizes(nimble, backend):
    check(nimble, lambda x, past: (many(x) + past.sum(),), lengths=(4,) * 6)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: many(x), backend=nimble, dynamic=False)
    for _ in range(6):
        compiled(torch.randn(4, 6))
    assert any(report.served == 2 for report in nimble.reports())


def test_outputs_are_the_callers_own(nimble):
    """Those of a piece, views of them that ops between pieces make, and several on one memory."""
    def function(x, past):
        y, z = many(x), many(x + 1)
        length = past.shape[0]
        return y, past * 2, z.expand(length, 4, 6), z[None].expand(length, 4, 6)[0, 1:]

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_outputs_that_the_program_writes_to(nimble):
    def function(x, past):
        y = many(x)
        return y, y[1:], past + y.sum()

    plain, compiled = copy.deepcopy(function), torch.compile(function, backend=nimble)
    for length in LENGTHS:
        mine = arguments(length)
        torch._dynamo.maybe_mark_dynamic(mine[1], 0)
        with torch.no_grad():
            got, want = compiled(*mine), plain(*mine)
        for outputs in (got, want):
            outputs[1].mul_(2)
        check_same(got, want)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_a_write_between_pieces(nimble):
    def function(x, past):
        y = many(x)
        y.mul_(past.shape[0])
        return many(y), past + 1

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_a_write_between_pieces_through_one_of_two_views(nimble):
    def function(x, past):
        y = many(x)
        one, other = y[1:], y.t()
        one.mul_(past.shape[0])
        return many(other), past + y.sum()

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_a_write_between_pieces_through_a_view_of_an_argument(nimble):
    def function(x, past):
        y = many(x)
        view = x.t()  # in the piece
        view.mul_(past.shape[0])
        return many(y + x), past * 2

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_a_piece_writes_to_what_is_the_callers(nimble):
    """To an argument, to the state of a module, and to a view of a tensor that grows."""
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.ones(4, 6))

        def forward(self, x, past):
            last = past[0]
            x.add_(many(x))
            self.state.mul_(many(x))
            last.copy_(many(last))
            return past.sum(0), many(self.state + x), last, x.t()

    check(nimble, Writes(), state=["state"])
    assert served(nimble) == SERVED, why_traced(nimble)


def test_a_piece_writes_to_one_of_two_views_of_what_grows(nimble):
    def function(x, past):
        one, other = past[0], past[:2].view(-1)[3:9]
        one.add_(many(one))
        return many(one + other), past * 2

    check(nimble, function)
    assert len(pieces_of(nimble)) == 1 and served(nimble) == 0 and not why_traced(nimble)


def test_a_piece_returns_a_view_of_what_it_is_given(nimble):
    def function(x, past):
        first = past[0]
        y = many(x + first)
        view = first.view(2, 3)  # in a piece
        y = many(y + view.sum())
        return y + past.sum(), view, x.t(), x

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


def test_values_that_cross_several_pieces(nimble):
    def function(x, past):
        y = many(x)
        z = many(y + past.mean())
        w = many(z + past.std() + y)
        return many(w * past.sum() + y + z), past.t()

    check(nimble, function)
    assert len(pieces_of(nimble)) >= 3 and served(nimble) == SERVED


def test_random_numbers_in_and_between_pieces(nimble):
    def function(x, past):
        y = nn.functional.dropout(many(x), 0.5, True)
        past = past + torch.rand_like(past)
        return many(y * past.mean() + torch.randn(4, 6)), past

    check(nimble, function)
    assert served(nimble) == SERVED, why_traced(nimble)


@pytest.mark.parametrize("mode", [lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad, torch.inference_mode])
def test_modes_around_pieces(nimble, mode):
    class Modes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)
            self.requires_grad_(False)

        def forward(self, x, past):
            with mode():
                y = many(self.linear(x))
                past = self.linear(torch.cat([past, y]))
                z = many(self.linear(y)) + past.sum()
            return many(self.linear(z.float())), past, torch.tensor(torch.is_grad_enabled())

    check(nimble, Modes())
    assert served(nimble) == SERVED and len(pieces_of(nimble)) >= 2


def test_an_op_that_keeps_what_it_is_given(nimble):
    kept = []

    @torch.library.custom_op("nimble_test::keep", mutates_args=())
    def keep(x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x + past.sum()

    keep.register_fake(lambda x, past: torch.empty_like(x))

    def function(x, past):
        return many(keep(many(x), past)), past + 1

    values = []
    compiled = torch.compile(function, backend=nimble)
    with torch.no_grad():
        for length in LENGTHS:
            mine = arguments(length)
            torch._dynamo.maybe_mark_dynamic(mine[1], 0)
            compiled(*mine)
            values.append(many(mine[0]))
    assert served(nimble) == SERVED, why_traced(nimble)
    check_same([each for each in kept if each.shape == (4, 6)][-len(values):], values)


@pytest.mark.parametrize("function", [
    lambda x, past: (many(x) * past.mean(), past * 2),  # of a piece's output
    lambda x, past: _write_to(many(x), past),  # contiguous() is a copy, or is not
])
def test_a_layout_that_changes(nimble, function):
    """Dynamo's guards do not let that happen to its arguments."""
    check(nimble, function, lengths=LENGTHS[:7])
    (graph,) = nimble._live.all()
    before = served(nimble)
    with torch.no_grad():
        for _ in range(6):
            for x in (torch.randn(6, 4).t(), torch.randn(4, 6)):
                past = torch.randn(5, 6)
                check_same(list(graph(in_order(graph, x, past))), list(function(x, past)))
    assert before == 2 and "its outputs change their layout, or what they share memory with" in why_traced(nimble)


def _write_to(y, past):
    z = y.contiguous()
    z.mul_(past.shape[0])
    return y + past.sum(), z * past.std()


def in_order(graph, x, past):
    """The arguments as the traced graph takes them."""
    names = [node.name for node in graph._run.__self__.graph.nodes if node.op == "placeholder"]
    return [x if "x" in name else past if "past" in name else past.shape[0] for name in names]


def test_weights_elsewhere(nimble, backend):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x, past):
            return many(self.linear(x)) + past.sum(), past + 1

    net = Net()
    check(nimble, net)
    net.linear.weight.data = torch.randn(6, 6)
    check(nimble, net)
    assert served(nimble) >= 2 * SERVED - 1 and backend.captures == 2


def test_threads(nimble, backend):
    def function(x, past):
        y = many(x)
        return many(y * past.mean()) + y, past + y.sum()

    compiled = check(nimble, function)
    failures, barrier = [], threading.Barrier(3)

    def work():
        try:
            barrier.wait()
            with torch.no_grad():
                for call in range(40):
                    mine = arguments(LENGTHS[call % len(LENGTHS)])
                    check_same(compiled(*mine), function(*mine))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and served(nimble) > SERVED


def test_what_the_graph_raises(nimble):
    def function(x, past, index):
        y = many(x)
        return many(y * past[index].mean()), past + 1

    compiled = torch.compile(function, backend=nimble)
    with torch.no_grad():
        for call in range(24):
            mine = arguments(3 + call % 5)
            torch._dynamo.maybe_mark_dynamic(mine[1], 0)
            if call % 3 == 2:
                with pytest.raises(IndexError, match="out of"):
                    compiled(*mine, torch.tensor([9]))
            else:
                index = torch.tensor([call % 3])
                check_same(compiled(*mine, index), function(*mine, index))
    assert served(nimble) > 0


def test_where_no_piece_can_be_captured(nimble, backend):
    def fails():
        raise CaptureError("the host waits")

    backend.at_capture = fails
    check(nimble, lambda x, past: (many(x) + past.sum(),), lengths=(*LENGTHS, 3, 4, 5))
    (report,) = nimble.reports()
    assert report.served == 0 and list(report.as_traced.values()) == [2, len(LENGTHS) + 3 - 2]


def test_graphs_go_with_what_dynamo_has_compiled(nimble, backend):
    compiled = check(nimble, lambda x, past: (many(x) + past.sum(),))
    assert backend.closed == 0 and compiled is not None
    torch._dynamo.reset()
    gc.collect()
    assert nimble.reports() == [] and backend.closed == backend.captures == 1
