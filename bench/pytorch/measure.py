"""What a call takes on a GPU: by CUDA events, by the host's clock, and one of many that follow each other.

Nothing here keeps state. Tests put a class of their own in the place of Gpu."""

import ctypes
import hashlib
import statistics
import sys
import time

import torch

LEAST, MOST = 100, 300  # calls, or rows of them; more than the least number only within a second
ROW = 10  # calls that follow each other without waiting


class Gpu:
    """The current CUDA device."""

    type = "cuda"

    def synchronize(self):
        torch.cuda.synchronize()

    def event(self):
        return torch.cuda.Event(enable_timing=True)

    def used_mib(self):
        """Memory that is taken on the device, by whomever: the driver's view."""
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def kept_mib(self):
        """Of these, what PyTorch's allocator has in this process."""
        return torch.cuda.memory_reserved() / 2**20

    def settle(self):
        """Makes and ends another context. Behind that the driver (580.159, on an H200) has kernels follow each other in 0.11 us
        instead of 0.29, of a graph and of any other, until a stream is used that was not before, or it may be later; so that each
        way is timed in the same of these states, whether a process beside it has ended in between or not."""
        driver, made, ignored = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.synchronize()
        results = (driver.cuCtxCreate_v2(ctypes.byref(made), 0, torch.cuda.current_device()),
                   driver.cuCtxPopCurrent_v2(ctypes.byref(ignored)), driver.cuCtxDestroy_v2(made))
        if any(results):
            raise RuntimeError(f"no other context: the driver says {results}")

    def let_go(self):
        """Memory that PyTorch keeps for later goes back to the device."""
        self.synchronize()
        torch.cuda.empty_cache()


def options(words):
    """Of a process's command line: whether it only compiles, and what it does before anything is timed on the GPU."""
    return {"prepare_only": "--prepare-only" in words, "ready": wait if "--wait" in words else lambda: None}


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


def repeat(once, least=LEAST, seconds=1.0):
    """What `least` to MOST runs return."""
    found, end = [], time.perf_counter() + seconds
    while len(found) < least or (len(found) < MOST and time.perf_counter() < end):
        found.append(once())
    return found


def by_events(gpu, call, calls=1, least=LEAST, seconds=1.0):
    """Microseconds of a call on the GPU, from an event before the first one to one behind the last. The GPU is idle before, so
    what the host takes until a call's first launch counts for a call alone."""
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
    """Microseconds of a call on the host, until the GPU is done with it."""
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
    """MiB that are taken on the device. Others may take some until begin(), and nobody else does from then on; what this
    process took before is known of PyTorch's allocator alone."""

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
    """What a nimble.Nimble knows of its graphs."""
    fields = ("kind", "state", "nodes", "streams", "own_us", "rewritten_us", "why", "runs_ahead")
    return {"graphs": [{field: getattr(report, field, None) for field in fields} for report in model.report()]}
