"""On GPUs, with PyTorch 2 and libnimble.so: work outside of a capture, modules on the second GPU, and ranks that train
together.

    python -m nimble run -- python -m pytest -m gpu tests/gpu/test_gpu_several.py
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from nimble import CaptureError, Nimble, NimbleError  # noqa: E402
from conftest import BUILD  # noqa: E402
from gpu_nets import Net, deterministic, images as images_here, labels, loss_of, same, sgd  # noqa: E402, F401

pytestmark = pytest.mark.gpu
two_gpus = pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs")


class Beside(nn.Module):
    """Also uses a separate stream, which waits for no other."""

    def __init__(self, waits, elements=1):
        super().__init__()
        self.waits, self.side, self.layer = waits, torch.cuda.Stream(), nn.Linear(8, 8)
        self.bulk = torch.zeros(elements, device="cuda")
        self.calls = torch.zeros(1, device="cuda")

    def forward(self, x):
        if self.waits:
            self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.calls.add_(1)
            self.bulk.add_(1)
        if self.waits:
            torch.cuda.current_stream().wait_stream(self.side)
        return self.layer(x)


@pytest.mark.parametrize("training", [False, True])
def test_work_that_no_replay_would_do_raises(training):
    x = torch.randn(4, 8, device="cuda")
    with pytest.raises(CaptureError, match="use streams that do not wait for the current one"):
        Nimble(Beside(False).cuda()).prepare(x, training=training)
    with pytest.warns(UserWarning, match="running eagerly"):
        module = Beside(False, 1 << 30).cuda()  # which takes long to be copied, and to be put back
        model = Nimble(module, fallback=True)
        torch.cuda.synchronize()
        before = float(module.calls)
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
    assert float(module.calls) == before + 3 and bool(module.bulk.eq(module.calls).all())


@pytest.mark.parametrize("fallback", [False, True])
def test_a_step_with_work_that_no_replay_would_do_is_not_captured(fallback):
    module, x = Beside(False).cuda(), torch.randn(4, 8, device="cuda")
    step = nimble.step(lambda: module(x).sum(), modules=[module], fallback=fallback)
    for number in range(1, 7):
        if number > 2 and not fallback:  # after two eager runs
            with pytest.raises(CaptureError, match="use streams that do not wait for the current one"):
                step()
            number = 2
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step()
        torch.cuda.synchronize()
        assert float(module.calls) == number


def test_a_step_with_work_on_a_stream_that_waits():
    module, x = Beside(True).cuda(), torch.randn(4, 8, device="cuda")
    step = nimble.step(lambda: module(x).sum(), modules=[module])
    for number in range(1, 7):
        assert torch.equal(step(), module.layer(x).sum()) and float(module.calls) == number
    assert step.report()[0].state != "eager"


def test_work_on_a_stream_that_waits_is_a_part_of_the_graph():
    x, module = torch.randn(4, 8, device="cuda"), Beside(True).cuda()
    with torch.no_grad():
        model = Nimble(module).prepare(x)
        assert float(module.calls) == 0
        for number in range(1, 6):
            assert torch.equal(model(x), module.layer(x)) and float(module.calls) == number


# ---- two GPUs ----

def on_the_second(make):
    torch.manual_seed(3)
    return make().to("cuda:1")


def images(size=8):
    return torch.randn(size, 3, 24, 24, device="cuda:1")


@two_gpus
def test_a_module_on_the_second_gpu():
    module = on_the_second(Net).eval()
    with torch.no_grad():
        model = Nimble(module).prepare(images())
        for _ in range(20):
            x = images()
            got, want = model(x), module(x)
            assert got["classes"].device == torch.device("cuda", 1) and all(torch.equal(got[name], want[name]) for name in want)
    assert torch.cuda.current_device() == 0
    assert model.report()[0].state in ("own", "rewritten")


@two_gpus
@pytest.mark.parametrize("current", [0, 1])
def test_training_on_the_second_gpu(current):
    with torch.cuda.device(current):
        left = []
        for wrap in (lambda net: net, Nimble):
            net = on_the_second(Net)
            losses, optimizer, model = [], sgd(net), wrap(net)
            torch.manual_seed(1)
            for _ in range(30):
                optimizer.zero_grad()
                made = model(images())
                loss = made["classes"].pow(2).mean() + made["features"].pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            left.append({"losses": torch.stack(losses), **net.state_dict(), "random": torch.cuda.get_rng_state(1)})
        assert same(*left)


@two_gpus
def test_a_step_on_the_second_gpu():
    left = []
    for wraps in (False, True):
        net = on_the_second(Net)
        optimizer = sgd(net)

        def step(x):
            optimizer.zero_grad(set_to_none=True)
            loss = net(x)["classes"].pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = nimble.step(step, modules=[net], optimizers=[optimizer]) if wraps else step
        torch.manual_seed(1)
        losses = [call(images()).clone() for _ in range(30)]
        left.append({"losses": torch.stack(losses), **net.state_dict(), "random": torch.cuda.get_rng_state(1)})
        if wraps:
            assert call.report()
    assert same(*left)


@two_gpus
def test_what_lies_on_both_raises():
    module = nn.ModuleDict({"one": nn.Linear(4, 4).to("cuda:0"), "other": nn.Linear(4, 4).to("cuda:1")})
    module.forward = lambda x: module["other"](module["one"](x).to("cuda:1"))
    x = torch.ones(2, 4, device="cuda:0")
    with torch.no_grad(), pytest.raises(NimbleError, match="on cuda:1 and on cuda:0"):
        Nimble(module).prepare(x)
    net = nn.Sequential(module["one"], nn.ReLU())
    other = module["other"]

    def step(x):
        loss = other(net(x).to("cuda:1")).sum()
        loss.backward()
        return loss.detach()

    call = nimble.step(step, modules=[net, other])
    with pytest.raises(NimbleError, match="on cuda:1 and on cuda:0"):
        for _ in range(5):
            call(x)


@two_gpus
def test_work_on_another_gpu_that_no_replay_would_do_raises():
    class Makes(nn.Module):
        def forward(self, x):
            return x + torch.ones(4, device="cuda:1").relu().sum().to("cuda:0")

    with torch.no_grad(), pytest.raises(NimbleError, match="captur"):
        Nimble(Makes()).prepare(torch.ones(2, 4, device="cuda:0"))


@two_gpus
def test_a_step_after_copies_between_gpus():
    """By the first of which PyTorch lets one reach the other's pool: memory of captures comes from there from then on."""
    there = torch.ones(4, device="cuda:1").to("cuda:0").to("cuda:1")
    left = []
    for wraps in (False, True):
        torch.manual_seed(0)
        net = Net().cuda()
        optimizer = sgd(net)

        def step(x, y):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = nimble.step(step, modules=[net], optimizers=[optimizer]) if wraps else step
        torch.manual_seed(1)
        losses = [call(images_here(), labels()).clone() for _ in range(30)]
        left.append({"losses": torch.stack(losses), "there": losses[-1].to("cuda:1") + there, **net.state_dict()})
        if wraps:
            (report,) = call.report()
            # For the copies the other GPU was let reach this one's memory: from then on all keeps the program's order.
            assert report.state == "kept" and report.why == "each of its nodes needs the one before", report
    assert same(*left)


