"""On a GPU, with PyTorch 2 and libnimble.so: unchanged scripts under `nimble run --mode auto` compute the same as
without.

    python -m nimble run -- python -m pytest -m gpu tests/gpu/test_gpu_auto.py
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from nimble.launcher import find_tools  # noqa: E402

pytestmark = pytest.mark.gpu
PYTHON = Path(__file__).resolve().parent.parent.parent

NETWORK = """\
import hashlib, sys, torch
from torch import nn
torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.Conv2d(32, 32, 1 + 2 * (i % 2), padding=i % 2), nn.BatchNorm2d(32), nn.ReLU(),
                                        nn.Conv2d(32, 8, 3, padding=1)) for i in range(4)) for _ in range(4))
        self.scale = 1.0
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = torch.cat([branch(x) for branch in block], 1) * self.scale
        return {"out": x, "mean": x.mean((2, 3))}
net = Branches().cuda().eval()
digest = hashlib.sha256()
def take(out):
    for t in (out.values() if isinstance(out, dict) else [out]):
        digest.update(t.detach().float().cpu().numpy().tobytes())
def batch(size=1):
    return torch.randn(size, 3, 56, 56, device="cuda")
"""
PLAIN = """\
with torch.no_grad():
    for i in range(60):
        take(net(batch()))
"""
INFERENCE_MODE = """\
with torch.inference_mode():
    for i in range(40):
        take(net(batch(1 + i % 2)))
"""
AUTOCAST = """\
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    for i in range(40):
        take(net(batch()))
"""
STREAMS = """\
streams = [torch.cuda.Stream() for _ in range(3)]
with torch.no_grad():
    for i in range(40):
        x = batch()
        streams[i % 3].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(streams[i % 3]):
            take(net(x))
        torch.cuda.current_stream().wait_stream(streams[i % 3])
"""
CHANGES = """\
with torch.no_grad():
    for i in range(120):
        if i == 30: net.scale = 2.0
        if i == 60: net.stem.weight.mul_(1.5)
        if i == 70: net.stem.weight.data = torch.randn_like(net.stem.weight)
        if i == 90: torch.backends.cudnn.allow_tf32 = False
        take(net(batch()))
"""
DROPOUT_AND_STATISTICS = """\
net.blocks[0][0][1].train()
net.drop = nn.Dropout(0.5)
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        return nn.functional.dropout(self.net(x)["mean"], 0.5, True)
noisy = Noisy().cuda().eval()
net.blocks[0][0][1].train()
with torch.no_grad():
    for i in range(40):
        take(noisy(batch()))
        torch.rand(3, device="cuda")
for name, value in noisy.state_dict().items():
    take(value)
take(torch.cuda.get_rng_state().float())
"""
TRAINING = """\
opt = torch.optim.SGD(net.parameters(), 0.01)
net.train()
for i in range(8):
    opt.zero_grad()
    net(batch(4))["mean"].square().mean().backward()
    opt.step()
net.eval()
with torch.no_grad():
    for i in range(30):
        take(net(batch()))
"""
TRAINED = """\
import contextlib
for p in net.parameters():
    if p.dim() < 2: p.data.add_(0.1)
opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=AMP)
def loss_of(x):
    with torch.autocast("cuda", dtype=torch.float16) if AMP else contextlib.nullcontext():
        out = net(x)
        return out["out"].float().square().mean() + out["mean"].float().sum() if USES_BOTH else out["mean"].float().square().mean()
net.train()
for i in range(30):
    opt.zero_grad()
    loss = loss_of(batch(4))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    take(loss)
    if i == 20:
        net.eval()
        with torch.no_grad():
            take(net(batch(4)))
        net.train()
for p in net.parameters():
    take(p)
for b in net.buffers():
    take(b)
"""
SYNCHRONISES = """\
class Asks(nn.Module):
    def forward(self, x):
        return x * x.sum().item()
asks = Asks().eval()
with torch.no_grad():
    for i in range(40):  # until it is decided which graph is launched
        take(asks(batch()))
        take(net(batch()))
"""
GOES = """\
import gc
with torch.no_grad():
    for i in range(20):
        take(net(batch()))
    torch.cuda.synchronize()
    del net
    gc.collect()
    torch.cuda.empty_cache()
    print(torch.cuda.memory_allocated() >> 20)
"""
COMPILES = """\
compiled = torch.compile(net, mode="reduce-overhead")
with torch.no_grad():
    for i in range(24):
        if i == 8: net.stem.weight.mul_(1.5)
        if i == 12: net.stem.weight.data = net.stem.weight.data * 0.5
        take(compiled(batch()))
"""
COMPILES_FOR_TRAINING = """\
compiled = torch.compile(net, mode="reduce-overhead")
opt = torch.optim.SGD(net.parameters(), 0.01)
torch.use_deterministic_algorithms(True)
for i in range(6):
    opt.zero_grad()
    compiled(batch(4))["mean"].square().mean().backward()
    opt.step()
