#!/usr/bin/env python3
"""What a training step takes of the host, by its parts, until all is submitted: make_graphed_callables, and nimble.Nimble.

Usage: python -m nimble run bench/pytorch/step_host.py [--json FILE] [--ways WAY,...] [NETWORK:BATCH...]
       python bench/pytorch/step_host.py --ways callables ...

Both in one process, in turns, so that both have the same cores: median microseconds of steps that begin on an idle GPU. Where the
GPU takes less than that, the host decides how long a step takes. The second line is for what the first way takes without libnimble.so,
and with PyTorch's own allocator; or, with PYTORCH_ALLOC_CONF=backend:cudaMallocAsync, with the one that Nimble needs.
"""

import statistics
import time

import each_cell
import networks
import training
import ways

CELLS = ("mobilenet_v2:32", "efficientnet_b0:32", "resnet50:32")
WAYS = ("callables", "nimble")
PARTS = ("zero_grad", "forward", "loss", "backward", "optimizer")
DECIDED, ROUNDS, STEPS = 150, 6, 30


def step(trainer):
    """Seconds of each of the parts."""
    times = [time.perf_counter()]
    trainer.optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter())
    outputs = trainer.forward(trainer.images)
    times.append(time.perf_counter())
    loss = trainer.loss_of(outputs, trainer.labels)
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    trainer.optimizer.step()
    times.append(time.perf_counter())
    return [end - begin for begin, end in zip(times, times[1:])]


def run(name, batch, gpu, chosen=WAYS, rounds=ROUNDS):
    """By way: microseconds of each part, and of all of them."""
    trainers = {}
    for way in chosen:
        trainers[way] = trainer = training.Trainer(*networks.training(name, batch, gpu.type))
        training.warm(trainer.step, training.WARM)
        trainer.begin_again()
        trainer.optimizer.zero_grad(set_to_none=True)
        training.prepare(ways.way("training", way), trainer)
        for _ in range(DECIDED if rounds > 1 else 1):
            step(trainer)
            gpu.synchronize()
    found = {way: [] for way in chosen}
    for _ in range(rounds):
        for way, trainer in trainers.items():
            step(trainer)  # brings what it needs into the caches, as the step before has
            for _ in range(STEPS):
                gpu.synchronize()
                found[way].append(step(trainer))
    return {way: {part: statistics.median(times) * 1e6 for part, times in zip((*PARTS, "all"), zip(*(
        [*times, sum(times)] for times in found[way])))} for way in chosen}


def lines(found):
    return [f"{way:10} " + ", ".join(f"{part} {us:.0f}" for part, us in times.items()) for way, times in found.items()]


if __name__ == "__main__":
    each_cell.program(__doc__, CELLS, run, lines, WAYS)
