"""Helpers of the tests of nimble.auto: modules, and a process whose calls are observed, with a fake GPU."""

import pytest

torch = pytest.importorskip("torch", minversion="2.5")  # nimble.auto's oldest
from torch import nn  # noqa: E402
from nimble import settings  # noqa: E402
from nimble.auto import calls  # noqa: E402
from nimble.nesting import nesting  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

EAGER_FIRST = 3  # plain, watched, looked at for changes
COMPARED = 3


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def said(capsys):
    """The text on stderr so far."""
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
    """Makes `count` calls, and checks each against the module without Nimble."""
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


def module_with(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made.eval()


def both_ways(program, grad=False, trains=False):
    """A program must return the same list with observed calls and without. Returns why calls ran eagerly, and how many
    graphs replayed."""
    results, backend = [], ReplayingCapture()
    for looked_at in (False, True):
        torch.manual_seed(0)
        made = calls.install(settings.Settings(trains=trains), backend, clock=lambda: 0.0) if looked_at else None
        try:
            with torch.set_grad_enabled(grad):
                results.append([described(each) for each in program()])
        finally:
            if made is not None:
                calls.uninstall()
    assert len(results[0]) == len(results[1])
    for number, (plain, other) in enumerate(zip(*results)):
        assert plain == other, (number, made.report())
    return " ".join(made.report()), backend.replays


def described(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype), value.requires_grad, value.detach().flatten().tolist()
    return [described(each) for each in value] if isinstance(value, (tuple, list)) else repr(value)


def calls_of(module, change=None, times=12, at=8, also=lambda: None):
    """The results of several calls of a module, and `also` after each; `change` runs before one of them."""
    made = []
    for number in range(times):
        if change is not None and number == at:
            change()
        made += [module(torch.full((2, 3), float(number))), also()]
    return [each.clone() if isinstance(each, torch.Tensor) else each for each in made]
