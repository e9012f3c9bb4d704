"""nimble.startup and nimble.auto.hook in real processes: what a program sees of them, and when PyTorch gets which
settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nimble.auto import hook

PYTHON = Path(__file__).resolve().parent.parent.parent
STARTUP = PYTHON / "nimble" / "startup"
# A fake PyTorch, reduced to what the hook uses.
TORCH = """\
import json, os, sys
seen = {name: os.environ.get(name) for name in ("NIMBLE_MODE", "NIMBLE_GRAPHS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
def rewrites():
    try:
        from nimble import shim
        shim.check()
        return True
    except Exception as error:
        return str(error)
"""
SHOW = "import json, torch\nprint(json.dumps([torch.seen, torch.rewrites(), getattr(torch, 'looked_at', False)]))\n"


@pytest.fixture
def program(build, tmp_path):
    """Runs Python under NIMBLE_MODE=auto in a scratch folder, with a PyTorch of the given version."""

    def run(script, *options, version="2.11.0+cu130", cuda="'13.0'", preload=True, before=(), **variables):
        torch = tmp_path / "site" / "torch"
        torch.mkdir(parents=True, exist_ok=True)
        (torch / "__init__.py").write_text(TORCH)
        (torch / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n"
                                          f"cuda: Optional[str] = {cuda}\n")
        (tmp_path / "script.py").write_text(script)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "PYTORCH_", "LD_", "PYTHONPATH"))}
        path = [*before, str(STARTUP), str(tmp_path / "site")]
        env.update(PYTHONPATH=os.pathsep.join(path), PYTHONDONTWRITEBYTECODE="1", NIMBLE_MODE="auto", NIMBLE_LOG="info",
                   LD_LIBRARY_PATH=str(build / "simcuda"))
        if preload:
            env["LD_PRELOAD"] = str(build / "lib" / "libnimble.so")
        env.update(variables)
        return subprocess.run([sys.executable, *options, str(tmp_path / "script.py")], env=env, cwd=tmp_path, capture_output=True,
                              text=True, timeout=50)

    return run


def said(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LEFT_ALONE = "rewrites no graphs: NIMBLE_MODE is auto"


def test_before_pytorch_is_loaded(program):
    done = program(SHOW)
    seen, rewrites, _ = said(done)
    assert seen == {"NIMBLE_MODE": "auto", "NIMBLE_GRAPHS": None, "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync",
                    "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert rewrites is True
    # This PyTorch has no modules to observe: a message says so, and nothing else happens.
    assert "PyTorch modules are left alone" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("changes", [
    {"NIMBLE_TORCH": "off"}, {"NIMBLE_MODE": "off"}, {"cuda": "None"}, {"version": "1.13.0a0"}, {"version": "2.0.1"},
])
def test_where_it_has_no_effect(program, changes):
    done = program(SHOW + "import sys\nassert 'nimble.auto.calls' not in sys.modules\n"
                   "assert not any(getattr(finder, 'waits_for_torch', False) for finder in sys.meta_path)\n", **changes)
    seen, rewrites, _ = said(done)
    assert seen["PYTORCH_ALLOC_CONF"] is None
    assert LEFT_ALONE in rewrites or rewrites == "No module named 'nimble'"
    assert ("too old" in done.stderr) if "version" in changes else done.stderr == ""


def test_without_the_library(program):
    done = program(SHOW, preload=False)
    seen, _, _ = said(done)
    assert seen["PYTORCH_ALLOC_CONF"] is None and done.stderr == ""


def test_a_driver_that_is_started_already(program):
    """Querying the devices does not use one."""
    ask = ("import ctypes\ncuda, count = ctypes.CDLL('libcuda.so.1'), ctypes.c_int()\n"
           "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0\n")
    done = program(ask + SHOW)
    seen, rewrites, _ = said(done)
    assert seen["PYTORCH_ALLOC_CONF"] == "backend:cudaMallocAsync" and rewrites is True
    assert "the GPU was in use" not in done.stderr


def test_a_gpu_that_is_in_use_already(program):
    use = ("import ctypes\ncuda, out = ctypes.CDLL('libcuda.so.1'), ctypes.c_uint64()\n"
           "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(out), 0) == 0\n"
           "assert cuda.cuCtxSetCurrent(ctypes.c_void_p(out.value)) == 0\n"
           "assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(64)) == 0\n")
    done = program(use + SHOW)
    seen, rewrites, _ = said(done)
    assert seen["PYTORCH_ALLOC_CONF"] is None and LEFT_ALONE in rewrites
    assert "the GPU was in use before PyTorch was imported" in done.stderr


def test_memory_that_the_user_has_spoken_of(program):
    seen, rewrites, _ = said(program(SHOW, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"))
    assert seen["PYTORCH_ALLOC_CONF"] is None and seen["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert rewrites is True


def test_the_program_sees_no_difference(program, tmp_path):
    script = ("import json, os, sys\n"
              "print(json.dumps([sys.path, sorted(m for m in sys.modules if 'nimble' in m), 'sitecustomize' in sys.modules]))\n")
    path, modules, custom = said(program(script))
    assert str(STARTUP) not in path and modules == [] and str(tmp_path / "site") in path


def test_what_it_hides_runs(program, tmp_path):
    other = tmp_path / "site"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys\nsys.custom = __file__\n")
    done = program("import sitecustomize, sys\nassert sitecustomize.__file__ == sys.custom\nprint('[true]')\n" + SHOW)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[1])[1] is True
    (other / "sitecustomize.py").write_text("raise ImportError('mine')\n")
    plain = program(SHOW, before=[str(other)])
    done = program(SHOW)
    assert "mine" in plain.stderr and "mine" in done.stderr and said(done)[1] is True
    (other / "sitecustomize.py").write_text("import there_is_no_such_module\n")
    assert "there_is_no_such_module" in program(SHOW).stderr


def test_twice_in_the_path(program, tmp_path):
    (tmp_path / "nimble").symlink_to(STARTUP.parent)
    for other in (STARTUP, tmp_path / "nimble" / "startup"):
        done = program(SHOW, before=[str(other)])
        seen, rewrites, _ = said(done)
        assert rewrites is True and seen["PYTORCH_ALLOC_CONF"] is not None
        assert done.stderr.count("PyTorch modules are left alone") == 1


def test_looking_whether_pytorch_is_there(program):
    """Like libraries that treat it as optional."""
    done = program("import importlib.util, sys\n"
                   "for _ in range(2):\n"
                   "    spec = importlib.util.find_spec('torch')\n"
                   "    assert spec.loader.get_filename('torch') == spec.origin and 'nimble' not in sys.modules\n"
                   "assert importlib.util.find_spec('not_there') is None\n" + SHOW)
    seen, rewrites, _ = said(done)
    assert seen["PYTORCH_ALLOC_CONF"] is not None and rewrites is True


def test_without_pytorch(program, tmp_path):
    script = ("import importlib.util, shutil, sys\nshutil.rmtree(%r)\nimportlib.invalidate_caches()\n"
              "sys.path[:] = [folder for folder in sys.path if '-packages' not in folder]\n"
              "try:\n    import torch\nexcept ImportError as error:\n    print(error)\n" % str(tmp_path / "site" / "torch"))
    done = program(script)
    assert done.stdout == "No module named 'torch'\n" and done.stderr == ""


def test_a_pytorch_that_cannot_be_loaded(program):
    done = program("import sys\nimport torch.there_is_no_such_thing\n")
    assert "No module named 'torch.there_is_no_such_thing'" in done.stderr


def test_another_package_of_the_name(program, tmp_path):
    (tmp_path / "nimble.py").write_text("value = 3\n")
    done = program("import nimble, json, torch\nassert nimble.value == 3\nprint(json.dumps([torch.seen]))")
    assert said(done)[0]["PYTORCH_ALLOC_CONF"] is None
    assert f"another package is called nimble, {tmp_path / 'nimble.py'}" in done.stderr


def test_a_folder_of_the_name(program, tmp_path):
    (tmp_path / "nimble").mkdir()
    done = program("import json, torch\nprint(json.dumps([torch.seen]))")
    assert said(done)[0]["PYTORCH_ALLOC_CONF"] is None
    assert f"another package is called nimble, {tmp_path / 'nimble'}\n" in done.stderr


def test_the_loader_is_pytorchs(program):
    script = ("import torch, json\nloader = torch.__spec__.loader\n"
              "print(json.dumps([type(loader).__name__, torch.__loader__ is loader, torch.__file__]))")
    name, same, _ = said(program(script))
    assert name == "SourceFileLoader" and same


def test_python_without_site_or_environment(program):
    assert program("print('fine')", "-S").stdout == "fine\n"
    assert program("print('fine')", "-I").stdout == "fine\n"


def test_children(program):
    """Processes started by other ways than fork start afresh, with the user's settings."""
    script = ("import torch, subprocess, sys, json, os\n"
              "program = 'import torch, json; print(json.dumps([torch.seen, torch.rewrites()]))'\n"
              "done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)\n"
              "print(done.stdout)\n")
    seen, rewrites = said(program(script))
    assert seen["NIMBLE_MODE"] == "auto" and rewrites is True


def test_version_of_a_pytorch_that_is_not_loaded(tmp_path):
    (tmp_path / "version.py").write_text("from typing import Optional\n__version__ = '2.11.0+cu130'\n"
                                         "cuda: Optional[str] = '13.0'\n")
    assert hook.torch_version([str(tmp_path)]) == ((2, 11), "13.0")
    (tmp_path / "version.py").write_text("__version__ = '2.3.1'\ncuda = None\n")
    assert hook.torch_version([str(tmp_path)]) == ((2, 3), "")
    assert hook.torch_version([str(tmp_path / "none")]) == ((0, 0), "")
    torch = pytest.importorskip("torch")
    version, cuda = hook.torch_version(torch.__path__)
    assert torch.__version__.startswith("%d.%d." % version) and cuda == (torch.version.cuda or "")


def test_the_launcher_finds_it(build, tmp_path):
    def environment(*options, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "PYTHONPATH"))}
        env.update(variables)
        words = [str(build / "bin" / "nimble"), "run", *options, "--", "env"]
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    found = environment("--mode", "auto")["PYTHONPATH"]
    if not Path(found, "sitecustomize.py").is_file():
        pytest.fail(f"{found} is not it")
    assert environment("--mode", "auto", PYTHONPATH="/a:/b")["PYTHONPATH"] == f"{found}:/a:/b"
    assert environment("--mode", "auto", PYTHONPATH=f"{found}:/b")["PYTHONPATH"] == f"{found}:/b"
    assert environment(NIMBLE_MODE="auto", PYTHONPATH="")["PYTHONPATH"] == found
    assert "PYTHONPATH" not in environment("--mode", "auto", "--torch", "off")
    assert "PYTHONPATH" not in environment("--mode", "record")
    assert "PYTHONPATH" not in environment("--graphs", "rewrite")


