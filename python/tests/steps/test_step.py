"""nimble.step: steps by one graph have the results of eager steps, and effects that a graph would not have raise."""

import copy
import functools
import random
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402

WARM = 3  # calls that run eagerly first


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


@pytest.fixture
def nets():
    torch.manual_seed(0)
    net = Net()
    return net, copy.deepcopy(net)


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def training(net, optimizer, clear=True):
    def train(x, y):
        if clear:
            optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "net": 1}

    return train


def steps(train, net, count=8, before=lambda i: None, seed=1):
    """The results of several steps: losses, the net, its gradients, random numbers."""
    torch.manual_seed(seed)
    losses = []
    for i in range(count):
        before(i)
        losses.append(train(torch.randn(5, 4), torch.randint(3, (5,)))["loss"].detach().clone())
    return {"losses": torch.stack(losses), **{k: v.clone() for k, v in net.state_dict().items()},
            **{"grad " + k: p.grad if p.grad is None else p.grad.clone() for k, p in net.named_parameters()},
            "random": torch.get_rng_state()}


def same(one, other):
    return list(one) == list(other) and all(
        one[name] is other[name] is None or torch.equal(one[name], other[name]) for name in one)


def test_steps_are_the_functions(nets, backend):
    net, twin = nets
    step = nimble.step(training(net, sgd(net)), backend=backend)
    mine = steps(step, net)
    assert same(mine, steps(training(twin, sgd(twin)), twin)) and len(set(mine["losses"].tolist())) == 8
    assert backend.ran == [False, True, True] and len(backend.graphs) == 1 and backend.graphs[0].replays == 8 - WARM
    (report,) = step.report()
    assert (report.kind, report.signature, report.state) == ("step", "float32[5, 4], int64[5]", "rewritten")


def test_what_eager_steps_make_is_handed_over(nets, backend):
    net, _ = nets
    optimizer = sgd(net)

    def train(x, y):
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        return x, x * 2, net.first.weight

    step = nimble.step(train, backend=backend)
    doubled = step(torch.randn(5, 4), torch.randint(3, (5,)))[1]
    assert {id(t) for t in backend.handed_over} == {id(t) for t in (doubled, *(p.grad for p in net.parameters()))}
    step(torch.randn(5, 4), torch.randint(3, (5,)))
    assert len(backend.handed_over) == 1  # gradients are the old ones now


def test_without_learning(nets, backend):
    net, twin = nets
    step = nimble.step(training(net, sgd(net)), use_multi_stream=False, relaxed=True, backend=backend)
    assert same(steps(step, net), steps(training(twin, sgd(twin)), twin))
    assert backend.ran == [False, False] and backend.asked == [(False, True)]


def test_without_eager_steps_that_would_not_be_believed(nets, backend):
    net, twin = nets
    backend.observes = False
    step = nimble.step(training(net, sgd(net)), backend=backend)
    assert same(steps(step, net), steps(training(twin, sgd(twin)), twin))
    assert backend.ran == [False, False] and backend.asked == [(True, False)]


@pytest.mark.parametrize("clear", ["inside", "outside", "outside in place", "never"])
def test_gradients_are_cleared_anywhere(nets, backend, clear):
    net, twin = nets
    results = []
    for each, wrap in ((net, functools.partial(nimble.step, backend=backend)), (twin, lambda f: f)):
        optimizer = sgd(each)

        def before(_, optimizer=optimizer):
            if clear.startswith("outside"):
                optimizer.zero_grad(set_to_none="place" not in clear)

        train = wrap(training(each, optimizer, clear == "inside"))
        results.append(steps(train, each, before=before))
    assert same(*results) and len(backend.graphs) == 1 and backend.graphs[0].replays == 8 - WARM


def test_accumulation_outside(nets, backend):
    """Forward and backward are the step; the optimizer is free. The first of two has no gradients to add to."""
    net, twin = nets
    results = []
    for each, wrap in ((net, functools.partial(nimble.step, backend=backend)), (twin, lambda f: f)):
        optimizer = sgd(each)

        def train(x, y, each=each):
            loss = nn.functional.cross_entropy(each(x), y)
            loss.backward()
            return {"loss": loss}

        def before(i, optimizer=optimizer):
            if i % 2 == 0 and i > 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        results.append(steps(wrap(train), each, count=14, before=before))
    # The first was captured with an eager step's gradients to add to, which never occur again.
    assert same(*results) and [g.replays for g in backend.graphs] == [1, 5, 5] and backend.ran == [False, True, True]


