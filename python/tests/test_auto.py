"""nimble.auto: which calls of an unchanged program are prepared, compared, served, and which are left alone."""

import copy
import gc
import io
import os
import pickle
import sys
import threading
import weakref
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble  # noqa: E402
from nimble.auto import calls, settings, switches  # noqa: E402
from nimble.nesting import nesting  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

EAGER_FIRST = 3  # plain, watched, looked at for changes
COMPARED = 3


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def said(capsys):
    """What has been said on stderr so far."""
    class Said:
        text = ""

        def getvalue(self):
            self.text += capsys.readouterr().err
            return self.text

    return Said()


@pytest.fixture
def auto(backend):
    made = calls.install(settings.Settings(("*Skipped", "other.*")), backend, clock=lambda: 0.0)
    with torch.no_grad():
        yield made
    calls.uninstall()
    assert nesting.depth == 0


def served(auto, module):
    return auto._modules[id(module)][1]


def graphs(auto, module):
    return len(served(auto, module).graphs())


def run(module, times, *shape):
    """So many calls, each with what the module gives without us."""
    shape = shape or (2, 3)
    for _ in range(times):
        x = torch.randn(shape)
        with inside_one():
            want = module(x)
        assert torch.equal(module(x), want)


class inside_one:
    def __enter__(self):
        nesting.depth = 1

    def __exit__(self, *_):
        nesting.depth = 0


def prepared(auto, backend, module, *shape):
    """The module with a graph that has been compared."""
    run(module, EAGER_FIRST + COMPARED, *shape)
    assert graphs(auto, module) == 1, served(auto, module).reasons()
    assert (backend.captures, served(auto, module).compared) == (1, COMPARED)
    replays = backend.replays
    run(module, 2, *shape)
    assert backend.replays == replays + 2
    return module


def as_it_is(x):
    return x


class Net(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.act = as_it_is
        self.inner = nn.Sequential(nn.Linear(size, 4), nn.ReLU())
        self.last = nn.Linear(4, 2)
        self.scale = 2.0
        self.pair = (1, 2)
        self.table = [1.0, {"a": 3}]
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x):
        return self.act(self.last(self.inner(x))) * self.scale * self.pair[0] * self.table[0] * self.table[1]["a"] + self.shift


@pytest.fixture
def net():
    return Net().eval()


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


def other_linear():
    return nn.Linear(4, 2)


@pytest.mark.parametrize("change", [
    lambda net: setattr(net, "scale", 3.0),
    lambda net: setattr(net, "scale", -0.0),
    lambda net: setattr(net, "pair", (2, 2)),
    lambda net: net.table.__setitem__(0, 5.0),
    lambda net: net.table[1].__setitem__("a", 7),
    lambda net: setattr(net, "added", 1),
    lambda net: setattr(net, "last", other_linear()),
    lambda net: setattr(net.last, "weight", nn.Parameter(torch.ones(2, 4))),
    lambda net: setattr(net.last.weight, "data", torch.ones(2, 4)),
    lambda net: setattr(net, "shift", torch.zeros(2)),
    lambda net: net.inner.append(nn.ReLU()),
    lambda net: setattr(net.inner[0], "bias", None),
    lambda net: setattr(net.inner[1], "inplace", True),
    lambda net: setattr(net.inner[0], "forward", lambda x: net.inner[0].__class__.forward(net.inner[0], x) * 2),
    lambda net: setattr(Net, "forward", lambda self, x: self.last(self.inner(x)) * 7),
    lambda net: setattr(net, "act", torch.neg),
    lambda net: setattr(net.last, "weight", nn.Parameter(net.last.weight.data)),
    lambda net: net.inner[1].register_buffer("more", torch.ones(1)),
    lambda net: setattr(net.last.weight, "data", net.last.weight.data.t().contiguous().t()),
])
def test_changes_are_seen(auto, backend, net, change, monkeypatch):
    monkeypatch.setattr(Net, "forward", Net.forward)  # put back behind the test
    prepared(auto, backend, net)
    replays = backend.replays
    change(net)
    run(net, 1)
    assert backend.replays == replays, "a graph has served it"
    run(net, 10)
    assert backend.captures == 2 and backend.closed == 1 and graphs(auto, net) == 1


