"""Nimble's costs: a launch on the host, and a recorded step."""

import style
from style import COLOR, plt

LAUNCHES, SUITE = "2026-11-25-launches-debian12-2cores", "2026-11-20-gpu-suite-nvidia-h200"
MODES = (
    ("bare", "no library", "eager"),
    ("off", "off", "over"),
    ("full", "graphs rewritten", "autotune"),
    ("replay", "replay", "nimble"),
    ("record", "record", "graph"),
    ("graphs", "graphs recorded", "graph"),
)


def cost():
    """ns of a launch in each mode; and steps of real programs, recorded."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.4), gridspec_kw={"width_ratios": (1, 1.15)})
    figure.subplots_adjust(left=0.19, right=0.975, top=0.82, bottom=0.2, wspace=0.36)
    launches = {row["mode"]: row["launches"] for row in style.result(LAUNCHES)["launches"]}
    style.rows_axis(left, [label for _, label, _ in MODES])
    for y, (mode, _, color) in enumerate(MODES):
        row = launches[mode]
        left.barh(y, row["median_ns"], 0.6, color=COLOR[color])
        left.text(
            row["median_ns"] + 8,
            y,
            f"{row['median_ns']:.0f}" + (f" (+{row['added_ns']:.0f})" if mode != "bare" else ""),
            va="center",
            fontsize=8,
        )
    left.axvline(launches["bare"]["median_ns"], color=COLOR["muted"], linewidth=0.9, linestyle=":")
    left.set(title="ns of a launch, simulated driver", xlim=(0, 790), xticks=[0, 200, 400, 600])

    parts = [part for part in style.result(SUITE)["parts"] if part.get("ratios")]
    parts.sort(key=lambda part: part["ratios"]["record"]["ratio"])
    style.rows_axis(right, [part["part"] for part in parts])
    for y, part in enumerate(parts):
        for mode, color, shift, marker in (("off", "over", -0.16, "o"), ("record", "graph", 0.16, "D")):
            row = part["ratios"][mode]
            right.plot(row["range"], [y + shift] * 2, color=COLOR[color], linewidth=1, alpha=0.55, zorder=2)
            right.scatter(
                row["ratio"],
                y + shift,
                20,
                COLOR[color],
                marker,
                zorder=3,
                edgecolors=COLOR["page"],
                linewidths=0.6,
                label={"off": "off", "record": "recording"}[mode] if y == 0 else None,
            )
    right.axvline(1, color=COLOR["muted"], linewidth=1)
    right.tick_params(axis="y", labelsize=7.5)
    right.set(title="a step / a step without Nimble", xlim=(0.7, 1.75))
    right.legend(loc="lower right")
    figure.text(0.01, 0.945, "What it costs: a launch on the host, and recording real programs", weight="bold", fontsize=10.5)
    style.source(
        figure,
        "Left: simulated driver, 2 cores of a shared virtual machine; 2026-11-25. Right: NVIDIA H200, driver 580.159; 2026-11-20; "
        "range over groups of processes.",
        LAUNCHES,
        SUITE,
    )
    style.save(figure, "cost", "ns of a launch in each mode; steps of 18 programs with the library off and recording")


PLOTS = [cost]
