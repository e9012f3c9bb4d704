"""Training by graphs: autograd reaches the same nodes as without, whichever outputs a backward begins at."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.training.training_nodes import Paths, Run  # noqa: E402
from training_nets import grads, only, same  # noqa: E402


class Heads(nn.Module):
    """Outputs that lead to overlapping sets of parameters and arguments."""

    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(self, x, y):
        h = torch.tanh(self.trunk(x))
        return self.a(h), self.b(h), self.a(h) * 2, self.c(y), self.c(y) * self.b(h), h


def heads(backend):
    torch.manual_seed(0)
    module = Heads()
    twin = copy.deepcopy(module)
    return (module, Nimble(module, backend=backend)), (twin, twin)


SOME = [(0,), (1,), (3,), (4,), (0, 3), (0, 2), (1, 4), (0, 1, 2, 3, 4, 5), (5,), (0, 5), (3,)]


def test_hooks_run_of_what_a_backward_reaches_alone(backend):
    results = []
    for module, call in heads(backend):
        log = []
        for name, p in module.named_parameters():
            p.register_hook(lambda grad, name=name: log.append((name, grad.clone())))
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append((name, p.grad.clone())))
        found = []
        for number, some in enumerate(SOME):
            torch.manual_seed(number)
            module.zero_grad()
            x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 3, requires_grad=True) * 1
            y.register_hook(lambda grad: log.append(("y", grad.clone())))
            outputs = call(x, y)
            sum((outputs[i].sin() * (i + 1)).sum() for i in some).backward()
            found.append({**grads(module), "x": x.grad})
            log.append((str(some), torch.zeros(())))
        results.append((found, dict.fromkeys(name for name, _ in log), sorted((n, g.sum().item()) for n, g in log)))
    (mine, _, log), (other, _, their_log) = results
    assert all(map(same, mine, other)) and log == their_log
    assert len(backend.graphs) == 5


def test_what_lies_before_an_argument_runs_where_it_is_reached(backend):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x)
            return x * weight

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return None, (grad * x).sum(0)

    for _, call in heads(backend):
        weight = nn.Parameter(torch.ones(3))
        for _ in range(3):
            call(torch.ones(5, 4), Scale.apply(torch.ones(5, 3), weight))[0].sum().backward()
            assert weight.grad is None
        call(torch.ones(5, 4), Scale.apply(torch.ones(5, 3), weight))[3].sum().backward()
        assert weight.grad is not None


def test_backwards_for_some_alone(backend):
    """autograd.grad towards some of the tensors, of some of the outputs, several times."""
    results = []
    for module, call in heads(backend):
        torch.manual_seed(3)
        found = []
        for _ in range(3):
            x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 3, requires_grad=True)
            outputs = call(x, y)
            for of, towards in ((0, x), (4, y), (4, x), (5, module.trunk.bias), (3, module.c.weight)):
                found += torch.autograd.grad(outputs[of].cos().sum(), towards, retain_graph=True)
            assert torch.autograd.grad(outputs[0].sum(), [x, y], retain_graph=True, allow_unused=True)[1] is None
            with pytest.raises(RuntimeError, match="not have been used in the graph"):
                torch.autograd.grad(outputs[3].sum(), x, retain_graph=True)
            found += torch.autograd.grad(sum(each.sin().sum() for each in outputs), list(module.parameters()))
            del outputs
        results.append(found)
    assert all(map(torch.equal, *results))


def test_a_backward_inside_a_backward(backend):
    """A hook asks for gradients of the same forward while these come."""
    results = []
    for module, call in heads(backend):
        x, y = torch.ones(5, 4, requires_grad=True), torch.ones(5, 3, requires_grad=True)
        outputs = call(x, y)
        inner, other = [], outputs[4].sum()
        outputs[0].register_hook(lambda _: inner.extend(torch.autograd.grad(other, [x, y], retain_graph=True)))
        (outputs[0].sum() + outputs[3].sum()).backward()
        results.append([*inner, x.grad, y.grad, *(g for g in grads(module).values() if g is not None)])
    assert len(results[0]) == len(results[1]) and all(map(torch.equal, *results))


def test_gradients_that_are_differentiated(backend):
    """Where the graph has a function to run the module again; terms are added in another order."""
    results = []
    for module, call in heads(backend):
        torch.manual_seed(4)
        x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 3, requires_grad=True)
        if call is not module:
            call(x, y)
            (graph,) = call._graphs
            graph.distrust(0, lambda call, module=module: module(*call.args))
        outputs = call(x, y)
        gx, gy = torch.autograd.grad((outputs[0].sin() * outputs[3] + outputs[4]).sum(), [x, y], create_graph=True)
        (gx.pow(2).sum() + gy.pow(2).sum()).backward()
        results.append([gx, gy, x.grad, y.grad, *(g for g in grads(module).values() if g is not None)])
    assert len(results[0]) == len(results[1]) and all(map(torch.allclose, *results))


def test_nodes_that_autograd_runs_in_another_order():
    """Gradients that arrive after the graph's first run are added."""
    class Graph:
        runs = 0

        def gradients(self, run, given):
            self.runs += 1
            return [None if all(grad is None for grad in (given[0], given[1])) else sum(g for g in given[:2] if g is not None),
                    given[1], given[2]]

    leaves = [torch.zeros(2, requires_grad=True) for _ in range(3)]
    run, paths, graph = Run(), Paths([frozenset((0,)), frozenset((0, 1)), frozenset((2,))]), Graph()
    made = paths.connect(graph, run, [torch.zeros(2) for _ in range(3)], leaves)
    from nimble.training.training_nodes import _Pass
    one = _Pass(3)
    one.given[0] = torch.ones(2)
    first = one.take([1], graph, run)
    one.given[1] = torch.full((2,), 2.0)
    assert first == [None] and one.take([0], graph, run)[0].tolist() == [3.0, 3.0] and graph.runs == 2
    (made[0] * 3 + made[1]).sum().backward()
    assert leaves[0].grad.tolist() == [4.0, 4.0] and leaves[1].grad.tolist() == [1.0, 1.0] and leaves[2].grad is None
    assert graph.runs == 3 and run.passes == {}


