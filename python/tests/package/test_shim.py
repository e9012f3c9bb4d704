"""The bindings, in real processes: under libnimble.so and the simulated driver, and without them."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nimble import shim
from nimble.version import VERSION

TESTS = Path(__file__).resolve().parent.parent
CHECK = "from nimble import shim\nprint(shim.is_loaded())\nshim.check()\nprint('fine')"


def python(build, *arguments, preload=True, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_"))}
    env.update(PYTHONPATH=str(TESTS.parent), LD_LIBRARY_PATH=str(build / "simcuda"), PYTHONDONTWRITEBYTECODE="1",
               LD_PRELOAD=str(build / "lib" / "libnimble.so") if preload else "", NIMBLE_LOG="warn",
               **{"NIMBLE_TRUST": "observed", **variables})  # what kernels do can only be seen
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=50)


def test_a_program_that_learns(build):
    done = python(build, str(TESTS / "driver_program.py"), str(build / "bin" / "opaque.simcuda"), NIMBLE_GRAPHS="rewrite",
                  NIMBLE_TUNE="off")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["version"] == [int(re.search(r"NIMBLE_API_VERSION (\d+)", header()).group(1)), VERSION] and said["loaded"] and said["none"] and said["gone"] and said["same"]
    assert said["again"] == [False, True] and said["kept"] == [False, True, "KEPT"]
    none = [True, False, False, False]
    assert said["watched"] == [[True, True, True, False], [True, True, False, False], none, none]
    assert said["nested"].startswith("nimble_learn_begin: invalid argument")
    assert said["settled"] == [[True, 1], [False, 0], [False, 0], [False, 0], [True, 1]]
    assert said["rehearsed"][:7] == [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0], "failed", ["returned", [1, 0]]] and said["rehearsed"][8:] == [0, 1, 0]
    assert said["rehearsed"][7].startswith("nimble_rehearse_begin: invalid argument")
    assert said["eager"] == said["replayed"] == said["by itself"] != said["once"]
    unknown, refused, stale = shim.Result.INVALID_ARGUMENT, shim.Result.REFUSED, shim.Result.STALE
    assert said["launched"] == [unknown, refused, 0, refused, 0, 0, stale, stale]
    state, nodes, streams, own_us, rewritten_us, text = said["status"]
    assert (state, nodes, own_us, rewritten_us, text) == ("REWRITTEN", 7, None, None, "") and streams >= 2
    parts = said["parts"]
    assert parts["again"] and parts["replayed"] == parts["eager"]
    assert [(nodes, text) for nodes, _, text in parts["status"]] == [(4, ""), (4, "")] and parts["status"][0][1] >= 2
    assert parts["writes"] == [True, True, False, False, False, False, True, False]
    assert parts["only seen to be read"] == [False, False]
    assert parts["to the host"] == [True, False]
    assert parts["idle"][1:] == [True, False, False]
    assert parts["fails"] and "its plan" not in parts["other"]


def test_communication_cannot_be_undone(build, tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text('{"nimble_rules": 3, "rules": [{"kernel": "advance", "communicates": true}]}')
    done = python(build, str(TESTS / "driver_program.py"), str(build / "bin" / "opaque.simcuda"), NIMBLE_GRAPHS="rewrite",
                  NIMBLE_TUNE="off", NIMBLE_RULES=str(rules))
    assert done.returncode == 0, done.stderr
    assert not any(json.loads(done.stdout)["parts"]["writes"])


def test_both_executables_are_timed(build):
    script = ("import sys, runpy\n"
              "from nimble import shim\n"
              f"sys.path.insert(0, {str(TESTS)!r})\n"
              "import driver_program as p\n"
              "launch = p.CU.cuGraphLaunch\n"
              "class Often:\n"
              "    def __getattr__(self, name): return getattr(p.ctypes.CDLL('libcuda.so.1'), name)\n"
              "    def cuGraphLaunch(self, graph, stream):\n"
              "        for _ in range(60):\n"
              "            assert launch(graph, stream) == 0 and self.cuStreamSynchronize(stream) == 0\n"
              "        return 0\n"
              "p.CU = Often()\n"
              f"p.main({str(build / 'bin' / 'opaque.simcuda')!r})\n")
    done = python(build, "-c", script, NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="start")
    assert done.returncode == 0, done.stderr
    state, _, _, own_us, rewritten_us, _ = json.loads(done.stdout)["status"]
    assert state in ("OWN", "REWRITTEN") and own_us > 0 and rewritten_us > 0


def test_it_is_there_with_the_package(build):
    done = python(build, "-c", "import nimble; print(nimble.shim.is_loaded())", preload=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("preload, variables, said", [
    (True, {}, "rewrites no graphs: NIMBLE_MODE is not set, NIMBLE_GRAPHS is not set"),
    (True, {"NIMBLE_GRAPHS": "rewrite", "NIMBLE_MODE": "record", "NIMBLE_TRACE": "/dev/null"},
     "NIMBLE_MODE is record, NIMBLE_GRAPHS is rewrite (`nimble run` records if told no mode)"),
    (False, {"NIMBLE_GRAPHS": "rewrite"}, "libnimble.so is not in this process"),
])
def test_check_says_what_to_type(build, preload, variables, said):
    done = python(build, "-c", CHECK, preload=preload, **variables)
    assert done.returncode == 1 and "NotLoadedError" in done.stderr and said in done.stderr
    assert "run it as: python -m nimble run script.py" in done.stderr
    assert done.stdout.split() == [str(preload)]


def test_check_is_quiet_where_all_is_there(build):
    done = python(build, "-c", CHECK, NIMBLE_GRAPHS="rewrite")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True", "fine"], "")


def test_memory_of_the_host_is_not_watched(monkeypatch):
    """The driver does not know it, and the device's would count as gone."""
    torch = pytest.importorskip("torch")
    from nimble.capture.cuda_capture import CudaCapture

    asked = []
    monkeypatch.setattr(shim, "MemoryWatch", lambda addresses: asked.extend(addresses) or "watch")
    assert CudaCapture().watch_memory([torch.zeros(3)]) == "watch" and asked == []


