"""One network's training step at CIFAR's shapes in one way, in a separate process: prints times and losses as JSON.

Usage: training.py NETWORK BATCH WAY [--prepare-only] [--wait]    (as inference.py, with a way of training)

A step is forward, cross entropy, backward, and SGD without momentum. Each process first trains eagerly, then in its way from the
same state with the same seed, and compares the losses and the final state. scripts/pytorch calls this. """

import json
import sys
import time

import inference
import measure
import networks
import torch
import ways

WARM = 3
PROFILED = 6  # TorchScript profiles its first steps
DECIDED = 120  # the most steps until libnimble.so has decided which graph to launch
STEPS = 50  # of the curve of losses
RATE = 0.01


class Trainer:
    """A module with its optimizer, one batch in fixed memory, and the initial state."""

    def __init__(self, module, batches):
        self.module, self.batches = module, batches
        self.images, self.labels = (tensor.clone() for tensor in batches[0])
        self.forward = module  # or its replacement
        self.optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        self.loss_of = torch.nn.CrossEntropyLoss()
        self._begin = self.state()

    def state(self):
        return {name: tensor.clone() for name, tensor in self.module.state_dict().items()}

    def step(self, *data):
        """A step on these images and labels, by default on the batch."""
        images, labels = data or (self.images, self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.forward(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def begin_again(self):
        """Restores the state in place, where graphs read it, and the initial random numbers."""
        self.module.load_state_dict(self._begin)
        torch.manual_seed(1)

    def curve(self, step, loss=None):
        """Losses of STEPS steps from the beginning, and the state after them. `loss`: where step() stores it."""
        self.begin_again()
        losses = []
        for number in range(STEPS):
            for mine, one in zip((self.images, self.labels), self.batches[number % len(self.batches)]):
                mine.data.copy_(one)  # hidden from autograd: it may be a graph's memory, with the first batch's history
            returned = step()
            losses.append((returned if loss is None else loss).clone())
        return losses, self.state()


def warm(step, times):
    for _ in range(times):
        step()


def whole_graph(trainer):
    """The step captured as in PyTorch's documentation: (replay, the loss's tensor)."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm(trainer.step, WARM)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    trainer.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = trainer.step()
    return graph.replay, loss


def nimble_module(trainer, multi_stream):
    from nimble import Nimble

    model = Nimble(trainer.module).prepare(trainer.images, training=True, use_multi_stream=multi_stream)
    (trainer.images,), _ = model.static_inputs(trainer.images)
    trainer.forward = model
    return measure.graphs(model)


def nimble_step(trainer):
    """(a step without arguments, the nimble.step that it calls, notes). Its first calls run eagerly, and further ones
    until libnimble.so has timed both graphs. The data are its arguments, as in typical code, and copied into the
    graph's memory at each call."""
    import nimble

    graph = nimble.step(trainer.step, modules=[trainer.module], optimizers=[trainer.optimizer])

    def step():
        return graph(trainer.images, trainer.labels)

    for _ in range(DECIDED):
        step()
        if trainer.images.is_cuda:
            torch.cuda.synchronize()  # else the timings arrive after all launches
        notes = measure.graphs(graph)
        if notes["graphs"] and all(graph["state"] != "trying" for graph in notes["graphs"]):
            break
    return step, graph, notes


def compile_for(way, trainer):
    """Replaces the trainer's module by its compiled form, if the way compiles. Like inference.compile_for()."""
    if way.name == "torchscript":
        trainer.forward = torch.jit.script(trainer.module)
        warm(trainer.step, PROFILED)
    elif way.mode:
        if way.nimble:
            from torch._functorch import config

            if hasattr(config, "donated_buffer"):  # from 2.5 on
                config.donated_buffer = False  # as in docs/howto/train.md
        inference.compile_in_place(trainer.module, way)
        warm(trainer.step, WARM)


def prepare(way, trainer):
    """(a step without arguments, where it stores the loss unless it returns it, notes)"""
    step, loss, notes = trainer.step, None, {}
    if way.name == "callables":
        trainer.forward = torch.cuda.make_graphed_callables(trainer.module, (trainer.images,), num_warmup_iters=WARM)
    elif way.name == "graph":
        step, loss = whole_graph(trainer)
    elif way.is_step:
        step, _, notes = nimble_step(trainer)
    elif way.nimble:
        notes = nimble_module(trainer, way.name != "nimble-one")
    return step, loss, notes


def compare(way, eager, found, base=None):
    """Compares curves and states. `base`: the result that it must equal to the bit, if not eager's."""
    (eager_losses, eager_state), (losses, state) = eager, found
    if not all(bool(torch.isfinite(loss)) for loss in eager_losses) or torch.equal(eager_losses[0], eager_losses[-1]):
        raise RuntimeError("the losses prove nothing: they are not finite, or do not change")
    before, after = eager_losses + list(eager_state.values()), losses + list(state.values())
    difference = max(float((a - b).abs()) for a, b in zip(losses, eager_losses))
    result = {"losses": [float(loss) for loss in losses], "eager_losses": [float(loss) for loss in eager_losses],
              "difference": difference, "relative_difference": difference / max(float(loss.abs()) for loss in eager_losses),
              "digest": measure.digest(after), "eager_digest": measure.digest(before)}
    if way.same:
        base_losses, base_state = base or eager
        result["same_bits"] = all(map(torch.equal, after, base_losses + list(base_state.values())))
    return result


def run(name, batch, way, gpu, prepare_only=False, ready=lambda: None):
    trainer = Trainer(*networks.training(name, batch, gpu.type))
    warm(trainer.step, WARM)
    eager = None if prepare_only else trainer.curve(trainer.step)
    trainer.begin_again()
    trainer.optimizer.zero_grad(set_to_none=True)
    memory = measure.Memory(gpu)
    begin = time.perf_counter()
    compile_for(way, trainer)
    gpu.synchronize()
    compiling = time.perf_counter() - begin
    if prepare_only:
        return {"prepare_s": compiling}
    base = trainer.curve(trainer.step) if way.nimble and way.mode else None
    ready()
    memory.begin()
    begin = time.perf_counter()
    step, loss, notes = prepare(way, trainer)
    gpu.synchronize()
    preparing = time.perf_counter() - begin
    result = {"prepare_s": compiling + preparing, "compile_s": compiling, **notes, **measure.all_times(gpu, step)}
    result["memory_mib"] = memory.end()
    result |= compare(way, eager, trainer.curve(step, loss), base)
    return result | {"torch": torch.__version__}


def main(words):
    name, batch, way = words[0], int(words[1]), ways.way("training", words[2])
    print(json.dumps(run(name, batch, way, measure.Gpu(), **measure.options(words[3:]))))


if __name__ == "__main__":
    main(sys.argv[1:])
