"""Saves a step of one part as a bundle, and runs it without its program: in the program's order and under every policy."""

import json
import time

import modes
import process
from measure import Run

MODE = modes.Mode("bundle", "recording, with a step saved as a bundle", "record",
                  {"NIMBLE_CAPTURE": "bundle", "NIMBLE_BUNDLE": "{work}/bundle"})
RUNS = 50


def measure(part, place, work, _rounds, _groups, limit):
    """Like measure.py's, with `replay`, nimble-replay's findings; it leaves no trace to inspect."""
    begin = time.monotonic()
    deadline = begin + limit
    work.mkdir(parents=True)
    result = {"part": part.name, "what": part.what, "settings": part.settings, "odd": [], "status": "failed", "why": ""}
    run = Run(part, MODE, place, work, "-saved")
    try:
        process.run(run.command, run.environment, run.folder, 0.5 * limit, run.log)
    except process.Failure as failure:
        return result | {"why": f"recording: {failure}", "last_words": process.last_words(run.log)[-15:]}, None
    said = [line for line in process.last_words(run.log) if "NIMBLE_CAPTURE" in line]
    if not (work / "bundle" / "manifest.json").exists():
        return result | {"why": said[-1] if said else "recording left no bundle"}, None
    log, found = work / "replay.log", work / "replay.json"
    environment = {key: value for key, value in run.environment.items() if key not in ("LD_PRELOAD", "NIMBLE_MODE")}
    problem = ""
    try:
        process.run([str(place.build / "bin/nimble-replay"), str(work / "bundle"), "--policy", "all", "--repeat", str(RUNS),
                     "--json", str(found), "--quiet"], environment, work, deadline - time.monotonic(), log)
    except process.Failure as failure:
        problem = f"nimble-replay: {failure}: {' / '.join(process.last_words(log)[-3:])}"
    try:
        result["replay"] = json.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return result | {"why": problem or "nimble-replay wrote no result"}, None
    if result["replay"]["moved"]:
        result["odd"].append("not all memory could be allocated at its recorded addresses")
    # The table shows the differences; this adds nimble-replay's explanation.
    result |= {"status": "failed" if problem else "ok", "why": problem, "seconds": time.monotonic() - begin}
    return result, None