def test_weights_in_place_need_nothing(auto, backend, net):
    prepared(auto, backend, net)
    net.last.weight.mul_(2)
    net.shift.add_(1)
    net.load_state_dict(Net().state_dict())
    run(net, 5)
    assert backend.captures == 1


def test_hooks(auto, backend, net):
    prepared(auto, backend, net)
    seen = []
    handle = net.inner[0].register_forward_hook(lambda *_: seen.append(1))
    run(net, 9)
    assert len(seen) == 18 and graphs(auto, net) == 0
    assert served(auto, net).eager["it has hooks"] == 7
    handle.remove()
    other = Net().eval()
    with nn.modules.module.register_module_forward_pre_hook(lambda *_: None):
        run(other, 9)
    assert graphs(auto, other) == 0


def test_changes_all_the_time_end_it(auto, backend, net):
    for i in range(60):
        net.scale = float(i)
        run(net, 1)
    assert backend.captures <= 4
    reason = served(auto, net).reasons()[0][0]
    assert "again and again: the value of an attribute has changed" in reason


@pytest.mark.parametrize("enter", [
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.inference_mode(),
    lambda: torch.enable_grad(),
])
def test_modes_are_kinds_of_calls(auto, backend, net, enter):
    net.requires_grad_(False)
    prepared(auto, backend, net)
    replays = backend.replays
    with enter():
        x = torch.randn(2, 3)
        got = net(x)
        with inside_one():
            want = net(x)
        assert torch.equal(got, want) and got.dtype == want.dtype and got.is_inference() == want.is_inference()
        assert backend.replays == replays
        for _ in range(8):
            got = net(x)
            assert torch.equal(got, want) and got.dtype == want.dtype and got.is_inference() == want.is_inference()
    assert graphs(auto, net) == 2 and served(auto, net).served == 2 + 3


@pytest.mark.parametrize("module, name, value", [
    (torch.backends.cudnn, "benchmark", True), (torch.backends.cudnn, "enabled", False),
    (torch.backends.cudnn, "deterministic", True), (torch.backends.cudnn, "allow_tf32", False),
    (torch.backends.cuda.matmul, "allow_tf32", True),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
])
def test_switches(auto, backend, net, module, name, value):
    prepared(auto, backend, net)
    before, was = switches.state(), getattr(module, name)
    setattr(module, name, value)
    try:
        assert switches.state() != before
        replays = backend.replays
        net(torch.ones(2, 3))
        assert backend.replays == replays
    finally:
        setattr(module, name, was)


def test_more_switches(auto):
    before = switches.state()
    for change, undo in ((lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision("highest")),
                         (lambda: torch.use_deterministic_algorithms(True, warn_only=True),
                          lambda: torch.use_deterministic_algorithms(False)),
                         (lambda: torch.backends.cuda.enable_flash_sdp(False), lambda: torch.backends.cuda.enable_flash_sdp(True)),
                         (lambda: torch.backends.cuda.enable_math_sdp(False), lambda: torch.backends.cuda.enable_math_sdp(True)),
                         (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None))):
        change()
        assert switches.state() != before and switches.why_eager() is None
        undo()
    torch.set_float32_matmul_precision("highest")


def test_what_a_default_device_is_not(auto, backend, net):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    prepared(auto, backend, net)
    replays = backend.replays
    with Mode():
        net(torch.ones(2, 3))
    assert backend.replays == replays
    assert served(auto, net).eager["under a torch function or dispatch mode"] == 1


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
    assert auto.report() == []  # nothing to say of modules that train


