"""nimble.compile.compiled_graphs: replacements of torch.compile's own CUDA graphs where memory is allocated in stream
order."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nimble.compile import compiled_graphs

PYTHON = Path(__file__).resolve().parent.parent.parent
# A fake PyTorch, reduced to what this test needs.
TORCH = {
    "__init__.py": "from torch import cuda\n",
    "version.py": "__version__ = '2.11.0'\ncuda = '13.0'\n",
    "cuda.py": "import os\ndef get_allocator_backend():\n"
               "    return 'cudaMallocAsync' if 'Async' in os.environ.get('PYTORCH_CUDA_ALLOC_CONF', '') else 'native'\n",
    "_inductor/__init__.py": "",
    "_inductor/cudagraph_trees.py": """\
def cudagraphify_impl(model, inputs, static=(), *, is_backward=False, is_inference=False, mutated_input_idxs=()):
    return lambda given: ['graphs', model, inputs, static, is_backward]
def get_input_idxs_to_check(inputs, static):
    return ['of', inputs, static]
def align_inputs_from_check_idxs(model, inputs_to_check, mutated_input_idxs):
    return lambda given: [model, given, inputs_to_check, sorted(mutated_input_idxs)]
""",
}
COMPILE = """\
import json, os, sys
import torch
is_inference = 'IS_INFERENCE' in os.environ
before = 'torch._inductor.cudagraph_trees' in sys.modules
found = []
for _ in range(2):
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    run = cudagraphify_impl('the model', ['x'], (0,), is_backward=True, is_inference=is_inference, mutated_input_idxs=(2, 1))
    found.append([run(['y']) for _ in range(2)])
import torch._inductor.cudagraph_trees as trees
left = [type(f).__name__ for f in sys.meta_path if 'nimble' in type(f).__module__]
print(json.dumps([before, found, type(trees.__loader__).__name__, trees.__spec__.loader is trees.__loader__, left]))
"""
AS_IT_WAS = [["graphs", "the model", ["x"], [0], True]] * 2
LEFT_OUT = [["the model", ["y"], ["of", ["y"], [0]], [1, 2]]] * 2


@pytest.fixture
def compile_under(build, tmp_path):
    """Runs COMPILE with a PyTorch of a few lines, by `python -m nimble run` with these options, or plainly (None)."""
    for name, text in TORCH.items():
        path = tmp_path / "site" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "script.py").write_text(COMPILE)

    def run(options, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "PYTORCH_", "LD_"))}
        env.update(PYTHONPATH=os.pathsep.join([str(PYTHON), str(tmp_path / "site")]), PYTHONDONTWRITEBYTECODE="1",
                   NIMBLE_LIBRARY=str(build / "lib" / "libnimble.so"), LD_LIBRARY_PATH=str(build / "simcuda"), **variables)
        words = [] if options is None else ["-m", "nimble", "run", *options]
        done = subprocess.run([sys.executable, *words, str(tmp_path / "script.py")], env=env, capture_output=True, text=True,
                              timeout=50)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return run


def test_they_are_left_out_where_nimble_has_memory_come_in_stream_order(compile_under):
    for options in ([], ["--mode", "record", "--trace", "/dev/null"]):
        found, said = compile_under(options)
        assert found == [False, [LEFT_OUT, LEFT_OUT], "SourceFileLoader", True, []]
        assert said.count("nimble: warning: torch.compile's own CUDA graphs") == 1 and "backend:native" in said
        assert "those of training are left out" in said


def test_those_of_inference_where_graphs_are_not_rewritten(compile_under):
    for options, variables in ((["--mode", "record", "--trace", "/dev/null"], {}), ([], {"NIMBLE_TORCH": "off"})):
        found, said = compile_under(options, IS_INFERENCE="1", **variables)
        assert found[1] == [LEFT_OUT, LEFT_OUT] and said.count(": they are left out") == 1


def test_those_of_inference_where_what_they_write_is_not_told(compile_under, tmp_path):
    """As in old releases, where it may include statistics and caches."""
    script = tmp_path / "script.py"
    script.write_text(script.read_text().replace(", mutated_input_idxs=(2, 1)", ""))
    found, said = compile_under([], IS_INFERENCE="1")
    assert found[1] == [[[*LEFT_OUT[0][:3], []]] * 2] * 2 and said.count(": they are left out") == 1


def test_under_auto(compile_under):
    """This PyTorch has no modules to observe, and a message says so."""
    found, said = compile_under(["--mode", "auto"])
    assert found[1] == [LEFT_OUT, LEFT_OUT] and "own CUDA graphs" in said
    # The settings about memory apply without modules, too.
    found, said = compile_under(["--mode", "auto", "--torch", "off"])
    assert found[1] == [LEFT_OUT, LEFT_OUT] and "own CUDA graphs" in said


def test_under_auto_that_leaves_a_pytorch_alone(compile_under, tmp_path):
    """The settings about memory may still apply."""
    (tmp_path / "site" / "torch" / "version.py").write_text("__version__ = '2.0.1'\ncuda = '13.0'\n")
    found, said = compile_under(["--mode", "auto"])
    assert found[1] == [LEFT_OUT, LEFT_OUT] and "too old" in said and "own CUDA graphs" in said


@pytest.mark.parametrize("options, variables", [
    (None, {}), ([], {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}), ([], {"PYTORCH_ALLOC_CONF": "backend:native"}),
    (["--mode", "auto"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
])
def test_they_are_there_with_pytorchs_own_allocator(compile_under, options, variables):
    found, said = compile_under(options, **variables)
    assert found[1] == [AS_IT_WAS, AS_IT_WAS] and "CUDA graphs" not in said


def test_that_nothing_is_said_where_the_user_wants_it(compile_under):
    found, said = compile_under(["--log", "error"])
    assert found[1] == [LEFT_OUT, LEFT_OUT] and said == ""


@pytest.fixture
def trees(monkeypatch):
    """PyTorch's own module, observed, on a machine whose CPU is its GPU."""
    torch = pytest.importorskip("torch", minversion="2.4")  # before, it does not tell what is written
    try:
        found = importlib.import_module(compiled_graphs.MAKER)
    except Exception as error:
        pytest.skip(f"this PyTorch cannot load it: {error}")
    for name in ("cudagraphify_impl", "get_manager"):
        monkeypatch.setattr(found, name, getattr(found, name))
    before = list(sys.meta_path)
    for _ in range(2):
        compiled_graphs.install()
    assert sys.meta_path == before and found.cudagraphify_impl.is_of_nimble
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    for name in _WITH_ALIGNMENT:
        monkeypatch.setattr(importlib.import_module(name), "is_gpu", lambda device: True, raising=False)
    return found


