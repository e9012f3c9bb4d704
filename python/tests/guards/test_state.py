"""Guards see every change of a module that a graph would not follow, and only those."""

import copy
import types
from collections import OrderedDict

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble.guards import dictionaries  # noqa: E402
from nimble.guards.module_guard import ModuleGuard  # noqa: E402


@pytest.fixture(autouse=True, params=["words", "versions", "looks"])
def quick(request, monkeypatch, versions_of_dictionaries):
    """With words of memory that show changes, with this PyTorch's versions of attributes, and without either."""
    if request.param != "words":
        monkeypatch.setattr("nimble.guards.dict_versions._update", lambda: None)
    if request.param == "looks":
        monkeypatch.setattr(dictionaries, "_version_of", None)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.late = None
        self.table = torch.arange(4.0)

    def forward(self, x):
        return self.norm(self.first(x)) + self.table


class OtherLinear(nn.Linear):
    pass


def another_class(m):
    m.first.__class__ = OtherLinear


def replace_weight(m):
    m.first.weight = nn.Parameter(torch.zeros(4, 4))


def share_data(m):
    m.first.weight.data = torch.zeros(4, 4)


def transpose_data(m):
    m.first.weight.data = m.first.weight.data.t()


def replace_buffer(m):
    m.norm.running_mean = torch.zeros(4)


def add_parameter(m):
    m.register_parameter("extra", nn.Parameter(torch.zeros(1)))


def replace_child(m):
    m.first = nn.Linear(4, 4)


def add_child(m):
    m.second = nn.ReLU()


def hook(m):
    m.norm.register_forward_hook(lambda *_: None)


def pre_hook(m):
    m.register_forward_pre_hook(lambda *_: None)


def inner_training(m):
    m.norm.train()


def own_forward(m):
    m.first.forward = lambda x: x


def other_table(m):
    m.table = torch.zeros(4)


def drop_table(m):
    del m.table


def other_dictionary(name, **entries):
    def change(m):
        child = m if entries else m.first
        kept = getattr(child, name)
        setattr(child, name, OrderedDict(kept, **entries))

    change.__name__ = f"other{name}"
    return change


def pickled_state(m):
    m.norm.__setstate__(copy.deepcopy(nn.BatchNorm1d(4)).__dict__)


def hook_into_another_dictionary(m):
    m.norm._forward_hooks = OrderedDict()
    m.norm.register_forward_hook(lambda *_: None)


def no_hooks(m):
    del m.first._forward_hooks


def other_attributes(m):
    m.norm.__dict__ = dict(vars(m.norm))


