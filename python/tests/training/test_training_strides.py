"""Training by graphs: outputs have the module's strides, and gradients are added as eager kernels add those with these
strides."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.training.training_outputs import find_aliases  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import grads, only, same  # noqa: E402


def twins(module):
    return module, copy.deepcopy(module)


LOSSES = [
    lambda y: (y.t().contiguous() * torch.arange(33 * 127.0).reshape(33, 127).sin()).sum(),
    lambda y: y.sum(),
    lambda y: (y * torch.arange(127 * 33.0).reshape(127, 33).sin()).sum(),
    lambda y: y[::2].mean(0).sin().sum(),
]


def test_gradients_with_other_strides_have_a_graph_of_their_own(backend):
    torch.manual_seed(0)
    module, twin = twins(nn.Linear(65, 33))
    model = Nimble(module, backend=backend)
    torch.set_num_threads(1)
    for number in range(3):
        for loss in LOSSES:
            x = torch.randn(127, 65)
            for m, f in ((module, model), (twin, twin)):
                m.zero_grad()
                loss(f(x)).backward()
            assert same(grads(module), grads(twin))
    (graph,) = model._graphs
    kinds = [(tuple(way.given[0].stride()), way.captured is not None) for way in graph._backwards._entries.values()]
    assert sorted(kinds) == [((0, 0), True), ((1, 127), True), ((33, 1), True)]


def test_so_many_graphs_and_no_more(backend):
    torch.manual_seed(0)
    module, twin = twins(nn.Linear(4, 6))
    model = Nimble(module, backend=backend)
    for _ in range(2):
        for strides in [(6, 1), (1, 5), (12, 2), (18, 3), (24, 4), (0, 1), (3, 1)]:
            x, grad = torch.randn(5, 4), torch.randn(200).as_strided((5, 6), strides)
            for m, f in ((module, model), (twin, twin)):
                m.zero_grad()
                f(x).backward(grad)
            assert same(grads(module), grads(twin))
    assert len(backend.graphs) == 5  # a forward, and four


def test_sparse_gradients_of_outputs_raise(backend):
    model = Nimble(nn.Linear(4, 2), backend=backend)
    with pytest.raises(NimbleError, match="has layout torch.sparse_coo"):
        model(torch.ones(5, 4)).backward(torch.eye(5)[:, :2].to_sparse())


VIEWS = [lambda y: y[:, ::2], lambda y: y[:1].expand(3, 4), lambda y: y.t(), lambda y: y[:, :2], lambda y: y.t()[1:, ::2]]


@pytest.mark.parametrize("view", VIEWS)
def test_outputs_have_the_modules_strides(view):
    torch.manual_seed(0)
    module, twin = twins(only(lambda self, x: (view(self.first(x)), view(self.first(x)).detach() * 1), first=nn.Linear(4, 4)))
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.randn(3, 4), training=True, relaxed=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        for mine, other in zip(model(x), twin(x)):
            assert torch.equal(mine, other) and mine.stride() == other.stride()
    mine = model(x)[0]
    assert not mine._is_view()
    if 0 not in mine.stride():
        mine.mul_(2)  # which raises no version
    mine.sum().backward()


def test_outputs_that_overlap(backend):
    torch.manual_seed(0)

    def prepared(outputs):
        return Nimble(only(lambda self, x: outputs(self.first(x)), first=nn.Linear(4, 4)), backend=backend)(torch.ones(3, 4))

    for outputs in (lambda y: (y, y.view(-1)), lambda y: (y, y[:, 0]), lambda y: (y[:, :3], y[:, 2:]),
                    lambda y: (y[:1], y.detach()), lambda y: (y[0], y[1], y[:2, 1:2].detach()), lambda y: (y, y.detach().view(torch.int32))):
        with pytest.raises(NimbleError, match="outputs overlap in memory"):
            prepared(outputs)
    for outputs in (lambda y: y.chunk(2), lambda y: (y[:, ::2], y[:, 1::2]), lambda y: (y[:, :2], y[:, 2:].detach()),
                    lambda y: (y[0], y[1], y[2:].detach()), lambda y: (y, y.clone()), lambda y: (y, y)):
        assert len(prepared(outputs)) >= 2


def test_outputs_without_gradients_that_lie_in_others(backend):
    """Like losses that are also returned for a log."""
    def outputs(y, z):
        return y.detach(), y, y.detach()[1:, ::2], z, z[0]

    torch.manual_seed(0)
    module, twin = twins(only(lambda self, x: outputs(self.first(x), x * 2), first=nn.Linear(4, 4)))
    model = Nimble(module, backend=backend)
    for f in (model, twin, model):
        detached, y, part, z, row = f(torch.ones(3, 4))
        assert not detached.requires_grad and not part.requires_grad and torch.equal(part, y[1:, ::2])
        made = y * y
        part.zero_()
        row.zero_()
        assert y[1, 0].item() == detached[1, 0].item() == 0 and y[0, 0].item() != 0 and z[0].sum().item() == 0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_found_overlaps():
    base = torch.zeros(64)
    wanted = torch.zeros(64, requires_grad=True)[:]
    assert find_aliases([base[:8], base[4:12]]) == {} and find_aliases([wanted, base]) == {}
    assert find_aliases([wanted[8:16], wanted.detach()[:8], wanted.detach()[10:12]]) == {2: 0}
    assert find_aliases([wanted.unfold(0, 3, 2)[:4], wanted[9:]]) == {}  # elements 0 to 8
    with pytest.raises(NimbleError, match="overlap"):
        find_aliases([wanted.unfold(0, 3, 2)[:4], wanted[8:]])
    with pytest.raises(NimbleError, match="overlap"):
        find_aliases([wanted.unfold(0, 3, 2)[:4], wanted[8:].detach()])
