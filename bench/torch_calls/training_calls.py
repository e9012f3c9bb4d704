#!/usr/bin/env python3
"""The host's time of training through graphs until the GPU has its work: nimble.Nimble's forward and nimble.step,
without a GPU.

Usage: training_calls.py [--json FILE] [NETWORK...]

Needs PyTorch 2.1 or later with torchvision, but not libnimble.so: graphs are the tests' fakes, which note when they
would be launched. Median microseconds of a call, over rounds with the caches as the previous step left them. """

import argparse
import functools
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("python", "python/tests", "bench/pytorch")]

import torch  # noqa: E402
import fake  # noqa: E402
import networks  # noqa: E402
import replaying  # noqa: E402
from nimble.api.module import Nimble  # noqa: E402
from nimble.steps import steps  # noqa: E402

ROUNDS = 60
NETWORKS = ("mobilenet_v2", "resnet50")


class Launches:
    """When the first graph of a call would have been launched."""

    def __init__(self, graphs):
        self.at = None
        for graph in graphs:
            graph.replay = self.note

    def note(self):
        self.at = self.at or time.perf_counter()


def measure(launches, call, between):
    """(until the launch, in total), in microseconds."""
    until, whole = [], []
    for _ in range(ROUNDS):
        between()
        launches.at = None
        began = time.perf_counter()
        call()
        ended = time.perf_counter()
        until.append((launches.at - began) * 1e6)
        whole.append((ended - began) * 1e6)
    return {"until the launch": round(statistics.median(until)), "in all": round(statistics.median(whole))}


def trained(name):
    net = networks.build(name, num_classes=networks.CLASSES).train()
    return net, torch.randn(2, 3, 32, 32), torch.randint(networks.CLASSES, (2,))


def step(name, optimizer_of=functools.partial(torch.optim.SGD, lr=0.01), is_idle=False):
    """On an idle GPU its first part precedes the check, else nothing does."""
    net, images, labels = trained(name)
    optimizer, loss_of, backend = optimizer_of(net.parameters()), torch.nn.CrossEntropyLoss(), replaying.ReplayingCapture()
    backend.idle = is_idle

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = steps.step(train, modules=[net], optimizers=[optimizer], backend=backend)
    for _ in range(6):
        call()
    return measure(Launches([graph for graphs in backend.recorded for graph in graphs]), call, lambda: None)


def step_on_an_idle_gpu(name):
    return step(name, is_idle=True)


def step_with_momentum(name):
    return step(name, functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9))


def step_with_adam(name):
    return step(name, functools.partial(torch.optim.Adam, lr=0.01))


def forward(name):
    net, images, _ = trained(name)
    backend = fake.FakeCapture()
    model = Nimble(net, backend=backend).prepare(images, training=True)
    (own,), _ = model.static_inputs(images)
    outputs = []

    def between():
        for output in outputs:
            output.sum().backward()
        outputs.clear()

    for _ in range(3):
        outputs.append(model(own))
        between()
    return measure(Launches(backend.graphs), lambda: outputs.append(model(own)), between)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--json", help="writes the figures to this file as well")
    words = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    print(f"{platform.machine()}, Python {platform.python_version()}, PyTorch {torch.__version__}; median us")
    for name in words.networks:
        for what, way in (("nimble.step", step), ("nimble.step, GPU idle", step_on_an_idle_gpu), ("nimble.step, momentum", step_with_momentum), ("nimble.step, Adam", step_with_adam),
                          ("Nimble, forward", forward)):
            found[f"{name}, {what}"] = times = way(name)
            print(f"  {name + ', ' + what:36}", ", ".join(f"{part} {us}" for part, us in times.items()))
    if words.json:
        figures = {"date": time.strftime("%Y-%m-%d"), "device": "none", "cores": os.cpu_count(),
                   "python": platform.python_version(), "torch": torch.__version__, "median_us": found}
        Path(words.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
