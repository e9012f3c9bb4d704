"""Arguments and outputs that a graph could not return, or write, as the module does; and memory that it finds elsewhere."""

import functools
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.graphs.graph_io import device_of  # noqa: E402
from nimble.guards.signatures import keeps_no_sizes  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from test_prepare_state import module_with, prepared  # noqa: E402, F401


def appends(self, x, given):
    given.append(x * 2)
    return x * 1


def puts(self, x, given):
    given["h"] = given["h"] + x if "h" in given else x * 2
    return given["h"] * 1


def replaces(self, x, given):
    given[0][0] = x * 2
    return x * 1


def counts(self, x, given):
    given[0] += 1
    return x * 1


@pytest.mark.parametrize("forward, given", [(appends, []), (puts, {}), (replaces, ([None],)), (counts, [0])])
def test_containers_that_a_run_changes(prepared, forward, given):  # noqa: F811
    with pytest.raises(NimbleError, match="changes a list, a dictionary or the like that is an argument"):
        prepared(module_with(forward), torch.ones(2), given)
    assert not given or given in (([None],), [0])


def test_each_run_has_containers_of_its_own(prepared):  # noqa: F811
    def forward(self, x, given):
        return x + given.pop() if self.takes else x + given[0]

    prepared(module_with(forward, takes=False), torch.ones(2), [torch.ones(2)])
    with pytest.raises(NimbleError, match="changes a list"):
        prepared(module_with(forward, takes=True), torch.ones(2), [torch.ones(2)])


class Scaled(torch.Tensor):
    pass


def with_a_scale(x):
    x.scale = 3.0
    return x


@pytest.mark.parametrize("make, said", [(lambda: torch.ones(2).as_subclass(Scaled), r"args\[0\] is a Scaled"),
                                        (lambda: with_a_scale(torch.ones(2)), r"args\[0\] has Python attributes \('scale'\)"),
                                        (lambda: torch.ones(2, dtype=torch.cfloat).conj(), r"args\[0\] is conjugated"),
                                        (lambda: torch.ones(2, dtype=torch.cfloat).conj().imag, r"args\[0\] is conjugated or negated"),
                                        pytest.param(lambda: torch.ones(2, names=("N",)), r"args\[0\] has names of dimensions",
                                                     marks=pytest.mark.skipif(not hasattr(torch.Tensor, "has_names"),
                                                                              reason="this PyTorch has no named tensors"))])
