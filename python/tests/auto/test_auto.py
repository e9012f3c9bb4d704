"""nimble.auto: which calls of an unchanged program are prepared, compared, served, and which are left alone."""

import copy
import gc
import io
import pickle
import sys
import weakref
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from nimble import settings  # noqa: E402
from nimble.auto import calls  # noqa: E402
from nimble.guards import switches  # noqa: E402
from auto_tools import (COMPARED, EAGER_FIRST, Net, auto, backend, graphs, inside_one, module_with,  # noqa: E402, F401
                        net, prepared, run, said, served)

def test_calls_that_repeat_are_prepared(auto, backend, net):
    run(net, EAGER_FIRST)
    assert backend.captures == 0
    run(net, 1)
    assert backend.captures == 1
    run(net, 99)
    one = served(auto, net)
    # 3 at first, the 10th and the 100th of those with a graph.
    assert (one.compared, one.served, dict(one.eager)) == (5, 95, {"before it was prepared": 3})
    assert backend.captures == 1 and len(auto._modules) == 1  # nothing of what is inside


def test_compared_at_growing_distances(auto, backend, net):
    one = None
    at = []
    for number in range(1, 1011 + EAGER_FIRST):
        before = one.compared if one else 0
        run(net, 1)
        one = served(auto, net)
        if one.compared > before:
            at.append(number - EAGER_FIRST)
    assert at == [1, 2, 3, 10, 100, 1000]


def test_a_graph_for_each_kind_of_call(auto, backend, net):
    for _ in range(8):
        run(net, 1, 2, 3)
        run(net, 1, 5, 3)
    assert graphs(auto, net) == 2
    for size in range(1, 15):
        run(net, 7, size, 3)
    assert graphs(auto, net) == 8 and backend.closed == backend.captures - 8


def test_outputs_are_the_callers(auto, backend, net):
    prepared(auto, backend, net)
    one = net(torch.ones(2, 3))
    kept = one.clone()
    net(torch.zeros(2, 3))
    assert torch.equal(one, kept)


def test_training_runs_as_it_is(auto, backend, net):
    with torch.enable_grad():
        for _ in range(9):
            net(torch.ones(2, 3)).sum().backward()
    net.train()
    run(net, 9)
    assert net.last.weight.grad is not None and backend.captures == 0
    net.eval().requires_grad_(False)
    with torch.enable_grad():
        x = torch.ones(2, 3, requires_grad=True)
        for _ in range(9):
            net(x).sum().backward()
    assert x.grad is not None and backend.captures == 0
    (line,) = auto.report()
    assert "(18 with gradients enabled: use torch.no_grad() around the calls, or" in line and "; 9 training)" in line


def test_tracing_profiling_and_transforms(auto, backend, net):
    prepared(auto, backend, net)
    replays = backend.replays
    x = torch.ones(2, 3)
    torch.jit.trace(net, (x,), check_trace=False)  # the check is a call like any other
    torch.fx.symbolic_trace(net)
    with torch.autograd.profiler.profile():
        net(x)
    torch.func.vmap(net)(torch.ones(4, 2, 3))
    with torch.enable_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(2, 3))
        net.requires_grad_(False)
        assert torch.autograd.forward_ad.unpack_dual(net(dual)).tangent is not None
        assert served(auto, net).eager["within forward-mode differentiation"] == 1
    torch.compile(lambda y: net(y), backend="eager")(x)
    torch.compile(net, backend="eager")(x)
    assert backend.replays == replays


def test_compiled_with_hooks_in_one_graph(auto, net):
    torch._dynamo.reset()
    net.last.register_forward_hook(lambda module, args, out: out + 1)
    x = torch.ones(2, 3)
    want = net(x)
    for compiled in (torch.compile(net, fullgraph=True, backend="eager"),
                     torch.compile(lambda y: net(y), fullgraph=True, backend="eager")):
        assert torch.equal(compiled(x), want)


def test_kinds_that_are_left_alone(auto, backend, net):
    class Skipped(Net):
        pass

    class Below(Skipped):
        pass

    class Called(Net):
        def __call__(self, x):
            return super().__call__(x) * 2

    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(nn.Linear(3, 2))

        def forward(self, x):
            return self.scripted(x)

    modules = (Skipped(), Below(), Called(), torch.jit.script(nn.Linear(3, 2)), torch.jit.trace(net, (torch.ones(2, 3),)),
               nn.DataParallel(Net()), torch.fx.symbolic_trace(net), Holds())
    for module in modules:
        module.eval()
        run(module, 9)
    assert backend.captures == 0
    whys = {auto._modules[key][1].name: auto._modules[key][1].why_eager for key in auto._modules}
    assert whys["Skipped"] == whys["Below"] == "NIMBLE_TORCH_SKIP names it"
    assert whys["DataParallel"] == "it is a DataParallel" and whys["Holds"].startswith("it holds a ")


