"""nimble.auto: changes between calls, or in them, that the guard, the trace or comparisons detect."""

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from nimble.guards import switches  # noqa: E402
from auto_tools import (COMPARED, EAGER_FIRST, Net, auto, backend, graphs, inside_one, module_with,  # noqa: E402, F401
                        net, prepared, run, said, served)

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
    monkeypatch.setattr(Net, "forward", Net.forward)  # put back after the test
    prepared(auto, backend, net)
    calls, waits = served(auto, net).served, backend.waits
    change(net)
    run(net, 1)
    assert served(auto, net).served == calls, "a graph has served it"
    assert backend.waits == waits + 1, "what was launched for nothing is still to come"
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
], ids=lambda value: value if isinstance(value, str) else "")
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
    for change, undo in ((lambda: torch.set_float32_matmul_precision("high"),
                          lambda: torch.set_float32_matmul_precision("highest")),
                         (lambda: torch.use_deterministic_algorithms(True, warn_only=True),
                          lambda: torch.use_deterministic_algorithms(False)),
                         (lambda: torch.backends.cuda.enable_flash_sdp(False),
                          lambda: torch.backends.cuda.enable_flash_sdp(True)),
                         (lambda: torch.backends.cuda.enable_math_sdp(False), lambda: torch.backends.cuda.enable_math_sdp(True)),
                         (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None))):
        change()
        assert switches.state() != before and switches.why_eager() is None
        undo()
    torch.set_float32_matmul_precision("highest")


def test_switches_of_releases_to_come():
    module = SimpleNamespace(_get_kernel_kind=lambda: "auto", _set_kernel_kind=None, _get_order=lambda: [1, 2], _set_order=None,
                             _get_new_sdp_enabled=lambda: True, _get_without_setter=lambda: 1,
                             _get_of_one=lambda one: one, _set_of_one=None, _get_warnAlways=lambda: 1, _set_warnAlways=None)
    assert sorted(map(str, (get() for get in switches._getters(module)))) == ["True", "[1, 2]", "auto"]


def test_training_is_told_enough_of():
    pytest.importorskip("torch", minversion="2.8")
    assert switches.why_not_trained() is None


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


def test_a_difference_ends_it_for_good(auto, backend, said):
    values = iter([1.0] * 8 + [2.0] * 1000)
    state = sys.modules["unnamed"] = SimpleNamespace(now=1.0)
    module = module_with(lambda self, x: x * getattr(sys, "modules")["unnamed"].now)
    run(module, EAGER_FIRST + COMPARED)
    assert graphs(auto, module) == 1
    state.now = next(values) * 3
    replays = backend.replays
    x = torch.ones(2, 3)
    for _ in range(6):  # which shows nowhere
        module(x)
    assert backend.replays == replays + 6
    assert torch.equal(module(x), x * 3)  # the tenth, by an eager run
    for _ in range(20):
        assert torch.equal(module(x), x * 3)
    assert backend.captures == 1 and backend.closed == 1
    assert said.getvalue().count("warning") == 1
    assert "Given runs eagerly: its graph differs from an eager run: output (float32[2, 3]) differs at [0, 0]: 3.0 eagerly, 1.0 by the graph" in said.getvalue()
    del sys.modules["unnamed"]


def test_noise_ends_it(auto, backend, said, net):
    backend.spoil = lambda graph: graph.outputs.view(-1)[0].add_(1e-6) if graph.replays > 1 else None
    run(net, 12)
    assert graphs(auto, net) == 0 and "differs from an eager run: output (float32[2, 2]) differs" in said.getvalue()


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
        calls = served(auto, module).served
        run(module, 1)
        assert served(auto, module).served == calls, count
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
    (collects, "the content of an attribute or global, or an attribute of a class, has changed whenever it runs"),
    (prints, r"it calls builtins.print (test_auto_changes.py:"),
    (numbers_itself, "has changed whenever it runs"),
    (collects_itself, "the content of an attribute or global, or an attribute of a class, has changed whenever it runs"),
    (asks_the_time, "it calls time.time (test_auto_changes.py:"),
    (logs, "it writes to a log (test_auto_changes.py:"),
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
    assert backend.captures == 0 and ("it uses modules that are not registered as its own", 7) in served(auto, module).reasons()


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


@pytest.mark.skipif(not hasattr(torch.__future__, "set_swap_module_params_on_conversion"), reason="this PyTorch swaps none")
def test_a_guard_does_not_keep_tensors_from_being_swapped(auto, backend):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module = Net().eval()
        run(module, 8)
        module.double().float()  # for which PyTorch wants no weak references
        run(module, 8)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert backend.captures == 2
