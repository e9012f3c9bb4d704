"""nimble.auto: a module writes to things other than its buffers as often as without Nimble, and failures of a
comparison do not reach the program."""

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch import nn  # noqa: E402
from auto_tools import both_ways, calls_of, module_with  # noqa: E402
from nimble.guards.write_detector import WriteDetector  # noqa: E402

STATISTICS = torch.zeros(3)


def adds_to_attribute(self, x):
    self.seen.add_(x.sum(0))
    return x * 2


def decays(self, x):
    self.seen.mul_(0.5).add_(x.sum(0))
    return x + self.seen


@pytest.mark.parametrize("forward", [adds_to_attribute, decays])
def test_tensors_in_plain_attributes(forward):
    def program():
        module = module_with(forward, seen=torch.zeros(3))
        return calls_of(module, times=14, also=lambda: module.seen.clone())

    assert both_ways(program)[1] > 8


def test_a_cache_that_says_where_it_ends():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept, self.end = torch.zeros(8, 3), torch.zeros(1, dtype=torch.long)

        def forward(self, x):
            self.kept.index_copy_(0, self.end, x[:1])
            self.end.add_(1)
            return self.kept.sum(0)

    def program():
        module, made = Cache().eval(), []
        for _ in range(3):
            module.end.zero_()
            made += [module(torch.full((2, 3), float(i))) for i in range(8)]
        return made

    assert both_ways(program)[1] > 16


def test_training_with_an_average_in_an_attribute():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.mean = nn.Linear(3, 3), torch.zeros(3)

        def forward(self, x):
            y = self.linear(x)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.detach().mean(0))
            return y

    def program():
        module, made = Average(), []
        for i in range(12):
            module.zero_grad()
            module(torch.full((2, 3), float(i))).sum().backward()
            made += [module.mean.clone(), module.linear.weight.grad.clone()]
        return made

    both_ways(program, grad=True, trains=True)


def writes_to_a_global(self, x):
    STATISTICS.add_(x.sum(0))
    return x * 2


def writes_behind_the_version(self, x):
    self.held[0].data.add_(x.sum(0))
    return x * 2


def writes_to_a_parameter(self, x):
    self.weight.data.add_(x.sum(0))
    return x * 2


def writes_statistics(self, x):
    return nn.functional.batch_norm(x, self.state["mean"], self.state["var"], training=True)


def writes_to_the_class(self, x):
    self.total.add_(x.sum(0))
    return x * 2


def writes_by_a_closure():
    total = torch.zeros(3)

    def forward(self, x):
        total.add_(x.sum(0))
        return x * 2

    forward.total = total
    return forward


@pytest.mark.parametrize("forward, members, written", [
    (writes_to_a_global, {}, lambda m: STATISTICS),
    (writes_behind_the_version, {"held": [torch.zeros(3)]}, lambda m: m.held[0]),
    (writes_to_a_parameter, {"weight": nn.Parameter(torch.zeros(3))}, lambda m: m.weight),
    (writes_statistics, {"state": {"mean": torch.zeros(3), "var": torch.ones(3)}}, lambda m: m.state["mean"]),
    (writes_to_the_class, {}, lambda m: type(m).total),
    (writes_by_a_closure(), {}, lambda m: type(m).forward.total),
])
def test_tensors_that_are_not_restored(forward, members, written):
    def program():
        module = module_with(forward, **members)
        type(module).total = torch.zeros(3)
        written(module).data.zero_()
        return calls_of(module, times=14, also=lambda: written(module).clone())

    said, replays = both_ways(program)
    assert replays == 0 and "it writes to a tensor that is neither a buffer" in said


def test_a_generator_of_its_own():
    def program():
        generator = torch.Generator().manual_seed(0)
        return calls_of(module_with(lambda self, x: x + torch.rand(3, generator=self.generator), generator=generator))

    assert "a generator of random numbers" in both_ways(program)[0]


def test_a_failure_with_a_buffer_that_repeats():
    class Expanded(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(1, 3).expand(4, 3))

        def forward(self, a, b):
            a.add_(1)
            return a + b.sum() + self.mask[0]

    def program():
        module, made = Expanded().eval(), []
        for _ in range(8):
            base = torch.zeros(2, 3)
            made += [module(base[0], base[1]), base]
        return made

    assert both_ways(program)[1] == 0


class Hollow(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


@pytest.mark.parametrize("size", [1, 7, 8, 100, (1 << 20) + 3])
def test_written(size):
    tensor = torch.zeros(size, dtype=torch.uint8)
    written = WriteDetector([tensor, tensor[:1], torch.zeros(0), torch.ones(2, device="meta")])
    assert not written.any()
    hollow = torch.Tensor._make_wrapper_subclass(Hollow, (4,), dtype=torch.float32, device="cpu")
    assert not WriteDetector([hollow]).any(), "it has no memory of its own"
    tensor.data[-1] = 1
    assert written.any()
    tensor.data[-1] = 0
    assert not written.any()
    tensor.mul_(1)
    assert written.any(), "the version tells"
    tensor = torch.arange(64)
    written = WriteDetector([tensor])
    tensor.data.copy_(tensor.flip(0))
    assert written.any()


def cast(change_at, times=12, regions=1):
    def program():
        module, made = nn.Linear(3, 3).eval(), []
        for _ in range(regions):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                for i in range(times):
                    if i == change_at:
                        module.weight.add_(1)
                    made.append(module(torch.ones(2, 3)))
        return made

    return program


@pytest.mark.parametrize("at", [1, 2, 3, 4, 8])
def test_weights_that_autocast_has_cast(at):
    said, replays = both_ways(cast(at))
    assert f"{12 - at} weights were written to within autocast" in said and replays == max(0, at - 3)


def test_weights_that_are_written_to_around_autocast():
    assert both_ways(cast(0, 2, 8))[1] == 13
    assert both_ways(cast(None))[1] == 9
    assert torch.clear_autocast_cache.__module__ != "nimble.guards.autocast_cache", "it is PyTorch's own again"
