"""ResNet-50's training on random images of CIFAR-10's size, eager and with forward and backward as graphs by nimble.Nimble.

    python -m nimble run examples/pytorch/resnet50_training.py [--steps N] [--batch N] [--side PIXELS]

Needs a GPU, torchvision, and the package `nimble` (docs/tutorial/pytorch.md). Both trainings begin with the same weights, and see the same
images: their losses are to be equal to the bit.
"""

import argparse
import time

import torch
import torchvision

import nimble


def train(model, module, batches, steps):
    """Losses of so many steps, and milliseconds of one. `model` is what is called in the place of `module`."""
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    losses = []
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for step in range(steps):
        images, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    return torch.stack(losses), (time.perf_counter() - begin) / steps * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=32, help="of the images")
    options = parser.parse_args()
    if min(options.steps, options.batch, options.side) < 1:
        parser.error("all numbers must be 1 or more")
    nimble.shim.check()  # says what to type where libnimble.so is not there
    if not torch.cuda.is_available():
        parser.exit(1, f"{parser.prog}: this needs a GPU, and PyTorch finds none here\n")

    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True  # or two eager trainings would differ already
    module = torchvision.models.resnet50(num_classes=10).cuda().train()
    batches = [(torch.randn(options.batch, 3, options.side, options.side, device="cuda"),
                torch.randint(10, (options.batch,), device="cuda")) for _ in range(4)]
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    train(module, module, batches, 3)  # libraries choose their kernels now
    module.load_state_dict(weights)
    eager_losses, eager = train(module, module, batches, options.steps)

    module.load_state_dict(weights)
    model = nimble.Nimble(module)
    begin = time.perf_counter()
    model.prepare(batches[0][0], training=True)
    print(f"prepared in {time.perf_counter() - begin:.1f} s")
    losses, prepared = train(model, module, batches, options.steps)

    equal = torch.equal(losses, eager_losses)
    print(f"a step takes {eager:.3f} ms eagerly, {prepared:.3f} ms with Nimble: {eager / prepared:.2f} times as fast")
    print(f"losses from {losses[0]:.4f} to {losses[-1]:.4f}, " + ("equal to the bit" if equal else "NOT THE SAME AS EAGER'S"))
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
