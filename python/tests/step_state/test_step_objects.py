"""Steps: objects that change their class, arrays of objects, memory of tensors that modules keep in attributes, and the
ways in which PyTorch lets a program work (inference mode, swapping tensors)."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


class Warm:
    def weight(self):
        return 1.0


class Late:
    def weight(self):
        return 4.0


def test_an_object_that_becomes_one_of_another_class():
    def program(wrap):
        net, phase = mlp(), Warm()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean() * phase.weight()))
        for number in range(9):
            if number == 6:
                phase.__class__ = Late
            yield step(torch.randn(5, 4)), net

    assert same(program) and same.backend.captures == 2


def test_an_array_of_objects_is_not_compared():
    numpy = pytest.importorskip("numpy")

    def program(wrap):
        net, settings = mlp(), numpy.array([{"scale": 1.0}, None], dtype=object)
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean() * settings[0]["scale"]))
        for _ in range(9):
            yield step(torch.randn(5, 4)), net

    assert raises(program, "array of objects", calls=0)


class Counting(nn.Module):
    """In a buffer, a plain attribute, or a list that is one."""

    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.how = how
        if how == "buffer":
            self.register_buffer("seen", torch.ones(4))
        else:
            self.seen = torch.ones(4) if how == "attribute" else [torch.ones(4)]

    def tensor(self):
        return self.seen[0] if self.how == "list" else self.seen

    def forward(self, x):
        return self.linear(x) * self.tensor().add_(1)


@pytest.mark.parametrize("how", ["buffer", "attribute", "list"])
def test_an_argument_in_memory_that_the_forward_writes_to(how):
    """The graph has a copy of it."""
    torch.manual_seed(0)
    net = Counting(how)
    optimizer = sgd(net, lr=0.001)
    step = nimble.step(lambda x: update(net, optimizer, net(x).square().sum()), modules=[net], optimizers=[optimizer],
                       backend=ReplayingCapture())
    for _ in range(6):
        step(torch.randn(1, 4))
    with pytest.raises(NimbleError, match="shares memory with the step's state"):
        step(net.tensor().view(1, 4))


@pytest.mark.parametrize("fallback", [False, True])
def test_calls_within_inference_mode_and_without(fallback):
    net = nn.Linear(4, 3).eval()
    step = nimble.step(lambda x: net(x), modules=[net], fallback=fallback, backend=ReplayingCapture())
    for number in range(8):
        with torch.inference_mode() if number < 5 else torch.no_grad():
            x = torch.randn(5, 4)
            assert torch.equal(step(x), net(x))


@pytest.mark.skipif(not hasattr(torch.__future__, "set_swap_module_params_on_conversion"), reason="this PyTorch swaps none")
def test_conversions_that_swap_tensors():
    """With which PyTorch refuses weak references."""
    def program(wrap):
        net = mlp()

        def accumulate(x):
            loss = net(x).square().sum()
            loss.backward()
            return loss

        step = wrap(accumulate)
        for number in range(12):
            if number == 8:
                net.double().float()
            yield step(torch.randn(2, 4)), net

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        assert same(program)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
