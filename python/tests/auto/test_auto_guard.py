"""The guard of nimble.auto by itself: what it detects, what it refuses, and that it holds nothing."""

import contextvars
import copy
import enum
import gc
import itertools
import threading
import types
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from functools import partial

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.auto.value_snapshot import ValueSnapshot  # noqa: E402
from nimble.auto.traced_guard import TracedModuleGuard  # noqa: E402
from nimble.objects.plain import is_plain, plain_key  # noqa: E402
from nimble.objects.python_trace import PythonTrace, read_of_tensors, TracedRun  # noqa: E402


class Square(nn.Module):
    level = 1

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.plain = torch.ones(3)
        self.register_buffer("shift", torch.ones(4))


class Other(nn.Linear):
    pass


def rename(module, old, new):
    for registry in (module._parameters, module._modules):
        if old in registry:
            values = {new if key == old else key: value for key, value in registry.items()}
            registry.clear()
            registry.update(values)


METADATA = "a tensor has another type, another shape or other strides, or its requires_grad has changed"


@pytest.fixture
def module():
    return Square()


@pytest.fixture(autouse=True, params=[True, False], ids=["quick", "slow"])
def quick(request, monkeypatch):
    """With this PyTorch's quick comparison of tensors' metadata, and without."""
    if not request.param:
        monkeypatch.setattr("nimble.auto.traced_guard.metadata_check", lambda tensors: None)


def guarded(module, device="cpu"):
    guard = TracedModuleGuard(module, device, TracedRun())
    assert guard.difference() is None
    return guard


@pytest.mark.parametrize("change, said", [
    (lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.t()), METADATA),
    (lambda m: setattr(m.shift, "data", m.shift.data.view(torch.int32)), METADATA),
    (lambda m: setattr(m.linear.weight, "data", m.linear.weight.data.clone()), "a tensor has other storage"),
    (lambda m: setattr(m.plain, "data", torch.zeros(3)), "the content of an attribute"),
    (lambda m: setattr(m.plain, "data", m.plain.data[:2]), "the content of an attribute"),
    (lambda m: setattr(m.linear.weight, "data", m.linear.weight.data[:2]), METADATA),
    (lambda m: setattr(m.shift, "data", m.shift.data[:2]), METADATA),
    (lambda m: setattr(m.shift, "data", m.shift.data.as_strided((4,), (0,))), METADATA),
    (lambda m: setattr(m.linear.weight, "scale", 2.0), "an attribute was set on a tensor"),
    (lambda m: setattr(m.linear, "__class__", Other), "a submodule is of another class"),
    (lambda m: rename(m.linear, "weight", "kernel"), "a parameter or buffer has another name"),
    (lambda m: rename(m, "linear", "line"), "a submodule has another name"),
    (lambda m: setattr(m, "plain", torch.zeros(3)), "gone"),
    (lambda m: setattr(m, "linear", nn.Linear(4, 4)), "gone"),
    (lambda m: setattr(m.linear, "in_features", 5), "the value of an attribute has changed"),
    (lambda m: delattr(m.linear, "in_features"), "gone"),
    (lambda m: m.linear.eval(), "the value of an attribute has changed"),
    (lambda m: m.linear.register_forward_pre_hook(print), "a hook was added"),
    (lambda m: m.add_module("more", nn.ReLU()), "a submodule was replaced"),
    (lambda m: m.linear.add_module("more", nn.ReLU()), "a first parameter, buffer or submodule was added"),
    (lambda m: setattr(Square, "level", 2), "an attribute of a class"),
])
def test_what_it_sees(module, change, said, monkeypatch):
    monkeypatch.setattr(Square, "level", 1)
    guard = guarded(module)
    kept = [module.linear, module.plain, module.linear.weight]
    change(module)
    text = guard.difference()
    assert text is not None and (said in text or said == "gone" and kept), text
    del kept


def test_an_id_that_may_be_anothers(module):
    """The id of a freed object may be reused, which the id does not show."""
    guard = guarded(module)
    before = guard._seen
    module.linear.weight = nn.Parameter(torch.ones(4, 4))
    guard._seen = guard._look()
    assert guard._seen is None and before is not None
    assert "gone" in guard.difference()


def test_values_may_change(module):
    guard = guarded(module)
    with torch.no_grad():
        module.linear.weight.mul_(2)
        module.shift.add_(1)
        module.plain.add_(1)
    assert guard.difference() is None


def test_what_the_host_has_read(module):
    guard = guarded(module, "cuda")
    module.shift.add_(1)
    assert guard.difference() == "a tensor on another device has changed"
    guard = guarded(module, "cuda")
    module.shift.numpy()[0] = 7  # which raises no version
    assert guard.difference() == "a tensor on another device has changed"


