"""Kernels written in Triton: a vector sum and a softmax over rows."""

import torch
import triton
import triton.language as tl

import stepped
import torch_common


@triton.jit
def add(x, y, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=inside)


def make(seed):
    device = torch_common.start(seed)
    rows, columns = 512, 1000
    x = torch.randn(rows, columns, device=device)
    y = torch.randn(rows, columns, device=device)
    total, shares = torch.empty_like(x), torch.empty_like(x)

    def step():
        add[(triton.cdiv(x.numel(), 1024),)](x, y, total, x.numel(), block=1024)
        softmax[(rows,)](total, shares, columns, block=1024)

    return step, lambda: torch_common.to_host(total, shares), torch.cuda.synchronize


def facts():
    return {**torch_common.facts(), "triton": triton.__version__}


stepped.serve(make, facts)
