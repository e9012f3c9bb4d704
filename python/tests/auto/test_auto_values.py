"""nimble.auto: values that code reads in many ways. Where one changes, calls return the same as without Nimble."""

import contextvars
import dataclasses
import functools
import os
import subprocess
import sys
import threading
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from auto_tools import both_ways, calls_of, module_with  # noqa: E402

VARIABLE = contextvars.ContextVar("VARIABLE", default=2.0)
LOCAL = threading.local()
TABLE = torch.zeros(3)


class Base:
    scale = 2.0


class Derived(Base):
    pass


class Outer:
    class Inner:
        scale = 2.0


class OfClass:
    table = torch.zeros(3)


INSTANCE = Derived()


@dataclasses.dataclass
class Slotted:
    __slots__ = ("scale",)
    scale: float


class Table(dict):
    __getattr__ = dict.__getitem__


class Holder:
    def __init__(self, value):
        self.scale = self.value = value

    def method(self, x):
        return x * self.scale


def helper(x):
    return x * helper.scale


def with_default(self, x, scale={"now": 2.0}):  # noqa: B006
    return x * scale["now"]


def imports(self, x):
    from package_of_test import inner
    return x * inner.SCALE


@pytest.fixture(autouse=True)
def package(monkeypatch):
    module = types.ModuleType("package_of_test")
    module.inner = types.ModuleType("package_of_test.inner")
    for each in (module, module.inner):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setitem(globals(), "package_of_test", module)
    return module.inner


def begin():
    """Restores the state before each program."""
    Base.scale = Outer.Inner.scale = helper.scale = LOCAL.scale = 2.0
    sys.modules["package_of_test.inner"].SCALE = 2.0
    Derived.__dict__.get("scale") and delattr(Derived, "scale")
    os.environ["NIMBLE_TEST_SCALE"] = "2"
    with_default.__defaults__[0]["now"] = 2.0
    VARIABLE.set(2.0)
    CLOSURE[1](None, 2.0)
    OfClass.table.data = torch.zeros(3)


def closure():
    cell = 2.0

    def forward(self, x):
        return x * cell

    def change(_, value=3.0):
        nonlocal cell
        cell = value

    return forward, change


CLOSURE = closure()


