#!/usr/bin/env python3
"""The cost of observing each call of a module under NIMBLE_MODE=auto: nimble.auto, without a GPU.

Usage: auto_calls.py [--json FILE]

Needs PyTorch 2.5 or later, but not libnimble.so. Median nanoseconds of a call, over rounds that alternate with those of
plain PyTorch, so that a busy machine slows both.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / "python"
sys.path[:0] = [str(PYTHON), str(PYTHON / "tests")]

import torch  # noqa: E402
from torch import nn  # noqa: E402
from nimble import settings  # noqa: E402
from nimble.auto import calls  # noqa: E402
from nimble.auto.traced_guard import TracedModuleGuard  # noqa: E402
from nimble.guards import switches  # noqa: E402
from nimble.guards.signatures import Call  # noqa: E402
from nimble.nesting import nesting  # noqa: E402
from nimble.objects.python_trace import TracedRun  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402

ROUNDS = 41


def seconds(function, count):
    began = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - began) / count


def medians(functions, count):
    """Nanoseconds of each, alternating."""
    times = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            times[name].append(seconds(function, count))
    return {name: round(statistics.median(each) * 1e9) for name, each in times.items()}


def network(blocks):
    """Like a residual network: three modules per layer."""
    layers = []
    for number in range(blocks):
        layers += [nn.Conv2d(8 if number else 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers).eval()


class Both:
    """torch.nn.Module.__call__, plain or observed."""

    def __init__(self):
        plain = nn.Module.__call__
        calls.install(settings.Settings())
        self.ways = {"plain": plain, "looked at": nn.Module.__call__}

    def under(self, way, function):
        def run():
            nn.Module.__call__ = self.ways[way]
            function()
        return run


def calls_of(both, prepare, module, argument, count=2000):
    """A call of an empty module, after `prepare`, both ways."""
    def loop():
        for _ in range(count):
            module(argument)

    functions = {}
    for way in both.ways:
        run = both.under(way, loop)

        def timed(run=run):
            prepare(1)
            run()
            prepare(0)
        functions[way] = timed
    return {way: round(each / count) for way, each in medians(functions, 1).items()}


def served(blocks):
    """(until its graph would be launched, in total) of a call that a graph serves: a fake's, which notes its launch."""
    backend = ReplayingCapture()
    calls.install(settings.Settings(), backend, clock=lambda: 0.0)
    net, image, launched, times = network(blocks), torch.ones(1, 3, 8, 8), [], []
    for _ in range(8):  # until it has been compared
        net(image)
    backend_replays = backend.replays
    ((_, of_net),) = calls.auto_of_process[-1][0]._modules.values()
    for graph in of_net.graphs():
        graph._captured.replay = lambda: launched.append(time.perf_counter())
    for _ in range(ROUNDS * 5):
        began = time.perf_counter()
        net(image)
        times.append((launched.pop() - began, time.perf_counter() - began))
    assert backend.replays == backend_replays and not launched
    calls.uninstall()
    return [round(statistics.median(each) * 1e9) for each in zip(*times)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="writes the figures to this file as well")
    words = parser.parse_args()
    torch.set_num_threads(1)
    x, identity = torch.ones(1), nn.Identity().eval()
    both = Both()

    def nested(on):
        nesting.depth = on

    found = {"a call within another": calls_of(both, nested, identity, x),
             "an outermost call with arguments on the CPU": calls_of(both, lambda _: None, identity, x),
             "an outermost call in training mode": calls_of(both, lambda _: None, nn.Identity().train(), [1.0])}
    calls.uninstall()
    with torch.no_grad():
        image = torch.ones(1, 3, 8, 8)
        parts = {"signature of a call with one tensor": lambda: Call((image,), {}, False), "PyTorch's switches": switches.state,
                 "the context of the call": switches.why_eager}
        for blocks in (1, 18, 53, 333):
            net = network(blocks)
            guard = TracedModuleGuard(net, "cpu", TracedRun())
            assert guard.difference() is None
            parts[f"guard of {len(list(net.modules()))} modules"] = lambda guard=guard, net=net: guard.difference()  # it holds no module
        found["parts of a call that a graph serves"] = medians(parts, 20)
        whole = found["a call that a graph serves"] = {}
        for blocks in (1, 18, 53, 333):
            whole[f"{3 * blocks + 1} modules, until the launch"], whole[f"{3 * blocks + 1} modules, in all"] = served(blocks)
    print(f"{platform.machine()}, Python {platform.python_version()}, PyTorch {torch.__version__}; median ns")
    for what, times in found.items():
        print(what)
        for name, each in times.items():
            print(f"  {name:44} {each:>9,}")
    if words.json:
        figures = {"date": time.strftime("%Y-%m-%d"), "device": "none", "cores": os.cpu_count(),
                   "python": platform.python_version(), "torch": torch.__version__, "median_ns": found}
        Path(words.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
