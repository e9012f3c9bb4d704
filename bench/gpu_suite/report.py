"""Writes the results as files: everything as JSON, and the essentials as a table in Markdown."""

import json

import measure
import traces
import ways

EVIDENCES = ("exact", "proven", "declared", "observed", "assumed")
COLUMNS = ("part", "result", "coverage", "us/step", "off", "record", "light", "noise", "GPU busy", "step found",
           "calls", "streams", "segments", "evidence", "output", "trace")
WAYS_COLUMNS = ("part", "way", "submit us", "ratio", "CPU us", "ratio", "step us", "ratio", "output", "replayed")

BUNDLE_COLUMNS = ("part", "way", "streams", "graphs", "p50 us", "p90 us", "p99 us", "min us", "speed-up", "memory")
LIFE_COLUMNS = ("part", "program", "processes", "ended otherwise", "traces whole", "without Nimble", "recording")
DISORDER_COLUMNS = ("part", "program", "way", "runs", "replayed", "passed", "diverged", "audited", "aside", "output")


def times(ratio):
    """A ratio with its range over the groups of processes."""
    if not ratio:
        return "-"
    low, high = ratio["range"]
    return f"{ratio['ratio']:.3f}" + (f" ({low:.2f}-{high:.2f})" if len(ratio["each"]) > 1 else "")


def shares(evidence):
    whole = sum(evidence.values())
    if whole == 0:
        return "-"
    return " ".join(f"{name} {100 * evidence[name] / whole:.0f} %" for name in EVIDENCES if evidence.get(name))


def size(count):
    return f"{count / 2**20:.1f} MiB" if count is not None else "-"


def busy(analysis):
    """The share of a step in which the GPU runs something, where the trace holds device times."""
    measured = analysis.get("measured", {})
    return f"{100 * measured['busy_us'] / measured['span_us']:.0f} %" if measured.get("span_us") else "-"


def row(result):
    trace = result.get("trace", {})
    analysis = trace.get("analysis", {})
    step = analysis.get("step")
    measured = result.get("modes", {}).get("bare", {}).get("median_us")
    ratios = result.get("ratios", {})
    calls = "-"
    if step:
        calls = str(step["calls"])
        found = f"{step['ops']} ops x {step['repeats']}"
    else:
        found = "no" if "why_no_schedule" in analysis else "-"
        if trace and result["modes"]["record"]["steps"]:
            calls = f"~{trace['calls'] / result['modes']['record']['steps']:.0f}"
    digests = "-"
    if "digests_equal" in result:
        digests = "equal" if result["digests_equal"] else "DIFFERS" if result["digests_differ"] else "-"
    return (result["part"], result["status"], traces.describe_coverage(trace["coverage"]) if trace else "-",
            f"{measured:.1f}" if measured else "-", times(ratios.get("off")), times(ratios.get("record")),
            times(ratios.get("light")), times(ratios.get("again")), busy(analysis), found, calls,
            str(step["streams"]) if step else "-", str(len(analysis["segments"])) if step else "-",
            shares(analysis["ops_by_evidence"]) if step else "-", digests, size(trace.get("bytes")))


def microseconds(figure):
    if not figure:
        return "-"
    low, high = figure["quartiles"]
    return f"{figure['median']:.1f} ({low:.1f}-{high:.1f})"


def rows_of_ways(result):
    """A row for each way of a part, with its ratios to the program alone and to the graph by hand."""
    rows = []
    for name, way in result.get("ways", {}).items():
        cells = []
        for figure in ways.FIGURES:
            ratio = way["ratios"].get(figure)
            cells += [microseconds(way[figure]), f"{ratio['eager']:.3f}, {ratio['by_hand']:.3f}" if ratio else "-"]
        output = "-" if way.get("failure") else "equal" if result["digests_equal"] else "DIFFERS"
        replayed = f"{way['counters']['steps_replayed']} of {way['steps']}" if "counters" in way else "-"
        rows.append((result["part"], name, *cells, output, replayed))
    return rows


def rows_of_bundle(result):
    """A row for each way of running a saved step."""
    replay = result.get("replay")
    rows = []
    for way in replay["ways"] if replay else ():
        figures = way["gpu_us"] or {}
        rows.append((result["part"], way["way"], str(way["streams"]), str(way["graphs"]),
                     *(f"{figures[name]:.1f}" if name in figures else "-" for name in ("p50", "p90", "p99", "min")),
                     f"{way['speed_up']:.2f}" if figures else "-", "equal" if way["equal"] else "DIFFERS"))
    return rows


def rows_of_disorder(result):
    """A row for each program and way of replaying it."""
    return [(result["part"], row["program"], row["way"], str(row["runs"]), str(row.get("steps_replayed", 0)),
             str(row.get("steps_passed_through", 0)), str(row.get("divergences", 0)), str(row.get("steps_audited", 0)),
             str(row.get("stood_aside", 0)), "DIFFERS" if row["differ"] or row.get("audits_failed") else "equal")
            for row in result.get("disorder", ())]


def counted(endings):
    return ", ".join(f"{how} x {count}" for how, count in sorted(endings.items()))


def rows_of_graph_life(result):
    """A row for each program that makes graphs, and for each tool that watched one."""
    rows = [(result["part"], row["program"], str(sum(row["recorded"].values())), str(row["otherwise"]), str(row["traces_whole"]),
             counted(row["plain"]), counted(row["recorded"])) for row in result.get("graph_life", ())]
    return rows + [(result["part"], f"under {row['watcher']}", "1", {"ok": "0", "otherwise": "1"}.get(row["status"], "-"), "-", "-", row["why"] or row["status"])
                   for row in result.get("watched", ())]


