"""nimble.auto: values that code reaches indirectly: decorators' closures, weak references, what functions keep, objects
of C, functions of PyTorch's that its own layers call. Where they change, calls return the same as without Nimble."""

import ctypes
import enum
import functools
import importlib
import multiprocessing
import struct
import sys
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from auto_tools import both_ways, calls_of, module_with  # noqa: E402
from nimble import NimbleError  # noqa: E402
from nimble.auto.value_snapshot import ValueSnapshot  # noqa: E402
from nimble.objects.libraries import is_programs  # noqa: E402
from nimble.objects.python_trace import PythonTrace  # noqa: E402


class Settings:
    def __init__(self, scale=2.0):
        self.scale = scale


class Kind(enum.Enum):
    ONE = 1


SCALES = weakref.WeakKeyDictionary()
OTHERS = weakref.WeakKeyDictionary()
NAMED = weakref.WeakValueDictionary()
SET = weakref.WeakSet()
SETTINGS = Settings()
KEPT = []


@functools.lru_cache(maxsize=None)
def settings():
    return Settings()


@functools.lru_cache(maxsize=4)
def settings_of(size):
    return Settings()


def seen(make, change, served=True, undo=lambda: None):
    """A change is detected, and graphs serve the module before it."""
    def program():
        settings.cache_clear()
        settings_of.cache_clear()
        SETTINGS.scale = Kind.ONE.scale = 2.0
        module = make()
        try:
            return calls_of(module, lambda: change(module))
        finally:
            undo()

    said, replays = both_ways(program)
    assert replays > 4 if served else replays == 0, said
    return said


# ---- decorators of PyTorch's ----

def decorated(decorator):
    held = Settings()

    @decorator
    def forward(self, x):
        return x * held.scale

    return module_with(forward, held=None), held


@pytest.mark.parametrize("decorator", [torch.no_grad(), torch.enable_grad()])
def test_closures_under_a_decorator(decorator):
    found = []

    def make():
        module, held = decorated(decorator)
        found.append(held)
        return module

    seen(make, lambda m: setattr(found[-1], "scale", 3.0))


def test_defaults_under_a_decorator():
    def make():
        @torch.no_grad()
        def helper(x, settings=SETTINGS):
            return x * settings.scale

        module = module_with(lambda self, x: self.helper(x))
        module.helper = helper
        return module

    seen(make, lambda m: setattr(SETTINGS, "scale", 3.0))


# ---- PyTorch's own code ----

def attention():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x):
            q = x[:, None, :1].expand(2, 3, 4) * torch.arange(4.0)
            return self.attention(q, q, q, need_weights=False)[0]

    return Attention().eval()


def called_twice(original, self, *args, **kwargs):
    result = original(self, *args, **kwargs)
    return result * 2 if isinstance(self, nn.Linear) else result


@pytest.mark.parametrize("make, where, name", [
    (lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3)).eval(), nn.Conv1d, "_conv_forward"),
    (attention, F, "scaled_dot_product_attention"),
    (lambda: module_with(lambda self, x: x.softmax(-1)), torch.Tensor, "softmax"),
    (lambda: module_with(lambda self, x: x.square()), torch.Tensor, "square"),
    (lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), nn.Module, "__call__"),
    (lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), nn.Linear, "__call__"),
])
def test_functions_of_pytorch_that_are_patched(make, where, name, monkeypatch):
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    originals = []

    def change(module):
        original = getattr(where, name)
        originals.append((original, name in vars(where)))
        scale = functools.partial(called_twice, original)
        setattr(where, name, (lambda self, *args, **kwargs: scale(self, *args, **kwargs)) if name == "__call__" else
                (lambda *args, **kwargs: original(*args, **kwargs) * 2))

    def undo():
        original, was_there = originals.pop()
        setattr(where, name, original) if was_there else delattr(where, name)

    seen(make, change, undo=undo)


def test_what_a_patch_reads(monkeypatch):
    original = nn.Conv1d._conv_forward
    monkeypatch.setattr(nn.Conv1d, "_conv_forward", lambda self, *args: original(self, *args) * SETTINGS.scale)
    seen(lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3)).eval(), lambda m: setattr(SETTINGS, "scale", 3.0))


