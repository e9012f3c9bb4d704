#!/usr/bin/env python3
"""Compares a training step on a GPU as two graphs (python/nimble/steps/split_step.py) and as one.

Usage: python -m nimble run bench/pytorch/step_parts.py [--json FILE] [NETWORK:BATCH...]

Both ways of a network in one process, from the same state with the same seed; losses of 50 steps and the state after
them must be the same to the bit. Microseconds by CUDA events: of a step that begins on an idle GPU, and of ten back to
back; by the clock; and the MiB that a way uses. """

import argparse
import json
import sys
import time
from pathlib import Path
from unittest import mock

import measure
import networks
import nimble
import torch
import training
from nimble import shim

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import side_by_side  # noqa: E402

CELLS = ("mobilenet_v2:32", "mobilenet_v2:128", "efficientnet_b0:64", "resnet50:32")
WAYS = {"two graphs": lambda parameters: True, "one graph": lambda parameters: False}


def run(name, batch, gpu):
    """By way: times, memory, the number of graphs of a step, and whether the results equal the other way's."""
    found, curves = {}, []
    for way, is_worth_it in WAYS.items():
        trainer = training.Trainer(*networks.training(name, batch, gpu.type))
        trainer.begin_again()
        taken = measure.Memory(gpu)
        taken.begin()
        with mock.patch("nimble.steps.split_step.is_worth_it", is_worth_it):
            step, whole, _ = training.nimble_step(trainer)
        graphs = [graph for kind in whole._kinds for graph in kind.graphs]
        times = measure.all_times(gpu, step)
        memory = taken.end()
        curves.append(trainer.curve(step))
        found[way] = {**times, "mib": round(memory["after"] - memory["before"]),
                      "parts": [2 if graph._ahead is not None else 1 for graph in graphs]}
    (losses, state), (other_losses, other_state) = curves
    same = all(map(torch.equal, [*losses, *state.values()], [*other_losses, *other_state.values()]))
    return {**found, "same_bits": same}


def lines(found):
    for way in WAYS:
        times = ", ".join(f"{what} {found[way][key]['median']:.0f}" for what, key in
                          (("idle", "gpu_us"), ("in a row", "row_us"), ("by the clock", "wall_us")))
        yield f"{way:10} {times} us, {found[way]['mib']} MiB, parts {found[way]['parts']}"
    yield "the same to the bit" if found["same_bits"] else "NOT THE SAME"


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--json", type=Path, help="writes the figures to this file as well")
    options = parser.parse_args(words)
    figures = {"date": time.strftime("%Y-%m-%d"), "device": side_by_side.device(), "torch": torch.__version__,
               "nimble": nimble.__version__, "library": "loaded" if shim.is_loaded() else "not loaded",
               "allocator": getattr(torch.cuda, "get_allocator_backend", lambda: "native")(), "cells": {}}
    for cell in options.cells:
        name, batch = cell.split(":")
        figures["cells"][cell] = found = run(name, int(batch), measure.Gpu())
        for line in lines(found):
            print(f"{cell:20} {line}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