def test_another_module(module):
    assert guarded(module).is_of(module) and not guarded(module).is_of(Square())


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
        TracedModuleGuard(module, "cpu", TracedRun())
    handle.remove()
    module.others = {"a": (nn.ReLU(),)}
    with pytest.raises(NimbleError, match="not registered"):
        TracedModuleGuard(module, "cpu", TracedRun())
    module.others = {"a": (module.linear,)}
    guarded(module)
    for number in range(600):
        setattr(module, f"list{number}", [number])
    with pytest.raises(NimbleError, match="more Python objects"):
        TracedModuleGuard(module, "cpu", TracedRun())


class Colour(enum.Enum):
    RED = 1


class Holder:
    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


class Table(dict):
    pass


class Many(list):
    pass


Pair = namedtuple("Pair", "a b")


class Slots:
    __slots__ = ("value",)


def contents(value):
    """Says whether a value is still the same."""
    made = ValueSnapshot([value], set(), KEPT.append, "cuda")
    return lambda now: made.is_same([now])


KEPT = []


@pytest.mark.parametrize("one, other", [
    (1, 1.0), (1, True), (0.0, -0.0), (1, 2), ("a", "b"), ((1, 2), (1, 3)), ([1], [2]), ([1], (1,)), ({"a": 1}, {"a": 2}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1}, {2}), ([[1, {"a": [1]}]], [[1, {"a": [2]}]]), (deque([1]), deque([2])), (1j, 2j),
    (torch.float16, torch.float32), (int, float), (1.5, 1.25), ([float("nan")], [1.0]), (Holder(1), Holder(1)),
    (bytearray(b"1"), bytearray(b"2")), (array("f", [1]), array("f", [2])), (print, len), ([[]], [[1]]), ({1: [2]}, {1: [3]}),
])
def test_contents_differ(one, other):
    assert not contents(one)(other)


@pytest.mark.parametrize("value", [1, 1.5, float("nan"), "a", None, (1, "a"), [1, [2]], {"a": {1, 2}}, Colour.RED, torch.float16,
                                   Holder(3)])
def test_contents_are_the_same(value):
    same = contents(value)
    assert same(value) and same(value if isinstance(value, Holder) else copy.deepcopy(value))


def test_contents_of_objects():
    for value, change in changing():
        same = contents(value)
        assert same(value), value
        change(value)
        assert not same(value), value


def changing():
    def with_default(x, seen={"n": 0}):  # noqa: B006
        return x

    with_default.scale = 2.0
    slots, variable, hosts = Slots(), contextvars.ContextVar("variable", default=1), torch.ones(2)
    slots.value = [1]
    numpy = pytest.importorskip("numpy")
    return [
        (Holder([1]), lambda v: v.value.append(2)), (slots, lambda v: setattr(v, "value", 3)), (slots, lambda v: delattr(v, "value")),
        (hosts, lambda v: v.add_(1)), (torch.ones(32), lambda v: v.numpy().fill(5)), ([hosts], lambda v: v[0].data.numpy().fill(5)),
        ([torch.ones(4)], lambda v: setattr(v[0], "scale", 1)),
        ([torch.ones(4)], lambda v: setattr(v[0], "data", v[0].data.view(2, 2))), (numpy.ones(3), lambda v: v.fill(2)),
        (numpy.ones(3).view(type("Array", (numpy.ndarray,), {"__module__": "its"})), lambda v: v.fill(2)), (numpy.ones(1000), lambda v: v.fill(2)), (Table(scale=1), lambda v: v.__setitem__("scale", 2)),
        (Table(scale=1), lambda v: setattr(v, "more", 2)), (Many([1]), lambda v: v.append(2)), (Counter("a"), lambda v: v.update("a")),
        ({f"k{i}": i for i in range(1000)}, lambda v: v.__setitem__("k999", 3)), (Pair([1], 2), lambda v: v.a.append(1)),
        (with_default, lambda v: setattr(v, "scale", 3.0)), (variable, lambda v: v.set(2)),
        (partial(print, [1]), lambda v: v.args[0].append(1)),
        (Holder(1).method, lambda v: setattr(v.__self__, "value", 3)), ([].append, lambda v: v(1)),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")), (defaultdict(int), lambda v: v["a"]),
        ([[[[[[1]]]]]], lambda v: v[0][0][0][0].append(1)),
        (types.SimpleNamespace(a=1), lambda v: setattr(v, "a", 2)), (threading.local(), lambda v: setattr(v, "a", 2)),
    ]


@pytest.mark.parametrize("value, said", [
    (itertools.count(), "iterator"), (iter([1]), "iterator"), (torch.Generator(), "random numbers"), (nn.ReLU(), "not registered"),
    (Holder(nn.ReLU()), "not registered"), (nn.ReLU().forward, "not registered"), (partial(nn.ReLU()), "not registered"),
    (bytearray(1 << 17), "large bytearray"), ([[i] for i in range(1000)], "more Python objects"),
])
def test_what_cannot_be_compared(value, said):
    with pytest.raises(NimbleError, match=said):
        contents([value])