# ---- names of Python's ----

def test_a_package_with_a_name_of_pythons(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "__init__.py").write_text("")
    (tmp_path / "code" / "model.py").write_text(
        "from torch import nn\nSCALE = 2.0\nclass Net(nn.Module):\n    factor = 1.0\n    def forward(self, x):\n"
        "        return x * SCALE * self.factor\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "code"]:
        monkeypatch.delitem(sys.modules, name)
    model = importlib.import_module("code.model")
    try:
        def make():
            model.SCALE, model.Net.factor = 2.0, 1.0
            return model.Net().eval()

        seen(make, lambda m: setattr(model, "SCALE", 3.0))
        seen(make, lambda m: setattr(model.Net, "factor", 3.0))
    finally:
        sys.modules.pop("code.model"), sys.modules.pop("code")
    assert not any(map(is_programs, ("os", "collections.abc", "torch.nn", "_thread", "builtins", "importlib._bootstrap")))
    assert all(map(is_programs, ("__main__", __name__, "numpy", "not_there")))


# ---- weak references ----

def with_key():
    module = module_with(lambda self, x: x * SCALES[self])
    SCALES[module] = 2.0
    SCALES[KEPT_MODULE] = 5.0  # another model's
    return module


KEPT_MODULE = nn.ReLU()


def with_name():
    NAMED["it"] = SETTINGS
    return module_with(lambda self, x: x * NAMED["it"].scale)


def with_set():
    SET.add(SETTINGS)
    return module_with(lambda self, x: x * sum(each.scale for each in SET))


class Owner:
    def __init__(self):
        self.scale = 2.0

    def __call__(self, x):
        return x * self.scale


@pytest.mark.parametrize("make, change", [
    (lambda: module_with(lambda self, x: x * self.held().scale, held=weakref.ref(SETTINGS)), lambda m: setattr(SETTINGS, "scale", 3.0)),
    (lambda: module_with(lambda self, x: x * self.held.scale, held=weakref.proxy(SETTINGS)), lambda m: setattr(SETTINGS, "scale", 3.0)),
    (with_key, lambda m: SCALES.__setitem__(m, 3.0)),
    (with_name, lambda m: setattr(SETTINGS, "scale", 3.0)),
    (with_set, lambda m: setattr(SETTINGS, "scale", 3.0)),
    (lambda: module_with(lambda self, x: x * self.held.scale, held=Kind.ONE), lambda m: setattr(Kind.ONE, "scale", 3.0)),
    (lambda: module_with(lambda self, x: x * self.held[0].scale, held=(Kind.ONE,)), lambda m: setattr(Kind.ONE, "scale", 3.0)),
    (lambda: module_with(lambda self, x: x * settings().scale), lambda m: setattr(settings(), "scale", 3.0)),
    (lambda: module_with(lambda self, x: x * settings_of(x.shape[0]).scale), lambda m: setattr(settings_of(2), "scale", 3.0)),
])
def test_what_they_wrap(make, change):
    seen(make, change)


def test_a_wrapped_bound_method():
    KEPT[:] = [Owner()]

    def make():
        KEPT[0].scale = 2.0
        return module_with(lambda self, x: self.held()(x), held=weakref.WeakMethod(KEPT[0].__call__))

    seen(make, lambda m: setattr(KEPT[0], "scale", 3.0))


def test_a_wrapped_module():
    layer = nn.Linear(1, 1)
    layer.scale = 2.0
    said = seen(lambda: module_with(lambda self, x: x * self.held().scale, held=weakref.ref(layer)),
                lambda m: setattr(layer, "scale", 3.0), served=False, undo=lambda: setattr(layer, "scale", 2.0))
    assert "not registered" in said


def test_what_no_code_names_may_lead_anywhere():
    """Such as the object that runs everything, with its models."""
    def program():
        trainer = Settings()
        trainer.models = [nn.ReLU()]
        module = module_with(lambda self, x: x * 2, owner=weakref.proxy(trainer), back=weakref.ref(trainer),
                             pointer=ctypes.pointer(ctypes.c_int(3)))
        return calls_of(module)

    said, replays = both_ways(program)
    assert replays > 6, said


def test_other_entries_of_a_cache():
    """Which calls of other kinds make."""
    def program():
        settings_of.cache_clear()
        module = module_with(lambda self, x: x * settings_of(x.shape[0]).scale)
        return calls_of(module, lambda: settings_of(17), times=16)

    said, replays = both_ways(program)
    assert replays == 13 and "changed" not in said, said


# ---- objects of C ----

@pytest.mark.parametrize("kind", [lambda: ctypes.c_double(2.0), lambda: multiprocessing.Value("d", 2.0),
                                  lambda: multiprocessing.RawValue("d", 2.0)])
def test_numbers_of_c(kind):
    seen(lambda: module_with(lambda self, x: x * self.held.value, held=kind()), lambda m: setattr(m.held, "value", 3.0))


def test_an_event_of_several_processes():
    seen(lambda: module_with(lambda self, x: x * (3 if self.held.is_set() else 2), held=multiprocessing.Event()), lambda m: m.held.set())


def contents(value, names=frozenset()):
    made = ValueSnapshot([value], set(), KEPT.append, "cuda", names=names)
    return lambda: made.is_same([value])


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]


