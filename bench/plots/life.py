"""The life of a launch: a call's way through Nimble, and the time of a step on the host and on the GPU."""

import style
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from style import COLOR, plt

DEMO = "2026-11-20-demo-nvidia-h200"
MODES = (("off", "without Nimble", "eager"), ("record", "recording", "graph"), ("replay", "replaying", "nimble"))


class Diagram:
    """Boxes and arrows, in the units of `axes`."""

    def __init__(self, axes):
        self.axes = axes
        axes.set_axis_off()

    def box(self, x, y, width, title, below="", color="muted", fill="panel", height=13):
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y - height / 2),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=1.2",
                linewidth=1.1,
                edgecolor=COLOR[color],
                facecolor=COLOR[fill],
            )
        )
        self.axes.text(x + width / 2, y + (2.7 if below else 0), title, ha="center", va="center", fontsize=8.2, weight="bold")
        if below:
            self.axes.text(
                x + width / 2, y - 2.9, below, ha="center", va="center", fontsize=6.9, color=COLOR["muted"], linespacing=1.2
            )

    def arrow(self, start, end, color="muted", style="-", bend="arc3"):
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=1.3,
                linestyle=style,
                color=COLOR[color],
                connectionstyle=bend,
                shrinkA=0,
                shrinkB=0,
            )
        )

    def note(self, x, y, text, color="muted", **place):
        self.axes.text(x, y, text, fontsize=7.2, color=COLOR[color], va="center", **place)


def route(axes):
    """Recorded once, above; replayed at each step, below."""
    axes.set(xlim=(-0.5, 150), ylim=(0, 66))
    draw = Diagram(axes)
    draw.box(0, 33, 23, "program", "calls\ncuLaunchKernel", height=16)
    draw.box(30, 33, 23, "wrapper", "one for each call\nof the driver's", height=16)
    draw.arrow((23, 33), (30, 33))

    draw.note(54, 52, "recorded once", "graph", weight="bold", ha="right")
    draw.arrow((53, 36), (60, 53), "graph")
    draw.box(60, 53, 23, "recorder", "copies the call", "graph")
    draw.arrow((83, 56), (127, 56), "graph")
    draw.note(103, 58.6, "and it goes on, unchanged", "muted", ha="center")
    draw.arrow((83, 50), (88, 46.5), "graph", "--")
    draw.box(88, 44, 31, "nimble-analyze", "trace.json to schedule.json:\nwhat depends on what", "graph", height=15)
    draw.arrow((88, 41.5), (75, 26.5), "graph", "--")

    draw.note(54, 16, "replayed at each step", "nimble", weight="bold", ha="right")
    draw.arrow((53, 30), (60, 19), "nimble")
    draw.box(60, 19, 23, "compare", "with the schedule:\nkernel, shape, memory", "nimble", height=15)
    draw.arrow((83, 19), (91, 19), "nimble")
    draw.note(87, 22, "same", "nimble", ha="center")
    draw.box(91, 19, 23, "hold", "until the segment's\nlast op has come", "nimble", height=15)
    draw.arrow((114, 19), (127, 19), "nimble")
    draw.note(120.3, 24.2, "one graph\nlaunch", "nimble", ha="center", linespacing=1.1)
    draw.arrow((71, 11.5), (127, 7), "eager", bend="angle,angleA=-90,angleB=0,rad=3")
    draw.note(99, 4.4, "differs: what is held goes out in the program's own order", "muted", ha="center")

    axes.add_patch(
        FancyBboxPatch(
            (127, 3),
            22,
            58,
            boxstyle="round,pad=0,rounding_size=1.2",
            linewidth=1.1,
            edgecolor=COLOR["muted"],
            facecolor=COLOR["panel"],
        )
    )
    axes.text(138, 57, "driver, GPU", ha="center", va="center", fontsize=8.2, weight="bold")
    for i in range(4):  # one stream
        lane(axes, 130 + i * 4.1, 47.5, "eager")
    draw.note(138, 42.8, "one stream", ha="center")
    for x, y in ((130, 27.5), (134.1, 27.5), (134.1, 23), (134.1, 18.5), (138.2, 23), (138.2, 18.5), (142.3, 23)):
        lane(axes, x, y, "nimble")
    draw.note(138, 12.5, "branches,\nside by side", ha="center", linespacing=1.1)


def lane(axes, x, y, color):
    """A kernel."""
    axes.add_patch(
        FancyBboxPatch((x, y - 1.5), 3.3, 3, boxstyle="round,pad=0,rounding_size=0.5", linewidth=0, facecolor=COLOR[color])
    )


def bars(axes, demo, field, title):
    style.rows_axis(axes, [label for _, label, _ in MODES])
    figures = [demo["modes"][mode][field] for mode, _, _ in MODES]
    axes.barh(range(len(MODES)), figures, 0.62, color=[COLOR[color] for _, _, color in MODES])
    for y, us in enumerate(figures):
        axes.text(us + 12, y, f"{us:.0f} µs", va="center", fontsize=8.5)
    axes.set(title=title, xlim=(0, 1290), xticks=[0, 250, 500, 750, 1000])


def life():
    """A launch's stages, and a step's times."""
    demo = style.result(DEMO)
    figure = plt.figure(figsize=(8.4, 5.6))
    route(figure.add_axes((0.01, 0.42, 0.98, 0.52)))
    host, gpu = figure.add_axes((0.135, 0.135, 0.36, 0.2)), figure.add_axes((0.575, 0.135, 0.36, 0.2))
    bars(host, demo, "host_us_per_step", "the host submits a step in")
    bars(gpu, demo, "gpu_us_per_step", "a step takes on the GPU")
    gpu.set_yticklabels([])
    off, replay = (demo["submissions_per_step"][mode] for mode in ("off", "replay"))
    figure.text(0.01, 0.955, "The life of a launch", weight="bold", fontsize=10.5)
    style.source(
        figure,
        f"NVIDIA H200, driver 580.159; 2026-11-20. scripts/demo: training of a small CNN, {off:.0f} driver submissions a step "
        f"without Nimble, {replay:.1f} replaying; same weights to the bit.",
        DEMO,
    )
    style.save(figure, "life", "What a launch passes through, recorded and replayed, and what a step takes")


PLOTS = [life]
