"""What processes do with themselves: fork, exec, end in every way and at every moment. The trace of the process that used
the GPU stays whole, nothing hangs, and what the program computes is what it computes without the shim."""

import collections
import glob
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import ProgramTest
from ways_in_test import WORK, library

# For programs that are built without sanitizers: the driver's runtime comes first, and keeps quiet.
QUIET = {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", "TSAN_OPTIONS": "report_bugs=0"}
# In a forked child, what the parent's other threads own looks like a leak. And exit is called in signal handlers here.
TOLERANT = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_signal_unsafe=0"}

CHILD_ENDS = ("exit", "_exit", "_Exit", "quick_exit", "vfork", "raw", "system")


def times(work, factor):
    return {name: count * factor for name, count in work.items()}


class LifeTest(ProgramTest):
    def left(self, name="trace.json"):
        """What a process has left of its trace: the file, or where it could not end that, the one that it was at; or nothing."""
        return glob.glob(self.path(name)) + glob.glob(self.path(name) + ".*.part")

    def calls(self, name="trace.json", whole=True, unfinished=0):
        """The calls of a trace, by name. A trace that was closed is JSON; otherwise the last line may be cut off. As many
        threads as `unfinished` may have been in the middle of a call when the process ended."""
        with open(self.path(name) if whole else self.left(name)[0], encoding="utf-8") as file:
            text = file.read()
        if whole:
            events = json.loads(text)
            self.assertEqual(events[-1]["name"], "nimble.end")
            self.assertEqual(sum(1 for event in events if event["name"] == "nimble.end"), 1)
        else:
            lines = text.split("\n")[1:]
            events = [json.loads(line.rstrip(",")) for line in lines[:-1] if line not in ("", "]")]
        calls = [e["args"] for e in events if e["ph"] == "X" and e["pid"] == 1]
        seqs = sorted(call["seq"] for call in calls)
        self.assertEqual(len(set(seqs)), len(seqs))
        self.assertLessEqual(seqs[-1] + 1 - len(seqs) if seqs else 0, unfinished)
        return collections.Counter(call["call"] for call in calls)

    def record(self, args, expect=0, trace="trace.json", same=True, **settings):
        """Runs a program with and without recording; the output must be the same. Returns the recorded run."""
        args = ["process_life", *args]
        settings = {**TOLERANT, **settings} if args[1].startswith("fork") else settings
        plain = self.run_program(args, expect=expect, timeout=60, **settings)
        done = self.run_program(args, mode="record", expect=expect, timeout=60, NIMBLE_TRACE=self.path(trace), **settings)
        if same:
            self.assertEqual(done.stdout, plain.stdout)
            self.assertEqual(done.stderr, "")
        return done


class Children(LifeTest):
    def test_children_that_never_use_the_gpu(self):
        for how in CHILD_ENDS:
            with self.subTest(how):
                started = time.monotonic()
                self.record(["fork", how])
                self.assertEqual(self.calls(), WORK)
                self.assertLess(time.monotonic() - started, 15)  # no child waits for threads that it does not have

    def test_children_forked_by_threads_that_launch(self):
        # The thread sanitizer's runtime does not survive a fork that it does not see.
        for how in ("exit", "_exit", "vfork") + (() if harness.BUILD.preload_first else ("raw",)):
            with self.subTest(how):
                self.record(["fork_threads", how])
                self.assertEqual(self.calls(), {**WORK, "cuLaunchKernel": 200})

    def test_children_of_a_parent_that_never_used_the_gpu_have_traces_of_their_own(self):
        for parent in ("fork_first", "fork_looked"):
            for how in ("exit", "_exit", "quick_exit"):
                with self.subTest(f"{parent}, {how}"):
                    self.record([parent, how], trace="%p.json")
                    traces = glob.glob(self.path("*.json"))
                    self.assertEqual(len(traces), 2, traces)
                    for trace in traces:
                        self.assertEqual(self.calls(trace), WORK)
                        os.remove(trace)

    def test_a_child_that_becomes_another_program_and_uses_the_gpu(self):
        self.record(["exec", harness.BUILD.program("process_life"), "end", "return"], trace="%p.json")
        traces = glob.glob(self.path("*.json"))
        self.assertEqual([self.calls(trace) for trace in traces], [WORK, WORK])

    def test_such_a_child_does_not_write_over_its_parents_trace(self):
        done = self.record(["exec", harness.BUILD.program("process_life"), "end", "return"], same=False)
        self.assertIn("is being recorded by another process", done.stderr)
        self.assertEqual(self.calls(), WORK)
        self.assertEqual(self.calls("trace.nimble.json"), WORK)

    def test_a_child_that_lives_on_does_not_keep_the_file(self):
        # A forked child has a copy of the open file, and with it of the lock.
        script = "import ctypes, os, time; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0)\n" \
                 "p = ctypes.c_uint64(); c = ctypes.c_void_p(); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n" \
                 "cuda.cuCtxSetCurrent(c); assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64)) == 0\n" \
                 "time.sleep(0.3)\n" \
                 "if os.fork() == 0: os.close(1); os.close(2); time.sleep(20)"
        env = harness.BUILD.environment("record", NIMBLE_TRACE=self.path("trace.json"), **QUIET)
        subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)
        self.assertEqual(self.calls(), {"cuMemAlloc_v2": 1})
        self.record(["end", "return"], expect=5)
        self.assertEqual(self.calls(), WORK)


