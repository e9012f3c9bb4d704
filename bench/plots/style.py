"""The style of all plots, their sources and their destination.

A plot is one SVG for light and for dark pages: it is drawn in the colours of INK, and a style sheet in the file
replaces each by its partner where the reader prefers dark. """

import io
import json
import pathlib
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen before)

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results"
FIGURES = ROOT / "docs/plots"

# name: (light, dark)
INK = {
    "page": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#2f353d"),
    "panel": ("#f3f5f7", "#191f27"),
    "eager": ("#8b949e", "#7d8590"),
    "graph": ("#c4520a", "#f0883e"),
    "nimble": ("#0a66c8", "#58a6ff"),
    "autotune": ("#7a45d6", "#bc8cff"),
    "over": ("#12777f", "#39c5cf"),
    "soft": ("#cfe4fb", "#17365c"),
}
COLOR = {name: light for name, (light, _) in INK.items()}

plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "nimble",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "figure.facecolor": COLOR["page"],
        "axes.facecolor": COLOR["page"],
        "text.color": COLOR["text"],
        "axes.edgecolor": COLOR["muted"],
        "axes.labelcolor": COLOR["text"],
        "axes.linewidth": 0.8,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": COLOR["muted"],
        "ytick.color": COLOR["muted"],
        "xtick.labelcolor": COLOR["text"],
        "ytick.labelcolor": COLOR["text"],
        "grid.color": COLOR["grid"],
        "grid.linewidth": 0.7,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "legend.handletextpad": 0.4,
    }
)


def result(name):
    """The content of bench/results/NAME.json."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def source(figure, text, *names):
    """The line below a plot: device, date, and its source files."""
    files = ", ".join(f"{name}.json" for name in names)
    figure.text(0.01, 0.012, f"{text}\nbench/results/{files}", fontsize=7, color=COLOR["muted"], va="bottom", linespacing=1.35)


def rows_axis(axes, labels):
    """Names down the left side, the first on top, without ticks."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def dark(light, other):
    """The rules that replace a colour by its partner, in fills and lines."""
    return "".join(f'[style*="{what}: {light}"]{{{what}:{other}!important}}' for what in ("fill", "stroke"))


def save(figure, name, title):
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    plt.close(figure)
    rules = "".join(dark(light, other) for light, other in INK.values())
    svg = buffer.getvalue().replace("<defs>", f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n <defs>", 1)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*pt" height="[^"]*pt"', r'<svg role="img" \1width="100%"', svg, count=1)
    svg = svg.replace("font-family: 'DejaVu Sans'", "font-family: Helvetica, Arial, 'DejaVu Sans', sans-serif")
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / f"{name}.svg").write_text(re.sub(r"[ \t]+\n", "\n", svg))
    print(f"docs/plots/{name}.svg")
