"""Programs without a framework: against hand-written CUDA graphs, and against their predictions."""

import style
from style import COLOR, plt

WAYS, PREDICTED = "2026-11-22-ways-nvidia-h200", "2026-11-20-predictions-nvidia-h200"
BRANCHES = "2026-11-20-graph-branches-nvidia-h200"
ORDER = (
    ("eager", "without Nimble", "eager"),
    ("line", "graph by hand, one stream", "graph"),
    ("branches", "graph by hand, branches", "autotune"),
    ("nimble", "Nimble", "nimble"),
)
TITLES = {"digits_ways": "digits, a training step", "inception_ways": "eight blocks of four branches, batch 1"}


def by_hand():
    """A step, and the part of it in which the host submits."""
    parts = {part["part"]: part["ways"] for part in style.result(WAYS)["parts"]}
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.75), sharey=True, sharex=True)
    figure.subplots_adjust(left=0.24, right=0.97, top=0.76, bottom=0.29, wspace=0.08)
    for axes, (part, title) in zip(panels, TITLES.items()):
        style.rows_axis(axes, [label for _, label, _ in ORDER])
        for y, (way, _, color) in enumerate(ORDER):
            step, submit = (parts[part][way][field]["median"] for field in ("step_us", "submit_us"))
            axes.barh(y, step, 0.6, color=COLOR[color])
            axes.barh(y + 0.39, submit, 0.13, color=COLOR["text"])
            axes.text(step + 12, y, f"{step:.0f} µs", va="center", fontsize=8.5)
        axes.set(title=title, xlim=(0, 860), xticks=[0, 200, 400, 600, 800])
    figure.text(
        0.01, 0.92, "Any program: time of a step, and (thin bar) the host's time to submit it", weight="bold", fontsize=10.5
    )
    style.source(figure, "NVIDIA H200, driver 580.159, CUDA 13.0; 2026-11-22. Medians; all ways compute the same bits.", WAYS)
    style.save(figure, "by_hand", "A step without Nimble, as CUDA graphs written by hand, and by Nimble")


def model():
    """The accuracy of predictions, and the device's cost of concurrency."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5))
    figure.subplots_adjust(left=0.085, right=0.97, top=0.8, bottom=0.27, wspace=0.22)
    programs = style.result(PREDICTED)["results"]
    low, high = 100, 20000
    left.plot([low, high], [low, high], color=COLOR["muted"], linewidth=1, zorder=1)
    for policy, color, marker, size in (("single", "eager", "o", 26), ("cost", "nimble", "o", 34)):
        points = [row for program in programs for row in program["policies"] if row["policy"] == policy]
        left.scatter(
            [row["measured_us"] for row in points],
            [row["predicted_us"] for row in points],
            size,
            COLOR[color],
            marker,
            zorder=3,
            edgecolors=COLOR["page"],
            linewidths=0.8,
            label="one stream" if policy == "single" else f"policy {policy}",
        )
    left.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(low, high),
        xlabel="measured, µs a step",
        ylabel="predicted, µs a step",
        title="predictions of nimble-analyze",
    )
    left.legend(loc="upper left")
    left.grid()
    rows = style.result(BRANCHES)["branches"]
    right.plot(
        [row["branches"] for row in rows],
        [row["level_by_level_us"] for row in rows],
        "o-",
        color=COLOR["nimble"],
        linewidth=1.5,
        markersize=5,
        markeredgecolor=COLOR["page"],
    )
    right.set_xscale("log", base=2)
    right.set(
        ylim=(0, 240),
        xlabel="branches of one graph, all alike",
        ylabel="µs a launch",
        title="branches side by side",
        xticks=[row["branches"] for row in rows],
        xticklabels=[str(row["branches"]) for row in rows],
    )
    right.minorticks_off()
    right.grid()
    for axes in (left, right):
        axes.tick_params(labelsize=8)
    figure.text(0.01, 0.935, "The model of the device", weight="bold", fontsize=10.5)
    style.source(
        figure,
        "NVIDIA H200, driver 580.159; 2026-11-20. Left: digits, op graphs of published networks and random ones "
        "(scripts/predictions).",
        PREDICTED,
        BRANCHES,
    )
    style.save(figure, "model", "Predicted and measured times of steps; graphs of 1 to 128 branches")


PLOTS = [by_hand, model]
