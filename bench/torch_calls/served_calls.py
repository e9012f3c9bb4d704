#!/usr/bin/env python3
"""The host's time of a call that a graph serves, by the number of parameters: of a function of torch.compile(backend="nimble"), and of
nimble.Nimble.

Usage: served_calls.py [--package DIR] [--json FILE] [PARAMETERS...]

Needs PyTorch 2.5 or later. Where there is a GPU and libnimble.so is loaded (nimble run -- served_calls.py), graphs are real, and so is
the comparison with torch.cuda.CUDAGraph.replay(); else they are fakes whose replay does nothing, and the time is all of Nimble's
own. --package names the python/ of another checkout, to measure that one in the same way. Microseconds: median and fastest of rounds,
each the mean of a few calls, after which the GPU is waited for.

`runner`: what Dynamo calls, given the arguments. `compiled`: the program's whole call, with Dynamo's guards. `Nimble`: a call whose
argument is copied. `Nimble, static`: one of the graph's own memory, so nothing is copied, and outputs are not either.
`replay`: CUDAGraph.replay() of the same graph."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

ROUNDS, CALLS = 61, 20
PARAMETERS = (10, 200, 1000)


class Network:
    """Functions that need the package, which is imported once it is known where from."""

    def __init__(self, torch, is_real):
        self.torch, self.is_real = torch, is_real
        self.device = "cuda" if is_real else "cpu"

    def backend(self):
        if self.is_real:
            from nimble.graphs.capture import CudaCapture
            return CudaCapture()
        from replaying import ReplayingCapture

        class Capture(ReplayingCapture):
            graphs = []

            def capture(self, *arguments, **more):
                self.graphs.append(super().capture(*arguments, **more))
                return self.graphs[-1]

        return Capture()

    def without_work(self, backend):
        """Replays do nothing from now on, where they are fakes."""
        if self.is_real:
            return
        for graph in backend.graphs:
            graph.replay = lambda: None
            graph.launch = bool

    def made(self, parameters):
        nn = self.torch.nn
        return nn.Sequential(*[nn.Linear(4, 4) for _ in range(parameters // 2)]).eval().to(self.device)

    def wait(self):
        if self.is_real:
            self.torch.cuda.synchronize()

    def times(self, function):
        times = []
        for _ in range(ROUNDS):
            self.wait()
            began = time.perf_counter()
            for _ in range(CALLS):
                function()
            times.append((time.perf_counter() - began) / CALLS)
        self.wait()
        return {"median": round(statistics.median(times) * 1e6, 2), "fastest": round(min(times) * 1e6, 2)}


def compiled(network, parameters):
    from nimble.compile.dynamo_backend import NimbleCompiler

    torch, backend, ran = network.torch, network.backend(), []
    compiler = NimbleCompiler(backend, has_room=lambda device: True, **({} if network.is_real else {"clock": iter_clock()}))

    def kept(traced, inputs):
        function = compiler(traced, inputs)

        def run(*arguments):
            ran[:] = function, arguments
            return function(*arguments)

        return run

    torch._dynamo.reset()
    model, x = torch.compile(network.made(parameters), backend=kept), torch.randn(2, 4, device=network.device)
    with torch.no_grad():
        return compiled_times(network, compiler, lambda: model(x), ran)


def compiled_times(network, compiler, call, ran):
    for _ in range(12):
        call()
    network.without_work(compiler._engine["backend"])
    (report,) = compiler.reports()
    before = report.served
    function, arguments = ran
    found = {"runner": network.times(lambda: function(*arguments)), "compiled": network.times(call)}
    (report,) = compiler.reports()
    assert report.served == before + 2 * ROUNDS * CALLS, report
    return found


def iter_clock():
    """On which a run without a graph takes twice as long as one with it."""
    import itertools

    return itertools.cycle((0.0, 1.0, 0.0, 2.0)).__next__


def of_nimble(network, parameters):
    from nimble.api.module import Nimble

    torch, backend = network.torch, network.backend()
    x, found = torch.randn(2, 4, device=network.device), {}
    for name, is_static in (("Nimble", False), ("Nimble, static", True)):
        model = Nimble(network.made(parameters), backend=backend, static_outputs=is_static).prepare(x, relaxed=True)
        given = model.static_inputs(x)[0][0] if is_static else x
        with torch.no_grad():
            model(given)
            network.without_work(backend)
            found[name] = network.times(lambda: model(given))
    return found


def replayed(network, parameters):
    """CUDAGraph.replay() alone."""
    torch, model = network.torch, network.made(parameters)
    x, graph = torch.randn(2, 4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(x)
        network.wait()
        with torch.cuda.graph(graph):
            model(x)
        graph.replay()
        return {"replay": network.times(graph.replay)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parameters", nargs="*", type=int, default=PARAMETERS)
    parser.add_argument("--package", default=str(Path(__file__).resolve().parents[2] / "python"), help="the python/ of a checkout")
    parser.add_argument("--json", help="writes the figures to this file as well")
    words = parser.parse_args()
    sys.path[:0] = [words.package, str(Path(words.package) / "tests")]
    import torch
    from nimble import shim

    torch.set_num_threads(1)
    is_real = torch.cuda.is_available() and shim.is_loaded()
    network = Network(torch, is_real)
    found = {}
    device = torch.cuda.get_device_name() if is_real else "none: fake graphs"
    print(f"{platform.machine()}, GPU {device}, Python {platform.python_version()}, PyTorch {torch.__version__}; us, median and fastest")
    for parameters in words.parameters:
        torch._dynamo.config.recompile_limit = 100
        times = found[parameters] = {**compiled(network, parameters), **of_nimble(network, parameters)}
        if is_real:
            times.update(replayed(network, parameters))
        print(f"  {parameters:>6} parameters:", ", ".join(f"{name} {us['median']} {us['fastest']}" for name, us in times.items()), flush=True)
    if words.json:
        figures = {"date": time.strftime("%Y-%m-%d"), "device": device, "cores": os.cpu_count(),
                   "python": platform.python_version(), "torch": torch.__version__, "us": found}
        Path(words.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