class Ends(LifeTest):
    def test_threads_that_launch_at_once(self):
        self.record(["threads"])
        self.assertEqual(self.calls(), {**WORK, "cuLaunchKernel": 800})

    def test_every_way_to_end(self):
        for how in ("return", "exit", "_exit", "_Exit", "quick_exit"):
            with self.subTest(how):
                self.record(["end", how], expect=5)
                self.assertEqual(self.calls(), WORK)

    def test_another_thread_ends_the_process(self):
        for how in ("exit", "_exit", "_Exit", "quick_exit"):
            with self.subTest(how):
                self.record(["end_thread", how], expect=5)
                self.assertEqual(self.calls(), WORK)

    def test_the_process_ends_while_threads_launch(self):
        for how in ("exit", "_exit", "quick_exit"):
            for _ in range(3):
                with self.subTest(how):
                    self.record(["busy", how], expect=5)
                    # Threads may be in the middle of writing when they end with the process.
                    self.assertGreaterEqual(self.calls(whole=False, unfinished=3)["cuLaunchKernel"], 2000)
                    self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet")

    def test_an_end_that_no_library_can_see(self):
        self.record(["end", "system"], expect=5)
        if self.left():  # it may end before anything was written
            self.calls(whole=False)

    def test_calls_after_main(self):
        done = self.record(["late"])
        self.assertEqual(len(done.stdout.splitlines()), 7)
        self.assertEqual(self.calls(), {"cuMemAlloc_v2": 2, "cuMemsetD32_v2": 2, "cuLaunchKernel": 7, "cuMemcpyDtoH_v2": 7})

    def test_calls_before_main(self):
        for way in ("linked", "dlsym"):
            with self.subTest(way):
                done = self.record(["nothing"], LIFE_EARLY=way)
                self.assertIn("early: ", done.stdout)
                self.assertEqual(self.calls(), WORK)

    def test_functions_looked_up_before_any_constructor(self):
        self.record(["preinit"])
        self.assertEqual(self.calls(), WORK)

    def test_a_user_of_the_driver_is_unloaded(self):
        self.record(["dlclose", library("libways_plugin.so")])
        self.assertEqual(self.calls(), times(WORK, 2))


class SignalTest(LifeTest):
    def end_by(self, number, words, expect, mode="record", **settings):
        """Sends a signal to a program that launches without a pause. Returns how long it took to end."""
        # The leak sanitizer waits for locks that the interrupted thread may hold.
        env = harness.BUILD.environment(mode, **settings, **TOLERANT)
        process = subprocess.Popen([harness.BUILD.program("process_life"), *map(str, words)], env=env, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(random.uniform(0, 0.03))
        process.send_signal(number)
        started = time.monotonic()
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, expect)
        return time.monotonic() - started


class Signals(SignalTest):
    def record_until(self, number, words, expect):
        for trace in self.left():
            os.remove(trace)
        return self.end_by(number, ["loop", *words], expect, NIMBLE_TRACE=self.path("trace.json"))

    def test_default_action(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGUSR1):
            with self.subTest(number):
                self.record_until(number, [], -number)
                # The last 50 ms may be missing.
                if self.left():
                    self.calls(whole=False)

    def test_a_handler_that_interrupts_malloc_and_calls_exit(self):
        # Who waits there for memory waits for ever.
        modes = {mode: {} for mode in ("off", "record", "auto", "regions", "check")}
        modes["graphs"] = {"NIMBLE_GRAPHS": "rewrite", "NIMBLE_TRACE": self.path("graphs.json")}
        modes["live"] = {"NIMBLE_LIVE": self.path("live.json")}
        # On a handler's own stack the address sanitizer itself takes memory before each call of _exit.
        ways = ("malloc", "nodefer") if harness.BUILD.preload_first else ("malloc", "nodefer", "stack")
        for (mode, settings), how in itertools.product(modes.items(), ways):
            name = {"graphs": "off", "live": "regions"}.get(mode, mode)
            for seed in harness.BUILD.seeds(6 if how == "malloc" else 3):
                with self.subTest(mode, how=how, seed=seed):
                    self.run_program(["handler_exit", how], mode=name, timeout=20, NIMBLE_LOG="info",
                                     NIMBLE_LOG_FILE=self.path("log"), **{"NIMBLE_TRACE": self.path("trace.json"), **settings})

    def test_a_handler_that_calls_exit(self):
        # It may interrupt us anywhere. If that is in the middle of an entry in the queue, the queue stays locked, and
        # the last 50 ms of the trace are lost; but it never hangs.
        closed = 0
        for _ in harness.BUILD.seeds(30):
            self.assertLess(self.record_until(signal.SIGTERM, ["exit"], 0), 10)
            try:
                self.assertGreaterEqual(self.calls()["cuLaunchKernel"], 3000)
                closed += 1
            except (FileNotFoundError, json.JSONDecodeError):
                self.calls(whole=False)
        self.assertGreater(closed, 0)


