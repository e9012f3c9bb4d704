"""Comparing a graph's run with an eager one: each kind of difference is detected, and the program gets the eager run's
results."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble.graphs.compare import compare, differing_output  # noqa: E402
from nimble.guards.signatures import Call  # noqa: E402
from fake import FakeCapture  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("other", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))
        self.table = torch.ones(3)


@pytest.fixture
def module():
    return Holder()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def held(module, graph, eager, x=None):
    x = torch.ones(3) if x is None else x
    return compare(graph, eager, module, Call((x,), {}, False), torch.device("cpu"), ReplayingCapture(), lambda: 0.0)


def test_the_same(module):
    done = held(module, lambda: torch.ones(3), lambda: torch.ones(3))
    assert done.difference is None and done.failure is None and not done.has_effects and torch.equal(done.result, torch.ones(3))


def test_what_streams_that_wait_for_nothing_have_yet_to_write(module):
    backend = FakeCapture()
    backend.to_do.append(lambda: module.seen.add_(1))

    def run():
        module.seen.mul_(3)
        return torch.ones(3)

    done = compare(run, run, module, Call((torch.ones(3),), {}, False), torch.device("cpu"), backend, lambda: 0.0)
    backend.wait(None)
    assert done.difference is None and done.failure is None and module.seen.eq(3).all()


ONE = torch.ones(2)
NAN = torch.tensor([1, 0x7FC00001], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("ours, theirs", [
    (torch.ones(2), torch.tensor([1.0, 1.0 + 2.0 ** -23])), (torch.zeros(2), -torch.zeros(2)),
    (torch.ones(2), torch.ones(2).double()),
    (torch.ones(2), torch.ones(2, 1)), (torch.ones(2, 3), torch.ones(3, 2).t()), (torch.ones(2), torch.ones(2).requires_grad_()),
    (torch.ones(2), nn.Parameter(torch.ones(2), False)), (torch.ones(2), 1.0), (torch.ones(2), [torch.ones(2)]),
    ((1, 2), (1, 3)), (1, True), (0.0, -0.0), ("a", "b"), (None, 0), ([1], (1,)), ({"a": 1}, {"b": 1}), ([1], [1, 2]),
    ([ONE, ONE], [torch.ones(2), torch.ones(2)]), ([torch.ones(2), torch.ones(2)], [ONE, ONE]),
    (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64).conj()),
    (NAN, torch.tensor([NAN[0].item(), float("nan")])), (torch.ones(2), torch.ones(2, device="meta")),
    (torch.ones(2), torch.ones(2).to_sparse()),
])
def test_outputs_that_differ(ours, theirs):
    assert differing_output(ours, theirs) is not None


@pytest.mark.parametrize("one", [
    torch.ones(2), NAN, torch.ones(2, 3).t(), torch.ones(0), torch.tensor(1.5), torch.ones(2, dtype=torch.bool),
    torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64).conj(),
])
def test_outputs_that_do_not(one):
    assert differing_output(one, one.conj().clone().conj() if one.is_conj() else one.clone()) is None
    assert differing_output({"a": [one, (one, 1.5, None, float("nan"))]}, {"a": [one, (one, 1.5, None, float("nan"))]}) is None


def test_inference_tensors_differ():
    with torch.inference_mode():
        theirs = torch.ones(2)
    assert differing_output(torch.ones(2), theirs) is not None


@pytest.mark.parametrize("eager", [
    lambda m, x: m.seen.add_(2), lambda m, x: m.other.add_(1), lambda m, x: (m.seen.add_(1), m.other.add_(1)), lambda m, x: None,
    lambda m, x: (m.seen.add_(1), x.add_(1)),
])
def test_writes_that_differ(module, eager):
    x = torch.ones(3)
    twin, twins = Holder(), torch.ones(3)
    done = held(module, lambda: (module.seen.add_(1), torch.ones(3))[1], lambda: (eager(module, x), torch.ones(3))[1], x)
    eager(twin, twins)
    assert done.difference == "it writes other values to its buffers or arguments" and done.has_effects
    assert torch.equal(module.seen, twin.seen) and torch.equal(module.other, twin.other) and torch.equal(x, twins)


def test_writes_that_do_not(module):
    x = torch.ones(3)

    def run():
        module.seen.add_(1)
        x.mul_(2)
        return torch.rand(3)

    torch.manual_seed(1)
    done = held(module, run, run, x)
    assert done.difference is None and done.has_effects
    assert torch.equal(module.seen, torch.ones(3)) and torch.equal(x, torch.full((3,), 2.0))
    torch.manual_seed(1)
    assert torch.equal(done.result, torch.rand(3))


@pytest.mark.parametrize("draw", [lambda: torch.rand(2), lambda: None])
def test_random_numbers_that_differ(module, draw):
    torch.manual_seed(1)
    done = held(module, lambda: (torch.rand(1), torch.ones(3))[1], lambda: (draw(), torch.ones(3))[1])
    assert done.difference == "it draws a different number of random numbers" and done.has_effects
    state = torch.get_rng_state()
    torch.manual_seed(1)
    draw()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("output", [
    lambda m, x: x[:2], lambda m, x: m.weight[:2].detach(), lambda m, x: m.table, lambda m, x: m.seen[1:],
    lambda m, x: (lambda y: [y, y[:1]])(torch.ones(3)),
])
def test_outputs_that_share(module, output):
    x = torch.ones(3)
    done = held(module, lambda: [t.clone() for t in output(module, x)] if isinstance(output(module, x), list) else
                output(module, x).clone(), lambda: output(module, x), x)
    assert done.difference is not None and "shares memory" in done.difference


@pytest.mark.parametrize("graph, same", [
    (lambda y: [y, y[1:]], True), (lambda y: [y, y[:2]], False), (lambda y: [y, y[1:].clone()], False), (lambda y: [y[1:], y], False),
])
def test_outputs_that_share_with_each_other(module, graph, same):
    done = held(module, lambda: graph(torch.ones(3)), lambda: (lambda y: [y, y[1:]])(torch.ones(3)))
    assert (done.difference is None) == same


def test_outputs_that_are_an_argument_or_a_parameter(module):
    x = torch.ones(3)
    assert held(module, lambda: (x, module.weight), lambda: (x, module.weight), x).difference is None


def test_a_graph_that_fails(module):
    def graph():
        module.seen.add_(7)
        torch.rand(3)
        raise MemoryError("none")

    torch.manual_seed(1)
    state = torch.get_rng_state()
    done = held(module, graph, lambda: module.seen.clone())
    assert isinstance(done.failure, MemoryError) and torch.equal(done.result, torch.zeros(3)) and done.difference is None
    assert torch.equal(torch.get_rng_state(), state)


def test_what_the_eager_run_raises(module):
    def eager():
        module.seen.add_(1)
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        held(module, lambda: module.seen.add_(1), eager)
    assert torch.equal(module.seen, torch.ones(3))