def test_functions_that_have_run():
    settings = {"scale": 1}
    function = lambda x: x * settings["scale"]  # noqa: E731
    made = ValueSnapshot([function], set(), KEPT.append, "cpu", frozenset([function.__code__]))
    assert made.is_same([function])
    settings["scale"] = 2
    assert not made.is_same([function])


def test_an_object_that_takes_anothers_place():
    """A list's elements are identified by more than their ids."""
    module = Square()
    module.functions = [lambda x: x * 2]
    guard = guarded(module)
    module.functions.clear()
    module.functions.append(lambda x: x * 3)
    assert guard.difference() is not None


def test_large_and_endless_contents():
    endless = []
    endless.append(endless)
    assert contents(endless)(endless)
    names = {i: f"class {i}" for i in range(2000)}
    assert contents(names)(dict(names)) and not contents(names)({**names, 1999: "another"})


def test_kinds_of_values():
    assert all(map(is_plain, (1, 1.5, "a", None, (1, (2, "b")), Colour.RED, torch.float16, torch.device("cpu"))))
    assert not any(map(is_plain, ([1], {}, (1, []), torch.ones(1), Holder(1), print, Slots())))
    assert plain_key((1, 0.0)) == plain_key((1, 0.0)) != plain_key((1, -0.0)) and plain_key(1) != plain_key(True)


GLOBAL = [1]


class Namespace:
    value = 3


def reads(x):
    return len(GLOBAL) + Namespace.value + x


def test_watch():
    watch = PythonTrace()
    assert watch.run(lambda: reads(4)) == 8
    watched = watch.result()
    assert {(namespace, name) for namespace, name in watched.places if namespace is Namespace} == {(Namespace, "value")}
    names = {name for namespace, name in watched.places if namespace is globals()}
    assert names >= {"GLOBAL", "Namespace", "reads", "len"} and "x" not in names and watched.effect is None


@pytest.mark.parametrize("function, said", [
    (lambda: print(end=""), "it calls builtins.print"),
    (lambda: open("/dev/null").close(), "it calls "),
    (lambda: __import__("random").random(), "it calls random"),
    (lambda: __import__("time").monotonic(), "it calls time.monotonic"),
    (lambda: __import__("datetime").datetime.now(), "it calls datetime.now"),
    (lambda: __import__("uuid").uuid4(), "it calls posix.urandom"),
    (lambda: __import__("warnings").warn("said", stacklevel=2), "it calls _warnings.warn"),
    (lambda: threading.Thread(target=len, args=("",)).start(), "it calls _thread.start"),
    (lambda: torch.ones(2).storage_offset(), "it asks where in memory"),
    (lambda: threading.get_ident(), "it asks in which thread"),
    (lambda: threading.current_thread(), "it asks in which thread"),
    (lambda: threading.get_native_id(), "it asks in which thread"),
    (lambda: torch.ones(2).data_ptr(), "it asks where in memory"),
    (lambda: torch.ones(2)._is_view(), "it asks whether a tensor is a view"),
    (lambda: torch.initial_seed(), "it asks for a seed"),
    (lambda: torch.get_num_threads(), "it asks how many threads"),
    (lambda: torch.ones(2).grad, "it reads gradients"),
    (lambda: torch.ones(2)._base, "it asks whether a tensor is a view"),
    (lambda: torch.ones(2)._version, "it asks how often a tensor was written"),
    (lambda: torch.ones(2).is_shared(), "it asks whether memory is shared"),
    (lambda: torch.ones(2).is_inference(), "it asks whether a tensor is of inference mode"),
])
def test_effects(function, said):
    watch = PythonTrace()
    watch.run(function)
    assert said in watch.result().effect


def test_which_code_read_of_tensors():
    assert read_of_tensors((lambda x: x.inner.grad + 1).__code__)
    assert read_of_tensors((lambda x: x._version).__code__) and not read_of_tensors((lambda self: self._version).__code__)
    assert not read_of_tensors((lambda x: torch.autograd.grad(x.sum(), x)).__code__)


def test_locks_are_no_effect():
    lock = threading.RLock()

    def locked():
        with lock, lock:
            return threading.Condition(lock).notify_all()

    watch = PythonTrace()
    watch.run(locked)
    assert watch.result().effect is None


def test_what_torch_compile_has_known_may_go():
    known, key = pytest.importorskip("torch._dynamo.utils").ExactWeakKeyDictionary(), Square()
    known[key] = 1
    held = [key]
    del key
    watch = PythonTrace()
    watch.run(held.clear)
    assert not known.refs and watch.result().effect is None


def test_torch_compile():
    function = torch.compile(lambda x: x + 1, backend="eager")
    function(torch.ones(1))
    watch = PythonTrace()
    watch.run(function, torch.ones(1))
    assert "it uses torch.compile" in watch.result().effect


def test_exceptions_pass_and_the_hook_goes():
    import sys
    watch = PythonTrace()
    with pytest.raises(ZeroDivisionError):
        watch.run(lambda: 1 / 0)
    assert sys.getprofile() is None and PythonTrace.is_possible()