AUTO = """\
import os, sys, torch
from torch import nn
from nimble import settings
from nimble.auto import calls
assert torch.nn.Module.__call__.__code__.co_filename == calls.__file__
sys.path.insert(0, {tests!r})
from replaying import ReplayingCapture
calls.uninstall()
backend = ReplayingCapture()  # there is no GPU here
auto = calls.install(settings.read(), backend, clock=lambda: 0.0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
with torch.no_grad():
    for _ in range(20):
        net(torch.ones(2, 3))
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        with torch.no_grad():
            return net(torch.ones(2, 3)), backend.replays
if __name__ == "__main__":
    before = backend.replays
    for method in {methods!r}:
        for out, replays in torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context=method):
            with torch.no_grad():
                assert torch.equal(out[0], nn.Sequential.forward(net, torch.ones(2, 3))) or method == "spawn"
            assert method == "spawn" or int(replays) == before
    print("fine")
"""


def test_real_pytorch_and_its_workers(build, tmp_path):
    torch = pytest.importorskip("torch", minversion="2.5")
    if torch.version.cuda is None:
        pytest.skip("this PyTorch is built without CUDA")
    script = tmp_path / "script.py"
    script.write_text(AUTO.format(tests=str(PYTHON / "tests"), methods=["fork", "spawn"]))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "PYTORCH_"))}
    done = subprocess.run([str(build / "bin" / "nimble"), "run", "--mode", "auto", "--", sys.executable, str(script)], env=env,
                          capture_output=True, text=True, timeout=250)
    assert done.returncode == 0 and done.stdout == "fine\n", done.stderr
    assert done.stderr.count("PyTorch: Sequential: ") == 3, done.stderr  # ours, and that of each spawned worker
    assert "13 calls served by graphs, 4 compared with eager runs" in done.stderr
