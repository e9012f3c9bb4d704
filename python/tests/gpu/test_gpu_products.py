"""On a GPU: matrix products, for which PyTorch has one workspace, run concurrently, and compute the same."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import Nimble  # noqa: E402


pytestmark = pytest.mark.gpu

ROWS, WIDTH = 128, 768  # cuBLAS divides such a product's sum among blocks, which leave their parts in the workspace


class Heads(nn.Module):
    """From the same input: layers with a bias (cuBLASLt) and without one, and products of a batch (cuBLAS)."""

    def __init__(self):
        super().__init__()
        self.biased = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.plain = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        biased = [head(x) for head in self.biased]
        plain = [head(x) for head in self.plain]
        batches = [torch.bmm(x.view(4, ROWS // 4, WIDTH), head.view(4, ROWS // 4, WIDTH).transpose(1, 2)) for head in biased]
        return self.last(torch.relu(sum(biased) + sum(plain))), sum(batches)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def nets(request):
    torch.manual_seed(0)
    net = Heads().to("cuda", request.param)
    return net, copy.deepcopy(net)


def x_for(net):
    return torch.randn(ROWS, WIDTH, device="cuda", dtype=net.last.weight.dtype)


def test_they_run_side_by_side(nets):
    net, twin = nets
    model = Nimble(net.eval()).prepare(x_for(net))
    (report,) = model.report()
    assert report.state in ("own", "rewritten"), report
    assert report.streams >= (4 if net.last.weight.dtype == torch.float32 else 2), report  # the others are short
    for _ in range(20):
        x = x_for(net)
        with torch.no_grad():
            wanted = twin.eval()(x)  # in the workspace that PyTorch has
        assert all(torch.equal(one, other) for one, other in zip(model(x), wanted))


def test_they_do_in_training(nets):
    net, twin = nets
    model = Nimble(net).prepare(x_for(net), training=True)
    for report in model.report():
        assert report.state in ("own", "rewritten") and report.streams >= 2, report
    for _ in range(20):
        x = x_for(net)
        for call, each in ((model, net), (twin, twin)):
            each.zero_grad()
            outputs = call(x)
            sum(output.float().square().mean() for output in outputs).backward()
        assert all(torch.equal(one.grad, other.grad) for one, other in zip(net.parameters(), twin.parameters()))
