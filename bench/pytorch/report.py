"""The whole report: every table with what is to be known of it, in words. Pure functions of what runner.py has kept."""

import render
from render import Part

INFERENCE = """Each way in a process of its own, in fp32 without TF32 and with deterministic algorithms, on one input in the
same memory again and again: a call of a graph is its launch alone. Microseconds of a call: median [10 %, 90 %] of 100 runs or
more. Before that each process makes and ends another context, for which see docs/explanation/pytorch.md."""
TRAINING = """The step: forward, cross entropy, backward, SGD; images of 3x32x32, 10 classes; torchvision's networks with
their stems as they are. Each way in a process of its own, in fp32 without TF32 and with deterministic algorithms.
`make_graphed_callables` and `Nimble` leave loss and optimizer as they are, and have graphs for forward and backward;
`torch.cuda.graph of the step` and `nimble.step`, also the one over torch.compile's kernels, launch the whole step.
Microseconds of a step: median [10 %, 90 %] of 100 runs or more. Before that each process makes and ends another context, for
which see docs/explanation/pytorch.md."""
BY_EVENTS = """By CUDA events, from one before the call to one behind it, on a GPU that was idle:"""
BY_CLOCK = """By the host's clock, until the GPU is done:"""
IN_A_ROW = """By CUDA events over ten calls that follow each other without waiting, a call of them; of ten such rows or more:"""
PREPARED = """Preparing: seconds, and MiB that are taken on the device before it and behind all runs (of what compilers take, what
PyTorch's allocator knows of). In brackets: what torch.compile took before, to fill the caches that the timed process then found.
While TorchScript and torch.compile were at work others were too."""
EXACT = """Outputs for three inputs, held against those that the same process computed by the kernels which the way is to
have: eager's, and torch.compile's for Nimble over it. Where kernels are others, the largest difference to eager, relative to
its largest output."""
CURVES = """Losses of 50 steps and all parameters and buffers behind them, held against those of eager steps in the same
process from the same state with the same seed; of Nimble over torch.compile, against those of torch.compile's steps. Where kernels
or random numbers are others, the largest difference between two losses of it and of eager, relative to the largest loss. The
losses are in the JSON."""
PAPER = """How many times faster, by events, beside what the paper reports (bench/pytorch/published.json); `fastest` are the
fastest of the ways above that are Nimble's, and of those that are not:"""
DECISIONS = """What became of Nimble's graphs: `rewritten`, or `own`, the program's, since it was faster, or `kept`, since
there is no other. Microseconds are medians of a launch, measured by libnimble.so when it decided. In the end whether it, or a
step's first part, is launched before the call has looked at what it works on; else one on an idle GPU waits for that:"""


def inference(part):
    text = ["## Inference at batch 1", INFERENCE]
    for words, field in ((BY_EVENTS, "gpu_us"), (BY_CLOCK, "wall_us"), (IN_A_ROW, "row_us")):
        text += [words, part.table(render.times(field))]
    text += [PAPER, render.speedups(part, "nimble", "graph")]
    pairs = ("nimble", "graph"), ("nimble-one", "graph"), ("nimble-compile", "compile"), ("nimble-autotune", "autotune")
    return text + notes(part, pairs, EXACT)


def training(part):
    text = ["## Training at CIFAR's shapes", TRAINING]
    for words, field in ((BY_EVENTS, "gpu_us"), (BY_CLOCK, "wall_us"), (IN_A_ROW, "row_us")):
        text += [words, part.table(render.times(field))]
    text += [PAPER, render.speedups(part, "nimble", "callables")]
    pairs = (("nimble", "callables"), ("nimble-one", "callables"), ("nimble-step", "graph"), ("nimble-compile", "compile"),
             ("nimble-step-compile", "graph"), ("nimble-step-compile", "autotune"))
    return text + notes(part, pairs, CURVES)


def notes(part, pairs, exact):
    """`pairs`: ways of Nimble, and what they must not be slower than."""
    text = []
    names = {way.name: way.title for way in part.ways}
    for way, than in pairs:
        if way in names and than in names:
            rows = ", ".join(render.slower(part, way, than)) or "no row"
            text.append(f"{names[way]} is slower than {names[than]} by more than {render.NOISE:.0%} on: {rows}.")
    for way in part.ways:
        if way.nimble and (table := render.decisions(part, way.name)):
            text += [f"{way.title}. " + DECISIONS, table]
    text += [PREPARED, part.table(render.prepared)]
    rows = [[part.title(row), *(render.exactness(part, row, way) for way in part.ways)] for row in part.rows]
    text += [exact, render.markdown(["network", *names.values()], rows)]
    if rows := render.of_several_runs(part):
        text.append(f"Not all ways were measured in one run of the command for: {', '.join(rows)}.")
    if failed := render.failures(part):
        text += ["What failed:", "\n".join(failed)]
    return text


def report(entries):
    """The text for all entries by task."""
    text = ["# PyTorch in every way", render.sources(entries.values())]
    if (part := Part("inference", entries)).rows:
        text += inference(part)
    if (part := Part("training", entries)).rows:
        text += training(part)
    return "\n\n".join(text) + "\n"


def differences(entries):
    """What is not the same to the bit, and has to be."""
    return [each for name in ("inference", "training") for each in render.differences(Part(name, entries))]
