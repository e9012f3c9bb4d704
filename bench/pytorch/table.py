"""PyTorch's inference in eager mode, as a CUDA graph, and as that graph under NIMBLE_GRAPHS=rewrite, side by side.

scripts/pytorch calls this. Needs a GPU, PyTorch with torchvision (and timm for nasnetalarge), and a build."""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

import networks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAYS = ["eager", "graph", "nimble"]
STATES = ["as it is", "trying", "as it is", "rewritten"]
USAGE = """Usage: scripts/pytorch [--build DIR] [--results DIR] [--only NAME,...] [--help]

Runs networks of PyTorch on the GPU at batch 1: eager, as torch.cuda.graph captures them, and the same under
NIMBLE_GRAPHS=rewrite. Checks that all outputs are the same to the bit, and prints medians of 200 runs, each way in a process
of its own. Needs a GPU, PyTorch with torchvision, and a build."""


class Failure(Exception):
    pass


def run(name, way, build):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NIMBLE_")}
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    command = [sys.executable, str(ROOT / "bench/pytorch/inference.py"), name, way]
    if way == "nimble":
        # An allocation of the driver's for each tensor; the variable has two names.
        environment |= {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
        command = [str(build / "bin/nimble"), "run", "--graphs", "rewrite", "--log", "warn", "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode != 0:
        raise Failure(f"{name}, {way}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(results):
    lines = ["| network | eager | graph | Nimble | graph / Nimble | by the clock | streams | prepared in | memory, MiB |",
             "|---" * 9 + "|"]
    for name, ways in results.items():
        times = {way: ways[way]["gpu_us"]["median"] for way in WAYS}
        clock = {way: ways[way]["wall_us"]["median"] for way in WAYS}
        nimble = ways["nimble"]
        streams = nimble["streams"] if nimble["state"] == 3 else STATES[nimble["state"]]
        lines.append(f"| {name} | {times['eager']:.0f} | {times['graph']:.0f} | {times['nimble']:.0f} | "
                     f"{times['graph'] / times['nimble']:.2f} | {clock['graph'] / clock['nimble']:.2f} | {streams} | "
                     f"{nimble['prepare_s']:.1f} s | {ways['graph']['memory_mib']:.0f}, {nimble['memory_mib']:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="pytorch", usage="scripts/pytorch [options]; see scripts/pytorch --help", add_help=False)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(networks.INFERENCE))
    parser.add_argument("--help", "-h", action="store_true")
    options = parser.parse_args()
    if options.help:
        print(USAGE)
        return 0
    names = options.only.split(",")
    if unknown := [name for name in names if name not in networks.INFERENCE]:
        parser.error(f"--only: {unknown[0]} is none of {', '.join(networks.INFERENCE)}")
    results = {}
    try:
        for name in names:
            results[name] = {way: run(name, way, options.build.resolve()) for way in WAYS}
            if len({one["digest"] for one in results[name].values()}) != 1:
                raise Failure(f"{name}: the output is not the same in every way")
            print(f"{name}: " + ", ".join(f"{way} {results[name][way]['gpu_us']['median']:.0f} us" for way in WAYS), flush=True)
    except (Failure, subprocess.TimeoutExpired, json.JSONDecodeError, FileNotFoundError) as error:
        print(f"pytorch: {error}", file=sys.stderr)
        return 1
    text = table(results)
    print("\n" + text)
    if options.results:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                             text=True).stdout.strip()
        torch = next(iter(results.values()))["eager"]["torch"]
        head = (f"# PyTorch's inference at batch 1\n\nDevice: {gpu}; PyTorch {torch}; {datetime.date.today()}. `scripts/pytorch`.\n\n"
                "Microseconds of a call on the GPU, from an event before it to one behind it: medians of 200. `graph` is\n"
                "torch.cuda.graph; `Nimble` the same script under `NIMBLE_GRAPHS=rewrite`, captured twice (docs/nimble.md). Then: how\n"
                "much faster that is than `graph`, by events and by the host's clock until the GPU is done; on how many streams, or\n"
                "that the graph is launched as it is; how long it took to prepare; and what memory the graph took, as `graph` and with\n"
                "Nimble. All outputs are the same to the bit.\n\n")
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"{datetime.date.today()}-pytorch-inference"
        stem.with_suffix(".md").write_text(head + text + "\n")
        stem.with_suffix(".json").write_text(json.dumps({"device": gpu, "results": results}, indent=1) + "\n")
        print(f"\nkept in {stem}.md and .json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