def test_tracing_profiling_and_transforms(auto, backend, net):
    prepared(auto, backend, net)
    replays = backend.replays
    x = torch.ones(2, 3)
    torch.jit.trace(net, (x,), check_trace=False)  # the check is a call like any other
    torch.fx.symbolic_trace(net)
    with torch.autograd.profiler.profile():
        net(x)
    torch.func.vmap(net)(torch.ones(4, 2, 3))
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
    whys = {auto._modules[key][1].name: auto._modules[key][1].aside for key in auto._modules}
    assert whys["Skipped"] == whys["Below"] == "NIMBLE_TORCH_SKIP names it"
    assert whys["DataParallel"] == "it is a DataParallel" and whys["Holds"].startswith("it holds a ")


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
    assert len(reasons) == 3 and "an argument is not on cpu" in reasons and "an argument is not a plain tensor" in reasons


class Hidden:
    """Reached by a cell that nothing compares."""

    value = 1.0


def module_with(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made.eval()


def test_a_difference_ends_it_for_good(auto, backend, said):
    values = iter([1.0] * 8 + [2.0] * 1000)
    state = {"now": 1.0}
    module = module_with(lambda self, x: x * state["now"])
    run(module, EAGER_FIRST + COMPARED)
    assert graphs(auto, module) == 1
    state["now"] = next(values) * 3
    replays = backend.replays
    x = torch.ones(2, 3)
    for _ in range(6):  # which nobody can see
        module(x)
    assert backend.replays == replays + 6
    assert torch.equal(module(x), x * 3)  # the tenth, by an eager run
    for _ in range(20):
        assert torch.equal(module(x), x * 3)
    assert backend.captures == 1 and backend.closed == 1
    assert said.getvalue().count("warning") == 1 and "Given runs eagerly: a graph of it does not do the same: output 0" in said.getvalue()


def test_noise_ends_it(auto, backend, said, net):
    backend.spoil = lambda graph: graph.outputs.view(-1)[0].add_(1e-6) if graph.replays > 1 else None
    run(net, 12)
    assert graphs(auto, net) == 0 and "does not do the same: output 0 (float32[2, 2]) differs" in said.getvalue()


SCALE = 2.0
LIST = [2.0]
FEATURES = []
COUNT = 0


class Config:
    scale = 2.0


def helper(x):
    return x * SCALE * LIST[0] * Config.scale


def test_globals_are_seen(auto, backend, monkeypatch):
    module = prepared(auto, backend, module_with(lambda self, x: helper(x)))
    here = sys.modules[__name__]
    for count, change in enumerate((lambda: monkeypatch.setattr(here, "SCALE", 5.0), lambda: LIST.__setitem__(0, 7.0),
                                    lambda: monkeypatch.setattr(Config, "scale", 9.0),
                                    lambda: monkeypatch.setattr(here, "helper", lambda x: x * SCALE))):
        change()
        replays = backend.replays
        run(module, 1)
        assert backend.replays == replays, count
        run(module, 10)
        assert backend.captures == 2 + count


def counts(self, x):
    global COUNT
    COUNT += 1
    return x * 2


def collects(self, x):
    FEATURES.append(1)
    return x * 2


def prints(self, x):
    print("running")
    return x * 2


def numbers_itself(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return x * 2


def collects_itself(self, x):
    self.kept.append(1)
    return x * 2


def asks_the_time(self, x):
    import time
    return x * 2 + 0 * time.time()


def logs(self, x):
    import logging
    logging.getLogger("test").error("running")
    return x * 2


@pytest.mark.parametrize("forward, said", [
    (counts, "it assigns to the global COUNT"),
    (collects, "the content of an attribute or global has changed whenever it runs"),
    (prints, r"it calls builtins.print (test_auto.py:"),
    (numbers_itself, "has changed whenever it runs"),
    (collects_itself, "the content of an attribute or global has changed whenever it runs"),
    (asks_the_time, "it calls time.time (test_auto.py:"),
    (logs, "it writes to a log (test_auto.py:"),
])
def test_effects_are_seen(auto, backend, capsys, forward, said):
    module = module_with(forward, kept=[])
    for _ in range(12):
        module(torch.ones(2))
    assert backend.captures == 0
    assert any(said in reason for reason, _ in served(auto, module).reasons()), served(auto, module).reasons()


def test_several_devices(auto, backend):
    module = module_with(lambda self, x: x * 2, other=nn.Parameter(torch.ones(1, device="meta")))
    run(module, 9)
    assert backend.captures == 0 and served(auto, module).reasons()[0] == ("it lies on several devices", 6)


def test_what_is_made_once_is_fine(auto, backend):
    def forward(self, x):
        if not hasattr(self, "made"):
            self.made = torch.ones(3)
        return x + self.made

    module = module_with(forward)
    run(module, EAGER_FIRST + 9)
    assert backend.captures == 1 and backend.closed == 0


def test_a_module_that_is_not_registered(auto, backend):
    module = module_with(lambda self, x: self.others[0](x), others=[nn.Linear(3, 2)])
    run(module, 9)
    assert backend.captures == 0 and ("it uses modules that are not registered as its own", 6) in served(auto, module).reasons()


def test_profilers_of_the_program_stay(auto, backend, net):
    seen = []

    def profile(*_):
        seen.append(1)

    sys.setprofile(profile)
    try:
        for _ in range(9):
            net(torch.ones(2, 3))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert backend.captures == 0
    run(net, 3)
    assert backend.captures == 1 and sys.getprofile() is None


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
    lambda self, x: (lambda y: (y, y[0]))(x * 2),
    lambda self, x: (x * 2).chunk(2),
    lambda self, x: self.weight[0],
    lambda self, x: self.table,
])
def test_views_are_not_copies(auto, backend, forward, said):
    module = module_with(forward, weight=nn.Parameter(torch.ones(2, 3)), table=torch.ones(3))
    for _ in range(9):
        module(torch.ones(2, 3))
    assert graphs(auto, module) == 0 and ("shares memory with" in said.getvalue() or "output 0" in said.getvalue())


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


