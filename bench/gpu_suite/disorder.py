"""Runs the integration tests' programs that deviate from their steps, with and without replay, and compares their output: on
a GPU what tests/integration does on the simulated driver.

Each is recorded in its regular form, and then replayed in disorder, with several seeds, in every way of submitting. """

import collections
import json
import os
import shutil
import subprocess
import time

import process

WAYS = {"off": {"NIMBLE_TUNE": "off"}, "start": {"NIMBLE_TUNE": "start"}, "audit": {"NIMBLE_TUNE": "off", "NIMBLE_AUDIT": "3"}}
AUTO = {"auto": {"NIMBLE_TUNE": "off", "NIMBLE_AUTO_WAIT": "20000"}}
# The program, its recorded arguments, its run arguments, and the way; SEED is replaced by the seed. Nothing is recorded for
# auto.
PROGRAMS = (
    ("chaos", ("12", "0"), ("60", "SEED"), WAYS),
    ("streams", ("fork", "12", "0"), ("fork", "60", "SEED"), WAYS),
    ("streams", ("prefetch", "12", "0"), ("prefetch", "60", "SEED"), WAYS),
    ("streams", ("threads", "12", "0"), ("threads", "60", "SEED"), WAYS),
    ("crowd", ("1", "12", "0"), ("4", "60", "SEED"), WAYS),
    ("kinds", ("t6e2t5e3T6E3t4e1T5E2c3t4c1e3c2t3",), ("*300", "SEED"), WAYS),
    ("kinds", ("t5e3t4e4t6e3",), ("te" * 500,), WAYS),
    ("watching", ("earlier", "12"), ("earlier", "200"), WAYS),
    # A program that watches memory without a call would see an audit's writes.
    ("watching", ("memory", "12"), ("memory", "200"), {way: WAYS[way] for way in ("off", "start")}),
    # Kernels that wait for each other, launched in either order: the simulated driver, which runs one at a time, cannot run
    # these.
    ("watching", None, ("talk", "200"), AUTO),
    ("watching", None, ("late", "200"), AUTO),
)
ON_A_GPU = {("late", "200")}
NAMES = tuple(sorted({program for program, *_ in PROGRAMS}))
IMAGE = "programs.simcuda"  # the file name of the programs' kernels
SEEDS = 6
KEPT = ("steps_replayed", "steps_passed_through", "graph_launches", "divergences", "steps_audited", "audits_failed")


def run(place, folder, program, arguments, limit, settings=None):
    """The program's output. Raises process.Failure."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NIMBLE_", "SIMCUDA_"))}
    if place.simulated:
        environment |= {"LD_LIBRARY_PATH": str(place.build / "simcuda"), "SIMCUDA_IDLE_MS": "1"}  # it runs unprompted
    if settings:
        environment |= {"LD_PRELOAD": str(place.library), "NIMBLE_LOG": "warn", **settings}
    done = subprocess.run([str(folder / program), *arguments], env=environment, cwd=folder, text=True, capture_output=True,
                          timeout=limit, check=False)
    if done.returncode != 0:
        raise process.Failure(f"{program} {' '.join(arguments)}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def prepare(place, folder):
    """Puts the programs and an image of their kernels for this device into one folder."""
    folder.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(place.build / "bin" / name, folder / name)
    if place.simulated:
        shutil.copy(place.build / "bin" / IMAGE, folder / IMAGE)
        return
    subprocess.run([place.nvcc, "-std=c++17", "-O2", f"-arch={place.arch}", "-fatbin", "-I", str(place.root),
                    str(place.root / "tests/integration/programs/kernels/kernels.cu"), "-o", str(folder / IMAGE)], check=True)


def measure(part, place, work, rounds, _groups, limit):
    """Like measure.py's, with `disorder`: for each program and way the runs, those that differed, and the counters."""
    begin = time.monotonic()
    deadline = begin + limit
    result = {"part": part.name, "what": part.what, "settings": part.settings, "odd": [], "status": "failed", "why": "",
              "disorder": []}
    folder = work / "programs"
    try:
        prepare(place, folder)
        for program, recorded, replayed, ways in PROGRAMS:
            if place.simulated and replayed in ON_A_GPU:
                continue
            trace, schedule, stats = folder / "trace.json", folder / "schedule.json", folder / "stats.json"
            if recorded:
                run(place, folder, program, recorded, 60, {"NIMBLE_MODE": "record", "NIMBLE_TRACE": str(trace)})
                subprocess.run([str(place.build / "bin/nimble-analyze"), str(trace), "-o", str(schedule), "--quiet"],
                               check=True, capture_output=True, timeout=60)
            for way, settings in ways.items():
                counted, runs, differ = collections.Counter(), 0, []
                for seed in range(1, 1 + min(SEEDS, rounds)):
                    if time.monotonic() > deadline:
                        result["odd"].append("the time was up before all seeds had run")
                        break
                    arguments = [word.replace("SEED", str(seed)) for word in replayed]
                    plain = run(place, folder, program, arguments, 60)
                    found = run(place, folder, program, arguments, 60, {
                        "NIMBLE_MODE": "replay" if recorded else "auto", "NIMBLE_SCHEDULE": str(schedule), "NIMBLE_STATS": str(stats), **settings})
                    runs += 1
                    if found != plain:
                        differ.append(seed)
                    counters = json.loads(stats.read_text(encoding="utf-8"))
                    counted.update({name: counters[name] for name in KEPT})
                    counted["stood_aside"] += counters["stood_aside"] != ""
                result["disorder"].append({"program": " ".join((program, *replayed))[:40], "way": way, "runs": runs,
                                           "differ": differ, **counted})
    except (process.Failure, subprocess.SubprocessError, OSError, ValueError) as failure:
        return result | {"why": str(failure)[:600]}, None
    wrong = [row for row in result["disorder"] if row["differ"] or row.get("audits_failed")]
    replayed = sum(row.get("steps_replayed", 0) for row in result["disorder"])
    result["why"] = f"{wrong[0]['program']}: other results with seeds {wrong[0]['differ']}" if wrong else ""
    if not wrong and replayed == 0:
        result["why"] = "no step was replayed"
    result["status"] = "failed" if result["why"] else "ok"
    return result | {"seconds": time.monotonic() - begin}, None
