"""Steps whose first part is launched before their state is checked: they have the results of eager steps, even where
that launch was undone."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble.steps.split_step import can_be_kept  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from test_step import Net, same, sgd, steps, training  # noqa: E402

EAGER = 3


@pytest.fixture
def backend():
    return ReplayingCapture()


@pytest.fixture
def pair():
    torch.manual_seed(0)
    net = Net()
    return net, copy.deepcopy(net)


def both(pair, backend, before=lambda i, net, optimizer: None, make=training, count=14, **options):
    """Whether both kinds of steps have the same results; the step is `both.step`."""
    results = []
    for net in pair:
        optimizer = sgd(net)
        train = make(net, optimizer)
        if net is pair[0]:
            train = both.step = nimble.step(train, modules=[net], optimizers=[optimizer], backend=backend, **options)
        results.append(steps(train, net, count=count, before=lambda i: before(i, net, optimizer)))
    return same(*results)


def replays(backend):
    return [[graph.replays for graph in graphs] for graphs in backend.recorded]


def test_steps_are_the_functions(pair, backend):
    assert both(pair, backend)
    assert replays(backend) == [[14 - EAGER, 14 - EAGER]]
    (report,) = both.step.report()
    assert (report.kind, report.state, report.nodes, report.streams, report.runs_ahead) == ("step", "rewritten", 18, 3, True)


AHEAD, BEHIND = ["launch", "look", "launch"], ["look", "launch", "launch"]


@pytest.fixture
def order(backend, monkeypatch):
    """order(before): the order of events in the calls that a graph serves, `before` being called before each."""
    def of(pair, before):
        calls = []
        look = nimble.steps.steps.StepState.look
        backend.spoil = lambda graph: calls[-1].append("launch")
        monkeypatch.setattr(nimble.steps.steps.StepState, "look", lambda self, *more: calls[-1].append("look") or look(self, *more))

        def begin(i, net, optimizer):
            calls.append([])
            before(i)

        assert both(pair, backend, begin)
        return calls[EAGER + 1:14]  # after the capture, of the one that has graphs

    return of


def test_where_the_gpu_is_busy_the_look_comes_first(pair, backend, order):
    assert order(pair, lambda i: setattr(backend, "idle", i < 8)) == [AHEAD] * (8 - EAGER - 1) + [BEHIND] * (14 - 8)


def test_copies_of_the_arguments_do_not_count_as_work(pair, backend, order, monkeypatch):
    take = nimble.graphs.graph_io.Input.take
    monkeypatch.setattr(nimble.graphs.graph_io.Input, "take", lambda self, tensor: (take(self, tensor), setattr(backend, "idle", False)))
    assert order(pair, lambda i: setattr(backend, "idle", True)) == [AHEAD] * (14 - EAGER - 1)


def test_memory_that_is_gone(pair, backend, order):
    def before(i):
        if i == 8:
            backend.watches[-1].there = False

    assert order(pair, before) == [AHEAD] * (8 - EAGER - 1) + [BEHIND] * (14 - 8)


def test_within_a_capture(pair, backend, order):
    """It becomes a part of that as it is, and nothing can be undone."""
    assert order(pair, lambda i: setattr(backend, "capturing", i == 9)) == [
        BEHIND if i == 9 else AHEAD for i in range(EAGER + 1, 14)]


def learning_rate(i, net, optimizer):
    if i in (6, 10):
        optimizer.param_groups[0]["lr"] *= 0.5


def other_memory(i, net, optimizer):
    if i == 6:
        net.first.weight.data = net.first.weight.data * 2


def other_statistics(i, net, optimizer):
    if i == 6:
        net.norm.running_mean.data = net.norm.running_mean.data + 1
    if i == 9:
        net.norm.register_buffer("running_var", net.norm.running_var * 2)


def other_values(i, net, optimizer):
    if i in (5, 7):
        with torch.no_grad():
            net.norm.running_mean.add_(1)
            net.last.weight.mul_(0.5)


def other_modules(i, net, optimizer):
    if i == 6:
        net.drop = nn.Dropout(0.25)


def no_statistics(i, net, optimizer):
    if i == 7:
        net.norm.eval()


def frozen(i, net, optimizer):
    if i == 7:
        net.first.bias.requires_grad_(False)


def other_gradients(i, net, optimizer):
    if i in (6, 8):
        optimizer.zero_grad(set_to_none=True)


def random_numbers(i, net, optimizer):
    if i == 7:
        torch.rand(3)
    if i == 9:
        torch.manual_seed(5)


@pytest.mark.parametrize("change, for_nothing", [
    (learning_rate, True), (other_memory, True), (other_statistics, True), (other_values, False), (other_modules, True),
    (no_statistics, True), (frozen, True), (other_gradients, True), (random_numbers, False)])
def test_needless_launches_are_undone(pair, backend, change, for_nothing):
    assert both(pair, backend, change)
    assert any(first > second for first, second in replays(backend)) == for_nothing


def test_gradients_that_are_held(pair, backend):
    kept = {id(net): [] for net in pair}

    def hold(i, net, optimizer):
        if i in (6, 8):
            kept[id(net)].append(net.last.bias.grad)

    with pytest.warns(UserWarning, match="gradients .* are still referenced"):
        assert both(pair, backend, hold)
    one, other = kept.values()
    assert all(map(torch.equal, one, other)) and any(first > second for first, second in replays(backend))


def test_a_step_that_raises(pair, backend):
    """After endless changes there is no longer a graph, and a begun launch is undone first."""
    net, twin = pair
    results = []
    for each in pair:
        optimizer = sgd(each)
        train = training(each, optimizer)
        if each is net:
            train = nimble.step(train, modules=[each], optimizers=[optimizer], backend=backend, fallback=True)

        def before(i, optimizer=optimizer):
            optimizer.param_groups[0]["lr"] *= 0.9 if i % 2 else 1.0

        if each is net:
            with pytest.warns(UserWarning, match="the step runs eagerly"):
                results.append(steps(train, each, count=30, before=before))
        else:
            results.append(steps(train, each, count=30, before=before))
    assert same(*results)


def test_a_step_that_raises_after_its_first_part(pair, backend):
    """That is undone before the function runs instead: not after it."""
    def raises():
        raise nimble.NimbleError("no more of it")

    def before(i, net, optimizer):
        if i == 8:
            backend.recorded[-1][1].replay = raises
        if i == 9:
            del backend.recorded[-1][1].replay

    with pytest.warns(UserWarning, match="the step runs eagerly: no more of it"):
        assert both(pair, backend, before, fallback=True)
    assert [first - second for first, second in replays(backend)] == [1]


def without_backward(net, optimizer):
    def run(x, y):
        with torch.no_grad():
            return {"loss": net(x).sum()}

    return run


def by_grad(net, optimizer):
    """The gradients by torch.autograd.grad, of a loss that was made by another one."""
    def run(x, y):
        parameters = list(net.parameters())
        loss = nn.functional.cross_entropy(net(x), y)
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        penalty = sum(g.square().sum() for g in grads) * 0.1
        optimizer.zero_grad(set_to_none=True)
        (loss + penalty).backward()
        optimizer.step()
        return {"loss": loss}

    return run


def writes_an_argument(net, optimizer):
    train = training(net, optimizer)

    def run(x, y):
        x.mul_(2)
        return train(x, y)

    return run


def fills_gradients_before(net, optimizer):
    """They then lie in the first part's memory, where a program may still read those of the previous step."""
    def run(x, y):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return run


