"""torch.compile(backend="nimble"): options, kernels, reports, threads, and calls that no graph can serve. The GPU is a fake."""

import copy
import gc
import os
import shutil
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from dynamo_tools import COMPARED, FIRST, check_same, compiler, served, why_traced  # noqa: E402
from fake import FakeCapture  # noqa: E402
from nimble import CaptureError, Nimble  # noqa: E402
from nimble.compile import dynamo_backend  # noqa: E402
from nimble.compile.traced_graph import TracedGraph  # noqa: E402
from nimble.capture.cuda_capture import CudaCapture  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

BEFORE = FIRST + COMPARED


@pytest.fixture(autouse=True)
def no_lines_at_exit(monkeypatch):
    monkeypatch.setattr("atexit.register", lambda *_: None)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def nimble(backend):
    return compiler(backend)


def net():
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)).eval().requires_grad_(False)


def check(compiled, plain, times):
    for _ in range(times):
        x = torch.randn(4, 6)
        check_same([compiled(x)], [plain(x)])


@pytest.mark.parametrize("options, mode, why", [
    ({"kernel": "eager"}, None, "has no option 'kernel': it has kernels ('eager' or 'inductor'), multi_stream (True or False), training (False or "
     "True)"),
    ({"kernels": "fast"}, None, "the option 'kernels' of the backend nimble is 'fast': it has"),
    ({"training": [1]}, None, "the option 'training' of the backend nimble is [1]: it has"),
    ({"training": True, "kernels": "inductor"}, None, "with the kernels 'eager' only"),
    (None, "max-autotune", "has no mode 'max-autotune': it has options, kernels"),
])
def test_unknown_options(nimble, options, mode, why):
    compiled = torch.compile(net(), backend=nimble, **({"options": options} if options else {"mode": mode}))
    with pytest.raises(Exception) as error:
        compiled(torch.randn(4, 6))
    assert why in str(error.value)


def test_the_mode_that_asks_for_graphs(nimble):
    module = net()
    check(torch.compile(module, backend=nimble, mode="reduce-overhead"), module, BEFORE + 2)
    assert served(nimble) == 2


def test_one_stream():
    backend = FakeCapture()
    compiled = torch.compile(net(), backend=compiler(backend), options={"multi_stream": False, "kernels": "eager"})
    for _ in range(BEFORE):
        compiled(torch.randn(4, 6))
    assert backend.asked == [(False, True)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
def test_kernels_of_inductor():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)
            self.register_buffer("state", torch.zeros(6))

        def forward(self, x, y):
            self.state.add_(1)
            y.mul_(2)
            return torch.relu(self.linear(x)) + self.state, y, x.view(-1)

    module, plain, nimble = Written(), Written(), compiler(FakeCapture())
    plain.load_state_dict(module.state_dict())
    compiled = torch.compile(module, backend=nimble, options={"kernels": "inductor"})
    plain = torch.compile(plain)
    with torch.no_grad():
        for _ in range(BEFORE + 4):
            x, y = torch.randn(4, 6), torch.randn(4, 6)
            z = y.clone()
            check_same([*compiled(x, y), x, y, module.state], [*plain(x, z), x, z, plain.state])
    assert served(nimble) >= 3
    trained = torch.compile(nn.Linear(6, 6), backend=nimble, options={"kernels": "inductor"})
    trained(torch.randn(4, 6)).sum().backward()


def test_reports(nimble, monkeypatch):
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    (report,) = nimble.reports()
    assert (report.served, report.compared, report.as_traced) == (2, 3, {"before it was prepared": 1})
    assert report.name == "[0/0] Sequential" and report.graphs[0].state == "rewritten"
    monkeypatch.setattr(dynamo_backend, "_compiler", nimble)
    import nimble as package

    assert package.report() == nimble.reports()
    monkeypatch.setattr(dynamo_backend, "_compiler", None)
    assert package.report() == []


def test_graphs_go_with_what_dynamo_has_compiled(nimble, backend):
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    torch._dynamo.reset()
    gc.collect()
    assert nimble.reports() == [] and backend.closed == 1
    check(compiled, module, BEFORE + 2)
    assert served(nimble) == 2


def test_where_the_library_is_not_loaded(capsys, monkeypatch):
    monkeypatch.delenv("NIMBLE_LOG", raising=False)
    nimble = compiler(CudaCapture())
    for module in (net(), nn.Sequential(nn.Linear(6, 6), nn.Tanh())):
        with torch.no_grad():
            check(torch.compile(module, backend=nimble), module, BEFORE + 2)
    said = capsys.readouterr().err
    assert served(nimble) == 0 and said.count("libnimble.so is not in this process") == 1 and said.count("\n") == 1
    assert all("libnimble.so is not in this process" in why for why in why_traced(nimble))


def test_where_pytorch_is_left_alone(backend, monkeypatch):
    monkeypatch.setenv("NIMBLE_TORCH", "off")
    nimble, module = compiler(backend), net()
    check(torch.compile(module, backend=nimble), module, BEFORE + 2)
    assert why_traced(nimble) == {"NIMBLE_TORCH is off"}


