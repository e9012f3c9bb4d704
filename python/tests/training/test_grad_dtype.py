"""The dtype that a program requests for a parameter's gradients (`Tensor.grad_dtype`)."""

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
if not hasattr(torch.Tensor, "grad_dtype"):
    pytest.skip("this PyTorch has no grad_dtype", allow_module_level=True)
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


class Net(nn.Module):
    """Whose gradient PyTorch would make in float32, and add up in what the parameter says."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0).to(torch.bfloat16))
        self.weight.grad_dtype = dtype

    def forward(self, x):
        return ((x + self.weight) * torch.arange(4.0).sin()).sum()


def left(module):
    return module.weight.grad.dtype, module.weight.grad.double()


def are_same(one, other):
    return left(one)[0] is left(other)[0] and torch.equal(left(one)[1], left(other)[1])


@pytest.mark.parametrize("dtype", [torch.float32, None, torch.bfloat16])
def test_gradients_have_it(dtype):
    mine, its = Net(dtype), Net(dtype)
    served = nimble.Nimble(mine, backend=ReplayingCapture())
    for number in range(3):
        torch.manual_seed(number)
        x = torch.randn(5, 4)
        if not served.is_prepared(x):
            served.prepare(x, training=True, relaxed=True)
        for each, call in ((mine, served), (its, its)):
            call(x).backward()
        assert are_same(mine, its)


def test_a_graph_has_the_one_that_there_was():
    mine, its = Net(torch.float32), Net(torch.float32)
    served = nimble.Nimble(mine, backend=ReplayingCapture())
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        for each, call in ((mine, served), (its, its)):
            each.weight.grad = None
            each.weight.grad_dtype = dtype
        x = torch.randn(5, 4)
        if not served.is_prepared(x):
            served.prepare(x, training=True, relaxed=True)
        for call in (served, its):
            call(x).backward()
        assert are_same(mine, its)


def test_a_step_has_the_one_that_there_was():
    found = []
    for backend in (ReplayingCapture(), None):
        torch.manual_seed(0)
        net = Net(torch.float32)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def train(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            net(x).backward()
            return net.weight.grad.double()

        step = nimble.step(train, modules=[net], optimizers=[optimizer], backend=backend) if backend else train
        for number in range(8):
            if number == 5:
                net.weight.grad = None
                net.weight.grad_dtype = torch.bfloat16
            found.append(step(torch.randn(5, 4)).clone())
    assert all(map(torch.equal, found[:8], found[8:]))