def clips_parameters_before(net, optimizer):
    """Like a critic's. A launch that is undone would leave them clipped."""
    train = training(net, optimizer)

    def run(x, y):
        for p in net.parameters():
            p.data.mul_(0.9)
        return train(x, y)

    return run


@pytest.mark.parametrize("make, parts", [(without_backward, 1), (by_grad, 2), (writes_an_argument, 1), (fills_gradients_before, 1),
                                         (clips_parameters_before, 1)])
def test_where_a_part_ends(pair, backend, make, parts):
    assert both(pair, backend, make=make)
    assert [len(graphs) for graphs in backend.recorded] == [parts]


def test_gradients_that_are_filled_before_and_held(pair, backend):
    kept = {id(net): [] for net in pair}

    def hold(i, net, optimizer):
        if i == 7:
            kept[id(net)].append(net.last.bias.grad)

    with pytest.warns(UserWarning, match="gradients .* are still referenced"):
        assert both(pair, backend, hold, fills_gradients_before)
    one, other = kept.values()
    assert all(map(torch.equal, one, other))


def test_what_the_first_part_may_write(pair, backend, monkeypatch):
    """Buffers and their copies are restored; each call writes inputs again; parameters are provably not written."""
    asked, record = [], backend.record
    monkeypatch.setattr(backend, "record", lambda work, *rest: asked.append(work.may_write()) or record(work, *rest))
    assert both(pair, backend)
    net = pair[0]
    places = {t.data_ptr() for t in asked[0]}
    assert {p.data_ptr() for p in net.parameters()} <= places
    assert {b.data_ptr() for b in net.norm.buffers()} <= places
    (graph,) = (graph for kind in both.step._kinds for graph in kind.graphs)
    assert {i.memory.data_ptr() for i in graph._inputs} <= places
    assert len({t.data_ptr() for t in asked[0]}) == len(list(net.parameters())) + 2 * 3 + 2  # buffers twice, and two inputs


def test_where_the_first_part_may_write_elsewhere(pair, backend):
    backend.refuses_parts = True
    assert both(pair, backend) and replays(backend) == [[14 - EAGER]]


def test_steps_that_take_long_anyway(pair, backend, monkeypatch):
    monkeypatch.setattr("nimble.steps.split_step._MOST_BYTES", 4 * sum(p.numel() for p in pair[0].parameters()) - 1)
    assert both(pair, backend) and replays(backend) == [[14 - EAGER]]


def test_what_may_be_sent_to_other_ranks(pair, backend, monkeypatch):
    monkeypatch.setattr("nimble.guards.switches.has_other_ranks", lambda: True)
    assert both(pair, backend) and replays(backend) == [[14 - EAGER]]


def test_buffers_that_copies_do_not_hold(pair, backend):
    for net in pair:
        together = torch.zeros(12)
        net.norm.running_mean, net.norm.running_var = together[:6], together[6:].fill_(1)
    assert both(pair, backend) and replays(backend) == [[14 - EAGER]]
    assert not can_be_kept([torch.zeros(3, 4).t()]) and can_be_kept([torch.zeros(3), torch.zeros(())])
