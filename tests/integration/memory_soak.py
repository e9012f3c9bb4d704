"""Runs programs for long under Nimble and prints what they have of memory, by eighths. What scripts/soak memory calls."""

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import time

import harness

GRAPHS = {"mode": "off", "NIMBLE_GRAPHS": "rewrite"}
MODES = {
    "none": {},
    "off": {"mode": "off"},
    "graphs": GRAPHS,
    "graphs in 1 MiB": {**GRAPHS, "NIMBLE_AUTO_LIMIT": 1},
    "record": {"mode": "record", "NIMBLE_TRACE": "/dev/null"},
    "record 4 MiB": {"mode": "record", "NIMBLE_TRACE": "trace.json", "NIMBLE_TRACE_LIMIT": 4},  # ends early; the program goes on
    "record untimed": {"mode": "record", "NIMBLE_TRACE": "/dev/null", "NIMBLE_TIMING": "none"},
    "replay": {"mode": "replay", "NIMBLE_TUNE": "start"},
    "auto": {"mode": "auto", "NIMBLE_AUTO_WAIT": 0, "NIMBLE_AUTO_LIMIT": 8, "NIMBLE_TUNE": "start"},
    "regions": {"mode": "regions"},
    "check": {"mode": "check", "NIMBLE_CHECK_EVERY": 1000},
}
# What a round is worth: launches are many to a round of another kind.
WORKS = {"graphs": 1, "unlaunched": 1, "launches": 14, "phases": 14, "objects": 0.2, "threads": 0.2, "recordings": 0.02,
         "regions": 0.05}
# A region is recorded and analyzed each round; in modes without regions the program only does its work.


class Runner(harness.ProgramTest):
    def runTest(self):  # not a test: this is for what ProgramTest can do
        pass


def run(options, mode, work):
    runner = Runner()
    runner.setUp()
    rounds = max(8, int(options.graphs * WORKS[work]) // 8 * 8)
    settings = dict(MODES[mode])
    if mode == "replay":
        settings["NIMBLE_SCHEDULE"] = runner.make_schedule(["server", work, 400])
    environment = harness.BUILD.environment(settings.pop("mode", None), **settings)
    begin = time.monotonic()
    done = subprocess.run([harness.BUILD.program("server"), work, str(rounds)], env=environment, cwd=runner.folder,
                          text=True, capture_output=True, check=False)
    rows = [[int(number) for number in row]
            for row in re.findall(r"resident (\d+) KiB device (\d+) KiB", done.stdout)]
    runner.doCleanups()
    return {"mode": mode, "work": work, "rounds": rounds, "seconds": round(time.monotonic() - begin, 1),
            "exit": done.returncode, "resident_kib": [row[0] for row in rows], "device_kib": [row[1] for row in rows],
            "stderr": done.stderr[-500:] if done.returncode else ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--graphs", type=int, default=100000)
    parser.add_argument("--most", type=int, default=1024)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    harness.BUILD = harness.Build(options.build)
    # A schedule is of a step that repeats.
    pairs = [(mode, work) for work in options.works.split(",") for mode in options.modes.split(",")
             if not (mode == "replay" and work not in ("launches", "phases"))]
    results, bad = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda pair: run(options, *pair), pairs):
            results.append(result)
            resident, device = result["resident_kib"], result["device_kib"]
            grown = [series[-1] - series[3] for series in (resident, device)] if len(resident) == 8 else [0, 0]
            fails = result["exit"] != 0 or len(resident) != 8 or max(grown) > options.most
            bad += fails
            print(f"{result['work']:10} {result['mode']:14} {result['rounds']:8} rounds {result['seconds']:7} s  KiB resident "
                  f"{' '.join(str(each) for each in resident)}  device {device[:1]} to {device[-1:]}"
                  f"{'  GREW' if fails else ''} {result['stderr']}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    print(f"{len(results)} runs, {bad} of them fail or grow by more than {options.most} KiB in their second half")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
