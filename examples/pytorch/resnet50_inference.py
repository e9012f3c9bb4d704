"""ResNet-50's inference with PyTorch, eager and as a graph by nimble.Nimble.

    python -m nimble run examples/pytorch/resnet50_inference.py [--steps N] [--batch N] [--side PIXELS]

Needs a GPU, torchvision, and the package `nimble` (docs/tutorial/pytorch.md). Weights are random: they do not matter to times.
"""

import argparse
import statistics
import time

import torch
import torchvision

import nimble


def milliseconds(call, steps):
    """The median of what a call takes until the GPU is done with it."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=224, help="of the images; 32 is the smallest that makes sense")
    options = parser.parse_args()
    if min(options.steps, options.batch, options.side) < 1:
        parser.error("all numbers must be 1 or more")
    nimble.shim.check()  # says what to type where libnimble.so is not there
    if not torch.cuda.is_available():
        parser.exit(1, f"{parser.prog}: this needs a GPU, and PyTorch finds none here\n")

    torch.manual_seed(0)
    module = torchvision.models.resnet50().cuda().eval()
    shape = (options.batch, 3, options.side, options.side)

    model = nimble.Nimble(module)
    model.prepare(torch.randn(shape, device="cuda"))
    print(f"prepared in {model.report()[0].prepare_seconds:.1f} s")

    images = torch.randn(shape, device="cuda")
    with torch.inference_mode():
        eager = milliseconds(lambda: module(images), options.steps)
        prepared = milliseconds(lambda: model(images), options.steps)
        equal = torch.equal(module(images), model(images))
    print(f"eager {eager:.3f} ms, Nimble {prepared:.3f} ms: {eager / prepared:.2f} times as fast")
    print("the outputs are equal to the bit" if equal else "THE OUTPUTS DIFFER")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
