"""Changed metadata: guards see shapes, strides and dtypes, quickly where PyTorch can compare them."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble.guards import metadata  # noqa: E402
from nimble.guards.metadata import Metadata  # noqa: E402
from nimble.guards.module_guard import ModuleGuard  # noqa: E402
from step_programs import mlp, same, sgd, update  # noqa: E402


@pytest.fixture(params=["quick", "slow"])
def way(request, monkeypatch):
    if request.param == "slow":
        monkeypatch.setattr(metadata, "_tensor_guards", None)
    elif metadata._tensor_guards is None:
        pytest.skip("this PyTorch cannot")


def sliced(t):
    t.data = t.data[:3]


def with_one_more_dimension(t):
    t.data = t.data.unsqueeze(0)


def transposed(t):
    t.data = t.data.t()


def other_dtype(t):
    t.data = t.data.view(torch.bfloat16)


@pytest.mark.parametrize("name", ["weight", "bias", "table"])
@pytest.mark.parametrize("change", [sliced, with_one_more_dimension, transposed, other_dtype])
def test_changes_are_seen(way, name, change):
    net = nn.Linear(5, 4)
    net.half()
    net.register_buffer("table", torch.ones(4, 4, dtype=torch.float16))
    guard = ModuleGuard(net, "cpu", trains=True)
    assert guard.difference() is None
    tensor = getattr(net, name)
    if change is transposed and tensor.dim() == 1:
        change = sliced
    before = tensor.data
    change(tensor)
    what = {sliced: "shape", with_one_more_dimension: "shape", transposed: "strides", other_dtype: "dtype"}[change]
    assert any(word in guard.difference() for word in (what, "strides", "shape"))
    tensor.data = before
    assert guard.difference() is None
    net.weight.requires_grad_(False)
    assert "no longer requires gradients" in guard.difference()


@pytest.mark.parametrize("trains", [True, False])
def test_modes_do_not_count(way, trains):
    """Nor does it matter that a tensor occurs twice."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    guard = ModuleGuard(net, "cpu", trains)
    for _ in range(6):
        with torch.autocast("cpu"):
            assert guard.difference() is None
        with torch.inference_mode():
            assert guard.difference() is None
        assert guard.difference() is None
    net[1].bias.data = net[1].bias.data[1:]
    assert guard.difference() is not None


@pytest.mark.parametrize("trains", [True, False])
def test_who_wants_gradients_counts(way, trains):
    """Even where none are computed: torch.matmul has other kernels then."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(4, 4))
    guard = ModuleGuard(module, "cpu", trains)
    module.weight.requires_grad_(False)
    assert "no longer requires gradients" in guard.difference()


def test_it_is_quick_again_in_another_mode():
    if metadata._tensor_guards is None:
        pytest.skip("this PyTorch cannot")
    tensors = [torch.ones(2, 3), torch.ones(4)]
    looking, slow = Metadata(tensors), []
    original = looking.look
    looking.look = lambda: slow.append(1) or original()
    for mode, count in ((torch.no_grad, 0), (torch.inference_mode, 1), (torch.no_grad, 1)):
        with mode():
            for _ in range(3):
                assert looking.difference() is None
        assert len(slow) == count


def test_a_module_whose_memory_is_looked_at_in_another_way(backend):
    net = nn.Sequential(nn.Embedding(8, 4), nn.ReLU()).eval().half()
    model = nimble.Nimble(net, backend=backend)
    x = torch.arange(3)
    with torch.no_grad():
        for change in (lambda: None, lambda: other_dtype(net[0].weight), lambda: sliced(net[0].weight)):
            change()
            mine, its = model(x[:2]), net(x[:2])
            assert mine.dtype == its.dtype and torch.equal(mine, its)


def test_a_step_whose_parameters_shrink():
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(12):
            if i == 7:
                optimizer.zero_grad()
                net[0].weight.data, net[0].bias.data = net[0].weight.data[:3], net[0].bias.data[:3]
                net[2].weight.data = net[2].weight.data[:, :3]
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 2


def test_a_step_whose_own_parameter_is_looked_at_in_another_way():
    def program(wrap):
        weight = torch.randn(4, 6, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        step = wrap(lambda x: update(None, optimizer, (x @ weight).square().sum()))
        for i in range(12):
            if i == 7:
                weight.data, weight.grad = weight.data[:, :3], None
            yield step(torch.randn(5, 4)), weight

    assert same(program) and same.backend.captures == 2


def test_copies_have_guards_of_their_own():
    net = mlp()
    other = copy.deepcopy(net)
    guard = ModuleGuard(net, "cpu")
    sliced(other[0].weight)
    assert guard.difference() is None
