"""Whether a graph takes as long in company: while other processes hold idle contexts on the GPU.

Usage: python bench/pytorch/multi_process.py [NETWORK...] [--ways A,B] [--contexts N] [--build DIR] [--json FILE]

Processes that prepare together and are timed in sequence (scripts/pytorch --together) are in such company. Of
torch.cuda.graph, with each of PyTorch's allocators and with libnimble.so loaded, and of Nimble: a graph is timed alone, and
after its process has created and destroyed another context (measure.Gpu.settle), then in company, then another one that was
captured in company, then alone again; then the same for a process that began in company, whose weights lie elsewhere; and
the share of the kernels and of the gaps between them. Microseconds of a launch, by CUDA events over ten back to back. Needs
a GPU, PyTorch and torchvision. """

import argparse
import contextlib
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import side_by_side  # noqa: E402
from side_by_side import DRIVER_ALLOCATIONS, ROOT, TORCHS_ALLOCATIONS  # noqa: E402

# A context with some memory, until stdin ends.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(256 << 20))):
    if result != 0: sys.exit(f"the driver says {result}")
print("ready", flush=True)
sys.stdin.readline()
"""
# By name: the way of ways.py, whether libnimble.so is loaded, and the allocator.
WAYS = {"graph": ("graph", False, TORCHS_ALLOCATIONS), "graph in stream order": ("graph", False, DRIVER_ALLOCATIONS),
        "graph beside libnimble.so": ("graph", True, TORCHS_ALLOCATIONS), "nimble-one": ("nimble-one", True, DRIVER_ALLOCATIONS),
        "nimble": ("nimble", True, DRIVER_ALLOCATIONS)}


# ---- the timed process ----

def times_between(kernels):
    """For one launch's kernels (begin, end): their number, their own time, and the gaps between the first and the last."""
    kernels = sorted(kernels)
    work, last_end = 0.0, kernels[0][0]
    for begin, end in kernels:
        work += max(0.0, end - max(begin, last_end))
        last_end = max(last_end, end)
    return {"kernels": len(kernels), "work_us": work, "gaps_us": last_end - kernels[0][0] - work}


def profiled(torch, call, launches=5):
    """times_between() of the median launch, by its kernels' time."""
    from torch.profiler import ProfilerActivity, profile

    found = []
    with profile(activities=[ProfilerActivity.CUDA]):  # the first launch under a profiler is slower
        call()
        torch.cuda.synchronize()
    for _ in range(launches):
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        kernels = [(e.time_range.start, e.time_range.end) for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        if kernels:
            found.append(times_between(kernels))
    return sorted(found, key=lambda each: each["work_us"])[len(found) // 2] if found else None


def worker(name, way):
    """Answers a line `time`, `capture`, `settle` or `profile` with a line of JSON."""
    import inference
    import measure
    import networks
    import torch
    import ways

    way, gpu = ways.way("inference", way), measure.Gpu()
    module, (data, *_) = networks.inference(name)
    with inference.no_gradients(way):
        for _ in range(inference.WARM):
            module(data)
        made = [inference.prepare(way, module, module, data)]
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "capture":
                made.append(inference.prepare(way, module, module, data))
            if line.strip() == "profile":
                answer = profiled(torch, made[-1].call)
            else:
                if line.strip() == "settle":
                    gpu.settle()
                for _ in range(inference.WARM):
                    made[-1].call()
                gpu.synchronize()
                answer = measure.spread(measure.by_events(gpu, made[-1].call, measure.ROW))
            print(json.dumps(answer), flush=True)


# ---- the controlling process ----

def command_of(way, build, program, *words, log="warn"):
    """The command and environment of a Python program in one of WAYS."""
    _, loads, allocator = WAYS[way]
    command, env = [sys.executable, program, *words], side_by_side.environment(**allocator)
    return side_by_side.under_nimble(command, env, build, log) if loads else (command, env)


@contextlib.contextmanager
def begun(command, env):
    process = side_by_side.start(command, env, waits=True)
    try:
        yield process
    finally:
        side_by_side.give_up(process)


@contextlib.contextmanager
def idle_processes(count):
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(begun([sys.executable, "-c", HOLDER], dict(os.environ))) for _ in range(count)]
        for holder in holders:
            if holder.stdout.readline().strip() != "ready":
                raise side_by_side.Failure("a process got no context on the GPU")
        yield


@contextlib.contextmanager
def at_work(name, way, build, program):
    """A worker that is ready: a function that sends it a request and returns its answer."""
    with begun(*command_of(way, build, program, "--worker", name, WAYS[way][0])) as process:
        def ask(what):
            process.stdin.write(what + "\n")
            process.stdin.flush()
            return answer()

        def answer():
            for line in process.stdout:
                if line.startswith(("{", "ready", "null")):
                    return None if line.startswith("ready") else json.loads(line)
            process.complaints.seek(0)
            raise side_by_side.Failure(f"{name}, {way}: it ended: {process.complaints.read()[-side_by_side.TAIL:]}")

        answer()
        yield ask


def run(name, way, contexts, build, program=pathlib.Path(__file__).resolve()):
    """By condition, the answers of the worker (`program`)."""
    found = {}
    with at_work(name, way, build, program) as ask:
        found["alone"] = ask("time")
        found["settled"] = ask("settle")
        with idle_processes(contexts):
            found["in company"] = ask("time")
            found["captured in company"] = ask("capture")
            found["profiled in company"] = ask("profile")
        found["alone again"] = ask("time")
        found["profiled alone"] = ask("profile")
    with contextlib.ExitStack() as both:
        others = both.enter_context(contextlib.ExitStack())
        others.enter_context(idle_processes(contexts))
        ask = both.enter_context(at_work(name, way, build, program))
        found["begun in company"] = ask("time")
        found["profiled, begun in company"] = ask("profile")
        others.close()
        found["begun in company, alone"] = ask("time")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["mobilenet_v2", "resnet101", "darts"])
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of {', '.join(WAYS)} (default all)".replace("%", "%%"))
    parser.add_argument("--contexts", type=int, default=8, help="of other processes (default 8)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--json", type=pathlib.Path, help="writes the figures to this file as well")
    words = parser.parse_args()
    figures = {"device": side_by_side.device(), "contexts": words.contexts, "networks": {}}
    for name in words.networks:
        for way in filter(None, words.ways.split(",")):
            found = run(name, way, words.contexts, words.build.resolve())
            figures["networks"].setdefault(name, {})[way] = found
            timed = ", ".join(f"{what} {each['median']:.0f}" for what, each in found.items() if each and "median" in each)
            print(f"{name}, {way}: {timed} us", flush=True)
            for where, seen in found.items():
                if seen and "kernels" in seen:
                    print(f"    {where}: {seen['kernels']} kernels, {seen['work_us']:.0f} us; gaps {seen['gaps_us']:.0f} us", flush=True)
            if words.json:
                words.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:4])
    else:
        try:
            main()
        except side_by_side.Failure as error:
            sys.exit(f"multi_process: {error}")
