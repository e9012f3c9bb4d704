#!/usr/bin/env python3
"""Compares what nimble-analyze makes of the traces here with what stands beside them.

Each folder holds trace.json, arguments.txt (more for nimble-analyze, a line each), and what is expected: report.txt
(compared as text), report.json and schedule.json (compared as JSON). A golden file is what was once read and found right:
after a change of the format or the report, run with --update, and read the difference before you commit it.
"""

import argparse
import difflib
import json
import pathlib
import subprocess
import sys
import tempfile


def normalised(name, text):
    return json.dumps(json.loads(text), indent=1, sort_keys=True) if name.endswith(".json") else text


def outputs(analyze, folder, scratch):
    schedule, report = scratch / "schedule.json", scratch / "report.json"
    # In the folder, so that the report names the trace as anyone would.
    more = (folder / "arguments.txt").read_text(encoding="utf-8").split("\n")[:-1]
    text = subprocess.run([analyze, "trace.json", "-o", schedule, "--json", report, *more], cwd=folder, check=True,
                          stdout=subprocess.PIPE, encoding="utf-8").stdout
    return {"report.txt": text[:text.index("\nWritten: ")], "report.json": report.read_text(encoding="utf-8"),
            "schedule.json": schedule.read_text(encoding="utf-8")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("analyze", type=pathlib.Path, help="the nimble-analyze to test")
    parser.add_argument("--update", action="store_true", help="write what comes out instead of comparing it")
    options = parser.parse_args()
    folders = sorted(path.parent for path in pathlib.Path(__file__).resolve().parent.glob("*/trace.json"))
    differences = 0
    for folder in folders:
        with tempfile.TemporaryDirectory() as scratch:
            found = outputs(options.analyze.resolve(), folder, pathlib.Path(scratch))
        for name, text in found.items():
            golden = folder / name
            if options.update:
                golden.write_text(text, encoding="utf-8")
                continue
            expected = golden.read_text(encoding="utf-8")
            if normalised(name, expected) != normalised(name, text):
                differences += 1
                sys.stdout.writelines(difflib.unified_diff(
                    normalised(name, expected).splitlines(True), normalised(name, text).splitlines(True),
                    f"{folder.name}/{name} (expected)", f"{folder.name}/{name} (found)"))
    print(f"{len(folders)} traces, {differences} differences")
    return 1 if differences or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
