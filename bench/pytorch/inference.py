"""One network's inference at batch 1 in one way, in a process of its own: prints times and a digest as JSON.

Usage: inference.py NETWORK WAY    (a network of networks.py; eager, graph, nimble)

`graph` is torch.cuda.graph as PyTorch's documentation has it. `nimble` is the same under NIMBLE_GRAPHS=rewrite, captured twice
as include/nimble/nimble.h says. scripts/pytorch calls this.
"""

import ctypes
import hashlib
import json
import statistics
import sys
import time

import networks
import torch

RUNS = 200
SETTLE = 60  # launches until NIMBLE_TUNE has decided, and then some


def by_events(call):
    """Microseconds of a call on the GPU, from an event before it to one behind it."""
    times = []
    for _ in range(RUNS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return times


def by_the_clock(call):
    """Microseconds of a call on the host, until the GPU is done with it."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return times


def spread(times):
    times = sorted(times)
    return {"median": statistics.median(times), "p10": times[len(times) // 10], "p90": times[len(times) * 9 // 10]}


class GraphStatus(ctypes.Structure):
    """nimble_graph_status of nimble.h."""

    _fields_ = [("size", ctypes.c_size_t), ("exec", ctypes.c_void_p), ("state", ctypes.c_int), ("nodes", ctypes.c_uint32),
                ("streams", ctypes.c_uint32), ("own_us", ctypes.c_double), ("rewritten_us", ctypes.c_double),
                ("text", ctypes.c_char * 256)]


def capture(module, data, stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        output = module(data)
    return graph, output


def prepare(module, data, way):
    """The graph, the output that it fills in, and what there is to say of it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    nimble = ctypes.CDLL(None) if way == "nimble" else None
    if nimble and nimble.nimble_learn_begin() != 0:
        raise RuntimeError("NIMBLE_GRAPHS=rewrite is not at work here")
    with torch.cuda.stream(stream):
        for _ in range(2):
            module(data)
    torch.cuda.synchronize()
    graph, output = capture(module, data, stream)
    if not nimble:
        return graph, output, {}
    nimble.nimble_learn_end()
    graph.reset()
    nimble.nimble_capture_again()
    graph, output = capture(module, data, stream)
    status = GraphStatus(size=ctypes.sizeof(GraphStatus))
    nimble.nimble_get_graph(None, ctypes.byref(status))
    for _ in range(SETTLE):
        graph.replay()
        torch.cuda.synchronize()
    nimble.nimble_get_graph(ctypes.c_void_p(status.exec), ctypes.byref(status))
    return graph, output, {"state": status.state, "streams": status.streams, "why": status.text.decode()}


def main(name, way):
    module, data = networks.inference(name)
    with torch.inference_mode():
        for _ in range(3):
            module(data)
        torch.cuda.synchronize()
        result, free = {}, torch.cuda.mem_get_info()[0]
        if way == "eager":
            call, output = (lambda: module(data)), module(data)
        else:
            begin = time.perf_counter()
            graph, output, result = prepare(module, data, way)
            torch.cuda.synchronize()
            result["prepare_s"] = time.perf_counter() - begin
            result["memory_mib"] = (free - torch.cuda.mem_get_info()[0]) / 2**20
            call = graph.replay
        for _ in range(10):
            call()
        torch.cuda.synchronize()
        result |= {"gpu_us": spread(by_events(call)), "wall_us": spread(by_the_clock(call))}
    result["digest"] = hashlib.sha256(output.cpu().numpy().tobytes()).hexdigest()
    result["torch"] = torch.__version__
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