@pytest.mark.skipif(not hasattr(torch._C._functorch, "is_legacy_batchedtensor"), reason="it raises otherwise")
def test_several_gradients_at_once_raise(backend):
    module = nn.Linear(4, 2)
    model = Nimble(module, backend=backend)
    x = torch.ones(1, 4, requires_grad=True)
    y = model(x)
    with pytest.raises(NimbleError, match="one gradient at a time"):
        torch.autograd.grad(y, x, torch.eye(2).reshape(2, 1, 2), is_grads_batched=True)


def test_a_backward_within_the_forward_raises(backend):
    def forward(self, x):
        h = self.first(x)
        self.head(h.detach()).sum().backward()
        return h

    module = only(forward, first=nn.Linear(4, 2), head=nn.Linear(2, 1))
    with pytest.raises(NimbleError, match="leaves a gradient at its parameter 'head"):
        Nimble(module, backend=backend).prepare(torch.ones(3, 4), training=True)
    assert all(p.grad is None for p in module.parameters())
    module = only(lambda self, x: (x.sum().backward(), self.first(x))[1], first=nn.Linear(4, 2))
    with pytest.raises(NimbleError, match=r"leaves a gradient at args\[0\]"):
        Nimble(module, backend=backend)(torch.ones(3, 4, requires_grad=True))


@pytest.mark.parametrize("put", [
    lambda kept, x: kept.append(x), lambda kept, x: kept.__setitem__(0, x), lambda kept, x: kept[1].update(x=x),
    lambda kept, x: kept[1].pop("z"),
])
def test_lists_and_dictionaries_that_are_filled_raise(backend, put):
    torch.manual_seed(0)
    module = only(lambda self, x, kept: (put(kept, x * 2), self.first(x))[1], first=nn.Linear(4, 2))
    kept = [torch.zeros(1), {"z": 3}]
    with pytest.raises(NimbleError, match="puts something else into a list or a dictionary"):
        Nimble(module, backend=backend)(torch.ones(3, 4), kept)
    assert len(kept) == 2 and kept[0].tolist() == [0.0] and kept[1] == {"z": 3}


def test_lists_that_are_emptied_and_filled_again_are_new_in_each_run(backend):
    torch.manual_seed(0)
    module = only(lambda self, xs: self.first(sum([xs.append(xs.pop(0)) or xs[-1] for _ in range(2)])), first=nn.Linear(4, 2))
    twin = copy.deepcopy(module)
    xs = [torch.randn(3, 4), torch.randn(3, 4)]
    assert torch.equal(Nimble(module, backend=backend)(xs), twin(list(xs)))


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.previous = nn.Linear(3, 2), torch.zeros(2, 3)
        self.register_buffer("seen", torch.zeros(2, 3))

    def forward(self, x):
        found = self.last(x - self.previous)
        self.previous = x
        return found