@pytest.mark.parametrize("name", ["first.weight", "first.bias", "last.bias"])
def test_gradients_that_are_held(nets, backend, name):
    net, twin = nets
    kept = []
    for each, wrap in ((net, functools.partial(nimble.step, backend=backend)), (twin, lambda f: f)):
        train, mine = wrap(training(each, sgd(each))), []
        kept.append(mine)

        def hold(i, each=each, mine=mine):
            if i in (5, 7):
                mine.append(each.get_parameter(name).grad)
            if i == 9 and hasattr(torch._C, "_storage_Use_Count"):
                mine.append(each.last.weight.grad.view(-1)[2:])
            if i in (8, 12):
                kept.append(list(map(torch.clone, mine)))
                mine.clear()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            steps(train, each, count=14, before=hold)
        assert len(caught) == (each is net) and all("are still referenced" in str(w.message) for w in caught)
    _, one, view, _, other, its = kept
    assert len(one) == 2 and len(view) == len(its) and all(map(torch.equal, one + view, other + its))
    assert backend.graphs[0].replays >= 5


def test_a_learning_rate_that_changes(nets, backend):
    net, twin = nets
    results, left = [], set()
    for each, wrap in ((net, functools.partial(nimble.step, backend=backend)), (twin, lambda f: f)):
        optimizer = sgd(each)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        train = wrap(training(each, optimizer))

        def before(i, scheduler=scheduler):
            if i in (10, 20):
                scheduler.step()
            if i in (11, 21):
                left.update(map(id, (p.grad for p in net.parameters())))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(steps(train, each, count=30, before=before))
    assert same(*results) and [g.closed for g in backend.graphs] == [True, True, False]
    own = {id(grad) for graph in backend.graphs[:2] for grad in graph.outputs[1]}
    assert not own & left and left  # gradients that a graph leaves no longer belong to it
    assert backend.ran == [False, True, True, True, True] and [g.replays for g in backend.graphs] == [7, 9, 9]


def test_a_learning_rate_that_changes_at_each_step(nets, backend):
    net, twin = nets
    optimizer, other = sgd(net), sgd(twin)

    def before(optimizer):
        def lower(_):
            optimizer.param_groups[0]["lr"] *= 0.9
        return lower

    step = nimble.step(training(net, optimizer), fallback=True, backend=backend)
    with pytest.warns(UserWarning, match="again and again: a hyperparameter of an optimizer") as caught:
        mine = steps(step, net, count=30, before=before(optimizer))
    assert caught[0].filename == __file__ and same(mine, steps(training(twin, other), twin, count=30, before=before(other)))
    assert 0 < len(backend.graphs) <= 5
    (report,) = step.report()
    assert (report.kind, report.state) == ("step", "eager") and "again and again: a hyperparameter of an optimizer" in report.why
    step = nimble.step(training(net, optimizer), backend=backend)
    with pytest.raises(NimbleError, match="again and again"):
        steps(step, net, count=30, before=before(optimizer))


def test_state_that_is_replaced(nets, backend):
    """Loaded state lies elsewhere, as do parameters that were moved; a mode is another graph."""
    net, twin = nets
    results = []
    for each, wrap in ((net, functools.partial(nimble.step, backend=backend)), (twin, lambda f: f)):
        optimizer = sgd(each)

        def before(i, each=each, optimizer=optimizer):
            if i == 10:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if i == 20:
                each.first.weight.data = each.first.weight.data.clone()
            if i == 30:
                each.drop.eval()

        results.append(steps(wrap(training(each, optimizer)), each, count=40, before=before))
    assert same(*results) and len(backend.graphs) == 4


def test_shapes(nets, backend):
    net, twin = nets
    step, train = nimble.step(training(net, sgd(net)), max_graphs=2, backend=backend), training(twin, sgd(twin))
    for i in range(20):
        size = 3 + i % 2
        x, y = torch.randn(size, 4), torch.randint(3, (size,))
        torch.manual_seed(i)
        mine = step(x, y)["loss"]
        torch.manual_seed(i)
        assert torch.equal(mine, train(x, y)["loss"].detach())
    assert same(net.state_dict(), twin.state_dict()) and len(backend.graphs) == 2
    for size in (5, 6):
        for _ in range(4):
            step(torch.randn(size, 4), torch.randint(3, (size,)))
    assert [g.closed for g in backend.graphs] == [True, True, False, False]


