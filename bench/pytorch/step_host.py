#!/usr/bin/env python3
"""The host's time for a training step, by its parts, until everything is submitted: make_graphed_callables, and nimble.Nimble.

Usage: bench/pytorch/step_host.py [--build DIR] [--json FILE] [--rounds N] [--profile] [NETWORK:BATCH...]

Each way in a separate process, with and without libnimble.so, with PyTorch's own allocator and with the one that Nimble needs.
They take turns on the same four cores, each many times, since processes differ by a third on shared machines: median microseconds
of steps that begin on an idle GPU. If the GPU is faster, the host determines a step's time. --profile also shows, by PyTorch's
profiler, where the host's time goes: operators, nodes of autograd and calls of the CUDA runtime. Needs a GPU, PyTorch and
torchvision.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import side_by_side  # noqa: E402
from side_by_side import DRIVER_ALLOCATIONS, ROOT  # noqa: E402

CELLS = ("mobilenet_v2:32", "efficientnet_b0:32", "resnet50:32")
PARTS = ("zero_grad", "forward", "loss", "backward", "optimizer")
CORES = 4  # for the program's thread, autograd's, and libnimble.so's writer
DECIDED, ROUNDS, STEPS = 150, 20, 30
PATIENCE = 300  # seconds, to prepare
MOST = 20  # rows of a profile


class Condition(NamedTuple):
    """`way`: from ways.py."""

    way: str
    nimble: bool = False
    settings: dict = {}


NATIVE = {"PYTORCH_ALLOC_CONF": "backend:native", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
CONDITIONS = {
    "make_graphed_callables": Condition("callables", settings=NATIVE),
    "the same, cudaMallocAsync": Condition("callables", settings=DRIVER_ALLOCATIONS),
    "and libnimble.so, full": Condition("callables", True, {"NIMBLE_AUTO_LIMIT": "1"}),
    "and libnimble.so": Condition("callables", True),
    "Nimble, one stream": Condition("nimble-one", True),
    "Nimble": Condition("nimble", True),
}


# ---- the timed process ----

def step(trainer):
    """Seconds of each of the parts."""
    times = [time.perf_counter()]
    trainer.optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter())
    outputs = trainer.forward(trainer.images)
    times.append(time.perf_counter())
    loss = trainer.loss_of(outputs, trainer.labels)
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    trainer.optimizer.step()
    times.append(time.perf_counter())
    return [end - begin for begin, end in zip(times, times[1:])]


def profile(trainer, gpu):
    """The largest shares of the host's time in a step: (name, calls per step, microseconds per step excluding callees)."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu.type == "cuda" else [])]
    with profiler(activities=kinds) as found:
        for _ in range(STEPS):  # back to back: waits for the GPU show
            step(trainer)
        gpu.synchronize()
    rows = [(row.key, row.count / STEPS, row.self_cpu_time_total / STEPS) for row in found.key_averages() if row.self_cpu_time_total]
    return sorted(rows, key=lambda row: -row[2])[:MOST]


def take_turns(name, batch, way, gpu, turns, decided=DECIDED):
    """Prints that it is ready, and for each of `turns` the steps' parts, in seconds, and its configuration; or their
    profile."""
    import networks
    import torch
    import training
    import ways
    from nimble import shim

    facts = {"torch": torch.__version__, "library": shim.is_loaded(),
             "allocator": getattr(torch.cuda, "get_allocator_backend", lambda: "native")()}
    trainer = training.Trainer(*networks.training(name, batch, gpu.type))
    training.warm(trainer.step, training.WARM)
    trainer.begin_again()
    trainer.optimizer.zero_grad(set_to_none=True)
    training.prepare(ways.way("training", way), trainer)
    for _ in range(decided):
        step(trainer)
        gpu.synchronize()
    print("\nready", flush=True)
    for turn in turns:
        if turn.strip() == "profile":
            print(json.dumps({"profile": profile(trainer, gpu)}), flush=True)
            continue
        step(trainer)  # warms the caches, like a previous step
        found = []
        for _ in range(STEPS):
            gpu.synchronize()
            found.append(step(trainer))
        print(json.dumps({**facts, "steps": found}), flush=True)


# ---- the controlling process ----

def start(cell, condition, build):
    """Starts a process that waits for its turns, all on the cores of this one."""
    env = side_by_side.environment(**condition.settings, PYTHONWARNINGS="ignore",
                                   PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])))
    command = [sys.executable]
    if condition.nimble:
        env["NIMBLE_LIBRARY"] = str(build / "lib/libnimble.so")
        command += ["-m", "nimble", "run", "--log", "warn"]
    return side_by_side.start([*command, __file__, "--turns", condition.way, cell], env, waits=True)


def turn(process, word="go"):
    """Its output for one turn. ValueError where it has ended."""
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def run(cell, build, rounds, profiled=False):
    """By condition: median microseconds of each part and of their sum, its configuration, and a profile if requested."""
    processes, facts = {}, {}
    try:
        for title, condition in CONDITIONS.items():  # sequentially: nothing disturbs libnimble.so's decisions
            processes[title] = start(cell, condition, build)
            if not side_by_side.wait_for_ready(processes[title], PATIENCE):
                raise ValueError("it is not ready")
        steps = {title: [] for title in processes}
        for _ in range(rounds):
            for title, process in processes.items():
                found = turn(process)
                steps[title] += found.pop("steps")
                facts[title] = found
        if profiled:  # after all timed steps
            for title, process in processes.items():
                facts[title].update(turn(process, "profile"))
    except (ValueError, OSError):
        done = side_by_side.finish(processes.pop(title), 10)
        raise side_by_side.Failure(f"{cell}, {title}: {done.errors}") from None
    finally:
        for process in processes.values():
            side_by_side.give_up(process)
    return {title: {**facts[title], "us": medians(of_it)} for title, of_it in steps.items()}


def medians(steps):
    """Medians in microseconds, from steps' parts in seconds."""
    return {part: statistics.median(times) * 1e6 for part, times in zip((*PARTS, "all"), zip(*(
        [*parts, sum(parts)] for parts in steps)))}


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--json", type=pathlib.Path, help="writes the figures to this file as well")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: 1 or more")
    for cell in options.cells:
        if not cell.partition(":")[2].isdecimal():
            parser.error(f"{cell}: a network and a batch are NETWORK:BATCH, as {CELLS[0]}")
    if options.turns:
        import measure

        name, batch = options.cells[0].split(":")
        return take_turns(name, int(batch), options.turns, measure.Gpu(), sys.stdin)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    figures = {"date": time.strftime("%Y-%m-%d"), "device": side_by_side.device(), "rounds": options.rounds, "cells": {}}
    for cell in options.cells:
        figures["cells"][cell] = found = run(cell, options.build.resolve(), options.rounds, options.profile)
        for title, each in found.items():
            print(f"{cell:20} {title:26} " + ", ".join(f"{part} {us:.0f}" for part, us in each["us"].items()), flush=True)
            for name, times, us in each.get("profile", ()):
                print(f"{us:12.1f} us {times:8.1f} times  {name}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except side_by_side.Failure as failure:
        sys.exit(f"step_host: {failure}")
