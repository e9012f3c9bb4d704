"""The tables of runner.py's results, as Markdown. Pure functions of entries by task; a dash marks missing ones."""

import json
import pathlib

import networks
import ways
from runner import Task

PUBLISHED = json.loads((pathlib.Path(__file__).parent / "published.json").read_text())
TITLES = {"encoder": "encoder (BERT-base)", "nasnetamobile": "NASNet-A mobile", "nasnetalarge": "NASNet-A large",
          "darts": "DARTS"}
MISSING = "-"
# How far a ratio of medians must be from 1 to count as slower.
NOISE = 0.01


def markdown(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def median(entry, field="gpu_us"):
    """None where the time is missing."""
    return entry[field]["median"] if entry and field in entry else None


def ratio(above, below):
    return f"{above / below:.2f}" if above and below else MISSING


class Part:
    """The entries of `inference` or `training`, as rows (network, batch) and the ways that any of them was run in."""

    def __init__(self, name, entries):
        self.name = name
        self.entries = {task: entry for task, entry in entries.items() if task.part == name}
        batches = networks.BATCHES if name == "training" else [1]
        order = networks.TRAINING if name == "training" else networks.INFERENCE
        found = {task[1:3] for task in self.entries}
        self.rows = [(network, batch) for network in order for batch in batches if (network, batch) in found]
        self.ways = [way for way in ways.WAYS[name] if any(task.way == way.name for task in self.entries)]

    def get(self, row, way):
        return self.entries.get(Task(self.name, *row, way))

    def title(self, row):
        return TITLES.get(row[0], row[0]) + (f", {row[1]}" if self.name == "training" else "")

    def table(self, cell, chosen=None):
        """A column for each way, with cell(entry) for those that have run."""
        chosen = self.ways if chosen is None else chosen
        return markdown(["network", *(way.title for way in chosen)],
                        [[self.title(row), *(self.cell(self.get(row, way.name), cell) for way in chosen)] for row in self.rows])

    @staticmethod
    def cell(entry, cell):
        if entry is None:
            return MISSING
        if "not_within_s" in entry:
            return f"not within {entry['not_within_s']} s"
        return "failed" if "failed" in entry else cell(entry)


def times(field):
    def cell(entry):
        found = entry[field]
        return f"{found['median']:.0f} [{found['p10']:.0f}, {found['p90']:.0f}]"
    return cell


def prepared(entry):
    """A user's waiting time: with empty caches, where that was measured."""
    cold = entry.get("cold_prepare_s")
    seconds = f"{entry['prepare_s']:.2f} s" if cold is None else f"{entry['prepare_s']:.1f} s ({cold:.0f} s)"
    return f"{seconds}, {entry['memory_mib']['before']:.0f} to {entry['memory_mib']['after']:.0f}"


def exactness(part, row, way):
    """How an entry's results compare with those that they must equal, in words."""
    entry = part.get(row, way.name)
    if part.cell(entry, lambda _: "") or entry is None:
        return part.cell(entry, str)
    words = []
    if "same_bits" in entry:
        words.append("same bits" if entry["same_bits"] else "OTHER BITS")
    other = part.get(row, way.same) if way.same else None
    if other and "digest" in other and other["digest"] != entry["digest"]:
        words.append(f"other than in {way.same}'s process")
    eager = part.get(row, "eager")
    if eager and "digest" in eager and eager["digest"] != entry["eager_digest"]:
        words.append("eager differs between the processes")
    if way.same != "eager" and entry.get("difference") is not None:
        words.append(f"{entry['relative_difference']:.0e} of eager's largest")
    return ", ".join(words)


def differences(part):
    """The entries whose results are not what they must be: (title, way's name)."""
    return [(part.title(row), way.name) for row in part.rows for way in part.ways
            if (part.get(row, way.name) or {}).get("same_bits") is False]


def published(part, row):
    found = PUBLISHED[part.name].get(row[0])
    return found.get(str(row[1])) if isinstance(found, dict) else found


def speedups(part, nimble, graph):
    """How many times faster Nimble is than the others, beside published figures."""
    rows = []
    for row in part.rows:
        times_of = {way.name: median(part.get(row, way.name)) for way in part.ways}
        own, paper = times_of.get(nimble), published(part, row)
        others = [times for name, times in times_of.items() if times and not name.startswith("nimble")]
        best = min((times for name, times in times_of.items() if times and name.startswith("nimble")), default=None)
        rows.append([part.title(row), f"{paper:.2f}" if paper else MISSING, ratio(times_of.get("eager"), own),
                     ratio(times_of.get("torchscript"), own), ratio(times_of.get(graph), own),
                     ratio(times_of.get("nimble-one"), own), ratio(min(others, default=None), best)])
    title = ways.way(part.name, graph).title
    return markdown(["network", "eager / Nimble in the paper (V100)", "eager / Nimble", "TorchScript / Nimble",
                     f"{title} / Nimble", "one stream / Nimble", "fastest other / fastest of Nimble"], rows)


def slower(part, way, than):
    """Rows on which a way is slower than another, and by how much."""
    found = []
    for row in part.rows:
        one, other = median(part.get(row, way)), median(part.get(row, than))
        if one and other and other / one < 1 - NOISE:
            found.append(f"{part.title(row)} ({other / one:.2f})")
    return found


def decisions(part, name):
    """libnimble.so's decisions for the graphs of one way."""
    def time(value):
        return MISSING if value is None else f"{value:.0f}"

    ahead = {True: "yes", False: "no"}
    rows = [[part.title(row), graph["kind"] or MISSING, graph["state"], str(graph["nodes"]), str(graph["streams"]),
             time(graph["own_us"]), time(graph["rewritten_us"]), ahead.get(graph.get("runs_ahead"), MISSING), graph["why"]]
            for row in part.rows for graph in (part.get(row, name) or {}).get("graphs", [])]
    columns = ["network", "graph", "launched", "nodes", "side by side", "own, us", "rewritten, us", "before the look", "why"]
    return markdown(columns, rows) if rows else ""


def failures(part):
    return [f"- {part.title(row)}, {way.title}: {entry['failed']}" for row in part.rows for way in part.ways
            if (entry := part.get(row, way.name)) and "failed" in entry]


def sources(entries):
    """The devices, and how many runs of the command all of this was measured in."""
    def all_of(field):
        return sorted({entry[field] for entry in entries if entry.get(field)})

    runs = len(all_of("invocation"))
    return (f"Device: {'; '.join(all_of('device')) or 'unknown'}; PyTorch {', '.join(all_of('torch')) or 'unknown'}; "
            f"{', '.join(sorted({entry['at'][:10] for entry in entries}))}. `scripts/pytorch`, "
            f"{'one run' if runs == 1 else f'{runs} runs'} of it."
            + (" Several processes started and compiled at once, and were timed in sequence, with contexts of the others "
               "beside them." if all_of("together") else "")
            + (f" Networks were spread over {max(all_of('gpus'))} GPUs of one machine, all ways of one on the same GPU; on each of them one "
               "process was timed at a time." if all_of("gpus") else ""))


def of_several_runs(part):
    """Rows whose ways were not all measured by one run of the command."""
    def runs(row):
        return {entry["invocation"] for way in part.ways if (entry := part.get(row, way.name)) and "invocation" in entry}

    return [part.title(row) for row in part.rows if len(runs(row)) > 1]
