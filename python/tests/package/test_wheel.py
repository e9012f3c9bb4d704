"""scripts/wheel, and its wheel in an empty environment: the commands, the library, and the files that they find beside
them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TESTS = Path(__file__).resolve().parent.parent


def clean(**variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NIMBLE_", "SIMCUDA_", "PYTORCH_", "LD_", "PYTHONPATH"))}
    env.update(PYTHONDONTWRITEBYTECODE="1", **variables)
    return env


def can(*modules):
    done = subprocess.run([sys.executable, "-c", "import " + ", ".join(modules)], capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="module")
def environment(build, tmp_path_factory):
    """The folder of commands of an environment with only the wheel."""
    if not (can("setuptools", "pip", "venv", "ensurepip")
            and (can("setuptools.command.bdist_wheel") or can("wheel.bdist_wheel"))):
        pytest.skip(f"{sys.executable} lacks pip, venv, or what makes wheels")
    for tool in ("bin/nimble-analyze", "bin/nimble-replay"):
        if not (build / tool).is_file():
            pytest.skip(f"{tool} is not built")
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run([str(ROOT / "scripts" / "wheel"), "--no-build", "--build", str(build), "--out", str(folder)],
                          env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=250)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith("nimble_cuda-") and "-py3-none-linux_" in wheel.name
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True, env=clean(), timeout=250)
    pip = [str(folder / "env/bin/python"), "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", str(wheel)], check=True, env=clean(), timeout=250)
    return folder / "env" / "bin"


def run(*words, cwd, **variables):
    done = subprocess.run(list(map(str, words)), env=clean(**variables), capture_output=True, text=True, timeout=100, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def seen(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_the_commands(environment, tmp_path):
    package = Path(run(environment / "python", "-c", "import nimble; print(nimble.__path__[0])", cwd=tmp_path).strip())
    assert package.is_relative_to(environment.parent.resolve()) or package.is_relative_to(environment.parent)
    assert str(package / "lib" / "libnimble.so") in run(environment / "nimble", "--version", cwd=tmp_path)
    env = seen(run(environment / "nimble", "run", "--mode", "auto", "--", "env", cwd=tmp_path))
    assert env["LD_PRELOAD"] == str(package / "lib" / "libnimble.so") and env["PYTHONPATH"] == str(package / "startup")
    (tmp_path / "script.py").write_text("import os, sys\nfor item in os.environ.items(): print('%s=%s' % item)\n"
                                        "print('python=' + sys.executable)\n")
    env = seen(run(environment / "python", "-m", "nimble", "run", "script.py", cwd=tmp_path))
    assert env["LD_PRELOAD"] == str(package / "lib" / "libnimble.so") and env["NIMBLE_GRAPHS"] == "rewrite"
    assert env["python"] == str(environment / "python")


def test_the_library_and_the_analyzer(environment, build, tmp_path):
    script = "from nimble import shim; shim.check(); print(shim.version()[1])"
    (tmp_path / "script.py").write_text(script)
    said = run(environment / "python", "-m", "nimble", "run", "script.py", cwd=tmp_path, LD_LIBRARY_PATH=str(build / "simcuda"))
    assert said == run(environment / "python", "-c", "import nimble; print(nimble.__version__)", cwd=tmp_path)
    assert "at::native" in run(environment / "nimble-analyze", "--print-rules", cwd=tmp_path)
    run(environment / "nimble", "run", "--", build / "bin" / "chaos", "40", "1", cwd=tmp_path,
        LD_LIBRARY_PATH=str(build / "simcuda"))
    run(environment / "nimble-analyze", "trace.json", cwd=tmp_path)
    assert "a step of" in run(environment / "nimble", "check", "schedule.json", cwd=tmp_path).lower()
    assert "bundle" in run(environment / "nimble-replay", "--help", cwd=tmp_path)


def test_the_backend_of_torch_compile(environment, tmp_path):
    """PyTorch finds it with no import."""
    said = run(environment / "python", "-c", "from importlib import metadata as m; print(m.distribution('nimble-cuda').entry_points)", cwd=tmp_path)
    assert "name='nimble', value='nimble_cuda:backend', group='torch_dynamo_backends'" in said
    if not can("torch"):
        return
    (site,) = (environment.parent / "lib").glob("python*/site-packages")
    (tmp_path / "script.py").write_text("import torch\nf = torch.compile(torch.relu, backend='nimble')\n"
                                        "print(f(torch.ones(1)))\nimport nimble; print(nimble.report()[0].as_traced, nimble.__file__)\n"
                                        "try: torch.compile(torch.relu, backend='nimble', options={'a': 1})(torch.ones(2))\n"
                                        "except Exception as error: print(error)\n")
    said = run(sys.executable, "script.py", cwd=tmp_path, PYTHONPATH=str(site))
    assert "tensor([1.])" in said and "libnimble.so is not in this process" in said and str(site) in said
    assert "the backend nimble has no option 'a'" in said


def test_another_projects_package_is_named(environment, tmp_path):
    """PyPI's `nimble` is not ours, and may come first, or have replaced it."""
    other = tmp_path / "other" / "nimble"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    for words in (["nimble", "--version"], ["nimble-analyze", "--help"], ["python", "-c", "from nimble_cuda import backend"]):
        done = subprocess.run([str(environment / words[0]), *words[1:]], env=clean(PYTHONPATH=str(other.parent)), capture_output=True,
                              text=True, timeout=100, cwd=tmp_path)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1 and f"finds another project's package ({other}/__init__.py)" in last, done.stderr
        assert "pip uninstall nimble && pip install --force-reinstall nimble-cuda" in last


def test_pytorch_of_another_environment(environment, build, tmp_path):
    """The launcher's package is found by its location, where the program's Python does not have it."""
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("from nimble import shim\nshim.check()\nprint(shim.__file__)\n")
    (torch / "version.py").write_text("__version__ = '2.11.0'\ncuda = '13.0'\n")
    said = run(environment / "nimble", "run", "--mode", "auto", "--", sys.executable, "-c", "import torch", cwd=tmp_path,
               PYTHONPATH=str(tmp_path / "site"), LD_LIBRARY_PATH=str(build / "simcuda"))
    assert Path(said.strip()).resolve().is_relative_to(environment.parent.resolve())


def test_an_editable_install_beside_a_folder_of_the_name(tmp_path):
    """With a folder named like a checkout: the package is found before it."""
    if not (can("setuptools.build_meta") and (can("setuptools.command.bdist_wheel") or can("wheel.bdist_wheel"))):
        pytest.skip(f"{sys.executable} lacks what makes wheels")
    source = tmp_path / "source"
    source.mkdir()
    for each in ("pyproject.toml", "setup.py"):
        shutil.copy(TESTS.parent / each, source)
    shutil.copytree(TESTS.parent / "nimble", source / "nimble", ignore=shutil.ignore_patterns("lib", "bin", "__pycache__"))
    run(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_editable('.')", cwd=source)
    (wheel,) = source.glob("*.whl")
    (tmp_path / "site").mkdir()
    run(sys.executable, "-m", "zipfile", "-e", wheel, tmp_path / "site", cwd=tmp_path)
    (tmp_path / "nimble").mkdir()
    (tmp_path / "script.py").write_text(f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n"
                                        "import nimble; print(nimble.__file__)\n")
    found = run(sys.executable, tmp_path / "script.py", cwd=tmp_path).strip()
    assert found == str(source / "nimble" / "__init__.py")