class OwnWorld(LifeTest):
    """What a program has put in the place of what all use."""

    def same(self, word, **settings):
        plain = self.run_program(["own_world", word])
        for mode in ("off", "record", "auto", "regions", "graphs", "check"):
            with self.subTest(mode):
                graphs = {"NIMBLE_GRAPHS": "rewrite"} if mode == "graphs" else {}
                done = self.run_program(["own_world", word], mode="off" if mode == "graphs" else mode, timeout=60,
                                        NIMBLE_TRACE=self.path("trace.json"), **graphs, **settings)
                self.assertEqual(done.stdout, plain.stdout)
        return plain.stdout

    def test_a_clock_that_stands_still(self):
        self.same("clock", NIMBLE_AUTO_WAIT=500)

    def test_a_sandbox_that_answers_system_calls(self):
        # Its handler would be called on a thread of a sanitizer's, too.
        if not harness.BUILD.preload_first and self.same("sandbox", NIMBLE_AUTO_WAIT=500).startswith("no filters"):
            self.skipTest("the kernel takes no filters")


class Subinterpreters(LifeTest):
    SCRIPT = """
import {module} as interpreters
for _ in range(3):
    one = interpreters.create()
    interpreters.run_string(one, '''
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64)),
               cuda.cuMemsetD32_v2(pointer, 1, ctypes.c_size_t(16))):
    assert result == 0, result
''')
    interpreters.destroy(one)
print("done")
"""

    def test_each_uses_the_gpu(self):
        for module in ("_xxsubinterpreters", "_interpreters"):
            if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
                break
        else:
            self.skipTest("this Python has no subinterpreters")
        env = harness.BUILD.environment("record", NIMBLE_TRACE=self.path("trace.json"), **QUIET)
        done = subprocess.run([sys.executable, "-c", self.SCRIPT.format(module=module)], env=env, text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        self.assertEqual(self.calls(), {"cuMemAlloc_v2": 3, "cuMemsetD32_v2": 3})

    def test_python_ends_by_os_exit(self):
        script = "import ctypes, os; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0)\n" \
                 "p = ctypes.c_uint64(); c = ctypes.c_void_p(); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n" \
                 "cuda.cuCtxSetCurrent(c); assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64)) == 0\n" \
                 "os._exit(3)"
        env = harness.BUILD.environment("record", NIMBLE_TRACE=self.path("trace.json"), **QUIET)
        self.assertEqual(subprocess.run([sys.executable, "-c", script], env=env, timeout=60, check=False).returncode, 3)
        self.assertEqual(self.calls(), {"cuMemAlloc_v2": 1})


class Replay(SignalTest):
    def setUp(self):
        super().setUp()
        self.schedule = self.make_schedule(["process_life", "steps", 12, "end", "return"])

    def replay(self, *words):
        settings = TOLERANT if "fork" in words else {}
        plain = self.run_program(["process_life", "steps", *words], timeout=60, **settings)
        done = self.run_program(["process_life", "steps", *words], mode="replay", timeout=60, **settings,
                                NIMBLE_SCHEDULE=self.schedule, NIMBLE_STATS=self.path("stats.json"))
        self.assertEqual((done.stdout, done.stderr), (plain.stdout, ""))
        stats = self.read_json("stats.json")
        os.remove(self.path("stats.json"))
        self.assertGreater(stats["steps_replayed"], 20, stats)
        return done, stats

    def test_the_process_ends_while_ops_are_held(self):
        for how in ("return", "exit", "_exit", "_Exit", "quick_exit"):
            with self.subTest(how):
                done, stats = self.replay(30, "end", how)
                self.assertEqual(stats["divergences"], 0, stats)
                if how in ("return", "exit"):  # what was held has run: a library's destructor looks
                    self.assertIn("at the end: ", done.stdout)

    def test_a_signal_ends_the_process_in_the_middle_of_a_call(self):
        # The driver is locked then, for good: nothing more may be asked of it.
        for _ in harness.BUILD.seeds(20):
            self.assertLess(self.end_by(signal.SIGTERM, ["steps", 10**9, "end", "handler"], 0, mode="replay",
                                        NIMBLE_SCHEDULE=self.schedule), 10)

    def test_a_signal_ends_a_process_that_does_all_by_itself(self):
        # Whatever it is at: recording, waiting for the analysis, or replaying.
        for wait in (0, 30, 60000):
            for _ in harness.BUILD.seeds(5):
                self.assertLess(self.end_by(signal.SIGTERM, ["steps", 10**9, "end", "handler"], 0, mode="auto",
                                            NIMBLE_AUTO_WAIT=wait), 30)

    def test_children_while_ops_are_held(self):
        for how in CHILD_ENDS:
            with self.subTest(how):
                _, stats = self.replay(30, "fork", how)
                self.assertEqual(stats["divergences"], 0, stats)


if __name__ == "__main__":
    harness.main()
