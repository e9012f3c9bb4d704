"""The whole report: every table with its explanation. Pure functions of runner.py's results."""

import render
from render import Part

INFERENCE = """Each way in a separate process, in fp32 without TF32 and with deterministic algorithms, on one input in the same
memory repeatedly: a call of a graph is its launch alone. Microseconds of a call: median [10 %, 90 %] of 100 runs or more.
Before that each process creates and destroys another context; docs/explanation/pytorch.md says why."""
TRAINING = """The step: forward, cross entropy, backward, SGD; images of 3x32x32, 10 classes; torchvision's networks with their
stems as they are. Each way in a separate process, in fp32 without TF32 and with deterministic algorithms.
`make_graphed_callables` and `Nimble` leave loss and optimizer unchanged, and have graphs for forward and backward;
`torch.cuda.graph of the step` and `nimble.step`, including the one over torch.compile's kernels, launch the whole step.
Microseconds of a step: median [10 %, 90 %] of 100 runs or more. Before that each process creates and destroys another context;
docs/explanation/pytorch.md says why."""
BY_EVENTS = """By CUDA events, from one before the call to one after it, on an idle GPU:"""
BY_CLOCK = """By the host's clock, until the GPU has finished:"""
IN_A_ROW = """By CUDA events over ten calls back to back, per call; of ten such rows or more:"""
PREPARED = """Preparing: seconds, and MiB in use on the device before it and after all runs (of compilers' memory, the part that
PyTorch's allocator knows). In brackets: torch.compile's earlier time, to fill the caches that the timed process then found.
Other processes were working during TorchScript's and torch.compile's preparation."""
EXACT = """Outputs for three inputs, compared with those that the same process computed by the way's intended kernels: eager's,
and torch.compile's for Nimble over it. Where kernels differ, the largest difference from eager, relative to its largest
output."""
CURVES = """Losses of 50 steps and all parameters and buffers after them, compared with those of eager steps in the same process
from the same state with the same seed; for Nimble over torch.compile, with those of torch.compile's steps. Where kernels or
random numbers differ, the largest difference between its losses and eager's, relative to the largest loss. The losses are in
the JSON."""
PAPER = """How many times faster, by events, beside the paper's figures (bench/pytorch/published.json); `fastest` are the
fastest of Nimble's ways above, and of the others:"""
DECISIONS = """The decisions for Nimble's graphs: `rewritten`, or `own`, the program's, since it was faster, or `kept`, since
there is no other. Microseconds are medians of a launch, measured by libnimble.so when it decided. The last column says whether
it, or a step's first part, is launched before the call has checked its state; else a call on an idle GPU waits for the
check:"""


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
    """`pairs`: ways of Nimble, each with a way that it must not be slower than."""
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
    """Results that differ, but must be the same to the bit."""
    return [each for name in ("inference", "training") for each in render.differences(Part(name, entries))]
