"""Runs each way of each network in a separate process, and keeps its results as lines of JSON, one per process.

Each line is appended immediately, so that an interrupted run leaves its results. Of several lines for the same way of the
same network the latest counts, in whichever file. Processes are timed one at a time on each GPU, and nothing else runs
then. warm() runs several at once, and records their times beside their caches. """

import collections
import concurrent.futures
import contextlib
import datetime
import json
import os
import queue
import sys
import threading
import time
from typing import NamedTuple

import side_by_side
import ways

FILE = "pytorch-runs.jsonl"
COLD = "prepared.json"  # in the folder of caches: the times to fill them
SCRIPTS = {"inference": "inference.py", "training": "training.py"}


class Task(NamedTuple):
    """One cell of the tables."""

    part: str
    network: str
    batch: int
    way: str

    def __str__(self):
        return f"{self.network}{f', batch {self.batch}' if self.part == 'training' else ''}, {self.way}"


def cold_name(task):
    """The name of torch.compile's caches for a task; None where it makes none."""
    way = ways.way(task.part, task.way)
    options = ", memory of its own" if way.nimble else ""  # inference.compiled
    return way.mode and f"{task.part}, {task.network}, {task.batch}, {way.mode}{options}"


def task_of(entry):
    return Task(*(entry[field] for field in Task._fields))


def load(folder):
    """The latest entry of each task in a folder's files; Failure for any other file."""
    entries = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            for line in filter(str.strip, path.read_text().splitlines()):
                entry = json.loads(line)
                entries.append((entry["at"], task_of(entry), entry))
        except (ValueError, KeyError, TypeError) as error:
            raise side_by_side.Failure(f"{path} is not of this command: {type(error).__name__}: {error}") from None
    return {task: entry for _, task, entry in sorted(entries, key=lambda each: each[0])}


