"""The suite's command line, and the loop over its parts."""

import argparse
import concurrent.futures
import datetime
import gzip
import importlib.util
import os
import pathlib
import py_compile
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

import bundle
import disorder
import graph_life
import machine
import measure
import modes
import pack
import parts as parts_module
import process
import report
import traces
import ways

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
USAGE = """Usage: scripts/gpu_suite [--build DIR] [--results DIR] [--only NAME,...] [--dry-run] [...] [--help]

Runs real programs and frameworks on a GPU: without Nimble, with it doing nothing, and recording. Compares their results and
times, checks with CUPTI that nothing was missed, and reports the analyzer's findings for each trace. Two programs of the
driver API also run replayed, and as CUDA graphs written by hand, for comparison; a step of one is saved, and run without
the program under every policy. Needs Python 3 and a build; parts whose framework or compiler is missing are reported as
such."""


def arguments(words):
    parser = argparse.ArgumentParser(usage=USAGE.split("\n", 1)[0].removeprefix("Usage: "), add_help=False,
                                     description=USAGE.split("\n\n", 1)[1])
    add = parser.add_argument
    add("--build", type=pathlib.Path, metavar="DIR", default=ROOT / "build/default", help="the build to use (default: build/default)")
    add("--results", type=pathlib.Path, metavar="DIR", default=ROOT / "bench/results",
        help="where DATE-gpu-suite-DEVICE.json and .md are kept (default: bench/results)")
    add("--only", metavar="NAME,...", help="run only these parts")
    add("--list", action="store_true", help="list the parts and end")
    add("--dry-run", action="store_true", help="without a GPU: run what the simulated driver can, check the rest")
    add("--rounds", type=int, metavar="N", default=6, help="how often each part changes between the modes (default: %(default)s)")
    add("--groups", type=int, metavar="N", default=3, help="how often that is done in fresh processes (default: %(default)s)")
    add("--time-limit", type=float, default=60, metavar="S", help="for each part, its start apart (default: %(default)s s)")
    add("--whole-limit", type=float, default=480, metavar="S", help="after which no part begins (default: %(default)s s)")
    add("--keep-traces", type=pathlib.Path, metavar="DIR", help="keep the traces, compressed; else they are deleted")
    add("--parts", type=pathlib.Path, metavar="FILE", help="a Python file with a list PARTS to run instead of parts.py's")
    add("--pack", type=pathlib.Path, metavar="DIR",
        help="collect the files of the build that the suite needs in a small folder, for --build on another machine, and end")
    add("-h", "--help", action="store_true", help="this text")
    options = parser.parse_args(words)
    if options.help:
        # Like the other scripts' messages.
        print(parser.format_help().replace("usage:", "Usage:", 1), end="")
        sys.exit(0)
    if options.rounds < 1 or options.groups < 1 or options.time_limit <= 0:
        parser.error("--rounds, --groups and --time-limit must be positive; see --help")
    return options


class Refused(Exception):
    """Why the suite cannot begin."""