@pytest.mark.parametrize("forward, members, change", [
    (lambda self, x: x * self.held.scale, lambda: {"held": Slotted(2.0)}, lambda m: setattr(m.held, "scale", 3.0)),
    (lambda self, x: x * self.held[0].scale, lambda: {"held": [Slotted(2.0)]}, lambda m: m.held.__setitem__(0, Slotted(3.0))),
    (lambda self, x: x * self.held.scale, lambda: {"held": Table(scale=2.0)}, lambda m: m.held.__setitem__("scale", 3.0)),
    (lambda self, x: x * self.held["k69"], lambda: {"held": {f"k{i}": 2.0 for i in range(70)}}, lambda m: m.held.__setitem__("k69", 3.0)),
    (lambda self, x: self.held[0](x), lambda: {"held": [lambda x: x * 2]}, lambda m: (m.held.clear(), m.held.append(lambda x: x * 3))),
    (lambda self, x: self.held(x), lambda: {"held": Holder(2.0).method}, lambda m: setattr(m.held.__self__, "scale", 3.0)),
    (lambda self, x: x * self.held.scale, lambda: {"held": Base}, lambda m: setattr(Base, "scale", 3.0)),
    (lambda self, x: x * self.held.scale, lambda: {"held": Base()}, lambda m: setattr(Base, "scale", 3.0)),
    (lambda self, x: x * self.held.inner.SCALE, lambda: {"held": sys.modules["package_of_test"]},
     lambda m: setattr(sys.modules["package_of_test.inner"], "SCALE", 3.0)),
    (lambda self, x: x * package_of_test.inner.SCALE, dict,  # noqa: F821
     lambda m: setattr(sys.modules["package_of_test.inner"], "SCALE", 3.0)),
    (imports, dict, lambda m: setattr(sys.modules["package_of_test.inner"], "SCALE", 3.0)),
    (lambda self, x: x * Outer.Inner.scale, dict, lambda m: setattr(Outer.Inner, "scale", 3.0)),
    (lambda self, x: x * Derived.scale, dict, lambda m: setattr(Base, "scale", 3.0)),
    (lambda self, x: x * Derived.scale, dict, lambda m: setattr(Derived, "scale", 3.0)),
    (lambda self, x: x * INSTANCE.scale, dict, lambda m: setattr(Base, "scale", 3.0)),
    (lambda self, x: helper(x), dict, lambda m: setattr(helper, "scale", 3.0)),
    (with_default, dict, lambda m: with_default.__defaults__[0].update(now=3.0)),
    (lambda self, x: x * VARIABLE.get(), dict, lambda m: VARIABLE.set(3.0)),
    (lambda self, x: x * LOCAL.scale, dict, lambda m: setattr(LOCAL, "scale", 3.0)),
    (lambda self, x: x * float(os.environ["NIMBLE_TEST_SCALE"]), dict, lambda m: os.environ.update(NIMBLE_TEST_SCALE="3")),
    (lambda self, x: x * float(os.environ.get("NIMBLE_TEST_SCALE", 1)), dict, lambda m: os.environ.pop("NIMBLE_TEST_SCALE")),
    (CLOSURE[0], dict, CLOSURE[1]),
    (lambda self, x: x * self.weight.scale, lambda: {"weight": scaled(2.0)}, lambda m: setattr(m.weight, "scale", 3.0)),
    (lambda self, x: x + OfClass.table, dict, lambda m: setattr(OfClass.table, "data", torch.ones(3))),
    (lambda self, x: x + self.held[0].sum() + self.held[0].shape[0], lambda: {"held": [torch.zeros(2, 3)]},
     lambda m: setattr(m.held[0], "data", m.held[0].data.view(3, 2))),
    (lambda self, x: abs(x) + 1, dict, lambda m: globals().update(abs=lambda x: x * 3)),
    (lambda self, x: F.gelu(x), dict, lambda m: setattr(F, "gelu", lambda x: x * 3)),
    (lambda self, x: self.layer(x), lambda: {"layer": nn.ReLU()}, lambda m: setattr(F, "relu", lambda x, inplace=False: x * 3)),
    (lambda self, x: self.layer(x), lambda: {"layer": nn.ReLU()}, lambda m: setattr(nn.ReLU, "forward", lambda self, x: x * 3)),
])
def test_values_that_change(forward, members, change, monkeypatch):
    for where, name in ((F, "gelu"), (F, "relu"), (nn.ReLU, "forward")):
        monkeypatch.setattr(where, name, getattr(where, name))
    originals = {name: getattr(where, name) for where, name in ((F, "gelu"), (F, "relu"), (nn.ReLU, "forward"))}

    def program():
        begin()
        F.gelu, F.relu, nn.ReLU.forward = originals["gelu"], originals["relu"], originals["forward"]
        globals().pop("abs", None)
        module = module_with(forward, **members())
        return calls_of(module, lambda: change(module))

    try:
        assert both_ways(program)[1] >= 5, "it is served before and after the change"
    finally:
        globals().pop("abs", None)


def scaled(value):
    made = nn.Parameter(torch.ones(3))
    made.scale = value
    return made


def counts_in_slots(self, x):
    self.held.scale += 1
    return x * 2


def counts_in_a_table(self, x):
    self.held["calls"] = self.held.get("calls", 0) + 1
    return x * 2


def counts_in_a_closure():
    count = [0]

    def forward(self, x):
        count[0] += 1
        self.held.scale = count[0]
        return x * 2

    return forward


