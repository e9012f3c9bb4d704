"""Examines a trace: how much of the driver's work it holds, and nimble-analyze's findings."""

import collections
import json
import re

import process

CALL = re.compile(rb'^\{"ph":"X","pid":1,.*?"cat":"(\w+)"')
METADATA = b'{"ph":"M"'
ASSUMED_KEPT = 20


def read(path):
    """One pass over a trace: its size, its calls by kind, and its metadata events of one kind each."""
    kinds = collections.Counter()
    metadata = {}
    with open(path, "rb") as lines:
        for line in lines:
            match = CALL.match(line)
            if match:
                kinds[match[1].decode()] += 1
            elif line.startswith(METADATA) and any(name in line for name in (b'"nimble.coverage"', b'"nimble.end"')):
                try:
                    event = json.loads(line.rstrip().rstrip(b","))
                    metadata[event["name"]] = event["args"]
                except (ValueError, KeyError):
                    pass  # a line that was cut off
    return {"bytes": path.stat().st_size, "calls": sum(kinds.values()), "calls_by_kind": dict(sorted(kinds.items())),
            "complete": "nimble.end" in metadata, "dropped": metadata.get("nimble.end", {}).get("dropped")}, metadata


def coverage(metadata):
    """The cross-check's counts, from the trace's own event."""
    args = metadata.get("nimble.coverage")
    if args is None:
        return {"source": "not measured", "seen": None, "recorded": None, "missed": [], "missed_calls": 0, "why": ""}
    missed = [[str(name), int(count)] for name, count in args.get("missed", [])]
    seen, recorded = args.get("seen"), args.get("recorded")
    missed_calls = sum(count for _, count in missed)
    if seen is not None and recorded is not None:
        missed_calls = max(missed_calls, seen - recorded)
    return {"source": args.get("source", "none"), "seen": seen, "recorded": recorded, "missed": missed,
            "missed_calls": missed_calls, "why": args.get("why", "")}


def describe_coverage(found):
    if found["seen"] is None:
        return "not measured" + (f" ({found['why']})" if found["why"] else "")
    text = f"{found['recorded']} of {found['seen']}"
    if found["missed"]:
        text += ", missed " + ", ".join(f"{name} x{count}" for name, count in found["missed"])
    return text


def analyze(path, report, place, environment, limit):
    """nimble-analyze's report on a trace, as it writes it."""
    log = report.with_suffix(".log")
    process.run([str(place.build / "bin/nimble-analyze"), str(path), "--json", str(report), "--no-schedule", "--quiet"],
                environment, path.parent, limit, log)
    return json.loads(report.read_text(encoding="utf-8"))


def examine(path, steps_made, place, limit):
    """The facts kept from a trace. A trace that cannot be read or analyzed is an oddity, with the reason."""
    facts, metadata = read(path)
    facts["coverage"] = coverage(metadata)
    odd = facts["odd"] = []
    if not facts["complete"]:
        odd.append("the trace was not closed: it may lack its end")
    if facts["dropped"]:
        odd.append(f"the recorder dropped {facts['dropped']} events")
    report = path.parent / "report.json"
    try:
        found = analyze(path, report, place, None, limit)
    except process.Failure as failure:
        # Status 3 is "no step"; the report exists nevertheless.
        try:
            found = json.loads(report.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            words = process.last_words(report.with_suffix(".log"))
            facts["analysis"] = {"failure": str(failure), "last_words": words[-5:]}
            odd.append(f"nimble-analyze failed: {failure}" + (f": {words[-1]}" if words else ""))
            return facts
    except (OSError, ValueError) as error:
        facts["analysis"] = {"failure": repr(error)}
        odd.append(f"nimble-analyze left no report: {error!r}")
        return facts
    facts["analysis"] = found
    facts["assumed_kernels"] = len(found.get("assumed", []))
    found["assumed"] = found.get("assumed", [])[:ASSUMED_KEPT]
    step = found.get("step")
    if step and steps_made and abs(step["repeats"] - steps_made) > max(2, steps_made // 10):
        odd.append(f"the step was found {step['repeats']} times, the program made {steps_made} steps")
    return facts