def test_what_is_not_on_the_gpu(backend):
    backend.device_type = "cuda"
    nimble, module = compiler(backend), net()
    check(torch.compile(module, backend=nimble), module, BEFORE + 2)
    assert why_traced(nimble) == {"it reads memory on cpu, not on one cuda device"} and backend.captures == 0


def fails():
    raise CaptureError("the host waits")


@pytest.mark.parametrize("spoil, at_capture, without, why", [
    (lambda graph: graph.outputs[0].add_(1e-3), None, 2.0, "its graph differs from a run without"),
    (None, fails, 2.0, "the host waits"),
    (None, None, 0.5, "it is as fast without"),
])
def test_what_a_graph_cannot_do(backend, spoil, at_capture, without, why):
    backend.spoil, backend.at_capture = spoil, at_capture
    nimble, module = compiler(backend, without), net()
    check(torch.compile(module, backend=nimble), module, BEFORE + 4)
    assert served(nimble) == 0 and all(why in each for each in why_traced(nimble)) and why_traced(nimble)


def test_little_memory(backend):
    nimble, module = compiler(backend, has_room=lambda device: False), net()
    check(torch.compile(module, backend=nimble), module, BEFORE + 2)
    assert "memory is free" in str(why_traced(nimble)) and backend.captures == 0


def test_what_the_graph_raises(nimble):
    def function(x, index):
        return x[index]

    compiled = torch.compile(function, backend=nimble)
    x = torch.randn(4)
    for call in range(3 * BEFORE):
        if call % 3 == 2:
            with pytest.raises(IndexError, match="out of"):
                compiled(x, torch.tensor([7]))
        else:
            check_same([compiled(x, torch.tensor([call % 4]))], [function(x, torch.tensor([call % 4]))])


def test_what_observes_ops(nimble):
    from torch.utils.flop_counter import FlopCounterMode

    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    before = served(nimble)
    with FlopCounterMode(display=False) as counter:
        compiled(torch.randn(4, 6))
    assert counter.get_total_flops() == 2 * 2 * 4 * 6 * 6 and served(nimble) == before


def test_a_switch_by_which_kernels_are_chosen(nimble):
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    enabled = torch.backends.cuda.flash_sdp_enabled()
    try:
        torch.backends.cuda.enable_flash_sdp(not enabled)
        check(compiled, module, 1)
        assert served(nimble) == 2
    finally:
        torch.backends.cuda.enable_flash_sdp(enabled)
    check(compiled, module, 1)
    assert served(nimble) == 3


def test_as_a_part_of_another_graph(nimble, backend):
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)

    class Around(nn.Module):
        def forward(self, x):
            return compiled(x) + 1

    around = Nimble(Around().eval(), backend=FakeCapture())
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 6)
            assert torch.equal(around(x), module(x) + 1)
    assert "as a part of another graph" in why_traced(nimble)
    backend.capturing = True
    before = served(nimble)
    check(compiled, module, 2)
    assert served(nimble) == before


def test_threads(nimble, backend):
    modules = [net(), nn.Sequential(nn.Linear(6, 6), nn.Tanh()).eval().requires_grad_(False)]
    plain = copy.deepcopy(modules)
    compiled = [torch.compile(module, backend=nimble) for module in modules]
    failures = []

    def work(number):
        try:
            with torch.no_grad():
                for call in range(30):
                    check(compiled[(number + call) % 2], plain[(number + call) % 2], 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and served(nimble) > 0


def test_a_forked_child(nimble):
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    child = os.fork()
    if child == 0:
        try:
            check(compiled, module, 2)
            os._exit(0 if served(nimble) == 2 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_at_exit(nimble, backend, capsys, monkeypatch):
    at_exit = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    module = net()
    compiled = torch.compile(module, backend=nimble)
    check(compiled, module, BEFORE + 2)
    (function,) = at_exit
    function()
    assert capsys.readouterr().err.endswith(
        "PyTorch: torch.compile by nimble: 1 function, 2 calls served by graphs, 3 compared, 1 as compiled (1 before it was prepared); "
        "graphs: 1 rewritten\n")
    assert backend.closed == 1
    check(compiled, module, 2)
    assert backend.captures == 1


def test_what_dynamo_is_not_known_to_pass(nimble):
    """Lists, as compiled autograd does, and tensors of other classes."""
    class Other(torch.Tensor):
        pass

    engine = dynamo_backend.Engine(**nimble._engine)
    for argument in ([torch.ones(2)], torch.ones(2).as_subclass(Other), torch.ones(2).to_sparse()):
        function = TracedGraph(lambda given: [given[0] * 2], lambda given: frozenset(), engine, "name")
        for _ in range(BEFORE + 2):
            function([torch.ones(2), argument])
        assert function.served == 0 and len(function.as_compiled) <= 2


