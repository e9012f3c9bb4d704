"""Steps whose functions torch.compile makes, and first of all when it does: it traces them in the step's first call, backwards too."""

import pytest

torch = pytest.importorskip("torch", minversion="2.3")  # up to 2.2 only some Pythons have torch.compile
from torch import nn  # noqa: E402
from nimble.steps.split_step import at_first_backward  # noqa: E402
from step_programs import same, sgd, update  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    yield
    dynamo.reset()


def a_net():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))


def module(net, loss_of, optimizer):
    net.compile(backend="aot_eager")


def function(net, loss_of, optimizer):
    return torch.compile(net, backend="aot_eager"), loss_of


def loss(net, loss_of, optimizer):
    return net, torch.compile(loss_of, backend="aot_eager")


def part(net, loss_of, optimizer):
    net[0].compile(backend="aot_eager")


def updates(net, loss_of, optimizer):
    optimizer.step = torch.compile(optimizer.step, backend="aot_eager")


@pytest.mark.parametrize("compile", [module, function, loss, part, updates])
def test_what_is_compiled_in_the_first_call(compile):
    def program(wrap):
        torch._dynamo.reset()
        net = a_net()
        optimizer = sgd(net, momentum=0.9)
        call, loss_of = compile(net, nn.functional.cross_entropy, optimizer) or (net, nn.functional.cross_entropy)
        step = wrap(lambda x, y: update(net, optimizer, loss_of(call(x), y)), [net], [optimizer])
        for number in range(14):
            if number in (7, 11):
                net.train(number == 11)
            if number == 9:
                optimizer.param_groups[0]["lr"] = 0.01
            yield step(torch.randn(5, 4), torch.randint(3, (5,))), net, [p.grad for p in net.parameters()]

    assert same(program) and same.backend.recorded


def test_a_whole_step_that_is_compiled():
    def program(wrap):
        torch._dynamo.reset()
        net = a_net()
        optimizer = sgd(net)
        step = wrap(torch.compile(lambda x: update(net, optimizer, net(x).square().mean()), backend="aot_eager"), [net], [optimizer])
        for _ in range(8):
            yield step(torch.randn(5, 4)), net

    assert same(program) and same.backend.recorded


def test_what_torch_compile_traces_is_no_backward():
    ends = []
    x = torch.ones(3, requires_grad=True)
    double = torch.compile(lambda x: (x * 2).exp(), backend="aot_eager")
    with at_first_backward(lambda: ends.append(torch.is_grad_enabled())):
        made = double(x)
        assert not ends and made.requires_grad
        made.sum().backward()
    assert ends == [True] and torch.equal(x.grad, 2 * made.detach())