def load_parts(path):
    if path is None:
        return parts_module.PARTS
    spec = importlib.util.spec_from_file_location("other_parts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PARTS


def chosen(parts, only):
    if not only:
        return parts
    names = [name for name in only.split(",") if name]
    unknown = set(names) - {part.name for part in parts}
    if unknown:
        raise Refused(f"--only: no such part: {', '.join(sorted(unknown))}; see --list")
    return [part for part in parts if part.name in names]


def check_without_gpu(part, place, work):
    """Checks a part without a GPU: its command, its environment and its source."""
    work.mkdir(parents=True)
    for mode in modes.MODES:
        place.environment(part, mode, work, work / mode.name)
    checked = []
    commands = [program.command for program in graph_life.PROGRAMS] if part.graph_life else [part.command]
    for word in [word for command in commands for word in place.fill(command, work, work)]:
        if word.endswith(".py"):
            py_compile.compile(word, cfile=str(work / "compiled"), doraise=True)
            checked.append("source compiles")
    if part.build and place.nvcc:
        problem = measure.build(part, place, work, time.monotonic() + 120)
        if problem:
            return {"status": "failed", **problem}
        checked.append("program was built")
    return {"status": "not run", "why": "no GPU" + (f" ({', '.join(checked)})" if checked else "")}


class Suite:
    """One run of the suite: results in the order of the parts, and traces examined in the background."""

    def __init__(self, options, parts, place, facts, work):
        self.options, self.parts, self.place, self.facts, self.work = options, parts, place, facts, work
        self.begin = time.monotonic()
        self.results = {}
        # Few, so that concurrent measurements keep their cores.
        self.background = concurrent.futures.ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 1) // 8)))
        self.pending = {}
        self.lock = threading.Lock()
        device = "simulated" if options.dry_run else facts["device"]["device"]
        self.name = f"{facts['date']}-gpu-suite-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
        self.replacements = [(str(work.parent), "<work>"), (str(place.build), "<build>"), (str(ROOT), "<tree>"),
                             (sys.prefix, "<python>"), (sys.base_prefix, "<python>"), (str(pathlib.Path.home()), "<home>")]

    def run_part(self, part):
        """Never raises: whatever a part does is a result."""
        work = self.work / part.name
        try:
            left = self.options.whole_limit - (time.monotonic() - self.begin)
            if left <= 0:
                return {"status": "not run", "why": f"the suite's {self.options.whole_limit:.0f} s were spent"}
            if self.place.simulated and not part.simulated:
                return check_without_gpu(part, self.place, work)
            how = disorder if part.disorder else graph_life if part.graph_life else bundle if part.bundle else ways if part.ways else measure
            result, trace = how.measure(part, self.place, work, self.options.rounds, self.options.groups,
                                        min(self.options.time_limit + part.start_limit, max(left, 20)))
            if trace is not None:
                self.pending[part.name] = self.background.submit(self.look_at, part, result, trace)
            return result
        except Exception as error:  # pylint: disable=broad-except
            return {"status": "failed", "why": f"the suite itself: {error!r}"}

    def look_at(self, part, result, trace):
        try:
            facts = traces.examine(trace, result["modes"]["record"]["steps"], self.place, self.options.time_limit)
            with self.lock:
                measure.add_trace(result, facts)
            if self.options.keep_traces:
                self.options.keep_traces.mkdir(parents=True, exist_ok=True)
                path = self.options.keep_traces / f"{part.name}.json.gz"
                with open(trace, "rb") as source, gzip.open(path, "wb", 6) as kept:
                    shutil.copyfileobj(source, kept)
        except Exception as error:  # pylint: disable=broad-except
            with self.lock:
                result["odd"].append(f"its trace could not be examined: {error!r}")
        finally:
            shutil.rmtree(self.work / part.name, ignore_errors=True)

    def save(self):
        with self.lock:  # against the background thread
            self.facts["parts"] = machine.scrub(list(self.results.values()), self.replacements)
        self.facts["seconds"] = time.monotonic() - self.begin
        report.write(self.options.results, self.name, self.facts)

    def run(self):
        for part in self.parts:
            begin = time.monotonic()
            print(f"gpu_suite: {part.name} ...", flush=True)
            result = self.run_part(part)
            result.setdefault("part", part.name)
            result.setdefault("what", part.what)
            self.results[part.name] = result
            if part.name not in self.pending:
                shutil.rmtree(self.work / part.name, ignore_errors=True)
            print(f"gpu_suite: {part.name}: {result['status']}{': ' + result['why'] if result.get('why') else ''} "
                  f"({time.monotonic() - begin:.1f} s)", flush=True)
            self.save()
        self.background.shutdown()
        self.save()


def prepare(options, work):
    """(place, facts) of this run; Refused where the suite could not measure anything."""
    build = options.build.resolve()
    missing = pack.missing_from(build)
    if missing:
        raise Refused(f"{options.build} lacks {', '.join(missing)}; scripts/test builds all of it, or name another with --build")
    nvcc = machine.find_nvcc()
    place = modes.Place(ROOT, build, sys.executable, nvcc, arch="sm_90" if options.dry_run else "native",
                        simulated=options.dry_run, cupti="" if options.dry_run else machine.cupti_folder(work))
    environment = None
    if options.dry_run:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(build / "simcuda")}
    device = machine.device(environment)
    if device is None:
        raise Refused("the simulated driver does not answer" if options.dry_run else
                      "no GPU answers here; --dry-run runs what the simulated driver can")
    try:
        process.run([str(build / "bin/nimble"), "--version"], None, work, 30, work / "nimble.log")
    except process.Failure as failure:
        words = process.last_words(work / "nimble.log")
        raise Refused(f"{options.build}/bin/nimble does not run here: {failure}: {' / '.join(words[-3:])}") from failure
    return place, {"date": datetime.date.today().isoformat(), "dry_run": options.dry_run, "device": device,
                   "rounds": options.rounds, "groups": options.groups, "modes": {mode.name: mode.what for mode in modes.MODES}}


def main(words):
    # So that running processes are ended on exit.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments(words)
    try:
        parts = chosen(load_parts(options.parts), options.only)
        if options.list:
            for part in parts:
                print(f"{part.name:18} {part.what}")
            return 0
        if options.pack:
            missing = pack.missing_from(options.build)
            if missing:
                raise Refused(f"{options.build} lacks {', '.join(missing)}")
            print(f"gpu_suite: {options.pack}: {pack.pack(options.build, options.pack) / 2**20:.1f} MiB")
            return 0
        with tempfile.TemporaryDirectory(prefix="gpu_suite-") as folder:
            work = pathlib.Path(folder)
            place, facts = prepare(options, work)
            facts["versions"] = machine.versions(place.build / "bin/nimble", place.nvcc, parts)
            suite = Suite(options, parts, place, facts, work / "parts")
            suite.run()
    except Refused as refused:
        print(f"gpu_suite: {refused}", file=sys.stderr)
        return 2
    print("\n" + report.markdown(suite.facts))
    print(f"kept in {os.path.relpath(options.results / suite.name)}.json and .md")
    return 0 if all(result["status"] in ("ok", "not run") for result in suite.results.values()) else 1