def test_a_module_without_a_hash(auto, backend, said):
    class Equal(nn.Module):
        def forward(self, x):
            return x * 2

        def __eq__(self, other):
            return self is other

    module = Equal().eval()
    run(module, 9)
    assert backend.captures == 0 and "unhashable" in served(auto, module).why_eager and said.getvalue() == ""


def test_what_has_no_kind(auto, backend):
    class Takes(nn.Module):
        def forward(self, x, other=None):
            return x * 2

    module = Takes().eval()
    for _ in range(9):
        module(torch.ones(2), other=object())
        module(torch.ones(2, device="meta"))
        module(other=torch.ones(2), x=torch.ones(1, dtype=torch.complex64).conj())
    assert backend.captures == 0
    reasons = [reason for reason, _ in served(auto, module).reasons()]
    assert len(reasons) == 3 and "an argument is not on cpu" in reasons and any("is conjugated" in reason for reason in reasons)


def test_buffers_and_random_numbers(auto, backend):
    class Recording(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.seen.add_(1)
            return nn.functional.dropout(self.norm(x), 0.5) + torch.rand(3)

    def results(module, count):
        torch.manual_seed(3)
        made = [module(torch.ones(4, 3) * i) for i in range(count)]
        return made, [t.clone() for t in module.buffers()], torch.get_rng_state()

    torch.manual_seed(1)
    module = Recording().eval()
    module.norm.training = True
    twin = copy.deepcopy(module)
    with inside_one():
        want = results(twin, 30)
    got = results(module, 30)
    assert backend.captures == 1 and served(auto, module).served == 23
    assert all(map(torch.equal, got[0], want[0])) and all(map(torch.equal, got[1], want[1])) and torch.equal(got[2], want[2])


def test_arguments_that_are_written(auto, backend):
    module = module_with(lambda self, x, into: into.add_(x * 2))
    for i in range(20):
        x, into = torch.ones(3) * i, torch.zeros(3)
        assert module(x, into) is into and torch.equal(into, x * 2)
    assert backend.captures == 1 and served(auto, module).served == 13


@pytest.mark.parametrize("forward", [
    lambda self, x: x[0],
    lambda self, x: x.view(-1),
    lambda self, x: (lambda y: (y, x[0]))(x * 2),
    lambda self, x: self.weight[0],
    lambda self, x: self.table,
])
def test_views_of_what_lasts_are_not_copies(auto, backend, forward, said):
    module = module_with(forward, weight=nn.Parameter(torch.ones(2, 3)), table=torch.ones(3))
    for _ in range(9):
        module(torch.ones(2, 3))
    assert graphs(auto, module) == 0 and ("shares memory with" in said.getvalue() or "output (" in said.getvalue())


@pytest.mark.parametrize("forward", [
    lambda self, x: (lambda y: (y, y.t(), {"first": y[0]}))(x * 2),
    lambda self, x: (x * 2).chunk(2, 1),
    lambda self, x: (x * 2)[:, 0],
    lambda self, x: (x.sum(0) * 2).expand(2, 3),
])
def test_views_of_each_other_stay_views(auto, forward):
    module = module_with(forward)
    for i in range(12):
        x = torch.arange(6.0).reshape(2, 3) + i
        outputs = []
        for call in (module, lambda x: forward(module, x)):
            result = call(x)
            tensors = torch.utils._pytree.tree_flatten(result)[0]
            tensors[-1].narrow(0, 0, 1).add_(100)
            outputs.append([(t.clone(), t.stride()) for t in tensors])
        assert all(torch.equal(a, b) and one == other for (a, one), (b, other) in zip(*outputs))
    assert served(auto, module).served > 0


@pytest.mark.parametrize("forward, said", [
    (lambda self, x, into: (into.append(1), x * 2)[1], "it puts something else into its arguments"),
    (lambda self, x, into: (into[0].update(a=3), x * 2)[1], "it puts something else into its arguments"),
    (lambda self, x, into: (into.__setitem__(1, x * 3), x * 2)[1], "it puts something else into its arguments"),
    (lambda self, x, into: (x * 2, into), "an output is a list or the like"),
    (lambda self, x, into: (x * 2, into[0]), "an output is a list or the like"),
    (lambda self, x, into: (x * 2, self.kept), "an output is a list or the like"),
])
def test_lists_are_not_the_graphs(auto, backend, forward, said):
    module = module_with(forward, kept=[1, {"b": 2}])
    for _ in range(12):
        module(torch.ones(2), [{"a": 1}, torch.ones(2)])
    assert graphs(auto, module) == 0
    assert any(said in reason for reason, _ in served(auto, module).reasons()), served(auto, module).reasons()


def test_structures(auto, backend):
    Pair = namedtuple("Pair", "a b")

    def forward(self, x, *, both):
        y = x * 2
        return {"pair": Pair(y, x), "same": [y, y], "text": "a", "none": None, "number": 1.5, "weight": self.weight, "both": both}

    module = module_with(forward, weight=nn.Parameter(torch.ones(2)))
    for i in range(12):
        x = torch.ones(2) * i
        got = module(x, both=(True, x))
        assert got["pair"].a is got["same"][0] is got["same"][1] and got["pair"].b is x and got["both"] == (True, x)
        assert torch.equal(got["pair"].a, x * 2) and got["weight"] is module.weight
        assert (got["text"], got["none"], got["number"]) == ("a", None, 1.5)
    assert served(auto, module).served == 6


def test_generators_and_coroutines_run_as_they_are(auto, backend):
    def forward(self, x):
        for _ in range(2):
            yield self.inner(x)

    module = module_with(forward, inner=nn.Linear(3, 2))
    for _ in range(9):
        assert len(list(module(torch.ones(1, 3)))) == 2
    assert graphs(auto, module) == 0
    assert graphs(auto, module.inner) == 1  # which is outermost, when it runs


def test_modules_go_and_take_their_graphs_along(auto, backend):
    gc.disable()
    try:
        net = Net().eval()
        net.parent = [net.inner]
        prepared(auto, backend, net)
        reference = weakref.ref(net)
        del net
        assert reference() is None and backend.closed == 1 and not auto._modules
    finally:
        gc.enable()
    net = Net().eval()
    net.inner.up = [net]  # a cycle, which is the collector's
    net.hook = lambda: net
    for _ in range(9):
        net(torch.ones(2, 3))
    reference = weakref.ref(net)
    del net
    gc.collect()
    assert reference() is None and not auto._modules


def test_modules_that_go_while_something_is_captured(auto, backend, net, monkeypatch):
    other = prepared(auto, backend, Net().eval())
    monkeypatch.setattr(switches, "is_capturing", lambda device: True)
    del other
    gc.collect()
    assert backend.closed == 0
    net(torch.ones(2, 3))
    assert backend.closed == 0, "still"
    monkeypatch.undo()
    net(torch.ones(2, 3))
    assert backend.closed == 1
    assert auto.report()[0].startswith("PyTorch: Net: 2 calls served")  # which has gone


def test_copies_and_state_are_unaffected(auto, backend, net):
    before = set(vars(net)), list(net.state_dict())
    prepared(auto, backend, net)
    assert (set(vars(net)), list(net.state_dict())) == before
    twin = copy.deepcopy(net)
    with inside_one():
        assert torch.equal(twin(torch.ones(2, 3)), net(torch.ones(2, 3)))
    assert torch.equal(pickle.loads(pickle.dumps(net)).last.weight, net.last.weight)
    run(twin, 2)
    assert graphs(auto, net) == 1 and graphs(auto, twin) == 0


def test_no_room(auto, backend, net, monkeypatch):
    monkeypatch.setattr(calls, "has_room", lambda *_: False)
    run(net, 9)
    assert backend.captures == 0 and served(auto, net).reasons()[0][0].startswith("less than a quarter")


def test_small_modules_are_faster_without(backend, said):
    now = [0.0]

    def clock():
        now[0] += 1.0  # each look at the clock, so that both ways take as long
        return now[0]

    auto = calls.install(settings.Settings(), backend, clock=clock)
    try:
        net = Net().eval()
        with torch.no_grad():
            run(net, 12)
        assert backend.captures == 1 and graphs(auto, net) == 0
        assert "eager runs are as fast" in served(auto, net).reasons()[0][0] and "warning" not in said.getvalue()
    finally:
        calls.uninstall()


def test_the_lines_at_the_end(auto, backend, net):
    prepared(auto, backend, net)
    (line,) = auto.report()
    assert line == ("PyTorch: Net: 2 calls served by graphs, 3 compared with eager runs, 3 run eagerly (3 before it was "
                    "prepared); a graph for float32[2, 3], rewritten (10.0 us rewritten, 20.0 us as PyTorch makes it)")


def test_settings(monkeypatch):
    monkeypatch.setenv("NIMBLE_TORCH_SKIP", " Net, torch.nn.*Linear ,")
    monkeypatch.setenv("NIMBLE_LOG", "warn")
    read = settings.read()
    assert read.skips(Net) and read.skips(nn.Linear) and not read.skips(nn.Conv2d)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    read.inform("not this")
    read.warn("this")
    assert stream.getvalue() == "nimble: warning: this\n"


def test_what_stays_of_torch(auto):
    assert nn.Module.__call__.__qualname__.startswith("Module.") and nn.Linear.__call__ is nn.Module.__call__


def test_calls_of_a_compiled_function_that_breaks_off(auto, backend, net):
    class Breaks(Net):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    torch._dynamo.reset()
    broken = Breaks().eval()

    @torch.compile(backend="eager")
    def function(x):
        return net(x) + broken(x) * 2

    for i in range(12):
        x = torch.ones(2, 3) * i
        got = function(x)
        with inside_one():
            assert torch.equal(got, net(x) + broken(x) * 2)
    assert backend.captures == 0
