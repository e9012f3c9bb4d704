"""Modules that synchronize ranks: a Nimble cannot wrap them, but may be inside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402

distributed = pytest.importorskip("torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("this PyTorch has no gloo", allow_module_level=True)
DDP = nn.parallel.DistributedDataParallel


@pytest.fixture
def rank(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_what_trains_is_not_prepared_around_it(rank, backend):
    module = DDP(nn.Linear(4, 2))
    with pytest.raises(NimbleError, match="it is a DistributedDataParallel.*put the Nimble inside"):
        Nimble(module, backend=backend).prepare(torch.ones(3, 4), training=True)
    with pytest.raises(NimbleError, match="it holds a DistributedDataParallel"):
        Nimble(nn.Sequential(module), backend=backend)(torch.ones(3, 4))
    model = Nimble(module, fallback=True, backend=backend)
    with pytest.warns(UserWarning, match="running eagerly: it is a DistributedDataParallel"):
        model(torch.ones(3, 4)).sum().backward()
    assert module.module.weight.grad.tolist() == [[3.0] * 4] * 2 and backend.graphs == []


def test_no_step_that_trains_it_is_a_graph(rank, backend):
    module = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    module.module.weight.data.fill_(1)

    def train(x):
        optimizer.zero_grad()
        loss = module(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for given in (), (nn.Sequential(module),):
        with pytest.raises(NimbleError, match="the step works on a DistributedDataParallel.*run it without nimble.step"):
            nimble.step(train, modules=given, backend=backend)(torch.ones(1, 4))
    assert bool((module.module.weight == 1).all())
    stepped = nimble.step(train, fallback=True, backend=backend)
    with pytest.warns(UserWarning, match="the step runs eagerly: the step works on a DistributedDataParallel"):
        stepped(torch.ones(1, 4))
    assert bool((module.module.weight == 0.5).all()) and backend.graphs == []


def test_without_gradients_it_is_where_it_sends_nothing(rank, backend):
    plain, norm = DDP(nn.Linear(4, 2)).eval(), DDP(nn.BatchNorm1d(4)).eval()
    silent = DDP(nn.BatchNorm1d(4), broadcast_buffers=False).eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        for module in (plain, silent):
            assert torch.equal(Nimble(module, backend=backend).prepare(x)(x), module(x))
        with pytest.raises(NimbleError, match="it is a DistributedDataParallel"):
            Nimble(norm, backend=backend)(x)


def test_parameters_in_pieces(backend):
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDPModule
    module = nn.Linear(4, 2).eval()
    module.__class__ = type("FSDPLinear", (FSDPModule, nn.Linear), {})
    with torch.no_grad(), pytest.raises(NimbleError, match="it is a FSDPLinear, which gathers its parameters"):
        Nimble(module, backend=backend)(torch.ones(3, 4))


PROGRAM = """
import sys, warnings
rank, store, tests = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path[:0] = [tests, tests + "/.."]
import torch
from torch import nn
from fake import FakeCapture
from nimble import Nimble

torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)


class Outer(nn.Module):
    def __init__(self, prepares):
        super().__init__()
        self.backend = FakeCapture()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        self.call = (Nimble(self.net, backend=self.backend) if prepares else self.net,)

    def forward(self, x):
        return self.call[0](x)


found = []
for prepares in (True, False):
    torch.manual_seed(0)
    net = Outer(prepares)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(4):
        torch.manual_seed(10 * number + rank)
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(2).sum().backward()
        optimizer.step()
    assert [graph.replays - 4 for graph in net.backend.graphs] == ([4, 4] if prepares else [])
    found.append([p.detach().clone() for p in net.parameters()])
assert all(map(torch.equal, *found))
print([p.tolist() for p in found[0]])
torch.distributed.destroy_process_group()
"""


def test_inside_ranks_stay_together(tmp_path):
    tests = str(Path(__file__).parent.parent)
    ranks = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), f"{tmp_path}/store", tests], stdout=subprocess.PIPE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    try:
        said = [each.communicate(timeout=300)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0, 0] and said[0] == said[1] != b""
