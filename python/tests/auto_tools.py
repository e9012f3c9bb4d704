"""What the tests of nimble.auto share: modules, and a process whose calls are looked at, with a fake of the GPU."""

import pytest

torch = pytest.importorskip("torch", minversion="2.5")  # nimble.auto's oldest
from torch import nn  # noqa: E402
from nimble.auto import calls, settings  # noqa: E402
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


def module_with(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made.eval()
