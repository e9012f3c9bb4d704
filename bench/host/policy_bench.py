"""The policies' results for op graphs, the cost of Algorithm 1, and the growth of nimble-analyze: figures, tables, plots.

bench/host/run_benchmarks.py calls this. Everything here is computed on the host; the times of policies are predictions.
"""

import json
import math
import subprocess
import xml.sax.saxutils

STREAMS = [8, 64]  # --max-streams of the policy cost, a table each
ALGORITHM_1_GRAPH, ALGORITHM_1_MS = "NASNet-A large", 2
EQUAL = 1e-3  # the tables have three decimals


def output(command):
    return json.loads(subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(build):
    return {"tables": [output([build / "bin" / "policy_table", "--json", "--max-streams", streams]) for streams in STREAMS],
            "algorithm1": output([build / "bin" / "algorithm1"])}


def cost_against_best(graph):
    """Policy cost's predicted time over that of the best of the others: below 1 it is faster."""
    predicted = {row["policy"]: row["predicted"] for row in graph["policies"]}
    return predicted.pop("cost") / min(predicted.values())


def bounds(results):
    """(what, figure, bound, unit) of each figure that has a bound."""
    widest = results["tables"][-1]
    worst = max(cost_against_best(graph) for graph in widest["graphs"])
    milliseconds = next(row["ms"] for row in results["algorithm1"]["graphs"] if row["graph"] == ALGORITHM_1_GRAPH)
    return [(f"cost, {widest['max_streams']} streams, against best", worst, 1 + EQUAL, ""),
            (f"Algorithm 1, {ALGORITHM_1_GRAPH}", milliseconds, ALGORITHM_1_MS, "ms")]


def print_tables(results):
    for table in results["tables"]:
        names = [row["policy"] for row in table["graphs"][0]["policies"]]
        print(f"\npredicted time over the critical path (1 is the limit), streams, synchronisations; "
              f"cost with at most {table['max_streams']} streams\n")
        print(f"  {'graph':28}{'ops':>5}{'bound':>7}" + "".join(f"{name:>19}" for name in names))
        for graph in table["graphs"]:
            cells = "".join(f"{row['predicted']:9.3f}{row['streams']:4}{row['synchronizations']:6}"
                            for row in graph["policies"])
            slower = cost_against_best(graph)
            mark = f"   cost is slower by {100 * (slower - 1):.1f} %" if slower > 1 + EQUAL else ""
            print(f"  {graph['graph']:28}{graph['ops']:5}{graph['bound']:7.3f}{cells}{mark}")
    print(f"\nAlgorithm 1 (minimum equivalent graph, matching, streams), median of {results['algorithm1']['repeats']}\n")
    print(f"  {'graph':28}{'ops':>6}{'edges':>7}{'streams':>9}{'reduction':>13}{'all':>10}")
    for row in results["algorithm1"]["graphs"]:
        print(f"  {row['graph']:28}{row['ops']:6}{row['edges']:7}{row['streams']:9}{row['reduction_ms']:10.3f} ms"
              f"{row['ms']:7.3f} ms")


def text_plot(rows, height=12, width=56):
    """Seconds over ops, both logarithmic, as lines of text; `.` is the line of linear growth through the last point."""
    points = [(math.log10(row["ops"]), math.log10(row["seconds"])) for row in rows]
    (left, right), low = (points[0][0], points[-1][0]), math.floor(min(y for _, y in points))
    high = math.ceil(max(y for _, y in points))
    grid = [[" "] * (width + 1) for _ in range(height + 1)]

    def put(x, y, mark):
        row = round((high - y) / (high - low) * height)
        if 0 <= row <= height:
            grid[row][round((x - left) / (right - left) * width)] = mark

    for step in range(width + 1):
        x = left + (right - left) * step / width
        put(x, points[-1][1] + x - right, ".")
    for x, y in points:
        put(x, y, "o")
    lines = []
    for i, row in enumerate(grid):
        y = high - i * (high - low) / height
        label = f"{10 ** round(y):g} s" if abs(y - round(y)) < 1e-9 else ""
        lines.append(f"  {label:>8} |{''.join(row).rstrip()}")
    lines.append("           +" + "-" * (width + 1))
    lines.append(f"            {rows[0]['ops']:<{width // 2}}{rows[-1]['ops']:>{width // 2 + 1}} ops")
    return "\n".join(lines)


def svg_plot(rows, title):
    """The same as SVG."""
    size, margin = (640, 400), 60
    xs, ys = [math.log10(row["ops"]) for row in rows], [math.log10(row["seconds"]) for row in rows]
    x0, x1 = math.floor(xs[0]), math.ceil(xs[-1])
    y0, y1 = math.floor(min(ys)), math.ceil(max(ys))

    def at(x, y):
        return (margin + (x - x0) / (x1 - x0) * (size[0] - 2 * margin),
                size[1] - margin - (y - y0) / (y1 - y0) * (size[1] - 2 * margin))

    def line(a, b, style):
        return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>' % (*a, *b, style)

    def text(x, y, words, anchor):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{xml.sax.saxutils.escape(words)}</text>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" font-family="sans-serif" '
             'font-size="12">', '<rect width="100%" height="100%" fill="white"/>', text(size[0] / 2, 24, title, "middle")]
    for x in range(x0, x1 + 1):
        parts += [line(at(x, y0), at(x, y1), 'stroke="#ddd"'), text(*(at(x, y0)[0], at(x, y0)[1] + 18), f"{10 ** x:,}", "middle")]
    for y in range(y0, y1 + 1):
        parts += [line(at(x0, y), at(x1, y), 'stroke="#ddd"'), text(at(x0, y)[0] - 6, at(x0, y)[1] + 4, f"{10.0 ** y:g} s", "end")]
    # Linear growth through the last point, clipped to the plot.
    reach = max(x0, xs[-1] - (ys[-1] - y0))
    parts.append(line(at(reach, ys[-1] + reach - xs[-1]), at(xs[-1], ys[-1]), 'stroke="#999" stroke-dasharray="4 4"'))
    where = " ".join("%.1f,%.1f" % at(x, y) for x, y in zip(xs, ys))
    parts.append(f'<polyline points="{where}" fill="none" stroke="#1565c0" stroke-width="2"/>')
    parts += ['<circle cx="%.1f" cy="%.1f" r="4" fill="#1565c0"/>' % at(x, y) for x, y in zip(xs, ys)]
    parts.append(text(size[0] / 2, size[1] - 14, "ops in the trace; dashed: linear growth", "middle"))
    return "\n".join(parts) + "\n</svg>\n"