for p in net.parameters():
    take(p)
"""
WORKERS = """\
class Data(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): return torch.full((3, 56, 56), float(i))
with torch.no_grad():
    for x in torch.utils.data.DataLoader(Data(), num_workers=2, pin_memory=True):
        take(net(x.cuda(non_blocking=True)))
"""


def run(script, tmp_path, *options, launch=None, **variables):
    """Directly, by the launcher with these options, or by another one."""
    path = tmp_path / "script.py"
    path.write_text(NETWORK + script + "torch.cuda.synchronize()\nprint(digest.hexdigest())\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "PYTORCH_", "LD_PRELOAD"))}
    # torch.compile chooses by time how a sum is added up, and keeps what it has chosen: the same for both, and for no one else.
    env.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "compiled"), **variables)
    words = [sys.executable, str(path)]
    if launch:
        if "NIMBLE_LIBRARY" in os.environ:
            env["NIMBLE_LIBRARY"] = os.environ["NIMBLE_LIBRARY"]
        env["PYTHONPATH"] = os.pathsep.join([str(PYTHON), *filter(None, [env.get("PYTHONPATH")])])
        words = [*launch, "run", *options, "--", *words]
    elif options:
        import nimble
        tools = find_tools(Path(nimble.__path__[0]), os.environ.get("NIMBLE_LIBRARY", ""))
        words = [str(tools.launcher), "run", *options, "--", *words]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("script", [
    PLAIN, INFERENCE_MODE, AUTOCAST, STREAMS, CHANGES, DROPOUT_AND_STATISTICS, TRAINING, SYNCHRONISES, WORKERS,
], ids=["plain", "inference_mode", "autocast", "streams", "changes", "dropout", "training", "synchronises", "workers"])
def test_an_unchanged_script(tmp_path, script):
    # The allocator may choose other algorithms of cuDNN by what memory it has: the same one on both sides.
    plain, _ = run(script, tmp_path, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    auto, said = run(script, tmp_path, "--mode", "auto")
    assert auto == plain, said
    assert "its graph differs" not in said, said
    served = re.search(r"PyTorch: (?:Branches|Noisy): (\d+) calls served by graphs", said)
    assert served and int(served[1]) > 5, said
    assert re.search(r"a graph for float32\[.*?\], (rewritten|own)", said), said


@pytest.mark.parametrize("uses_both, amp", [(True, False), (False, False), (True, True)])
def test_an_unchanged_training(tmp_path, uses_both, amp):
    script = f"AMP, USES_BOTH = {amp}, {uses_both}\n" + TRAINED
    plain, _ = run(script, tmp_path, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    auto, said = run(script, tmp_path, "--mode", "auto", "--torch", "training")
    assert auto == plain, said
    assert "its graph differs" not in said, said
    served = re.search(r"PyTorch: Branches: (\d+) calls served by graphs", said)
    assert served and int(served[1]) > 15, said
    assert re.search(r"\(backward\), (rewritten|own)", said), said


@pytest.mark.parametrize("options", [["--mode", "auto"], []], ids=["auto", "run"])
def test_compiled_graphs_for_inference(tmp_path, options):
    """The graphs are Nimble's: PyTorch cannot make its own with stream-ordered memory; the kernels are the same."""
    plain, _ = run(COMPILES, tmp_path)
    with_nimble, said = run(COMPILES, tmp_path, *options, launch=[sys.executable, "-m", "nimble"])
    assert with_nimble == plain, said
    assert "own CUDA graphs" not in said and "its graph differs" not in said, said
    served = re.search(r"PyTorch: torch.compile: 1 function, (\d+) calls served by graphs", said)
    assert served and int(served[1]) > 10, said


def test_compiled_graphs_for_training(tmp_path):
    """They are left out."""
    plain, _ = run(COMPILES_FOR_TRAINING, tmp_path)
    with_nimble, said = run(COMPILES_FOR_TRAINING, tmp_path, "--log", "info", launch=[sys.executable, "-m", "nimble"])
    assert with_nimble == plain, said
    assert said.count("own CUDA graphs") == 1, said


def test_memory_goes_with_the_module(tmp_path):
    plain, _ = run(GOES, tmp_path, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    auto, said = run(GOES, tmp_path, "--mode", "auto")
    assert auto == plain and "calls served by graphs" in said


def test_off_and_skip(tmp_path):
    plain, _ = run(PLAIN, tmp_path, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    for words in (["--torch-skip", "*.Branches"], ["--torch", "off"]):
        auto, said = run(PLAIN, tmp_path, "--mode", "auto", *words)
        assert auto == plain and "served by graphs" not in said
