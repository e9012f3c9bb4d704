"""Nimble's cost where it cannot help: for networks whose kernels each depend on the previous one, against torch.cuda.graph.

Usage: python bench/pytorch/chains.py [NETWORK...] [--rounds N] [--processes N] [--build DIR] [--json FILE]

Two processes of one way differ by more than the quantity of interest: each has its memory elsewhere. So it is measured in two
ways. In turns, in one process: one graph, as torch.cuda.CUDAGraph.replay() launches it, as a call of a Nimble does, and the parts
of that. In processes: several of each way, which begin together and are timed in sequence, in an order that goes back and forth;
torch.cuda.graph with PyTorch's own allocator, with stream-ordered memory, as a Nimble has, and with PyTorch's own beside
libnimble.so. For Nimble's processes also the findings of libnimble.so's trial: the turns of the rewritten graph and of PyTorch's.
Microseconds; medians, and of processes the least and the most. Needs a GPU, PyTorch and torchvision (timm for nasnetalarge). """

import argparse
import contextlib
import importlib.metadata
import json
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import multi_process  # noqa: E402
import runner  # noqa: E402
import side_by_side  # noqa: E402
from side_by_side import ROOT  # noqa: E402

NETWORKS = ["encoder", "resnet101", "resnet50", "efficientnet_b5", "mobilenet_v2"]
TIMES = ("row_us", "gpu_us", "wall_us")
BLOCK = 12  # calls of one kind in a turn; the first ones warm caches
WAKING = 2
ROWS = 3  # in a block; the first one warms caches
LIMIT = 240  # seconds per process
TRIAL = re.compile(r"graph \d+: the (?P<launched>.*) is launched: .*; in turns (?P<rewritten>[\d., ]+); its own (?P<own>[\d., ]+)")


# ---- the process in which the ways to launch one graph take turns ----

def ways_to_launch(model, data):
    """By name, the ways to launch the one graph that a Nimble has for its own input."""
    (own,), _ = model.static_inputs(data)
    model(own)
    _, prepared = model._last
    captured, word = prepared._captured, prepared._ahead.word
    replay, launch, fits, stream = captured._graph.replay, captured._launch, prepared._fits, captured._last_handle

    def replay_and_look():
        replay()
        fits()

    def launch_and_look():
        launch(stream, word)
        fits()

    return {"CUDAGraph.replay()": replay, "Nimble": lambda: model(own), "replay(), and a look at the module": replay_and_look,
            "the launch alone": lambda: launch(stream, word), "the launch, and a look": launch_and_look}


def in_turns(gpu, calls, rounds):
    """By the name of a call, TIMES."""
    import measure

    found = {name: {time: [] for time in TIMES} for name in calls}
    once = {"gpu_us": lambda call: measure.by_events(gpu, call, least=BLOCK, seconds=0)[WAKING:],
            "wall_us": lambda call: measure.by_the_clock(gpu, call, least=BLOCK, seconds=0)[WAKING:],
            "row_us": lambda call: measure.by_events(gpu, call, measure.ROW, least=ROWS * measure.ROW, seconds=0)[1:]}
    for number in range(rounds):
        for name, call in reversed(calls.items()) if number % 2 else calls.items():
            for what, times in once.items():
                found[name][what] += times(call)
    return {name: {what: measure.spread(times) for what, times in each.items()} for name, each in found.items()}


def worker(name, rounds):
    import measure
    import networks
    import torch
    from nimble import Nimble

    gpu = measure.Gpu()
    module, (data, *_) = networks.inference(name)
    with torch.no_grad():
        calls = ways_to_launch(Nimble(module, static_outputs=True).prepare(data, use_multi_stream=False), data)
        gpu.settle()
        print(json.dumps(in_turns(gpu, calls, rounds)))


# ---- the controlling process ----