def table(columns, rows):
    widths = [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]

    def text(line):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"

    return "\n".join([text(columns), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(text, rows)])


LEGEND = """\
Columns: **coverage**, launches, copies and sets that the trace holds, of those that CUPTI counted. **us/step**, the median
without the shim, with a synchronisation at the end of each step. **off**, **record**, **light**: the step's time in these
modes against no shim, the fastest third of blocks of steps that alternate between the modes; the median, the least and the
greatest over groups of fresh processes; **light** records without times and cross-check. **noise**, the same for a second
process without the shim: how much processes differ anyway. **GPU busy**, of the time from a step's first op to its last.
**calls**, calls of a step that the trace holds, ops and others; with ~, all calls by all steps, where no step was found.
**evidence**, the source of the step's accesses. **output**, whether all modes computed the same bytes."""


WAYS_LEGEND = """\
Side by side: **submit us**, the host's time from a step's first driver call to the return of its last one, when the driver has
all of its work. **CPU us**, the CPU time of the program's thread meanwhile, in the program, in Nimble and in the driver. **step
us**, of whole steps: with the synchronisation that ends each, or, for digits, by the device's clock over whole epochs (on the
simulated driver, whose clock is a model's, the host's time once more). Medians and quartiles over blocks of steps that alternate
between the ways, or for digits over processes. **ratio**, of medians: to the program alone, and to the graph by hand with the
shorter steps. **replayed**, steps of those that the processes made, for digits those of the latest process of each group."""


BUNDLE_LEGEND = """\
A saved step, run by nimble-replay without its program: microseconds of the device's clock from before the step's first op until
after its last (on the simulated driver a model's). **speed-up**, of medians, against the program's own order, call by call.
**memory**, whether the step's final memory is as recorded, byte for byte, in every run."""


LIFE_LEGEND = """\
Programs that make, launch, change and destroy CUDA graphs, in fresh processes, several at once on the device: how they end without
Nimble and in default recording. **ended otherwise**, processes whose exit status or output was not one of those without Nimble."""


DISORDER_LEGEND = """\
Programs of the integration tests, which break their steps in every way that they know, run without Nimble and replayed. **runs**,
with as many seeds. **replayed**, **passed**: steps of all runs, that is those that matched. **aside**, runs in which replay stood
aside. **output**, whether all runs printed what they print without Nimble."""


def on_one_line(lines):
    return " / ".join(line.strip() for line in lines[-4:] if line.strip())


def remarks(result):
    """The lines of one part below the table."""
    lines = []
    if result.get("why"):
        lines.append(result["why"])
    analysis = result.get("trace", {}).get("analysis", {})
    if analysis.get("why_no_schedule"):
        lines.append(("no schedule: " if analysis.get("step") else "no step: ") + analysis["why_no_schedule"])
    lines += result.get("odd", [])
    if result["status"] == "failed":
        lines += [f"last words of {words}" for words in measure.together(
            {name: on_one_line(run["last_words"]) for name, run in result.get("modes", result.get("ways", {})).items()
             if run.get("last_words")})]
        if result.get("last_words"):
            lines.append(f"last words: {on_one_line(result['last_words'])}")
    return [line if len(line) < 600 else line[:600] + " [...]" for line in lines]


def markdown(facts):
    device = facts["device"]
    lines = [f"# GPU suite, {facts['date']}{', dry run' if facts['dry_run'] else ''}", "",
             f"- device: {device['device']}" + (" (simulated)" if facts["dry_run"] else ""),
             f"- driver: {device['driver'] or 'version unknown'}, CUDA {device['cuda_of_driver']}",
             "- versions: " + ", ".join(f"{name} {', '.join(value) if isinstance(value, list) else value or 'not there'}"
                                        for name, value in facts["versions"].items()),
             f"- took {facts['seconds']:.0f} s", ""]
    in_modes = [row(result) for result in facts["parts"] if not {"ways", "replay", "disorder", "graph_life"} & set(result)]
    lives = [line for result in facts["parts"] for line in rows_of_graph_life(result)]
    disordered = [line for result in facts["parts"] for line in rows_of_disorder(result)]
    saved = [line for result in facts["parts"] for line in rows_of_bundle(result)]
    side_by_side = [line for result in facts["parts"] for line in rows_of_ways(result)]
    if in_modes:
        lines += [table(COLUMNS, in_modes), "", LEGEND, ""]
    if side_by_side:
        lines += [table(WAYS_COLUMNS, side_by_side), "", WAYS_LEGEND, ""]
    if saved:
        lines += [table(BUNDLE_COLUMNS, saved), "", BUNDLE_LEGEND, ""]
    if lives:
        lines += [table(LIFE_COLUMNS, lives), "", LIFE_LEGEND, ""]
    if disordered:
        lines += [table(DISORDER_COLUMNS, disordered), "", DISORDER_LEGEND, ""]
    for result in facts["parts"]:
        said = remarks(result)
        if said:
            lines += [f"**{result['part']}** ({result['what']})", "", *(f"- {line}" for line in said), ""]
    return "\n".join(lines)


def write(folder, name, facts):
    """Replaces each file atomically, so that a kill leaves complete ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".json", json.dumps(facts, indent=1) + "\n"), (".md", markdown(facts))):
        path = folder / (name + suffix)
        draft = path.with_suffix(suffix + ".part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