RANKS = """
import hashlib, os, sys, torch
rank, store, how, tests = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
os.environ["LOCAL_RANK"] = os.environ["RANK"] = str(rank)
sys.path[:0] = [tests]
torch.cuda.set_device(rank)
torch.backends.cudnn.deterministic = True
torch.distributed.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=2,
                                     device_id=torch.device("cuda", rank))
from torch import nn
from gpu_nets import Net, images, labels, loss_of, sgd
torch.manual_seed(0)
net = Net().cuda()
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
        self.call = (net,)
    def forward(self, x):
        return self.call[0](x)
outer = Outer()
if how == "inside":
    from nimble import Nimble
    outer.call = (Nimble(net),)
model = nn.parallel.DistributedDataParallel(outer, device_ids=[rank])
optimizer = sgd(net)
torch.manual_seed(5 + rank)
for _ in range(40):
    optimizer.zero_grad()
    loss = loss_of(model(images()), labels())
    loss.backward()
    optimizer.step()
model.eval()
x = images()
side = torch.cuda.Stream()
with torch.no_grad():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        net(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = net(x)["classes"]
    for _ in range(20):
        graph.replay()
        also = net(x)["classes"]
assert torch.equal(out, also)
digest = hashlib.sha256()
for t in [*net.state_dict().values(), loss, out]:
    digest.update(t.detach().float().cpu().numpy().tobytes())
if how == "inside":
    assert len(outer.call[0].report()) >= 2, outer.call[0].report()
print("digest", digest.hexdigest())
torch.distributed.destroy_process_group()
"""


