"""nimble.auto: graphs that are launched before the module is checked."""

import sys
import threading
from functools import partial

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from nimble.auto.value_snapshot import tensors_in  # noqa: E402
from nimble.auto.traced_guard import TracedModuleGuard  # noqa: E402
from auto_tools import (COMPARED, EAGER_FIRST, Net, as_it_is, auto, backend, graphs, module_with, net, prepared, run,  # noqa: E402, F401
                        served)

AHEAD, BEHIND = ["launch", "look"], ["look", "launch"]
TABLE = torch.ones(3)
PLAIN = [1.0, {"a": (2, "b")}]


@pytest.fixture
def order(auto, backend, monkeypatch):
    """order(module): the order of events in a call."""
    seen = []
    look = TracedModuleGuard.difference
    monkeypatch.setattr(TracedModuleGuard, "difference", lambda self: seen.append("look") or look(self))
    backend.spoil = lambda graph: seen.append("launch")

    def of(module):
        seen.clear()
        run(module, 1)
        return list(seen)

    return of


def of_a_table(self, x):
    return x * TABLE


def of_numbers(self, x):
    return x * PLAIN[0] * self.numbers["b"][0]


def with_statistics(self, x):
    self.seen.add_(1)
    return x * 2


def with_noise(self, x):
    return x + torch.rand(3)


def test_the_graph_is_launched_first(auto, backend, net, order):
    prepared(auto, backend, net)
    assert order(net) == AHEAD and order(net) == AHEAD
    numbers = prepared_anew(auto, backend, module_with(of_numbers, numbers={"b": [3.0]}, config=Config()))
    assert order(numbers) == AHEAD


def prepared_anew(auto, backend, module):
    run(module, EAGER_FIRST + COMPARED)
    assert graphs(auto, module) == 1, served(auto, module).reasons()
    return module


@pytest.mark.parametrize("forward, members", [
    (of_a_table, {}),
    (lambda self, x: x * self.tables[0], {"tables": [torch.ones(3)]}),
    (lambda self, x: x * self.deep["a"]["b"]["c"], {"deep": {"a": {"b": {"c": torch.ones(3)}}}}),
    (lambda self, x: x * self.keeper.table, {"keeper": type("Keeper", (), {"table": torch.ones(3)})()}),
])
def test_where_it_may_read_other_memory_the_look_comes_first(auto, backend, order, forward, members):
    """Memory that is not watched, and may have been freed."""
    module = prepared_anew(auto, backend, module_with(forward, **members))
    assert order(module) == BEHIND


def test_effects_come_after_the_check(auto, backend, order):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        forward = with_statistics

    module = prepared_anew(auto, backend, Counting().eval())
    assert order(module) == BEHIND
    torch.manual_seed(0)
    noisy = module_with(with_noise)
    for _ in range(EAGER_FIRST + COMPARED):
        noisy(torch.ones(3))
    assert graphs(auto, noisy) == 1
    random = torch.get_rng_state()
    want = torch.ones(3) + torch.rand(3)
    torch.set_rng_state(random)
    assert torch.equal(noisy(torch.ones(3)), want)


def test_memory_that_is_gone(auto, backend, net, order):
    prepared(auto, backend, net)
    backend.watches[-1].there = False
    assert order(net) == BEHIND


def test_nothing_of_the_module_is_kept(auto, backend):
    """Keeps neither the module nor its weights' memory."""
    import gc
    import weakref

    net = Net().eval()
    prepared(auto, backend, net)
    module, weight = weakref.ref(net), weakref.ref(net.last.weight)
    (graph,) = served(auto, net).graphs()
    assert graph.runs_ahead and graph._read == []
    del net
    gc.collect()
    assert module() is None and weight() is None


def test_a_graph_that_fails(auto, backend, net, order):
    prepared(auto, backend, net)

    launches = []

    def fail(graph):
        launches.append(graph)
        raise MemoryError("none left")

    backend.spoil = fail
    run(net, 3)
    assert len(launches) == 1 and graphs(auto, net) == 0 and any("MemoryError" in why for why, _ in served(auto, net).reasons())


def test_a_graph_that_another_thread_ends(auto, backend):
    """While it is about to be launched: its errors then do not reach the program."""
    class OpReads(nn.Module):
        def forward(self, x):
            return x * TABLE

    module = prepared_anew(auto, backend, OpReads().eval())
    (entry,) = [each for each in served(auto, module)._entries.values() if each.graph is not None]
    assert not entry.has_effects

    def end(graph):
        entry.begin_anew()
        raise MemoryError("it has gone")

    launches = backend.replays
    backend.spoil = end
    x = torch.randn(2, 3)
    assert torch.equal(module(x), x * TABLE) and backend.replays == launches + 1


def test_changes_under_threads(auto, backend, net):
    """A call returns the result of the module's state at some moment of the call."""
    prepared(auto, backend, net)
    failures = []

    def call():
        try:
            for _ in range(20):
                x = torch.randn(2, 3)
                assert net(x).shape == (2, 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for scale in range(20):
        net.scale = float(scale)
    for thread in threads:
        thread.join()
    assert not failures
    run(net, 20)


class Config:
    """As in model libraries."""

    kind = "bert"
    names = {"hidden": "size"}

    def __init__(self, **more):
        self.size, self.labels, self.inner = 3, {0: "cat"}, None
        self.__dict__.update(more)

    @property
    def double(self):
        return 2 * self.size


def circle():
    made = [1]
    made.append(made)
    return made


@pytest.mark.parametrize("value, may", [
    (1, False), ((1, "a"), False), ([1, {"a": 2.0}], False), (print, False), (torch, False), (dict, False), ({1, 2}, False),
    ({i: str(i) for i in range(1000)}, False), ([[[[[1]]]]], False), (as_it_is, False), (nn.Linear(2, 2), False), (Config(), False),
    (partial(as_it_is, 2), sys.version_info < (3, 10)), (circle(), False),  # whose parts old ones do not tell
    (torch.ones(1), True), ([torch.ones(1)], True), ({"a": [torch.ones(1)]}, True), (object(), False), ([[i] for i in range(30000)], True),
    (Config(table=torch.ones(1)), True), (type("Keeper", (), {"table": torch.ones(3)})(), True), (partial(as_it_is, torch.ones(1)), True),
    (type("Many", (list,), {})(), False), (iter([1]), True), (type("Many", (list,), {})([torch.ones(1)]), True),
    (type("Keeper", (), {"table": torch.ones(3)}), True), (lambda x, table=torch.ones(1): x, True), ([torch.ones(1)].append, True),
])
def test_what_may_hold_a_tensor(value, may):
    found, are_all = tensors_in([value])
    assert (bool(found) or not are_all) == may
