"""Guards see every change of a module that a graph would not follow, and only those."""

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble.state import ModuleGuard  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.late = None
        self.table = torch.arange(4.0)

    def forward(self, x):
        return self.norm(self.first(x)) + self.table


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


CHANGES = {
    replace_weight: "another tensor", share_data: "other storage", transpose_data: "other strides",
    replace_buffer: "another tensor",
    add_parameter: "or hook was added", replace_child: "submodule", add_child: "submodule is another one",
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


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this PyTorch cannot compile")
def test_a_compiled_module():
    """Its training flag is the one of the module inside."""
    module = Net().eval()
    compiled = torch.compile(module)
    guard = ModuleGuard(compiled, "cpu")
    assert guard.difference() is None
    compiled.train()
    assert "training flag" in guard.difference()


def test_what_only_gradients_depend_on():
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    module.first.register_full_backward_hook(lambda *_: None)
    assert guards[0].difference() is None and "hook" in guards[1].difference()
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    module.first.weight.requires_grad_(False)
    assert guards[0].difference() is None and "wants no gradients" in guards[1].difference()
    module = Net()
    guards = ModuleGuard(module, "cpu"), ModuleGuard(module, "cpu", trains=True)
    next(module.buffers()).requires_grad_(True)
    assert guards[0].difference() is None and "wants gradients that wanted none" in guards[1].difference()