@pytest.mark.parametrize("value, change", [
    (Pair(1, 2), lambda v: setattr(v, "b", 3)), ((ctypes.c_int * 4)(), lambda v: v.__setitem__(2, 1)),
    ([weakref.ref(SETTINGS)], lambda v: setattr(SETTINGS, "more", object())), (weakref.WeakKeyDictionary({SETTINGS: [1]}),
                                                                               lambda v: v[SETTINGS].append(2)),
])
def test_contents(value, change):
    same = contents(value)
    assert same()
    change(value)
    assert not same()


@pytest.mark.parametrize("value, said", [
    (ctypes.pointer(ctypes.c_int(1)), "points to what cannot be compared"), (ctypes.py_object([]), "points to"),
    ((ctypes.c_char * 70000)(), "large"), (ctypes.c_char_p(b"a"), "points to"),
])
def test_what_cannot_be_compared(value, said):
    with pytest.raises(NimbleError, match=said):
        contents(value)


def test_unknown_objects():
    """Where code may ask them."""
    etree = importlib.import_module("xml.etree.ElementTree")
    for value, name in ((etree.Element("a"), "text"), (importlib.import_module("zlib").decompressobj(), "eof")):
        with pytest.raises(NimbleError, match="cannot be told whether that changes"):
            contents(Settings([value]), frozenset([name, "scale"]))
    assert contents(Settings(importlib.import_module("zlib").decompressobj()), frozenset(["eof"]))()
    assert contents([struct.Struct("i"), slice(1), range(3), multiprocessing.Lock()], frozenset(["size", "start"]))()


def test_decorators_of_pytorch_are_noted():
    watch = PythonTrace()
    inner = lambda x: x + 1  # noqa: E731
    watch.run(torch.no_grad()(inner), 1)
    codes = watch.result().codes
    assert inner.__code__ in codes and any("utils" in code.co_filename for code in codes), "torch/utils/_contextlib.py"


# ---- metaclasses, built-in names, Python's modules ----

class Single(type):
    kept = {}
    scale = 2.0

    def __call__(cls, *arguments):
        if cls not in Single.kept:
            Single.kept[cls] = super().__call__(*arguments)
        return Single.kept[cls]


class Held(metaclass=Single):
    def __init__(self):
        self.scale = 2.0


def test_what_a_metaclass_keeps():
    def make():
        Single.kept.clear()
        return module_with(lambda self, x: x * Held().scale)

    seen(make, lambda m: setattr(Held(), "scale", 3.0))


def test_what_a_class_has_of_its_metaclass():
    seen(lambda: module_with(lambda self, x: x * Held.scale), lambda m: setattr(Single, "scale", 3.0),
         undo=lambda: setattr(Single, "scale", 2.0))


def test_what_a_modules_class_has_of_its_metaclass():
    class Counted(type):
        scale = 2.0

    def make():
        made = Counted("Scaled", (nn.Module,), {"forward": lambda self, x: x * type(self).scale})()
        return made.eval()

    seen(make, lambda m: setattr(Counted, "scale", 3.0), undo=lambda: setattr(Counted, "scale", 2.0))