def header():
    return (TESTS.parent.parent / "include" / "nimble" / "nimble.h").read_text(encoding="utf-8")


def test_enumerations_are_those_of_the_header():
    for kind, prefix in ((shim.Result, "NIMBLE_"), (shim.GraphState, "NIMBLE_GRAPH_")):
        name = {"Result": "nimble_result", "GraphState": "nimble_graph_state"}[kind.__name__]
        body = re.search(rf"typedef enum {name} {{(.*?)}}", header(), re.DOTALL).group(1)
        values = {n: int(v) for n, v in re.findall(rf"{prefix}(\w+) = (\d+)", body)}
        assert values == {member.name: int(member) for member in kind}


def test_the_structure_is_that_of_the_header(tmp_path):
    """By the C compiler, where there is one."""
    fields = [name for name, _ in shim.CGraphStatus._fields_]
    source = tmp_path / "layout.c"
    prints = "".join(f'printf("%zu ", offsetof(nimble_graph_status, {f}));' for f in fields)
    source.write_text(f'#include <stdio.h>\n#include "nimble/nimble.h"\nint main(void) {{{prints}'
                      'printf("%zu", sizeof(nimble_graph_status)); return 0;}')
    compiler = os.environ.get("CC", "cc")
    try:
        subprocess.run([compiler, "-I", str(TESTS.parent.parent / "include"), str(source), "-o", str(tmp_path / "layout"),
                        "-ldl"], check=True, timeout=50)
    except FileNotFoundError:
        pytest.skip(f"no C compiler {compiler}")
    seen = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True, timeout=10).stdout.split()
    offsets = [getattr(shim.CGraphStatus, f).offset for f in fields] + [ctypes.sizeof(shim.CGraphStatus)]
    assert list(map(int, seen)) == offsets


def test_a_session_that_has_started_decides(build):
    """Whatever the environment says by then; nimble.auto restores it immediately."""
    script = ("import os\nfrom nimble import shim\n"
              "os.environ.update(NIMBLE_MODE='off', NIMBLE_GRAPHS='rewrite')\nshim.check()\n"
              "os.environ.update(NIMBLE_MODE='auto')\ndel os.environ['NIMBLE_GRAPHS']\n"
              "with shim.learning(): pass\nprint(shim.capture_again(), shim.get_graph(), shim.keep_graph())")
    done = python(build, "-c", script, NIMBLE_MODE="auto")
    assert (done.returncode, done.stdout.split()) == (0, ["False", "None", "False"]), done.stderr


def test_a_child_has_a_session_of_its_own(build):
    """Not its parent's, whose threads it does not have: there it does not learn."""
    script = ("import ctypes, os\nfrom nimble import shim\nfrom nimble.errors import NimbleError\n"
              "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
              "with shim.learning(): pass\n"
              "with shim.learning():\n    pid = os.fork()\n    if not pid:\n        try:\n"
              "            shim._checked('nimble_learn_end')\n        except NimbleError:\n            os._exit(3)\n"
              "        os._exit(0)\n"
              "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
    done = python(build, "-c", script, NIMBLE_GRAPHS="rewrite")
    assert (done.returncode, done.stdout.split()) == (0, ["3"]), done.stderr
