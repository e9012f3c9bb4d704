"""Programs under torch.compile, whose compiler asks for CUDA graphs as Inductor does: their results are the same as
compiled without. Dynamo and AOTAutograd are PyTorch's own; kernels are the CPU's, and graphs a fake's, which keeps the
captured ops."""

import importlib

import pytest

torch = pytest.importorskip("torch", minversion="2.4")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from nimble.compile import compiled_function  # noqa: E402
from test_compiled_graphs import in_favour_of_graphs, trees  # noqa: E402, F401
from replaying import ReplayingCapture  # noqa: E402

CALLS = 12


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def compile_with(trees, backend, monkeypatch):  # noqa: F811
    """compile_with(graphs): torch.compile, with CUDA graphs or without. `functions` are those compiled for graphs."""
    try:
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd
        from torch._dynamo.backends.cudagraphs import find_input_mutations
        from torch._inductor.compile_fx import get_static_input_idxs
    except ImportError as error:
        pytest.skip(f"this PyTorch has it elsewhere: {error}")
    monkeypatch.setattr("nimble.capture.cuda_capture.CudaCapture", lambda: backend)
    monkeypatch.setattr("nimble.shim.check", lambda: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    in_favour_of_graphs(monkeypatch)
    made = []
    whole = compiled_function.CompiledFunction.__init__

    def noted(self, *arguments):
        made.append(self)
        whole(self, *arguments)

    monkeypatch.setattr(compiled_function.CompiledFunction, "__init__", noted)
    compile_fx = importlib.import_module("torch._inductor.compile_fx")

    def compiler(graphs):
        def inference(gm, inputs):
            run = make_boxed_func(gm.forward)
            if graphs:
                run = compile_fx.cudagraphify(run, get_static_input_idxs(0), device_index=0, stack_traces=[], is_backward=False,
                                              is_inference=True, mutated_input_idxs=tuple(find_input_mutations(gm.graph)))
                run._boxed_call = True
            return run

        def plain(gm, inputs):
            return make_boxed_func(gm.forward)

        return aot_autograd(fw_compiler=plain, inference_compiler=inference, keep_inference_input_mutations=True)

    def compile_with(graphs, program, **more):
        torch._dynamo.reset()
        return torch.compile(program, backend=compiler(graphs), **more)

    compile_with.functions = made
    yield compile_with
    torch._dynamo.reset()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return {"sum": self.norm(self.one(x) + self.two(x)), "pair": (x.sum(), [self.two.weight])}


class Cached(nn.Module):
    """A decoder's cache, written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(32, 4))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.cache.index_copy_(0, self.filled.reshape(1) % 32, x[:1])
        self.filled.add_(1)
        return self.cache.cumsum(0), self.filled


class Views(nn.Module):
    def forward(self, x):
        y = x * 2
        return y, y.t(), y[:1], x, x.view(-1), (x + 1)[:, :1]


class OpWrites(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


class Drops(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, True)


class Counts(nn.Module):
    """A graph break: the rest is compiled separately."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        x = self.inner(x)
        torch._dynamo.graph_break()
        return F.relu(x) * 3


def given(i):
    return torch.arange(8.0).reshape(2, 4) * 0.1 + i


def tensors(tree):
    return [leaf for leaf in torch.utils._pytree.tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def outcome(compiled, module, change, calls=CALLS):
    """Everything observable of `count` calls: outputs and their identities, arguments and buffers."""
    torch.manual_seed(1)
    seen = []
    for i in range(calls):
        change(module, i)
        x = given(i)
        outputs = tensors(compiled(x))
        with torch.no_grad():
            for output in outputs[:-1]:
                if output.data_ptr() == x.data_ptr():
                    output.add_(1)  # which the others see that are the same memory
        seen.append([t.clone() for t in (*outputs, x, *module.buffers())] + [torch.tensor(t.stride()) for t in outputs])
    return seen


def nothing(module, i):
    pass


def other_values(module, i):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(i * 0.01)


def other_memory(module, i):
    if i in (5, 6, 9):
        for p in module.parameters():
            p.data = p.data * 1.5


def other_parameters(module, i):
    if i == 7:
        module.one = nn.Linear(4, 4)
        nn.init.constant_(module.one.weight, 0.25)
        nn.init.zeros_(module.one.bias)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind, change, served", [
    (Branches, nothing, True), (Branches, other_values, True), (Branches, other_memory, True), (Branches, other_parameters, True),
    (Cached, nothing, True), (Views, nothing, False), (OpWrites, nothing, False), (Drops, nothing, True), (Counts, nothing, True),
])
def test_a_program(compile_with, backend, kind, change, served, mode):
    outcomes = []
    for graphs in (False, True):
        torch.manual_seed(0)
        module = kind().eval()
        with mode():
            outcomes.append(outcome(compile_with(graphs, module), module, change))
    for want, got in zip(*outcomes):
        assert len(want) == len(got) and all(torch.equal(a, b) for a, b in zip(want, got))
    if kind is Cached and not getattr(torch._dynamo.config, "inline_inbuilt_nn_modules", False):
        served = False  # up to 2.4 buffers are the graph's own, and not said to stay where they are
    assert compile_with.functions and (sum(each.served for each in compile_with.functions) > 0) == served, [
        dict(each.as_compiled) for each in compile_with.functions]


def test_shapes_that_vary(compile_with, backend):
    net = Branches().eval()
    outcomes = []
    for graphs in (False, True):
        compiled = compile_with(graphs, net, dynamic=True)
        with torch.no_grad():
            outcomes.append([compiled(torch.ones(2 + i % 3, 4) * i)["sum"].clone() for i in range(40)])
    assert all(torch.equal(a, b) for a, b in zip(*outcomes))
    assert backend.captures == 3 and sum(each.served for each in compile_with.functions) > 20


def test_training_beside_it(compile_with):
    """Alternates steps and evaluations."""
    outcomes = []
    for graphs in (False, True):
        torch.manual_seed(0)
        net = Branches()
        optimizer, compiled, seen = torch.optim.SGD(net.parameters(), 0.1), compile_with(graphs, net), []
        for i in range(CALLS):
            optimizer.zero_grad()
            compiled(given(i))["sum"].square().sum().backward()
            optimizer.step()
            net.eval()
            with torch.no_grad():
                seen.append(compiled(given(i))["sum"].clone())
            net.train()
        outcomes.append([*seen, *net.parameters(), *net.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*outcomes))
    assert sum(each.served for each in compile_with.functions) > 0