def last_words(errors):
    """The line with the reason: the exception's, or else the last one."""
    lines = [line for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception", "Interrupt")) and line[0] != " "]
    return (named or lines or ["it said nothing"])[-1][:300]


def outcome(done, limit):
    """The entry of a process: its results, or why there are none."""
    if done.status is None:
        return {"not_within_s": round(limit), "stderr": done.errors}
    if done.status == 0:
        try:
            return done.json()
        except ValueError as error:
            return {"failed": f"its output cannot be read: {error}", "stderr": done.errors}
    return {"failed": last_words(done.errors) if done.status > 0 else f"ended by signal {-done.status}", "stderr": done.errors}


class Runner:
    def __init__(self, options, results):
        self.options = options
        self.file = results / FILE
        self.failed = 0
        self.keeping = threading.Lock()  # held to write to the file, and to count
        self.cold = {}  # by cold_name(): the time to prepare with empty caches, or that it did not finish
        self.cold_file = options.cache / COLD
        with contextlib.suppress(FileNotFoundError):
            self.cold = json.loads(self.cold_file.read_text())
        self.end = time.monotonic() + options.total if options.total else None
        # Identifies the results of one run of the command, and so of one machine.
        self.of_all = {"invocation": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "device": side_by_side.device(options.gpus)}
        self.environment = side_by_side.environment(TORCHINDUCTOR_CACHE_DIR=str(options.cache.resolve()))
        self.visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(options.gpus)))).split(",")

    def on(self, gpu):
        """The settings of a process on one of the requested GPUs."""
        if self.options.gpus == 1:
            return self.environment
        return self.environment | {"CUDA_VISIBLE_DEVICES": self.visible[gpu]}

    def left(self):
        """Seconds that a process may take: its own limit, unless the whole run ends earlier."""
        return self.options.limit if self.end is None else min(self.options.limit, self.end - time.monotonic())

    def command(self, task, *more):
        words = [side_by_side.ROOT / "bench/pytorch" / SCRIPTS[task.part], task.network]
        return words + ([str(task.batch)] if task.part == "training" else []) + [task.way, *more]

    def begin(self, task, gpu=0):
        """Starts a process for timed(); it waits before its timed part."""
        env = dict(self.on(gpu))
        command = [sys.executable, *self.command(task, "--wait")]
        if ways.way(task.part, task.way).nimble:
            command, env = side_by_side.under_nimble(command, env, self.options.build)
        return side_by_side.start(command, env, waits=True)

    def timed(self, task, process=None):
        """Runs and keeps a task; None where the total time runs out first. `process`: from begin()."""
        limit = self.left()
        if limit <= 0:
            if process is not None:
                side_by_side.give_up(process)
            return None
        done = side_by_side.finish(process or self.begin(task), limit)
        if done.status is None and limit < self.options.limit:
            return None  # it might have finished within its own limit
        return self.kept(task, outcome(done, limit) | {"seconds": done.seconds})

    def by_gpu(self, tasks):
        """The tasks of each GPU: a network's ways are all on one, since they are compared."""
        rows = list(dict.fromkeys(task[:3] for task in tasks))
        return [[task for task in tasks if rows.index(task[:3]) % self.options.gpus == gpu] for gpu in range(self.options.gpus)]

    def all_timed(self, tasks):
        """Runs all, and yields each with its entry, until the total time is over. As many as the options say start
        together on each GPU, and none is timed before all are waiting, so that besides it only one process on each
        other GPU is busy."""
        together, rest = self.options.together, self.by_gpu(tasks)
        while any(rest):
            some, rest = [mine[:together] for mine in rest], [mine[together:] for mine in rest]
            begun = [collections.deque() for _ in some]
            try:
                for gpu, mine in enumerate(some):
                    for task in mine:
                        begun[gpu].append(self.begin(task, gpu))
                for process in (each for mine in begun for each in mine) if together * self.options.gpus > 1 else ():
                    side_by_side.wait_for_ready(process, self.left())
                is_over = False
                for task, entry in self.each_timed(some, begun):
                    is_over = is_over or entry is None
                    if entry is not None:
                        yield task, entry
                if is_over:
                    return
            finally:
                for process in (each for mine in begun for each in mine):
                    side_by_side.give_up(process)

    def each_timed(self, some, begun):
        """Sequentially on each GPU, GPUs concurrently; yields each as soon as it has finished."""
        done, running, is_over = queue.SimpleQueue(), {}, threading.Event()

        def time_these(gpu):
            try:
                for task in some[gpu]:
                    if is_over.is_set():
                        break
                    running[gpu] = begun[gpu].popleft()
                    done.put((task, self.timed(task, running[gpu])))
            finally:
                done.put(None)

        with concurrent.futures.ThreadPoolExecutor(len(some)) as pool:
            threads = [pool.submit(time_these, gpu) for gpu in range(len(some))]
            try:
                for _ in threads:
                    yield from iter(done.get, None)
            finally:  # even if the caller drops the rest
                is_over.set()
                if not all(thread.done() for thread in threads):
                    for process in running.values():
                        side_by_side.end(process)
            for thread in threads:
                thread.result()

    def kept(self, task, found):
        cold = self.cold.get(cold_name(task), {})
        if "prepare_s" in cold:
            found = found | {"cold_prepare_s": cold["prepare_s"]}
        if self.options.together > 1:
            found = found | {"together": self.options.together}
        if self.options.gpus > 1:
            found = found | {"gpus": self.options.gpus}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
        entry = task._asdict() | {"at": now} | self.of_all | found
        with self.keeping, self.file.open("a") as file:
            self.failed += "failed" in entry
            file.write(json.dumps(entry) + "\n")
        return entry

    def warm(self, tasks, jobs):
        """Makes torch.compile fill its empty caches for these tasks, several at once. Returns the tasks still worth
        running: failed and unfinished compilations are recorded as results."""
        compiled = {}
        for task in tasks:
            name = cold_name(task)
            if name and "prepare_s" not in self.cold.get(name, {}):
                compiled.setdefault(name, []).append(task)
        threads = str(max(2, (os.cpu_count() or 2) // jobs))
        longest_first = sorted(compiled, key=lambda name: ways.BEST not in name)

        def prepare(key):
            env = self.on(longest_first.index(key) % self.options.gpus) | {"TORCHINDUCTOR_COMPILE_THREADS": threads}
            limit = self.left()
            if limit <= 0:
                return key, None
            done = side_by_side.run([sys.executable, *self.command(compiled[key][0], "--prepare-only")], env, limit)
            if done.status is None and limit < self.options.limit:
                return key, None
            return key, outcome(done, limit)

        lost = set()
        self.options.cache.mkdir(parents=True, exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for key, found in pool.map(prepare, longest_first):
                if found is None:
                    continue
                self.cold[key] = found
                self.cold_file.write_text(json.dumps(self.cold, indent=1) + "\n")
                print(f"{key}: {said(found)}", flush=True)
                if "prepare_s" not in found:
                    lost.update(compiled[key])
                    for task in compiled[key]:
                        self.kept(task, found)
        return [task for task in tasks if task not in lost]


def said(entry):
    """An entry in a few words, for progress messages."""
    if "not_within_s" in entry:
        return f"not within {entry['not_within_s']} s"
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    if "gpu_us" not in entry:
        return f"prepared in {entry['prepare_s']:.1f} s"
    return f"{entry['gpu_us']['median']:.0f} us, prepared in {entry['prepare_s']:.1f} s"
