"""Random kernels compiled for several architectures, and what the oracle says of them."""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_choice_kernels  # noqa: E402
import make_index_kernels  # noqa: E402
import make_kernels  # noqa: E402

# Of kernels that are made for each virtual architecture: for which ones they are compiled. 91 is 90a.
ARCHS = {75: (75, 90, 120), 80: (80, 90), 90: (90, 120), 91: (91,), 100: (100, 120)}


def run(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def name_of(arch):
    return "90a" if arch == 91 else str(arch)


def write_kernels(folder, seed, count, level=75):
    make_kernels.write(folder, seed, count, level)


def write_index_kernels(folder, seed, count):
    make_index_kernels.write(folder, seed, count)


def write_choice_kernels(folder, seed, count):
    make_choice_kernels.write(folder, seed, count)


def compile_kernels(nvcc, folder, archs=None, source=None, ptx_arch=75):
    """PTX of kernels.cu, or of another source, and machine code that is made of this PTX, each in a file."""
    archs = archs or ARCHS[ptx_arch]
    source = source or os.path.join(folder, "kernels.cu")
    ptxas = os.path.join(os.path.dirname(os.path.realpath(nvcc)), "ptxas")
    ptx = os.path.join(folder, "kernels.ptx")
    run([nvcc, "-w", "-std=c++17", "-ptx", f"-arch=compute_{name_of(ptx_arch)}", source, "-o", ptx])
    cubins = []
    for arch in archs:
        cubins.append(os.path.join(folder, f"kernels_{arch}.cubin"))
        run([ptxas, "-w", f"-arch=sm_{name_of(arch)}", ptx, "-o", cubins[-1]])
    return ptx, cubins


class Answer:
    def __init__(self, done):
        lines = done.stdout.splitlines()
        if done.returncode not in (0, 1) or not lines:
            raise RuntimeError(f"the oracle ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        self.counts = json.loads(lines[-1])
        self.wrong = [line for line in lines if line.startswith("WRONG")]
        self.differences = [line for line in lines if re.match(r"\S+ sm_\d+: (wider|narrower)", line)]


def ask(oracle, folder, ptx, cubins, runs, mutations=0, seed=1):
    layout = os.path.join(folder, "kernels.txt")
    words = [oracle, "--ptx", ptx, "--runs", str(runs), "--mutations", str(mutations), "--seed", str(seed)]
    if os.path.exists(layout):
        words += ["--layout", layout]
    return Answer(subprocess.run(words + cubins, capture_output=True, text=True, check=False))