ANOTHER = "in another dictionary"
CHANGES = {
    other_attributes: ANOTHER,
    other_dictionary("_modules", second=nn.ReLU()): ANOTHER, other_dictionary("_parameters"): ANOTHER,
    other_dictionary("_buffers"): ANOTHER, pickled_state: ANOTHER, hook_into_another_dictionary: ANOTHER,
    no_hooks: "no longer has _forward_hooks",
    replace_weight: "buffer was replaced", share_data: "other storage", transpose_data: "other strides",
    replace_buffer: "buffer was replaced",
    add_parameter: "or hook was added", replace_child: "submodule", add_child: "submodule was replaced",
    hook: "or hook was added", pre_hook: "or hook was added",
    inner_training: "training flag", own_forward: "forward method", other_table: "tensor attribute",
    drop_table: "tensor attribute",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_changes_are_seen(change):
    module = Net().eval()
    guard = ModuleGuard(module, "cpu")
    assert guard.difference() is None
    change(module)
    assert CHANGES[change] in guard.difference()


def test_a_second_hook_is_seen():
    module = Net()
    hook(module)
    guard = ModuleGuard(module, "cpu")
    assert guard.difference() is None
    hook(module)
    assert guard.difference() == "a hook was added or removed"


def test_hooks_that_all_go_are_seen():
    module = Net()
    hook(module)
    guard = ModuleGuard(module, "cpu")
    module.norm._forward_hooks = OrderedDict()
    assert guard.difference() is not None


def test_a_forward_that_is_replaced_again():
    module = Net()
    for number in range(2):
        module.first.forward = types.MethodType(lambda self, x, by=number: x * by, module.first)
        if number == 0:
            guard = ModuleGuard(module, "cpu")
            assert guard.difference() is None
    assert guard.difference() == "a forward method was replaced"


def test_a_forward_that_a_class_gets(monkeypatch):
    guard = ModuleGuard(Net(), "cpu")
    with monkeypatch.context() as patched:
        patched.setattr(nn.Linear, "forward", lambda self, x: x)
        assert guard.difference() == "a class's forward method was replaced"
    assert guard.difference() is None


def test_what_is_put_into_other_attributes():
    module = Net()
    guard = ModuleGuard(module, "cpu")
    for number in range(3):
        module.first.count = number
        assert guard.difference() is None
    own_forward(module)
    assert "forward method" in guard.difference() and "forward method" in guard.difference()
    del module.first.forward
    assert guard.difference() is None


def test_the_quick_way_is_there():
    """In the release that this was written for."""
    if not torch.__version__.startswith("2.11."):
        pytest.skip("another release")
    assert dictionaries._found_version_of() is not None


def test_a_hook_on_all_modules_is_seen():
    guard = ModuleGuard(Net(), "cpu")
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert "hook" in guard.difference()
    finally:
        handle.remove()
    assert guard.difference() is None


def test_new_values_are_none():
    module = Net().eval()
    guard = ModuleGuard(module, "cpu")
    with torch.no_grad():
        module.first.weight.mul_(2)
        module.norm.running_mean.add_(1)
    module.load_state_dict(Net().state_dict())
    module(torch.ones(2, 4))
    assert guard.difference() is None


def test_values_that_lie_on_another_device_count():
    module = Net()
    guard = ModuleGuard(module, "cuda")
    module.norm.running_mean.add_(1)
    assert "on another device" in guard.difference()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [8, 32, 16384, 40000])
def test_values_that_the_host_has_read_count(size, dtype):
    """Even where they are written without PyTorch's knowledge."""
    module = Net()
    memory = bytearray(size * 2 * torch.ones((), dtype=dtype).element_size())
    module.table = torch.frombuffer(memory, dtype=dtype).view(size, 2)[:, 0]
    guard = ModuleGuard(module, "cuda")
    assert guard.difference() is None
    memory[2 * module.table.element_size()] = 63
    seen = guard.difference()
    assert seen is not None and "on another device" in seen if size * module.table.element_size() <= 1 << 16 else seen is None
    with torch.no_grad():
        module.table[3] = 5
    assert "on another device" in guard.difference()


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this PyTorch cannot compile")
def test_a_compiled_module():
    """Its training flag is the inner module's."""
    module = Net().eval()
    compiled = torch.compile(module)
    guard = ModuleGuard(compiled, "cpu")
    assert guard.difference() is None
    compiled.train()
    assert "training flag" in guard.difference()


def test_what_gradients_depend_on():
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    module.first.register_full_backward_hook(lambda *_: None)
    assert guards[0].difference() is None and "hook" in guards[1].difference()
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    module.first.weight.requires_grad_(False)
    assert all("no longer requires gradients" in guard.difference() for guard in guards)  # by which kernels are chosen, too
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    next(module.buffers()).requires_grad_(True)
    assert all("now requires gradients" in guard.difference() for guard in guards)


def test_what_is_none_for_a_class():
    class Base(nn.Module):
        mask = scale = None

    class Masked(Base):
        scale = 2.0
        bias = None

    module = Masked()
    guard = ModuleGuard(module, "cpu")
    module.scale = torch.ones(1)  # which was no None
    assert guard.difference() is None
    for name in ("mask", "bias"):
        setattr(module, name, torch.zeros(3))
        assert guard.difference() is not None
        delattr(module, name)
        assert guard.difference() is None
