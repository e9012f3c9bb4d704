"""The guard of nimble.auto by itself: what it sees, what it refuses, and that it holds nothing."""

import enum
import gc
import weakref
from collections import deque

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.auto.contents import content, is_mutable, is_plain  # noqa: E402
from nimble.auto.guard import Guard  # noqa: E402
from nimble.auto.watch import Watch, Watched  # noqa: E402


class Square(nn.Module):
    level = 1

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.plain = torch.ones(3)
        self.register_buffer("shift", torch.ones(4))


@pytest.fixture
def module():
    return Square()


def guarded(module, device="cpu"):
    guard = Guard(module, device, Watched())
    assert guard.difference(module) is None
    return guard


@pytest.mark.parametrize("change, said", [
    (lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.t()), "a tensor has other strides"),
    (lambda m: setattr(m.shift, "data", m.shift.data.view(torch.int32)), "a tensor has another type"),
    (lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.clone()), "a tensor has other storage"),
    (lambda m: setattr(m.plain, "data", torch.zeros(3)), "a tensor has other storage"),
    (lambda m: setattr(m, "plain", torch.zeros(3)), "gone"),
    (lambda m: setattr(m, "linear", nn.Linear(4, 4)), "gone"),
    (lambda m: setattr(m.linear, "in_features", 5), "the value of an attribute has changed"),
    (lambda m: delattr(m.linear, "in_features"), "gone"),
    (lambda m: m.linear.eval(), "the value of an attribute has changed"),
    (lambda m: m.linear.register_forward_pre_hook(print), "a hook was added"),
    (lambda m: m.add_module("more", nn.ReLU()), "a submodule is another one"),
    (lambda m: m.linear.add_module("more", nn.ReLU()), "a first parameter, buffer or submodule was added"),
    (lambda m: setattr(Square, "level", 2), "a global, or an attribute of a class"),
])
def test_what_it_sees(module, change, said, monkeypatch):
    monkeypatch.setattr(Square, "level", 1)
    guard = guarded(module)
    kept = [module.linear, module.plain, module.linear.weight]
    change(module)
    text = guard.difference(module)
    assert text is not None and (said in text or said == "gone" and kept), text
    del kept


def test_an_id_that_may_be_anothers(module):
    """What has gone may have left its id to something else, which cannot be told by the id."""
    guard = guarded(module)
    before = guard._seen
    module.linear.weight = nn.Parameter(torch.ones(4, 4))
    guard._seen = guard._look(module)
    assert guard._seen is None and before is not None
    assert "gone" in guard.difference(module)


def test_values_may_change(module):
    guard = guarded(module)
    with torch.no_grad():
        module.linear.weight.mul_(2)
        module.shift.add_(1)
        module.plain.add_(1)
    assert guard.difference(module) is None


def test_what_the_host_has_read(module):
    guard = guarded(module, "cuda")
    module.shift.add_(1)
    assert guard.difference(module) == "a tensor on another device has changed"


def test_another_module(module):
    assert "gone" in guarded(module).difference(Square())


def test_it_holds_nothing():
    module = Square()
    module.linear.parent = [module.linear]
    module.call = lambda: 1
    guard = guarded(module)
    references = [weakref.ref(each) for each in (module, module.linear, module.linear.weight, module.plain, module.call)]
    del module
    gc.collect()
    alive = sum(reference() is not None for reference in references)
    assert alive == 0 and guard._gone


def test_what_it_refuses(module):
    handle = module.linear.register_forward_hook(print)
    with pytest.raises(NimbleError, match="hooks"):
        Guard(module, "cpu", Watched())
    handle.remove()
    module.others = {"a": (nn.ReLU(),)}
    with pytest.raises(NimbleError, match="not registered"):
        Guard(module, "cpu", Watched())
    module.others = {"a": (module.linear,)}
    guarded(module)
    for number in range(300):
        setattr(module, f"list{number}", [number])
    with pytest.raises(NimbleError, match="more Python objects"):
        Guard(module, "cpu", Watched())


class Colour(enum.Enum):
    RED = 1


class Holder:
    def __init__(self, value):
        self.value = value


class Slots:
    __slots__ = ("value",)


@pytest.mark.parametrize("one, other", [
    (1, 1.0), (1, True), (0.0, -0.0), (1, 2), ("a", "b"), ((1, 2), (1, 3)), ([1], [2]), ([1], (1,)), ({"a": 1}, {"a": 2}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1}, {2}), ([[1, {"a": [1]}]], [[1, {"a": [2]}]]), (deque([1]), deque([2])), (1j, 2j),
    (torch.float16, torch.float32), (int, float), (1.5, 1.25), ([float("nan")], [1.0]),
])
def test_contents_differ(one, other):
    assert content(one) != content(other)


@pytest.mark.parametrize("value", [1, 1.5, float("nan"), "a", None, (1, "a"), [1, [2]], {"a": {1, 2}}, Colour.RED, torch.float16,
                                   Holder(3)])
def test_contents_are_the_same(value):
    assert content(value) == content(value)


def test_contents_of_objects():
    holder = Holder([1])
    before = content(holder)
    holder.value.append(2)
    assert content(holder) != before
    tensor = torch.ones(2)
    before = content([tensor])
    tensor.add_(1)
    assert content([tensor]) != before
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(3)
    before = content(array)
    array[0] = 2
    assert content(array) != before


def test_large_and_endless_contents():
    endless = []
    endless.append(endless)
    assert content(endless) == content(endless)
    wide = [[[[i] * 60] * 60] * 60 for i in range(60)]
    assert content(wide) == content(wide)


def test_kinds_of_values():
    assert all(map(is_plain, (1, 1.5, "a", None, (1, (2, "b")), Colour.RED, torch.float16, torch.device("cpu"))))
    assert not any(map(is_plain, ([1], {}, (1, []), torch.ones(1), Holder(1), print, Slots())))
    assert all(map(is_mutable, ([1], {}, (1, []), {1}, Holder(1), deque())))
    assert not any(map(is_mutable, (1, (1, 2), torch.ones(1), print, Slots(), nn.ReLU(), Colour.RED, int)))


GLOBAL = [1]


class Namespace:
    value = 3


def reads(x):
    return len(GLOBAL) + Namespace.value + x


def test_watch():
    watch = Watch()
    assert watch.run(lambda: reads(4)) == 8
    watched = watch.result()
    names = {name: value for _, name, value in watched.names}
    assert names["GLOBAL"] is GLOBAL and names["Namespace"] is Namespace and names["value"] == 3 and names["reads"] is reads
    assert watched.effect is None and "x" not in names


@pytest.mark.parametrize("function, said", [
    (lambda: print(end=""), "it calls builtins.print"),
    (lambda: open("/dev/null").close(), "it calls "),
    (lambda: __import__("random").random(), "it calls random"),
    (lambda: __import__("time").monotonic(), "it calls time.monotonic"),
])
def test_effects(function, said):
    watch = Watch()
    watch.run(function)
    assert said in watch.result().effect


def test_torch_compile():
    function = torch.compile(lambda x: x + 1, backend="eager")
    function(torch.ones(1))
    watch = Watch()
    watch.run(function, torch.ones(1))
    assert "it uses torch.compile" in watch.result().effect


def test_exceptions_pass_and_the_hook_goes():
    import sys
    watch = Watch()
    with pytest.raises(ZeroDivisionError):
        watch.run(lambda: 1 / 0)
    assert sys.getprofile() is None and Watch.is_possible()
