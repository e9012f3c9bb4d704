"""Measures a call on a GPU: by CUDA events, by the host's clock, and one of many back to back.

Nothing here keeps state. Tests replace Gpu."""

import ctypes
import hashlib
import statistics
import sys
import time

import torch

LEAST, MOST = 100, 300  # calls, or rows of calls; more than the least only within a second
ROW = 10  # calls back to back


class Gpu:
    """The current CUDA device."""

    type = "cuda"

    def synchronize(self):
        torch.cuda.synchronize()

    def event(self):
        return torch.cuda.Event(enable_timing=True)

    def used_mib(self):
        """Memory in use on the device, by any process: the driver's view."""
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def kept_mib(self):
        """The part of it that PyTorch's allocator has in this process."""
        return torch.cuda.memory_reserved() / 2**20

    def settle(self):
        """Creates and destroys another context. After that the driver (580.159, on an H200) starts successive kernels,
        of a graph or not, after 0.11 us instead of 0.29, until a new stream is used, or perhaps later; so that each way
        is timed in the same state, whether or not another process has ended in between."""
        driver, made, ignored = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.synchronize()
        results = (driver.cuCtxCreate_v2(ctypes.byref(made), 0, torch.cuda.current_device()),
                   driver.cuCtxPopCurrent_v2(ctypes.byref(ignored)), driver.cuCtxDestroy_v2(made))
        if any(results):
            raise RuntimeError(f"no other context: the driver says {results}")

    def let_go(self):
        """Returns PyTorch's cached memory to the device."""
        self.synchronize()
        torch.cuda.empty_cache()


def options(words):
    """From a process's command line: whether it only compiles, and what it does before anything is timed on the GPU."""
    return {"prepare_only": "--prepare-only" in words, "ready": wait if "--wait" in words else lambda: None}


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


def repeat(once, least=LEAST, seconds=1.0):
    """The results of `least` to MOST runs."""
    found, end = [], time.perf_counter() + seconds
    while len(found) < least or (len(found) < MOST and time.perf_counter() < end):
        found.append(once())
    return found


def by_events(gpu, call, calls=1, least=LEAST, seconds=1.0):
    """Microseconds of a call on the GPU, from an event before the first one to one after the last. The GPU is idle
    before, so the host's time until a call's first launch counts only for a single call."""
    def once():
        begin, end = gpu.event(), gpu.event()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls

    return repeat(once, least // calls, seconds)


def by_the_clock(gpu, call, least=LEAST, seconds=1.0):
    """Microseconds of a call on the host, until the GPU has finished it."""
    def once():
        begin = time.perf_counter()
        call()
        gpu.synchronize()
        return (time.perf_counter() - begin) * 1e6

    return repeat(once, least, seconds)


def spread(times):
    times = sorted(times)
    return {"median": statistics.median(times), "p10": times[len(times) // 10], "p90": times[len(times) * 9 // 10],
            "runs": len(times)}


def all_times(gpu, call):
    for _ in range(10):
        call()
    gpu.settle()
    return {"gpu_us": spread(by_events(gpu, call)), "wall_us": spread(by_the_clock(gpu, call)),
            "row_us": spread(by_events(gpu, call, ROW))}


class Memory:
    """MiB in use on the device. Other processes may allocate until begin(), and none from then on; of this process's
    earlier memory only PyTorch's allocator's is known."""

    def __init__(self, gpu):
        gpu.let_go()
        self.gpu, self.kept = gpu, gpu.kept_mib()

    def begin(self):
        self.before = self.gpu.used_mib() - (self.gpu.kept_mib() - self.kept)

    def end(self):
        self.gpu.synchronize()
        return {"before": self.before, "after": self.gpu.used_mib()}


def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.contiguous().cpu().numpy().tobytes())
    return whole.hexdigest()


def graphs(model):
    """A nimble.Nimble's reports of its graphs."""
    fields = ("kind", "state", "nodes", "streams", "own_us", "rewritten_us", "why", "runs_ahead")
    return {"graphs": [{field: getattr(report, field, None) for field in fields} for report in model.report()]}
