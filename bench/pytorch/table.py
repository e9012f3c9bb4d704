"""The command line of scripts/pytorch: runs the requested tasks (runner.py), and prints tables of all kept results
(report.py).

Needs a GPU, PyTorch with torchvision (and timm for nasnetalarge), and a build; --table needs none of them."""

import functools
import importlib.util
import pathlib
import sys
import tempfile

import networks
import report
import runner
import side_by_side
import ways
from runner import Task

USAGE = """Usage: scripts/pytorch [options]

Runs networks of PyTorch on the GPU in each way: eager, TorchScript, as one CUDA graph, by torch.compile, and with Nimble,
each in a separate process. Compares the results, and prints tables of medians. Failures and timeouts do not affect the
others.

  --part NAME,...    inference (batch 1), training (a step at CIFAR's shapes); default: both
  --only NAME,...    networks; default: all of the part
  --batches N,...    of training (default: 32,64,128)
  --ways NAME,...    of inference: {inference};
                     of training: {training};
                     default: all of the part
  --results DIR      keeps each result in DIR/{file} at once, and the tables beside it; what is there already
                     (also in other files *.jsonl, of other runs) comes into the tables, the latest of each
  --missing          runs only what has no result there
  --table            runs nothing: the tables of what is there
  --limit SECONDS    for one process (default 300); what takes longer is said to be `not within` them
  --total SECONDS    for all: nothing is begun later, and what is cut short is left for --missing
  --warm N           first compiles for torch.compile's ways, N at once: they are timed alone, with caches that are filled
  --warm-only        does no more than that
  --cache DIR        torch.compile's caches, kept for a next run (default: a folder that goes with this one)
  --together N       N processes start at once, and are timed one after the other when all wait for it (default 1): nothing
                     else runs while one is timed, as without this, and it takes less time in all
  --gpus N           works on N GPUs at once (default 1), all ways of a network on the same one: N times --together start at once,
                     and while one is timed others are on the other GPUs, one on each
  --build DIR        where libnimble.so is (default: build/default)
  --help             this text

Needs a GPU, PyTorch with torchvision (timm for nasnetalarge), and a build. Exits with 1 where a way failed or an output has other
bits than it must."""


def usage():
    names = {part: ",".join(way.name for way in known) for part, known in ways.WAYS.items()}
    return USAGE.format(**names, file=runner.FILE)


def networks_of(part):
    return networks.TRAINING if part == "training" else networks.INFERENCE


def tasks(options):
    """The requested tasks, network by network, so that compared ways are measured together."""
    for part in options.part:
        for network in networks_of(part):
            for batch in map(int, options.batches) if part == "training" else [1]:
                for way in ways.WAYS[part]:
                    if network in (options.only or [network]) and way.name in (options.ways or [way.name]):
                        yield Task(part, network, batch, way.name)


def measure(options, results):
    """Runs the requested tasks; returns whether all succeeded."""
    if options.gpus > 1 and options.gpus > (there := side_by_side.visible_devices()):
        raise side_by_side.Failure(f"--gpus: there are {there}")
    wanted = list(tasks(options))
    needed = ["torch", "torchvision", *(["timm"] if any(task.network == "nasnetalarge" for task in wanted) else [])]
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        raise side_by_side.Failure(f"{sys.executable} has no {' and no '.join(missing)}: run it by the Python that has, "
                                   "PYTHON scripts/pytorch ...")
    if options.missing:
        there = runner.load(results)
        wanted = [task for task in wanted if task not in there]
    if not wanted:
        print("there is nothing to run" if options.missing else "no such way of these networks")
    run = runner.Runner(options, results)
    if options.warm:
        wanted = run.warm(wanted, options.warm)
    number = 0
    for number, (task, entry) in enumerate([] if options.warm_only else run.all_timed(wanted), 1):
        print(f"{task}: {runner.said(entry)}", flush=True)
    if number < len(wanted) and not options.warm_only:
        print(f"the time is over: {len(wanted) - number} of {len(wanted)} are not done", flush=True)
    return run.failed == 0


def work(options):
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or pathlib.Path(folder)
        if options.warm_only and not options.warm:
            raise side_by_side.Failure("--warm-only: --warm must say how many at once")
        options.cache = options.cache or pathlib.Path(folder) / "cache"
        if options.table and not (options.results and results.is_dir()):
            raise side_by_side.Failure("--table: --results must name the folder of what was measured")
        results.mkdir(parents=True, exist_ok=True)
        well = options.table or measure(options, results)
        entries = runner.load(results)
        if options.warm_only and not entries:
            return 0 if well else 1
        if not entries:
            raise side_by_side.Failure("there are no results")
        text = report.report(entries)
        print("\n" + text)
        for title, way in report.differences(entries):
            print(f"pytorch: {title}, {way}: the results have other bits than they must", file=sys.stderr)
            well = False
        if options.results:
            side_by_side.keep(options.results, "pytorch", text, {"results": list(entries.values())})
    return 0 if well else 1


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def main():
    parser = side_by_side.parser("pytorch")
    known = {"--part": list(ways.WAYS), "--only": list(dict.fromkeys(networks.INFERENCE + networks.TRAINING)),
             "--batches": list(map(str, networks.BATCHES)),
             "--ways": list(dict.fromkeys(way.name for part in ways.WAYS.values() for way in part))}
    defaults = {"--part": list(ways.WAYS), "--batches": known["--batches"]}
    for option, names in known.items():
        parser.add_argument(option, type=functools.partial(side_by_side.chosen, parser, option, known=names),
                            default=defaults.get(option))
    for option in ("--missing", "--table", "--warm-only"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--limit", type=positive, default=300)
    parser.add_argument("--total", type=positive)
    parser.add_argument("--warm", type=positive)
    parser.add_argument("--together", type=positive, default=1)
    parser.add_argument("--gpus", type=positive, default=1)
    parser.add_argument("--cache", type=pathlib.Path)
    return side_by_side.program("pytorch", usage(), parser, work)


if __name__ == "__main__":
    sys.exit(main())