def test_exceptions_are_the_modules(auto, backend, net):
    class Refuses(Exception):
        pass

    def forward(self, x):
        if self.refuses.item():
            raise Refuses()
        return x * 2

    module = module_with(forward, refuses=torch.tensor(False))
    for i in range(20):
        module.refuses.fill_(i % 2 == 1)
        if i % 2:
            with pytest.raises(Refuses):
                module(torch.ones(2))
        else:
            module(torch.ones(2))
        assert nesting.depth == 0 and sys.getprofile() is None
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        net(torch.ones(2, 7))
    assert nesting.depth == 0


def test_our_own_mistakes_stay_ours(auto, backend, net, said, monkeypatch):
    monkeypatch.setattr(calls.Served, "_entry_for", lambda *_: 1 / 0)
    run(net, 3)
    monkeypatch.undo()
    assert said.getvalue().count("Net runs eagerly: ZeroDivisionError") == 1
    run(net, 9)
    assert backend.captures == 0


def test_what_preparing_and_graphs_raise(auto, backend, net, said):
    def fail():
        raise MemoryError("none left")

    backend.at_capture = fail
    run(net, 9)
    assert backend.captures == 1 and "Net runs eagerly: MemoryError: none left" in said.getvalue()
    backend.at_capture = None
    other = Net().eval()
    run(other, EAGER_FIRST + COMPARED)
    assert graphs(auto, other) == 1
    backend.spoil = lambda graph: fail()
    run(other, 9)
    assert graphs(auto, other) == 0 and said.getvalue().count("none left") == 2


def test_what_cannot_be_captured(auto, backend, net):
    def forward(self, x):
        if backend.capturing:
            raise RuntimeError("not while capturing")
        return x * 2

    module = module_with(forward)
    run(module, 9)
    assert backend.captures == 1 and graphs(auto, module) == 0
    assert served(auto, module).reasons()[0] == ("cannot be captured as a CUDA graph in the module itself: not while capturing", 6)


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


def test_threads(auto, backend, net):
    prepared(auto, backend, net)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(40):
                x = torch.randn(2, 3, generator=generator)
                if not torch.equal(net(x), Net.forward(net, x)):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and graphs(auto, net) == 1


def test_another_thread_while_it_is_prepared(auto, backend, net):
    def come():
        def other():
            with torch.no_grad():
                net(torch.ones(2, 3))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    backend.at_capture = come
    run(net, 4)
    assert backend.captures == 1 and graphs(auto, net) == 0 and backend.closed == 1
    assert served(auto, net).eager["while another thread ran it"] == 1
    backend.at_capture = None
    run(net, 9)
    assert graphs(auto, net) == 1