def test_arguments_that_are_written_and_outputs_that_are_copies(nets, backend):
    net, _ = nets
    optimizer = sgd(net)

    def train(x, seen):
        seen.add_(1)
        loss = net(x).sum()
        loss.backward()
        return loss, seen, x, net.first.weight, seen * 1

    step = nimble.step(train, [net], [optimizer], backend=backend)
    seen, kept = torch.zeros(()), []
    for i in range(6):
        x = torch.randn(3, 4)
        loss, its, mine, weight, copied = step(x, seen)
        assert its is seen and mine is x and weight is net.first.weight and not loss.requires_grad
        kept.append(copied)
    assert seen.item() == 6 and [int(each) for each in kept] == [1, 2, 3, 4, 5, 6]


def test_what_a_backward_of_before_has_saved(nets, backend):
    if not hasattr(torch.autograd.graph, "increment_version"):
        pytest.skip("this PyTorch cannot say that a tensor was written to")
    net, _ = nets
    step = nimble.step(training(net, sgd(net)), backend=backend)
    steps(step, net)
    loss = net(torch.randn(5, 4)).sum()
    steps(step, net, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        loss.backward()


class Counting(torch.optim.SGD):
    """Like optimizers that count on the host, where a capture counts, and replays do not."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1
        super().step(closure)


class Trainer:
    def __init__(self, net, change):
        self.net, self.optimizer, self.change = net, sgd(net), change
        self.count, self.seen, self.scale = 0, [1], 1.0
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)

    def train(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.net(x), y) * self.scale
        loss.backward()
        self.optimizer.step()
        if self.change == "count":
            self.add()
        elif self.change == "seen":
            self.seen.append(2)
        elif self.change == "scheduler":
            self.scheduler.step()
        elif self.change == "random":
            random.random()
        elif self.change == "host random":
            torch.rand(1)
        elif self.change == "buffer":
            self.net.norm.running_mean = self.net.norm.running_mean.clone()
        return {"loss": loss}

    def add(self):
        self.count += 1

    def state(self):
        return (self.count, self.seen, self.scheduler.last_epoch, self.optimizer.param_groups[0]["lr"], random.getstate(),
                {k: v.tolist() for k, v in self.net.state_dict().items()}, [p.grad.tolist() for p in self.net.parameters()],
                [dict(s) for s in self.optimizer.state.values()], torch.get_rng_state().tolist())


@pytest.mark.parametrize("change, said", [
    ("count", "'count' has changed"), ("seen", "'seen' has changed"), ("scheduler", "'scheduler.last_epoch' has changed"),
    ("random", "random numbers on the host"), ("host random", "random numbers on the host"),
    ("buffer", "buffer was replaced"), ("counting", "state of an optimizer"),
])
def test_what_a_graph_would_not_do_raises_and_leaves_all_as_it_was(nets, backend, change, said):
    backend.draws_on_host = False
    net, _ = nets
    net.drop.p = 0.0
    net.drop.eval()
    trainer = Trainer(net, change)
    if change == "counting":
        trainer.optimizer = Counting(net.parameters(), lr=0.1, momentum=0.9)
    step = nimble.step(trainer.train, backend=backend)
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(WARM):
            step(x, y)
        before = str(copy.deepcopy(trainer.state()))
        grads = [p.grad for p in net.parameters()]
        for _ in range(2):
            with pytest.raises(NimbleError, match=said):
                step(x, y)
            assert str(trainer.state()) == before and all(p.grad is g for p, g in zip(net.parameters(), grads))
    # With fallback it continues normally.
    step = nimble.step(trainer.train, fallback=True, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            step(x, y)
    assert trainer.count == (8 if change == "count" else 0)


def test_values_that_are_read(nets, backend):
    net, twin = nets
    trainer, other = Trainer(net, None), Trainer(twin, None)

    def before(trainer):
        def change(i):
            trainer.unread = i
            if i == 12:
                trainer.scale = 0.5
        return change

    step = nimble.step(trainer.train, backend=backend)
    assert same(steps(step, net, 24, before(trainer)), steps(other.train, twin, 24, before(other)))
    assert len(backend.graphs) == 2
