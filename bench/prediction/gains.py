"""Usage: bench/prediction/gains.py [--build DIR] [--results FILE] [--only NAME,...] [--help]

Compares the gains that `nimble-analyze why-slow` predicts with what the GPU takes. Each model's eager inference is recorded in one
process, with cudaMallocAsync, so that the trace tells its tensors apart; in another it is prepared with Nimble, which measures its
graph in the program's order and with several streams. Prints a table and the median error.

Needs a GPU, PyTorch, timm, transformers, and a build."""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEP = pathlib.Path(__file__).resolve().parent / "gain_step.py"
WAYS = {"graph_us": "as one graph", "streams_us": "with several streams"}


def run(command, **settings):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **settings}, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()[-400:]}")
    return done.stdout


def compare(name, build, work):
    trace, ledger = work / f"{name}.trace.json", work / f"{name}.ledger.json"
    run([build / "bin/nimble", "run", "--mode", "record", "--trace", trace, "--", sys.executable, STEP, name, "eager"],
        PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    run([build / "bin/nimble-analyze", "why-slow", trace, "--json", ledger])
    found = json.loads(ledger.read_text())
    measured = json.loads(run([sys.executable, "-m", "nimble", "run", STEP, name, "graphs"], NIMBLE_LIBRARY=str(build / "lib/libnimble.so"),
                              PYTHONPATH=os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]))
                          .splitlines()[-1])
    return {"model": name, "step_us": found["step_us"], "predicted": found["predicted"], "measured": measured}


def error(result, way):
    predicted, measured = result["predicted"].get(way), result["measured"][way]
    return None if predicted is None or measured is None else predicted / measured - 1


def table(results):
    lines = ["| model | eager | recorded | " + " | ".join(f"{what}: predicted | measured" for what in WAYS.values()) + " | calls |",
             "|---|---|---|" + "---|---|" * len(WAYS) + "---|"]
    for result in results:
        cells = [f"{result[side].get(way) or 0:.0f}" for way in WAYS for side in ("predicted", "measured")]
        lines.append(f"| {result['model']} | {result['measured']['eager_us']:.0f} | {result['step_us']:.0f} | " + " | ".join(cells) +
                     f" | {result['measured']['calls_us']:.0f} |")
    for way, what in WAYS.items():
        errors = [abs(found) for found in (error(result, way) for result in results) if found is not None]
        if errors:
            lines.append(f"\n{what}: median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} % "
                         f"({len(errors)} models)")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[1], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default", metavar="DIR", help="default: build/default")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--only", metavar="NAME,...", help="of the models in gain_step.py")
    options = parser.parse_args()
    if options.only:
        names = options.only.split(",")
    else:
        from gain_step import MODELS as names
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                results.append(compare(name, options.build.resolve(), pathlib.Path(folder)))
            except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as failure:
                print(f"gains: {name}: left out: {failure}", file=sys.stderr)
                continue
            print(json.dumps(results[-1]), flush=True)
    print(table(results))
    if options.results and results:
        facts = {"date": datetime.date.today().isoformat(), "device": results[0]["measured"]["device"],
                 "torch": results[0]["measured"]["torch"], "results": results}
        options.results.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