def in_thread(function):
    def work():
        with torch.no_grad():
            function()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_another_thread_while_it_is_compared(auto, backend, net):
    run(net, EAGER_FIRST + 1)
    assert graphs(auto, net) == 1
    backend.spoil = lambda graph: (setattr(backend, "spoil", None), in_thread(lambda: net(torch.ones(2, 3))).join())
    run(net, 1)
    assert graphs(auto, net) == 0 and backend.closed == 1
    run(net, 9)
    assert graphs(auto, net) == 1


def test_another_thread_is_in_it(auto, backend):
    began, may_end = threading.Event(), threading.Event()

    def forward(self, x, waits=None):
        if waits:
            began.set()
            may_end.wait(20)
        return x * 2

    module = module_with(forward)
    thread = in_thread(lambda: module(torch.ones(2, 3), True))
    began.wait(20)
    run(module, 9)
    assert backend.captures == 0
    may_end.set()
    thread.join()
    run(module, 9)
    assert backend.captures == 1


def test_a_graph_that_fails_when_it_has_written(auto, backend):
    def forward(self, x):
        self.seen.add_(1)
        return x * 2

    module = module_with(forward)
    module.register_buffer("seen", torch.zeros(()))
    run(module, EAGER_FIRST + COMPARED)
    module.seen.zero_()

    def fail(graph):
        raise MemoryError("none left")

    backend.spoil = fail
    with pytest.raises(MemoryError):
        module(torch.ones(2))  # of another kind, which runs eagerly
        module(torch.ones(2, 3))
    assert module.seen == 2
    module(torch.ones(2, 3))
    assert module.seen == 3 and graphs(auto, module) == 0


def test_nimble_itself_is_not_looked_at(auto, backend, net):
    model = Nimble(net, backend=Relaxed())
    for _ in range(9):
        model(torch.ones(2, 3))
    assert id(net) not in auto._modules


class Relaxed(ReplayingCapture):
    def capture(self, work, device, multi_stream, relaxed):
        return super().capture(work, device, True, True)


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


def test_no_room(auto, backend, net, monkeypatch):
    monkeypatch.setattr(calls.Auto, "_has_room", lambda *_: False)
    run(net, 9)
    assert backend.captures == 0 and served(auto, net).reasons()[0][0].startswith("less than a quarter")


def test_other_ranks(auto, backend, net, monkeypatch):
    prepared(auto, backend, net)
    monkeypatch.setattr(switches, "has_other_ranks", lambda: True)
    other = Net().eval()
    run(other, 9)
    assert graphs(auto, other) == 0
    run(net, 9)
    assert graphs(auto, net) == 0


def test_collectives_are_seen(auto, backend, tmp_path):
    import torch.distributed as distributed
    if not distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")

    def forward(self, x):
        distributed.all_reduce(x)
        return x * 2

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        module = module_with(forward)
        for _ in range(9):
            module(torch.ones(2))
    finally:
        distributed.destroy_process_group()
    assert backend.captures == 0
    assert any("it talks to other processes" in reason for reason, _ in served(auto, module).reasons())


def test_a_forked_child_runs_as_it_is(auto, backend, net):
    prepared(auto, backend, net)
    replays = backend.replays
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with torch.no_grad():
                same = torch.equal(net(torch.ones(2, 3)), Net.forward(net, torch.ones(2, 3)))
            os.write(write, b"fine" if same and backend.replays == replays and not auto.enabled else b"served")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"fine" and auto.enabled
    run(net, 1)
    assert backend.replays == replays + 1


def test_the_lines_at_the_end(auto, backend, net):
    prepared(auto, backend, net)
    (line,) = auto.report()
    assert line == ("PyTorch: Net: 2 calls served by graphs, 3 compared with eager runs, 3 run eagerly (3 before it was prepared); "
                    "a graph for float32[2, 3], rewritten (10.0 us rewritten, 20.0 us as PyTorch makes it)")


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