def test_tensors_that_are_more_than_tensors(prepared, make, said):  # noqa: F811
    module = module_with(lambda self, x: x * getattr(x, "scale", 1.0))
    with pytest.raises(NimbleError, match=said):
        prepared(module, make())
    model = prepared(module, torch.ones(2))
    for _ in range(2):
        assert model(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(NimbleError, match=said):
        model(make())


def test_a_call_that_is_conjugated_like_one_that_is_not(prepared):  # noqa: F811
    module = module_with(lambda self, x: x * (2 if x.is_conj() else 3))
    x = torch.ones(2, dtype=torch.cfloat)
    model = prepared(module, x)
    model(x)
    with pytest.raises(NimbleError, match="is conjugated"):
        model(x.conj())


def test_marks_of_pytorchs_are_no_attributes(prepared):  # noqa: F811
    marked = getattr(nn, "Buffer", torch.Tensor)(torch.ones(2))
    marked._dynamo_dynamic_indices = {0}
    assert prepared(module_with(lambda self, x: x * 2), marked)(marked).tolist() == [2, 2]


def test_a_parameter_as_an_argument(prepared):  # noqa: F811
    module = module_with(lambda self, x: x * (2 if isinstance(x, nn.Parameter) else 3))
    with torch.no_grad():
        model = prepared(module, nn.Parameter(torch.ones(2)))
        assert model(nn.Parameter(torch.full((2,), 4.0))).tolist() == [8, 8] and model(torch.ones(2)).tolist() == [3, 3]


def test_whether_an_argument_requires_gradients_is_seen_without_them(prepared):  # noqa: F811
    module = module_with(lambda self, x: x * (2 if x.requires_grad else 3))
    model = prepared(module, torch.ones(2))
    with torch.no_grad():
        assert [model(torch.ones(2, requires_grad=r)).tolist() for r in (True, False, True)] == [[2, 2], [3, 3], [2, 2]]


@pytest.mark.parametrize("forward, said", [
    (lambda self, x: torch.tanh(x.requires_grad_().detach()), r"whether args\[0\] requires gradients"),
    (lambda self, x: x.unsqueeze_(0) * 2, r"args\[0\] another shape"),
])
def test_what_a_run_changes_of_an_argument_itself(prepared, forward, said):  # noqa: F811
    with pytest.raises(NimbleError, match=said):
        prepared(module_with(forward), torch.ones(2))


def test_an_argument_that_is_a_buffer(prepared):  # noqa: F811
    def writes_buffer(self, x, given):
        self.table.add_(x)
        return given * 1

    def writes_argument(self, x, given):
        given.add_(x)
        return self.table * 1

    for forward, said in ((writes_buffer, r"args\[1\] shares memory with a buffer that the module writes to"),
                          (writes_argument, r"writes to args\[1\], which shares memory with a tensor of the module")):
        module = module_with(forward)
        module.register_buffer("table", torch.zeros(2))
        model = prepared(module, torch.ones(2), torch.zeros(2))
        assert torch.equal(model(torch.ones(2), torch.zeros(2)), module_with(lambda self: self.table * 0, table=module.table)())
        with pytest.raises(NimbleError, match=said):
            model(torch.ones(2), module.table)


def test_the_graphs_own_arguments_elsewhere_than_in_their_places(prepared):  # noqa: F811
    module = module_with(lambda self, x, y: x - 2 * y)
    model = prepared(module, torch.zeros(3), torch.zeros(3))
    (x, y), _ = model.static_inputs(torch.zeros(3), torch.zeros(3))
    for arguments in (lambda: (y, x), lambda: (torch.arange(3.0), x), lambda: (y, y.clone()), lambda: (x, x)):
        x.copy_(torch.tensor([1.0, 2, 3]))
        y.copy_(torch.tensor([5.0, 7, 11]))
        given = arguments()
        wanted = module(*given)
        assert torch.equal(model(*given), wanted)


def test_keys_that_are_equal_and_not_the_same(prepared):  # noqa: F811
    module = module_with(lambda self, given: sum(v * (2 if type(k) is bool else 1) for k, v in given[0].items()))
    model, x = Nimble(module, backend=ReplayingCapture()), torch.ones(2)
    model.prepare(([{1: x}],), relaxed=True)
    assert [model([{key: x}]).tolist() for key in (1, True, 1)] == [[1, 1], [2, 2], [1, 1]]


def test_sizes_are_returned_as_such(prepared):  # noqa: F811
    module = module_with(lambda self, x: (x.shape, {"size": x.size()}, x * 2))
    if keeps_no_sizes:
        with pytest.raises(NimbleError, match="a torch.Size is returned"):
            prepared(module, torch.ones(2, 3))
        return
    made = prepared(module, torch.ones(2, 3))(torch.ones(2, 3))
    assert type(made[0]) is torch.Size and type(made[1]["size"]) is torch.Size and made[0] == (2, 3)


def test_gradients_that_the_module_enables_itself(prepared):  # noqa: F811
    def forward(self, x):
        with torch.enable_grad():
            made = torch.tanh(self.layer(x))
        return made.detach() if self.detaches else {"of": made}

    module = module_with(forward, layer=nn.Linear(2, 2), detaches=False)
    with pytest.raises(NimbleError, match=r"output\['of'\] requires gradients although the call does not train"):
        prepared(module, torch.ones(1, 2))
    module.detaches = True
    assert not prepared(module, torch.ones(1, 2))(torch.ones(1, 2)).requires_grad


def test_a_part_of_a_parameter_is_returned_without_a_history(prepared):  # noqa: F811
    module = module_with(lambda self, x: (self.weight, self.weight[0]), weight=nn.Parameter(torch.ones(2, 2)))
    whole, part = prepared(module, torch.ones(1))(torch.ones(1))
    assert whole is module.weight and part.grad_fn is None and part.tolist() == [1, 1]


class Doubled(torch.autograd.Function):
    """Because of memory that the backward finds elsewhere."""

    factors = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * Doubled.factors[0]


@pytest.mark.parametrize("training", [False, True])
def test_memory_that_is_found_elsewhere_stays(backend, training):
    """As long as the graph, and no longer."""
    @functools.lru_cache(maxsize=1)
    def mask(count):
        return torch.arange(float(count)).softmax(0)

    class Alive:
        """Its memory's freeing is reported."""

        def __init__(self, tensor):
            self.memory = torch.UntypedStorage._new_with_weak_ptr
            self.weak = tensor.untyped_storage()._weak_ref()

        def __bool__(self):
            return self.memory(self.weak) is not None

    kept, Doubled.factors[:] = [[torch.full((3,), 2.0)]], [torch.full((3,), 2.0)]
    module = module_with(lambda self, x: Doubled.apply(x * mask(3)[:3] * kept[0][0] + self.held[0]), held=[torch.ones(3)])
    model = Nimble(module, backend=backend).prepare(torch.ones(3, requires_grad=training), training=training)
    alive = [Alive(mask(3)), Alive(kept[0][0]), Alive(module.held[0]), *(Alive(each) for each in Doubled.factors if training)]
    assert [report.kind for report in model.report()] == (["forward", "backward"] if training else ["inference"])
    for graph in backend.graphs:
        graph._function = None  # a GPU's keeps nothing of Python's
    mask(4)
    kept.clear()
    module.held.clear()
    Doubled.factors.clear()
    assert all(alive)
    del model
    backend.graphs.clear()
    assert not any(alive)


def test_memory_that_another_backward_finds_elsewhere(backend):
    """One whose graph is made later."""
    Doubled.factors[:] = [torch.full((3,), 2.0)]
    module = module_with(lambda self, x: (x * 3, Doubled.apply(x)))
    model, x = Nimble(module, backend=ReplayingCapture()), torch.ones(3, requires_grad=True)
    model.prepare(x, training=True, relaxed=True)
    Doubled.factors[:] = [torch.full((3,), 2.0)]
    for _ in range(3):
        model(x)[1].sum().backward()
    assert len(model.report()) == 3 and x.grad.tolist() == [6, 6, 6]
    (graph,) = model._graphs
    assert Doubled.factors[0].data_ptr() in [each.data_ptr() for each in graph._backwards._also_read]


@pytest.mark.parametrize("training", [False, True])
def test_no_memory_of_the_runs_own_is_kept(backend, training):
    def forward(self, x):
        made = torch.empty(3).fill_(2.0)
        made += torch.tensor([1.0, 2.0, 3.0])
        return (x * made).relu() + self.weight

    model = Nimble(module_with(forward, weight=nn.Parameter(torch.ones(3))), backend=backend)
    model.prepare(torch.ones(3), training=training)
    (graph,) = model._graphs
    assert (graph._backwards if training else graph)._also_read == []


@pytest.mark.parametrize("training", [False, True])
def test_weights_that_parametrizations_cache(prepared, training):  # noqa: F811
    class Symmetric(nn.Module):
        def forward(self, weight):
            return weight.triu() + weight.triu(1).t()

    layer = nn.Linear(2, 2).eval()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.requires_grad_(not training)  # else it is a tensor that requires gradients, and no parameter
    x = torch.ones(1, 2, requires_grad=training)
    with parametrize.cached(), pytest.raises(NimbleError, match="outside of it"):
        prepared(layer, x, training=training)
    model = prepared(layer, x, training=training)
    with torch.no_grad():
        layer.parametrizations.weight.original.fill_(5.0)
    assert torch.equal(model(torch.ones(1, 2)), layer(torch.ones(1, 2)))


@pytest.mark.parametrize("training", [False, True])
def test_ops_that_cannot_be_watched(prepared, training):  # noqa: F811
    """They are prepared like others, once they are recognized."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def forward(self, x):
        mode = _get_current_dispatch_mode()
        seen.append(self.count.item())
        self.count.add_(1)
        if type(mode).__module__ == "nimble.guards.op_watch":
            raise NotImplementedError("no rule for this mode")
        return x * 2 + self.count

    module, seen = module_with(forward), []
    module.register_buffer("count", torch.zeros(()))
    model = prepared(module, torch.ones(2, requires_grad=training), training=training)
    assert set(seen) == {0} and len(seen) == (8 if training else 4)
    assert module.count.item() == 0 and model(torch.ones(2)).tolist() == [3, 3]


def test_what_is_compiled_is_so_in_the_first_run(prepared):  # noqa: F811
    pytest.importorskip("torch", minversion="2.5")
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph

    torch._dynamo.reset()
    function = torch.compile(lambda x: torch.sin(x) + 1, backend=backend)
    module = module_with(lambda self, x: function(x), layer=nn.Linear(2, 2))
    model = prepared(module, torch.ones(2))
    assert compiled and torch.equal(model(torch.zeros(2)), torch.ones(2))


def test_all_is_on_one_device():
    def on(*names):
        return [types.SimpleNamespace(device=torch.device(name)) for name in names]

    def found(arguments, tensors):
        call = types.SimpleNamespace(leaves=on(*arguments), tensors=range(len(arguments)), place=lambda number: f"argument {number}")
        return device_of(on(*tensors), call, types.SimpleNamespace(device_type="cuda"))

    assert found(["cuda:1"], []) == found([], ["cpu", "cuda:1"]) == found(["cuda:1"], ["cuda:1", "cpu"]) == torch.device("cuda", 1)
    for arguments, tensors, why in ((["cuda:0"], ["cuda:0", "cuda:1"], "on cuda:1 and on cuda:0"), ([], ["cuda:1", "cuda:0"], "a graph has one device"),
                                    (["cuda:0", "cuda:1"], [], "argument 1 is on cuda:1, another argument on cuda:0"),
                                    (["cpu"], ["cuda:0"], "argument 0 is on cpu"), ([], ["cpu"], "neither an argument nor")):
        with pytest.raises(NimbleError, match=why):
            found(arguments, tensors)