def test_an_argument_that_is_kept_raises(backend):
    with pytest.raises(NimbleError, match="keeps an argument in its attribute 'previous'"):
        Nimble(Remembering(), backend=backend).prepare(torch.ones(2, 3), training=True)


class Counting(Remembering):
    def forward(self, x):
        self.seen.add_(1)
        return self.last(x)


def test_an_argument_on_a_buffer_that_is_written_raises(backend):
    model = Nimble(Counting(), backend=backend)
    model.prepare(torch.ones(2, 3), training=True)
    with pytest.raises(NimbleError, match="shares memory with a buffer that the module writes to"):
        model(model.module.seen)
    assert torch.equal(model.module.seen, torch.zeros(2, 3))


def test_static_inputs_in_each_others_places(backend):
    net = nn.Bilinear(3, 3, 2)
    model = Nimble(net, backend=backend)
    model.prepare((torch.ones(2, 3), torch.zeros(2, 3)), training=True)
    (a, b), _ = model.static_inputs(torch.ones(2, 3), torch.zeros(2, 3))
    a.data.copy_(torch.arange(6.).view(2, 3)), b.data.copy_(torch.ones(2, 3) * 7)
    want = net(torch.ones(2, 3) * 7, torch.arange(6.).view(2, 3))
    assert torch.equal(model(b, a), want)


def pair(backend):
    """A replayed module with two layers, and its twin; an argument that requires a gradient, for each."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    twin = copy.deepcopy(module)
    arguments = [torch.ones(3, 4, requires_grad=True) for _ in range(2)]
    return [(module, Nimble(module, backend=backend).prepare(arguments[0], training=True), arguments[0]), (twin, twin, arguments[1])]


def test_autograd_takes_gradients_over(backend):
    """Which come in one block: it copies none."""
    (module, call, x), _ = pair(backend)
    call(x).sum().backward()
    assert len({p.grad.untyped_storage().data_ptr() for p in module.parameters()}) == 1


def accumulating(node, found):
    """Autograd's nodes of leaves that a node leads to, by their variables."""
    if type(node).__name__ == "AccumulateGrad":
        found[id(node.variable)] = node
    for each, _ in node.next_functions:
        if each is not None:
            accumulating(each, found)
    return found


def test_each_forward_has_nodes_of_its_own(backend):
    """Hooks of a parameter's node are freed with the forward, as without Nimble. Nodes that stay also belong to a
    stream, which a capture cannot include."""
    logs = []
    for module, call, x in pair(backend):
        log = []
        for number in range(3):
            y = call(x)
            for node in accumulating(y.grad_fn, {}).values():
                node.register_hook(lambda *_, number=number: log.append(number))
            del node
            y.sum().backward()
            del y
        logs.append(log)
    assert logs[0] == logs[1] == [0] * 5 + [1] * 5 + [2] * 5


def test_hooks_of_parameters_come_and_go_between_forwards(backend):
    logs = []
    for module, call, x in pair(backend):
        log = []
        call(x).sum().backward()
        weight = module[0].weight
        hooks = [weight.register_hook(lambda grad: log.append(grad.sum().item())),
                 weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))]
        call(x).sum().backward()
        hooks.pop().remove()
        call(x).cos().sum().backward()
        hooks.pop().remove()
        call(x).sum().backward()
        logs.append((log, grads(module)))
    assert logs[0][0] == logs[1][0] and len(logs[0][0]) == 3 and same(logs[0][1], logs[1][1])


def test_a_backward_within_another_by_the_same_forward(backend):
    found = []
    for module, call, x in pair(backend):
        y, inner = call(x), []
        other = y.cos().sum()
        x.register_hook(lambda _, module=module, other=other, inner=inner: inner.extend(
            torch.autograd.grad(other, list(module.parameters()), retain_graph=True)) if not inner else None)
        y.sin().sum().backward(retain_graph=True)
        y.sum().backward()
        found.append({**grads(module), **{f"inner {number}": grad for number, grad in enumerate(inner)}})
    assert len(found[0]) == 8 and same(*found)