def ranks(folder, how, prefix, **settings):
    """The results of each of two ranks; with the settings of this process, or without Nimble."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NIMBLE_", "LD_PRELOAD"))}
    store = folder / f"store-{how}-{len(list(folder.iterdir()))}"
    environment = {**own, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "WORLD_SIZE": "2", **settings}
    with contextlib.ExitStack() as stack:
        files = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in range(2)]
        started = [subprocess.Popen([*prefix, sys.executable, "-c", RANKS, str(rank), str(store), how, str(Path(__file__).parent.parent)],
                                    env={**environment, "LOCAL_RANK": str(rank), "RANK": str(rank)}, stdout=files[rank][0],
                                    stderr=files[rank][1]) for rank in range(2)]
        try:
            statuses = [each.wait(timeout=240) for each in started]
        finally:
            for each in started:
                each.kill()
        for file in (*files[0], *files[1]):
            file.seek(0)
        out, errors = zip(*([file.read() for file in each] for each in files))
    assert statuses == [0, 0], errors
    return [next(line for line in each.splitlines() if line.startswith("digest")) for each in out], errors


@two_gpus
@pytest.mark.parametrize("how", ["graphs", "inside", "auto", "replay"])
def test_ranks_that_train_together(how, tmp_path):
    plain, _ = ranks(tmp_path, "plain", [])
    assert plain[0] != plain[1]  # buffers and data are each rank's own
    tool = [str(BUILD / "bin" / "nimble"), "run"]
    python = {"PYTHONPATH": os.pathsep.join([str(Path(nimble.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])}
    mode = [sys.executable, "-m", "nimble", "run", "--log", "info", *(["--mode", "auto"] if how == "auto" else []), "--"]
    library = {"NIMBLE_LIBRARY": str(BUILD / "lib" / "libnimble.so")}
    if how != "replay":
        found, said = ranks(tmp_path, "inside" if how == "inside" else "plain", mode, **python, **library)
        assert found == plain, said
        return
    trace, schedule = str(tmp_path / "trace.%r.json"), str(tmp_path / "schedule.%r.json")
    memory = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    found, said = ranks(tmp_path, "plain", [*tool, "--mode", "record", "--"], NIMBLE_TRACE=trace, **memory)
    assert found == plain, said
    for rank in range(2):
        done = subprocess.run([BUILD / "bin" / "nimble-analyze", trace.replace("%r", str(rank)), "--quiet", "-o",
                               schedule.replace("%r", str(rank))], timeout=240)
        # 4: kernels of NCCL beside others, which a rank may have to leave as they are; 5: a schedule, but for a conflict of evidence
        assert done.returncode in (0, 4, 5)
    found, said = ranks(tmp_path, "plain", [*tool, "--mode", "replay", "--"], NIMBLE_SCHEDULE=schedule, NIMBLE_LOG="info", **memory)
    assert found == plain, said
    for rank in range(2):
        # Where GPUs reach each other NCCL shows its memory to the other rank, or takes the other's sooner, and who replays stands aside.
        assert (not Path(schedule.replace("%r", str(rank))).exists()
                or re.search("[1-9][0-9]* steps replayed|stood aside: the program uses cuMem(ExportToShareableHandle|ImportFromShareableHandle|SetAccess)",
                             said[rank])), said