_WITH_ALIGNMENT = ("torch._inductor.compile_fx", "torch._inductor.utils")


@pytest.fixture
def aligns(trees):
    """Where PyTorch checks a tensor's device in a function that can be replaced."""
    if "is_gpu(" not in inspect.getsource(importlib.import_module("torch._inductor.compile_fx").get_input_idxs_to_check):
        pytest.skip("this PyTorch aligns nothing but what is on a GPU")


def cudagraphify(model, **more):
    compile_fx = importlib.import_module("torch._inductor.compile_fx")
    before = {"inputs": []} if "inputs" in inspect.signature(compile_fx.cudagraphify).parameters else {}  # up to 2.4
    return compile_fx.cudagraphify(model, **before, device_index=0, stack_traces=[], **{"is_backward": False, **more})


def test_a_backward(trees):
    """It tells the manager that it begins, and asserts that there is one."""
    manager = trees.get_manager(0, create_if_none_exists=False)
    assert manager is not None and not manager
    manager.set_to_running_backward()


def test_pytorchs_own_module(aligns, capsys):
    """The function still exists, and is the one that the compiler calls."""
    import torch

    ran = []
    run = cudagraphify(lambda inputs: ran.append([t.data_ptr() % 16 for t in inputs]) or "outputs", is_inference=False)
    memory = torch.zeros(16)
    assert run([memory]) == "outputs" and run([memory[1:]]) == "outputs"
    assert ran == [[0], [0]], "kernels may expect it there"
    assert "those of training are left out" in capsys.readouterr().err


def test_graphs_for_inference(aligns, monkeypatch, capsys):
    import torch
    from replaying import ReplayingCapture

    ran = []

    def model(inputs):
        weight, x = inputs
        inputs.clear()
        ran.append(x.data_ptr() % 16)
        return [weight * x]

    backend = ReplayingCapture()
    monkeypatch.setattr("nimble.capture.cuda_capture.CudaCapture", lambda: backend)
    monkeypatch.setattr("nimble.shim.check", lambda: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    in_favour_of_graphs(monkeypatch)
    weight, memory = torch.randn(15), torch.randn(17)
    run = cudagraphify(model, static_input_idxs=(0,), is_inference=True)
    for i in range(12):
        x = memory[i % 3:][:15]
        assert torch.equal(run([weight, x])[0], weight * x)
    assert backend.captures == 1 and len(ran) < 12 and set(ran) == {0}
    assert "own CUDA graphs" not in capsys.readouterr().err


def in_favour_of_graphs(monkeypatch):
    """The timings here are not a GPU's."""
    from nimble.compile import graphed_call

    compare = graphed_call.compare

    def favour(*arguments):
        done = compare(*arguments)
        done.graph_seconds, done.eager_seconds = 1.0, 2.0
        return done

    monkeypatch.setattr(graphed_call, "compare", favour)
