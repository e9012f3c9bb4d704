"""nimble.step: changes between calls, or whenever the step runs, outside of modules: hooks, optimizers, scalers,
numbers."""

import functools
import itertools
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from step_programs import Average, mlp, raises, same, sgd, update  # noqa: E402


def looped(change, at=(7,), count=12, **options):
    """A program that calls change(net, optimizer) before these calls."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net, **options)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        undo = None
        for i in range(count):
            if i in at:
                undo = undo() if undo is not None else change(net, optimizer)
            yield step(torch.randn(2, 4)), net
        if undo is not None:
            undo()

    return program


def hook(net, optimizer):
    return net[0].weight.register_hook(lambda grad: grad * 0).remove


def accumulate_hook(net, optimizer):
    def halve(parameter):
        parameter.grad.mul_(0.5)

    return net[0].weight.register_post_accumulate_grad_hook(halve).remove


def clamp(net):
    with torch.no_grad():
        for p in net.parameters():
            p.clamp_(-0.1, 0.1)


def hook_before(net, optimizer):
    return optimizer.register_step_pre_hook(lambda *_: clamp(net)).remove


def hook_after(net, optimizer):
    return optimizer.register_step_post_hook(lambda *_: clamp(net)).remove


def hook_of_all(net, optimizer):
    from torch.optim.optimizer import register_optimizer_step_post_hook

    return register_optimizer_step_post_hook(lambda *_: clamp(net)).remove


def patched(net, optimizer):
    original = optimizer.step

    def step(*args):
        clamp(net)
        return original(*args)

    optimizer.step = step
    return functools.partial(delattr, optimizer, "step")


CHANGES = [hook, accumulate_hook, hook_before, hook_after, hook_of_all, patched]


@pytest.mark.parametrize("change", CHANGES)
def test_hooks_that_come_and_go(change):
    assert same(looped(change, (5, 9), 14)) and same.backend.captures == 3
    assert same(looped(change, (0, 6), 12)) and same.backend.captures == 2


def test_hooks_elsewhere_do_not_count():
    def elsewhere(net, optimizer):
        other = mlp()
        other[0].weight.register_hook(lambda grad: grad)

    assert same(looped(elsewhere, (5, 6, 7))) and same.backend.captures == 1


class Counting(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / self.count)


class LookingAhead(torch.optim.SGD):
    count = 0

    def step(self, closure=None):
        super().step(closure)
        self.count += 1
        if self.count % 3 == 0:
            clamp(self.net)


@pytest.mark.parametrize("kind", [Counting, LookingAhead])
def test_optimizers_of_ones_own_that_count(kind):
    def program(wrap):
        net = mlp()
        optimizer = kind(net.parameters(), lr=0.1)
        optimizer.net = net
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(10):
            yield step(torch.randn(2, 4)), net, optimizer.count

    assert raises(program, "count' has changed")


@pytest.mark.parametrize("register", ["register_step_post_hook", "register_step_pre_hook"])
def test_hooks_of_optimizers_that_count(register):
    pytest.importorskip("torch", minversion="2.2")  # before, importing torch.compile ends hooks of optimizers

    def program(wrap):
        net = mlp()
        optimizer, average = sgd(net), Average(net)
        getattr(optimizer, register)(lambda *_: average.update(net))
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for _ in range(10):
            yield step(torch.randn(2, 4)), net, average.value, average.updates

    assert raises(program, "updates' has changed")


def test_what_an_optimizer_of_ones_own_reads():
    class Scaled(torch.optim.SGD):
        scale = 1.0

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_(self.scale)
            super().step(closure)

    def program(wrap):
        net = mlp()
        optimizer = Scaled(net.parameters(), lr=0.1)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean()))
        for i in range(16):
            if i in (6, 11):
                optimizer.scale = 1.0 / i
            yield step(torch.randn(2, 4)), net

    assert same(program) and same.backend.captures == 3


@pytest.mark.parametrize("ends", ["in the last step", "outside"])
@pytest.mark.parametrize("size", [5, 3])
def test_a_scaler_of_two_steps(ends, size):
    """The second reads the first one's findings, in memory of the first one's graph."""
    def program(wrap):
        nets = mlp(), mlp()
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
        optimizers = [torch.optim.Adam(net.parameters(), lr=0.01, fused=True) for net in nets]

        def of(net, optimizer, is_last):
            def step(x):
                optimizer.zero_grad()
                scaler.scale(net(x).square().mean()).backward()
                scaler.step(optimizer)
                if is_last and ends == "in the last step":
                    scaler.update()

            return wrap(step, [net], [optimizer])

        first, second = (of(net, optimizer, i == 1) for i, (net, optimizer) in enumerate(zip(nets, optimizers)))
        for i in range(18):
            if i == 8:
                optimizers[0].param_groups[0]["lr"] = 0.005
            infinite = i in (8, 12)
            first(torch.randn(size if infinite else 5, 4) * (float("inf") if infinite else 1))
            second(torch.randn(5, 4))
            if ends == "outside":
                scaler.update()
            yield scaler._scale, nets

    try:
        torch.optim.Adam([torch.ones(1, requires_grad=True)], fused=True), torch.amp.GradScaler("cpu")
    except (AttributeError, RuntimeError):
        pytest.skip("this PyTorch cannot scale on the CPU")
    assert same(program) and same.backend.replays > 0


def test_tensors_in_no_module_that_are_frozen():
    def program(wrap):
        weight, bias, other = torch.randn(4, 3, requires_grad=True), torch.zeros(3, requires_grad=True), torch.ones(3)
        optimizer = torch.optim.SGD([weight, bias], lr=0.1)
        step = wrap(lambda x: update(None, optimizer, (x @ weight * other + bias).square().mean()))
        for i in range(18):
            if i in (6, 10):
                bias.requires_grad_(i == 10)
            if i == 14:
                other.requires_grad_()
            yield step(torch.randn(2, 4)), weight, bias, other.grad

    assert same(program) and same.backend.captures == 4


class Settings:
    def __init__(self, scale):
        self.scale = scale


class Trainer:
    def __init__(self, make):
        self.net, self.make = mlp(), make
        self.optimizer = sgd(self.net)
        self.set(1.0)

    def set(self, scale):
        self.settings = None  # so that its memory is used again
        self.settings = self.make(scale)

    def train(self, x):
        loss = self.net(x).square().mean()
        return update(self.net, self.optimizer, loss * self.settings.scale if self.make is Settings else self.settings(loss))


@pytest.mark.parametrize("make", [Settings, lambda scale: functools.partial(torch.mul, other=scale), lambda scale: lambda y: y * scale])
def test_objects_whose_ids_are_used_again(make):
    def program(wrap):
        trainer = Trainer(make)
        step = wrap(trainer.train)
        for i in range(16):
            if i in (6, 11):
                trainer.set(1.0 / i)
            yield step(torch.randn(2, 4)), trainer.net

    assert same(program) and same.backend.captures == 3


def drawing(draw):
    def program(wrap):
        net, it = mlp(), draw()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x * it()).square().mean()))
        for _ in range(8):
            yield step(torch.randn(2, 4)), net, random.random()

    return program


def by_numpy():
    numpy = pytest.importorskip("numpy")
    return lambda: float(numpy.random.beta(1.0, 1.0))


def by_python():
    return random.random


def by_a_random():
    return random.Random(0).random


def by_one_that_is_held():
    mine = random.Random(0)
    return lambda: mine.uniform(0, 1)


def by_a_generator():
    generator = torch.Generator().manual_seed(0)
    return lambda: torch.rand((), generator=generator).item()


def by_numpys_generator():
    generator = pytest.importorskip("numpy").random.default_rng(0)
    return lambda: float(generator.random())


def by_numpys_state():
    state = pytest.importorskip("numpy").random.RandomState(0)
    return lambda: float(state.rand())


def by_counting():
    count = itertools.count(1)
    return lambda: next(count)


def by_cycling():
    values = itertools.cycle([1.0, 2.0, 3.0])
    return lambda: next(values)


def by_a_list():
    values = iter([float(i) for i in range(100)])
    return lambda: next(values)


def by_a_generator_function():
    def numbers():
        value = 1.0
        while True:
            value /= 2
            yield value

    values = numbers()
    return lambda: next(values)


@pytest.mark.parametrize("draw, said", [
    (by_numpy, "random numbers on the host"), (by_python, "random numbers on the host"), (by_a_random, "random numbers on the host"),
    (by_one_that_is_held, "random numbers on the host"), (by_a_generator, "random numbers on the host"),
    (by_numpys_generator, "random numbers on the host"), (by_numpys_state, "random numbers on the host"),
    (by_counting, "'count'"), (by_cycling, "'values'"), (by_a_list, "'values'"), (by_a_generator_function, "'values'")])
def test_what_is_drawn_on_the_host(draw, said):
    """It is detected when it is captured, and undone; what cannot be undone is detected before anything runs."""
    assert raises(drawing(draw), said, draws_on_host=False, calls=3 if said.startswith("random") else 0)
