"""nimble.step: calls in any mode, with any arguments, that may end with an error, as those of the function may."""

import gc

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes_of_gradients(mode):
    def program(wrap):
        net = mlp()
        step = wrap(lambda x: net(x) * (2 if torch.is_grad_enabled() else 1), [net])
        for _ in range(6):
            with mode():
                yield step(torch.randn(2, 4))

    assert same(program) and same.backend.captures == 1


def test_averages_are_written_without_gradients():
    def program(wrap):
        net, average = mlp(), mlp()

        def follow():
            for mine, its in zip(average.parameters(), net.parameters()):
                mine.mul_(0.9).add_(its, alpha=0.1)

        step = wrap(follow, [net, average])
        for _ in range(6):
            with torch.no_grad():
                for p in net.parameters():
                    p.add_(0.1)
                step()
            yield average

    assert same(program) and same.backend.captures == 1


def failing(kind, when, learns=True):
    """Its function raises in these calls."""
    def program(wrap):
        net = mlp()
        optimizer, state, seen = sgd(net, momentum=0.9), {"call": 0}, torch.zeros(())

        def train(x, seen):
            seen.add_(1)
            loss = net(x).square().mean()
            loss.backward()
            if state["fails"]:
                raise kind("something")
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss

        step = wrap(train, **({} if learns else {"use_multi_stream": False}))
        for i in range(14):
            state["fails"] = i in when
            try:
                yield step(torch.randn(5, 4), seen)
            except kind as error:
                assert not isinstance(error, NimbleError)
                optimizer.zero_grad(set_to_none=True)
                yield str(error)
            yield net, seen

    return program


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError])
@pytest.mark.parametrize("when", [range(4), range(7), (9,), (9, 10), (1, 3), (0, 5, 10)])
@pytest.mark.parametrize("learns", [True, False])
def test_errors_of_the_function_pass_through(kind, when, learns):
    assert same(failing(kind, when, learns)) and same.backend.captures > 0


def test_an_error_that_only_a_capture_meets():
    """The error is not the function's: the call has run, and the next one raises it."""
    backend, calls = ReplayingCapture(), []
    net = mlp()

    def run(x):
        if backend.capturing:
            raise ValueError("not in graphs")
        calls.append(1)
        return net(x)

    step = nimble.step(run, [net], backend=backend)
    for _ in range(4):
        step(torch.randn(2, 4))
    with pytest.raises(NimbleError, match="not in graphs"):
        step(torch.randn(2, 4))
    assert backend.captures == 1


def statistics(wrap):
    net, mean, var = nn.Linear(4, 3), torch.zeros(3), torch.ones(3)
    step = wrap(lambda x, mean, var: nn.functional.batch_norm(net(x), mean, var, training=True), [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), mean, var), mean, var


def through_data(wrap):
    net, kept = nn.Linear(4, 4), torch.zeros(5, 4)

    def run(x, kept):
        kept.data.mul_(0.9).add_(net(x).detach())
        return kept * 1

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), kept), kept


def buffers_of_functional_call(wrap):
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    buffers = {name: value.clone() for name, value in net.named_buffers()}
    step = wrap(lambda x, buffers: torch.func.functional_call(net, buffers, (x,)), [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), buffers), buffers


@pytest.mark.parametrize("program", [statistics, through_data, buffers_of_functional_call])
def test_arguments_that_are_written_without_a_version(program):
    assert same(program) and same.backend.captures == 1 and same.backend.replays > 0


def test_an_argument_that_is_written_only_from_some_time_on():
    """A change of a value that the step reads causes another inspection, even where nothing is learned."""
    def program(wrap):
        net, seen, settings = mlp(), torch.zeros(3), {"counts": False}

        def run(x, seen):
            if settings["counts"]:
                seen.data.add_(1)
            return net(x)

        step = wrap(run, [net], use_multi_stream=False)
        for i in range(10):
            settings["counts"] = i >= 5
            yield step(torch.randn(2, 4), seen), seen

    assert same(program) and same.backend.captures == 2


def puts(into):
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x, sink):
            into(sink, update(net, optimizer, net(x).square().mean()).detach())

        step = wrap(train)
        for _ in range(8):
            sink = {"last": torch.zeros(())} if into is replaces else [] if into is appends else {}
            step(torch.randn(5, 4), sink)
            yield sink

    return program


def appends(sink, loss):
    sink.append(loss)


def adds(sink, loss):
    sink["loss"] = loss


def replaces(sink, loss):
    sink["last"] = loss


@pytest.mark.parametrize("into", [appends, adds, replaces])
def test_what_is_put_into_arguments_raises(into):
    assert raises(puts(into), "puts something into its arguments")


def test_what_is_taken_out_of_arguments_raises():
    def program(wrap):
        net = mlp()
        step = wrap(lambda batch: net(batch.pop("x")), [net])
        for _ in range(6):
            batch = {"x": torch.randn(5, 4)}
            yield step(batch), batch

    assert raises(program, "puts something into its arguments")