def launched_in_turns(name, rounds, build):
    command, env = side_by_side.under_nimble([sys.executable, __file__, "--worker", name, str(rounds)], side_by_side.environment(),
                                             build)
    done = side_by_side.run(command, env, LIMIT)
    if done.status != 0:
        raise side_by_side.Failure(f"{name}: {runner.last_words(done.errors)}")
    return done.json()


def begin(name, way, build):
    program = ROOT / "bench/pytorch/inference.py"
    return side_by_side.start(*multi_process.command_of(way, build, program, name, multi_process.WAYS[way][0], "--wait", log="info"),
                              waits=True)


def trial(said):
    """The last trial that libnimble.so has reported: the graph that it launches since, and the turns of both graphs."""
    found = [*TRIAL.finditer(said)]
    if not found:
        return None
    turns = {which: [float(us) for us in found[-1][which].split(", ")] for which in ("rewritten", "own")}
    return {"launched": found[-1]["launched"], **turns}


def in_processes(name, count, build):
    """By way, and for each process in its turn, TIMES."""
    there, back = list(multi_process.WAYS), list(reversed(multi_process.WAYS))
    order = [way for number in range(count) for way in (back if number % 2 else there)]
    found = {way: [] for way in multi_process.WAYS}
    begun = []
    try:
        for way in order:  # one by one: if a start fails, the earlier ones are given up
            begun.append(begin(name, way, build))
        for process in begun:
            side_by_side.wait_for_ready(process, LIMIT)
        for way in order:
            done = side_by_side.finish(begun.pop(0), LIMIT)
            if done.status != 0:
                raise side_by_side.Failure(f"{name}, {way}: {runner.last_words(done.errors)}")
            found[way].append({what: done.json()[what] for what in TIMES})
            if (tried := trial(done.errors)):
                found[way][-1]["trial"] = tried
    finally:
        for process in begun:
            side_by_side.give_up(process)
    return found


def said_in_turns(found):
    """Lines that compare each with the first."""
    first = next(iter(found.values()))
    for name, each in found.items():
        more = {what: each[what]["median"] - first[what]["median"] for what in TIMES}
        yield f"    {name:36s}" + "  ".join(f"{what[:-3]} {each[what]['median']:8.1f} ({more[what]:+6.1f})" for what in TIMES)


def said_of_processes(found):
    for way, each in found.items():
        medians = {what: [one[what]["median"] for one in each] for what in TIMES}
        yield f"    {way:36s}" + "  ".join(f"{what[:-3]} {statistics.median(of):8.1f} [{min(of):.1f} to {max(of):.1f}]"
                                           for what, of in medians.items())
        for tried in (one["trial"] for one in each if "trial" in one):
            less = [1 - a / b for a, b in zip(tried["rewritten"], tried["own"])]
            yield (f"        in the trial the rewritten graph took {', '.join(f'{100 * part:.1f}' for part in less)} % less in its turns: "
                   f"the {tried['launched']} is launched")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=12, help="of turns; 0: none (default 12)")
    parser.add_argument("--processes", type=int, default=3, help="of each way; 0: none (default 3)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--json", type=pathlib.Path, help="writes the figures to this file as well")
    words = parser.parse_args()
    build = words.build.resolve()
    figures = {"device": side_by_side.device(), "at": time.strftime("%Y-%m-%d"), "networks": {}}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        figures["torch"] = importlib.metadata.version("torch")
    for name in words.networks:
        mine = figures["networks"].setdefault(name, {})
        print(name, flush=True)
        for title, count, ask, said in (("in turns", words.rounds, launched_in_turns, said_in_turns),
                                        ("in processes", words.processes, in_processes, said_of_processes)):
            if count > 0:
                mine[title] = ask(name, count, build)
                print(f"  {title}", *said(mine[title]), sep="\n", flush=True)
        if words.json:
            words.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]))
    else:
        try:
            main()
        except side_by_side.Failure as error:
            sys.exit(f"chains: {error}")
