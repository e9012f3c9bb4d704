"""PyTorch in several ways: inference at batch 1, and training at CIFAR's shapes."""

import matplotlib.ticker
import style
from style import COLOR, plt

H100 = "2026-11-28-pytorch-nvidia-h100"
H200_TRAINING = "2026-11-26-pytorch-training-nvidia-h200-2"
MACHINE = "NVIDIA H100 80GB HBM3, driver 580.159.04, PyTorch 2.11; 2026-11-28"
NAMES = {"nasnetamobile": "NASNet-A mobile", "nasnetalarge": "NASNet-A large", "darts": "DARTS", "encoder": "BERT-base encoder"}


def cells(name, part):
    """{row: {way: entry}} of one part; a row is a network and a batch."""
    found = {}
    for entry in style.result(name)["results"]:
        if entry["part"] == part:
            found.setdefault((entry["network"], entry["batch"]), {})[entry["way"]] = entry
    return found


def us(entry, clock="row_us"):
    return entry[clock]["median"]


def networks():
    """Rows of inference, from the largest gain by branches to none."""
    table = cells(H100, "inference")
    order = sorted(table, key=lambda row: us(table[row]["nimble"]) / us(table[row]["graph"]))
    return [(NAMES.get(row[0], row[0]), table[row]) for row in order]


def speed():
    """Time of a call, eager, as a CUDA graph, and by Nimble."""
    table = networks()
    figure, axes = plt.subplots(figsize=(8, 4.5))
    figure.subplots_adjust(left=0.17, right=0.97, top=0.84, bottom=0.2)
    style.rows_axis(axes, [name for name, _ in table])
    axes.set_xscale("log")
    for y, (_, ways) in enumerate(table):
        eager, graph, nimble = (us(ways[way]) for way in ("eager", "graph", "nimble"))
        axes.plot([nimble, eager], [y, y], color=COLOR["grid"], linewidth=1.2, zorder=1)
        axes.plot([nimble, graph], [y, y], color=COLOR["soft"], linewidth=6, solid_capstyle="butt", zorder=2)
        ratio = graph / nimble
        axes.annotate(
            f"{ratio:.1f}×" if ratio >= 1.1 else f"{ratio:.2f}×",
            (nimble, y),
            (-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
            color=COLOR["nimble"],
            weight="bold" if ratio >= 1.1 else "normal",
        )
    for way, label, marker, size in (
        ("eager", "eager PyTorch", "o", 32),
        ("graph", "torch.cuda.graph", "D", 30),
        ("nimble", "Nimble (same kernels, same bits)", "o", 44),
    ):
        axes.scatter(
            [us(ways[way]) for _, ways in table],
            range(len(table)),
            size,
            COLOR[way],
            marker,
            label=label,
            zorder=3,
            edgecolors=COLOR["page"],
            linewidths=0.8,
        )
    axes.set_xlim(350, 70000)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda us, _: f"{us / 1000:g} ms"))
    axes.set_xticks([500, 1000, 2000, 5000, 10000, 20000, 50000])
    axes.minorticks_off()
    axes.set_xlabel("time of a call at batch 1, calls that follow each other (log scale, less is better)")
    figure.legend(loc="upper left", bbox_to_anchor=(0.16, 0.925), ncols=3, columnspacing=1.6)
    figure.text(
        0.01,
        0.95,
        "Inference: as fast as a CUDA graph where a network is a chain, faster where it has branches",
        weight="bold",
        fontsize=10.5,
    )
    figure.text(0.01, 0.9, "Blue: how many times\nas fast as the graph", color=COLOR["nimble"], fontsize=8, va="top")
    style.source(figure, f"{MACHINE}. fp32 without TF32, deterministic algorithms; medians by CUDA events.", H100)
    style.save(figure, "speed", "Time of a call of eleven networks: eager, torch.cuda.graph, Nimble")


