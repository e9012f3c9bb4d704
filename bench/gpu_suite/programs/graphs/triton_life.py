"""Kernels of Triton in CUDA graphs of torch, beside the same kernels launched eagerly. Prints "RESULT digest"."""

import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def mix(to, source, salt, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    value = tl.load(to + at, mask=mask)
    other = tl.load(source + at, mask=mask)
    for _ in range(20):
        value = value * 0.999 + other * 0.001 + salt
    tl.store(to + at, value, mask=mask)


SIZE = 1 << 18
torch.manual_seed(1)
a, b, c = (torch.randn(SIZE, device="cuda") for _ in range(3))


def work(salt):
    mix[(SIZE // 1024,)](a, b, salt, SIZE, BLOCK=1024)
    mix[(SIZE // 512,)](c, b, salt, SIZE, BLOCK=512)
    mix[(SIZE // 1024,)](b, c, salt, SIZE, BLOCK=1024)


found = hashlib.sha256()
work(0.25)
torch.cuda.synchronize()
kept = []
for number in range(40):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work(0.001 * number)
    kept = [*kept[-3:], graph]
    for each in kept:
        each.replay()
    work(0.5)
    if number % 10 == 9:
        found.update(b.cpu().numpy().tobytes())
torch.cuda.synchronize()
found.update(a.cpu().numpy().tobytes())
print("RESULT", found.hexdigest())