@pytest.mark.parametrize("forward, held, read", [
    (counts_in_slots, lambda: Slotted(0), lambda held: held.scale),
    (counts_in_a_table, Table, lambda held: held["calls"]),
    (counts_in_a_closure(), lambda: Slotted(0), lambda held: held.scale > 0),
])
def test_counters(forward, held, read):
    def program():
        module = module_with(forward, held=held())
        return calls_of(module, also=lambda: read(module.held))

    assert both_ways(program)[1] == 0


@pytest.mark.parametrize("wrap", [Holder, lambda layer: functools.partial(layer), lambda layer: layer.forward,
                                  lambda layer: (lambda x: layer(x))])
def test_modules_that_are_hidden(wrap):
    def program():
        layer = nn.Linear(3, 3).eval()
        module = module_with(lambda self, x: (self.held.value if isinstance(self.held, Holder) else self.held)(x), held=wrap(layer))
        return calls_of(module, lambda: setattr(layer.weight, "data", torch.ones(3, 3)))

    said, replays = both_ways(program)
    assert replays == 0 and "not registered as its own" in said


def test_modules_that_are_made_in_the_run():
    """In a separate process: once a test has used torch.compile, it is notified of each module made from then on."""
    script = ("from test_auto_values import both_ways, calls_of, module_with, nn\n"
              "said, replays = both_ways(lambda: calls_of(module_with(lambda self, x: nn.Softmax(dim=1)(x))))\n"
              "assert replays > 6, said\n")
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join([os.path.join(tests, "auto"), tests, os.path.dirname(tests), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr


def test_other_classes_and_names():
    class Twice(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    def of_class():
        layer = Twice(3, 3)
        return calls_of(nn.Sequential(layer).eval(), lambda: setattr(layer, "__class__", nn.Linear))

    class Two(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.a, self.b = kind(1), kind(2)

        def forward(self, x):
            return self.b(torch.relu(self.a(x))) if isinstance(self.a, nn.Module) else x * self.a + self.b

    def exchanged(kind):
        def program():
            module = Two(kind).eval()

            def change():
                a, b = module.a, module.b
                del module.a, module.b
                module.b, module.a = a, b

            return calls_of(module, change)

        return program

    for program in (of_class, exchanged(lambda _: nn.Linear(3, 3)), exchanged(lambda i: nn.Parameter(torch.ones(3) * i))):
        assert both_ways(program)[1] > 4


def test_other_shapes():
    def pruned():
        layer = nn.Linear(3, 4).eval()
        return calls_of(layer, lambda: [setattr(t, "data", t.data[:2]) for t in (layer.weight, layer.bias)])

    def shortened():
        module = module_with(lambda self, x: x + self.shift[0] if self.shift.shape[0] == 1 else x * self.shift.sum())
        module.register_buffer("shift", torch.arange(1.0, 4.0))
        return calls_of(module, lambda: setattr(module.shift, "data", module.shift.data[:1]))

    for program in (pruned, shortened):
        assert both_ways(program)[1] > 4


def test_gradients_that_become_wanted():
    def of_attribute():
        module = module_with(lambda self, x: x * 2 + self.table, table=torch.zeros(3))
        return wanted(module, module.table)

    def of_global():
        TABLE.requires_grad_(False)
        return wanted(module_with(lambda self, x: x * 2 + TABLE), TABLE)

    def wanted(module, table):
        made, table.grad = calls_of(module, times=8), None
        table.requires_grad_(True)
        result = module(torch.ones(2, 3))
        result.sum().backward()
        return [*made, result, table.grad]

    for program in (of_attribute, of_global):
        both_ways(program, grad=True)


def test_a_switch_of_attention(monkeypatch):
    def program():
        module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        made = []
        for i in range(10):
            torch.backends.mha.set_fastpath_enabled(i < 8)
            made.append(module(torch.full((2, 5, 8), float(i))))
        torch.backends.mha.set_fastpath_enabled(True)
        return made

    both_ways(program)