def compiled():
    """Nimble over eager's kernels and over max-autotune's, each beside a launch of the same kernels without it."""
    table = networks()
    pairs = (
        ("graph", "nimble", "eager's kernels", "torch.cuda.graph", "Nimble"),
        ("autotune", "nimble-autotune", "max-autotune's kernels", "torch.compile max-autotune", "Nimble over max-autotune"),
    )
    figure, panels = plt.subplots(1, 2, figsize=(8, 4.1), sharey=True)
    figure.subplots_adjust(left=0.17, right=0.97, top=0.79, bottom=0.22, wspace=0.08)
    for axes, (before, after, title, *labels), colors in zip(panels, pairs, (("graph", "nimble"), ("autotune", "over"))):
        style.rows_axis(axes, [name for name, _ in table])
        axes.set_title(title)
        for y, (_, ways) in enumerate(table):
            base = us(ways["graph"])
            x = [us(ways[way]) / base for way in (before, after)]
            axes.plot(x, [y, y], color=COLOR["grid"], linewidth=3, zorder=1)
        for way, label, color, marker in zip((before, after), labels, colors, "Do"):
            axes.scatter(
                [us(ways[way]) / us(ways["graph"]) for _, ways in table],
                range(len(table)),
                34,
                COLOR[color],
                marker,
                label=label,
                zorder=3,
                edgecolors=COLOR["page"],
                linewidths=0.8,
            )
        axes.set_xlim(0.2, 1.12)
    handles, labels = map(sum, zip(*(axes.get_legend_handles_labels() for axes in panels)), ([], []))
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.16, 0.935), ncols=4, columnspacing=1.2, fontsize=8)
    figure.supxlabel("time of a call / time of torch.cuda.graph (less is better)", fontsize=9, y=0.095, x=0.57)
    figure.text(
        0.01, 0.95, "Nimble launches the kernels that it is given: eager's, or torch.compile's", weight="bold", fontsize=10.5
    )
    style.source(figure, f"{MACHINE}. Batch 1, calls that follow each other; medians by CUDA events.", H100)
    style.save(figure, "compiled", "Nimble over eager's and over max-autotune's kernels")


def training():
    """A step of training in several ways, against one CUDA graph of the whole step; both devices."""
    ways = (
        ("autotune", "torch.compile max-autotune", "autotune", "D", 22),
        ("callables", "make_graphed_callables", "eager", "s", 22),
        ("nimble", "Nimble(module)", "over", "^", 30),
        ("nimble-step", "nimble.step", "nimble", "o", 40),
    )
    devices = ((H100, "H100, a slow host"), (H200_TRAINING, "H200"))
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.9), sharey=True, sharex=True)
    figure.subplots_adjust(left=0.17, right=0.97, top=0.78, bottom=0.24, wspace=0.08)
    for axes, (name, title) in zip(panels, devices):
        table = cells(name, "training")
        rows = sorted(table)
        style.rows_axis(axes, [f"{network}, {batch}" for network, batch in rows])
        axes.set_title(title)
        axes.axvline(1, color=COLOR["graph"], linewidth=1.3, label="torch.cuda.graph of the step", zorder=2)
        for way, label, color, marker, size in ways:
            x = [us(table[row][way]) / us(table[row]["graph"]) for row in rows]
            axes.scatter(
                x, range(len(rows)), size, COLOR[color], marker, label=label, zorder=3, edgecolors=COLOR["page"], linewidths=0.8
            )
        axes.set_xlim(0.65, 2.25)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="upper left",
        bbox_to_anchor=(0.005, 0.93),
        ncols=5,
        columnspacing=0.9,
        fontsize=7.6,
    )
    figure.supxlabel("time of a step / time of torch.cuda.graph of the step (less is better)", fontsize=9, y=0.11, x=0.57)
    figure.text(
        0.01, 0.945, "Training at CIFAR's shapes: the whole step is what to give to Nimble", weight="bold", fontsize=10.5
    )
    style.source(
        figure,
        "Left: NVIDIA H100, 2026-11-28; right: NVIDIA H200, 2026-11-26; driver 580.159.04, PyTorch 2.11. Rows: network, batch; "
        "steps that follow each other.",
        H100,
        H200_TRAINING,
    )
    style.save(figure, "training", "A training step in several ways, on an H100 and on an H200")


PLOTS = [speed, compiled, training]
