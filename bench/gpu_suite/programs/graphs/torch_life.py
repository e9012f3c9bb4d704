"""CUDA graphs of torch from creation to destruction: captured with and without a shared pool, replayed in turns on two streams
beside eager work, dropped, and made again. Prints "RESULT digest". PYTORCH_ALLOC_CONF chooses the allocator. With --profile
torch.profiler watches, and the digest includes what it saw of the GPU."""

import contextlib
import gc
import hashlib
import sys

import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
DEVICE = "cuda"
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256), torch.nn.LayerNorm(256)).to(DEVICE).eval()
found = hashlib.sha256()


def capture(stream, pool, x):
    graph, out = torch.cuda.CUDAGraph(), torch.empty(64, 256, device=DEVICE)  # nothing allocated in a graph outlives it
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        y = net(x)
        z = torch.relu(y) + x.sum(dim=0)
        torch.cat([z, y.cumsum(0)], out=out)
        del y, z
    return graph, out


profile = torch.profiler.profile() if sys.argv[1:] == ["--profile"] else contextlib.nullcontext()
with torch.inference_mode(), profile:
    inputs = [torch.randn(32, 256, device=DEVICE) for _ in range(4)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for x in inputs:
                net(x).cumsum(0)
    torch.cuda.synchronize()
    pool = torch.cuda.graph_pool_handle()
    kept = [(*capture(streams[0], pool, x), x) for x in inputs[:2]]
    for round_number in range(24):
        made = [(*capture(streams[k], None, x), x) for k, x in enumerate(inputs[2:])]
        for turn in range(6):
            for k, (graph, _, x) in enumerate(kept + made):
                stream = streams[k % 2 if k >= 2 else 0]
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    x.mul_(0.99).add_(0.01 * turn)
                    graph.replay()
                torch.cuda.current_stream().wait_stream(stream)
            torch.randn(1000, device=DEVICE).sort()
        if round_number % 6 == 5:
            for _, out, _ in kept + made:
                found.update(out.cpu().numpy().tobytes())
        del made
        gc.collect()
    torch.cuda.synchronize()
if sys.argv[1:] == ["--profile"]:
    kernels = {event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA}
    found.update(" ".join(sorted(kernels)).encode())
    assert kernels, "the profile has no kernel"
print("RESULT", found.hexdigest())