def shares_a_buffer(wrap):
    net = nn.Linear(4, 4)
    net.register_buffer("seen", torch.zeros(5, 4))

    def run(x, seen):
        net.seen.add_(x)
        return seen * 2

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), net.seen), net.seen


def shares_a_parameter(wrap):
    net = nn.Linear(4, 4)
    optimizer = sgd(net)

    def run(x, weight):
        update(net, optimizer, net(x).square().mean())
        return weight * 2

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), net.weight.detach()[1:]), net


def shares_what_is_found(wrap):
    net, seen = nn.Linear(4, 4), torch.zeros(5, 4)

    def run(x, kept):
        seen.add_(x)
        return net(kept) * 2

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), seen), seen


def writes_what_is_found(wrap):
    net, seen = nn.Linear(4, 4), torch.zeros(5, 4)

    def run(x, kept):
        kept.add_(x)
        return net(seen) * 2

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), seen), seen


def shares_gradients(wrap):
    net = nn.Linear(4, 4)
    net.weight.grad, net.bias.grad = torch.zeros(4, 4), torch.zeros(4)

    def run(x, grad):
        net(x).square().mean().backward()
        return grad * 2

    step = wrap(run, [net])
    for _ in range(6):
        yield step(torch.randn(5, 4), net.weight.grad), net.weight.grad


@pytest.mark.parametrize("program", [shares_a_buffer, shares_a_parameter, shares_what_is_found, writes_what_is_found,
                                     shares_gradients])
def test_arguments_that_share_memory_with_what_the_step_writes(program):
    assert raises(program, "shares memory with")


def test_arguments_that_share_memory_with_what_is_only_read():
    def program(wrap):
        net, mask = nn.Linear(4, 4), torch.ones(5, 4)
        step = wrap(lambda x, kept: net(x) * mask + kept, [net])
        for _ in range(6):
            yield step(torch.randn(5, 4), mask)

    assert same(program) and same.backend.captures == 1


def test_an_argument_where_gradients_have_lain():
    """As allocators behave: the last eager step's gradients are gone, and the step writes to the present ones."""
    def program(wrap):
        net = nn.Linear(4, 4)
        optimizer = sgd(net)

        def run(x):
            x.mul_(2)
            return update(net, optimizer, net(x).square().mean())

        step = wrap(run, [net])
        for i in range(8):
            if i == 3:
                lain = net.weight.grad
            yield step(lain if i > 4 else torch.randn(4, 4)), net

    assert same(program) and same.backend.captures == 1


def test_arguments_that_share_memory_run_eagerly():
    def program(wrap):
        net, state = nn.Linear(4, 4), torch.zeros(6, 4)

        def run(a, b):
            a.add_(1)
            return net(b).sum()

        step = wrap(run, [net])
        for i in range(10):
            apart = torch.zeros(5, 4)
            yield step(state[:5], apart if i < 4 else state[1:]), state

    assert same(program, fallback=True)
    assert raises(program, "shares memory with another argument", calls=4)


def test_a_step_within_a_step():
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def backward(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss

        inner = wrap(backward, [net], [optimizer])

        def train(x):
            optimizer.zero_grad(set_to_none=True)
            loss = inner(x)
            optimizer.step()
            return loss

        for _ in range(5):
            optimizer.zero_grad(set_to_none=True)
            yield inner(torch.randn(5, 4))
        step = wrap(train)
        for _ in range(8):
            yield step(torch.randn(5, 4)), net

    assert same(program) and same.backend.captures == 2


def test_a_step_within_a_module_that_is_prepared():
    backend, net = ReplayingCapture(), mlp()
    step = nimble.step(lambda x: net(x), [net], backend=backend)

    class Calls(nn.Module):
        def forward(self, x):
            return step(x) + 1

    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(5):
            step(x)
        model = nimble.Nimble(Calls(), backend=backend).prepare(x, relaxed=True)
        assert torch.equal(model(x), net(x) + 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_call_that_is_interrupted_after_its_first_part(monkeypatch, error):
    """The begun launch is undone: buffers and random numbers are as before."""
    gc.collect()  # else what other tests have left may have it captured in one part
    backend = ReplayingCapture()
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    optimizer = sgd(net)
    step = nimble.step(lambda x: update(net, optimizer, net(x).square().mean()), backend=backend)
    for _ in range(5):
        step(torch.randn(5, 4))
    before, number = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()

    def fail(*_):
        raise error

    x = torch.randn(5, 4, generator=torch.Generator())
    monkeypatch.setattr("nimble.steps.steps.Step._fitting", fail)
    with pytest.raises(error):
        step(x)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), number)
    monkeypatch.undo()
    step(x)
    first, second = backend.recorded[-1]
    assert first.replays == second.replays + 1
