#!/usr/bin/env python3
"""Keeps a result in bench/results, compactly: drops raw samples if their medians are kept, and writes a line per row.

Usage: bench/keep.py FILE NAME [--part PART] [--ways WAY,...] [--note TEXT]

writes bench/results/NAME.json, where NAME is DATE-TABLE-DEVICE (bench/README.md).

Keeps the fields that bench/plots and `scripts/pytorch --table` read. `left_out`, in the file, names the dropped fields.
"""

import argparse
import json
import pathlib

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
# Each also exists in a shorter form: losses as a digest and the largest difference, blocks and `each` as their median.
RAW = {
    "losses",
    "eager_losses",
    "blocks_us",
    "each",
    "nimble_log",
    "seconds_to_start",
    "calls_by_kind",
    "counters",
    "odd",
    "settings",
    "light_trace_bytes",
    "assumed_kernels",
}
# The fields of nimble-analyze's report that a table of the GPU suite shows.
ANALYSIS = {"step", "measured", "ops_by_evidence", "unordered_pairs", "trust", "why_no_schedule"}
DIGITS = 12  # of a digest


def rounded(number):
    """Rounds to a thousandth, or small values to enough digits that a table's own rounding does not change."""
    return round(number, 3) if abs(number) >= 100 else float(f"{number:.5g}")


def smaller(value, left_out):
    """The same without raw samples, whose fields are noted in `left_out`."""
    if isinstance(value, dict):
        raw = {key for key in value if key in RAW}
        if "ops_by_evidence" in value:
            raw |= value.keys() - ANALYSIS
        left_out.update(raw)
        kept = {key: item for key, item in value.items() if key not in raw}
        return {
            key: item[:DIGITS] if key.endswith("digest") and item else smaller(item, left_out) for key, item in kept.items()
        }
    if isinstance(value, list):
        return [smaller(item, left_out) for item in value]
    return rounded(value) if isinstance(value, float) else value


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def text(result):
    """JSON with a line for each top-level field, and for each row of a list of rows."""
    fields = []
    for key, value in result.items():
        is_rows = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
        shown = "[\n  " + ",\n  ".join(map(compact, value)) + "\n ]" if is_rows else compact(value)
        fields.append(f" {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("name", help="DATE-TABLE-DEVICE")
    parser.add_argument("--part", help="only the rows of this part")
    parser.add_argument("--ways", type=lambda text: text.split(","), help="only the rows of these ways")
    parser.add_argument("--note", help="a note for the file: the commit, and how it was measured")
    options = parser.parse_args()
    result = json.loads(options.file.read_text())
    if options.part or options.ways:
        result["results"] = [
            row
            for row in result["results"]
            if options.part in (None, row["part"]) and (options.ways is None or row["way"] in options.ways)
        ]
    if options.note:
        result = {"note": options.note, **result}
    left_out = set()
    kept = smaller(result, left_out)
    if left_out:
        kept["left_out"] = sorted(left_out)
    path = RESULTS / f"{options.name}.json"
    path.write_text(text(kept))
    print(f"{path}: {path.stat().st_size / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
