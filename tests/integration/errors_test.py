"""Errors of the driver under replay: none is lost, none is invented, and what can be computed is.

What is allowed, for a program that goes on after an error:

- A call that replay makes at once answers as it does without Nimble, error or not.
- An op that is held back answers CUDA_SUCCESS. If the driver refuses it later, the program is told once, by a call that
  comes after it, and no later than the next one that waits for its work, as it would be told of an asynchronous error.
  That call does its own work as well. All data are those that the program computes if this op fails.
- Of an error that a context does not survive the program is told by then, too, and from there on each call answers as it
  does without Nimble.
- Errors that meet the driver calls of replay's own are no matter of the program's: it sees none and computes the same.

After an error of a held op, or of a context, replay stands aside for good, and says so once.

Injected at every call of a step, and at the first, a middle and the last call of each function of replay's own; by default
with some of the four errors each, drawn by a seed that is printed. NIMBLE_SEED sets it, NIMBLE_ERRORS=all tries everything.
"""

import itertools
import json
import os
import random
import re
import time
import unittest

import harness
from harness import ProgramTest

# Not out of memory: such a call is retried (memory_test.py).
OPERATING_SYSTEM, INVALID_VALUE, ILLEGAL_ADDRESS, LAUNCH_FAILED = 304, 1, 700, 719
OUT_OF_MEMORY = 2
RECOVERABLE, FAULTS = (OPERATING_SYSTEM, INVALID_VALUE), (ILLEGAL_ADDRESS, LAUNCH_FAILED)
CODES = RECOVERABLE + FAULTS

STEPS, BOUND = 7, 3  # how many steps are run, and one in the midst of those that are replayed

SEED = int(os.environ.get("NIMBLE_SEED", time.time_ns() % 10**6))
ALL = os.environ.get("NIMBLE_ERRORS") == "all"
TIMEOUT = 60  # of each process: nothing may hang


class Outcome:
    """What a run printed: errors as (step, ordinal, call, code), and everything else."""

    def __init__(self, done):
        self.text = done.stdout
        self.errors, self.data = [], []
        for line in done.stdout.splitlines():
            word = line.split()
            if word and word[0] == "error":
                self.errors.append((int(word[1]), int(word[2]), word[3], int(word[4])))
            else:
                self.data.append(line)
        log = done.stderr.splitlines()
        self.failures = next(int(line.split()[1]) for line in log if line.startswith("failures: "))
        self.counts = [line.split()[1:] for line in log if line.startswith("calls ")]
        self.log = [line for line in log if not line.startswith(("failures: ", "calls "))]

    def __str__(self):
        return f"{len(self.errors)} errors {self.errors[:3]}, data {self.data}, log {self.log}"


class ErrorsTest(ProgramTest):
    MODE = []  # of the program
    # Its calls that wait for all its work: what they leave untold stays untold.
    WAITS = re.compile(r"cuCtxSynchronize|cuStreamSynchronize|cuMemcpy(DtoH|HtoD)_v2")
    plain_runs = {}
    schedule_text = None
    calls = []

    def setUp(self):
        super().setUp()
        kind = next(k for k in type(self).__mro__ if "MODE" in vars(k))
        if kind.schedule_text is None:
            print(f"errors_test: NIMBLE_SEED={SEED}", flush=True)
            self.make_schedule(["errors", 12, *self.MODE])
            with open(self.path("schedule.json"), encoding="utf-8") as file:
                kind.schedule_text = file.read()
            for line in self.run_program(["errors", "calls", *self.MODE]).stdout.splitlines():
                ordinal, symbol, what = line.split()
                self.assertEqual(int(ordinal), len(kind.calls))
                kind.calls.append((symbol, what == "op"))
        with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
            file.write(kind.schedule_text)
        self.random = random.Random(f"{SEED} {self.id()}")

    def some(self, items, count):
        """All of them where everything is to be tried, else so many of them by chance."""
        items = list(items)
        count = max(1, int(count * harness.BUILD.share))
        return items if ALL or count >= len(items) else self.random.sample(items, count)

    def plain(self, **settings):
        """The run without Nimble."""
        key = tuple(sorted(settings.items()))
        if key not in self.plain_runs:
            self.plain_runs[key] = Outcome(self.run_program(["errors", STEPS, *self.MODE], timeout=TIMEOUT, **settings))
        return self.plain_runs[key]

    def replay(self, **settings):
        settings.setdefault("NIMBLE_SCHEDULE", "schedule.json")
        settings.setdefault("SIMCUDA_SEED", self.random.choice((0, self.random.randrange(1, 10**6))))
        self.settings = settings
        if os.path.exists(self.path("stats.json")):
            os.remove(self.path("stats.json"))
        done = self.run_program(["errors", STEPS, *self.MODE], mode="replay", timeout=TIMEOUT,
                                NIMBLE_STATS=self.path("stats.json"), **settings)
        self.stats = self.read_json("stats.json")
        return Outcome(done)

    def compare(self, replayed, plain):
        if replayed.text != plain.text:
            self.fail(f"{self.settings}: {replayed}; without Nimble {plain}")

    def the_same_but_later(self, replayed, place, code, **settings):
        """Whether it is the run in which the call at `place` fails, but for where the program is told."""
        plain = self.plain(ERRORS_AT=f"{place[0]}:{place[1]}:{code}", **settings)
        return (replayed.data == plain.data and
                sorted(error[3] for error in replayed.errors) == sorted(error[3] for error in plain.errors))

    def told_by(self, step, ordinal):
        """The first call from there on that waits."""
        for at in range(ordinal, len(self.calls)):
            if self.WAITS.fullmatch(self.calls[at][0]):
                return (step, at)
        return (step, 2 * len(self.calls))  # ERRORS_ELSEWHERE: that step has more calls

    def check_aside(self, outcome):
        """Replay has stood aside, with a reason and one line of the log."""
        self.assertNotEqual(self.stats["stood_aside"], "", self.settings)
        self.assertEqual(len(outcome.log), 1, outcome.log)
        self.assertIn("replay stops: " + self.stats["stood_aside"], outcome.log[0])

    def check_told_of(self, place, code, replayed, held):
        """The error at `place` reached the program in time, and nothing else did; the data are those without it."""
        told = replayed.errors[0][:2] if replayed.errors else None
        message = f"{self.settings}: {replayed}"
        self.assertIsNotNone(told, "lost: " + message)
        self.assertGreaterEqual(told, place, message)
        self.assertLessEqual(told, self.told_by(*place) if held else place, message)
        if code in FAULTS:
            # From there on as if that had been the call.
            self.compare(replayed, self.plain(ERRORS_AT=f"{told[0]}:{told[1]}:{code}"))
        elif told == place:
            self.compare(replayed, self.plain(ERRORS_AT=f"{place[0]}:{place[1]}:{code}"))
        else:
            self.assertTrue(self.the_same_but_later(replayed, place, code), message)


class ErrorsOfTheProgram(ErrorsTest):
    """Each call of a step fails."""

    def check(self, step, ordinal, code, **settings):
        with self.subTest(step=step, ordinal=ordinal, call=self.calls[ordinal][0], code=code):
            self.check_one(step, ordinal, code, **settings)

    def check_one(self, step, ordinal, code, **settings):
        symbol, is_op = self.calls[ordinal]
        at = f"{step}:{ordinal}:{code}"
        plain = self.plain(ERRORS_AT=at)
        self.assertEqual(plain.errors[0], (step, ordinal, symbol, code))
        replayed = self.replay(ERRORS_AT=at, **settings)
        if replayed.failures == 0:
            # Answered from the memory plan, or replaced by a graph's edges: no driver call, no error.
            self.assertIn(symbol, ("cuMemAllocAsync", "cuMemFreeAsync", "cuMemGetAddressRange_v2", "cuStreamWaitEvent"))
            self.compare(replayed, self.plain())
            return
        if code not in FAULTS and symbol == "cuMemAllocAsync" and "no memory for the step" in self.stats["stood_aside"]:
            self.compare(replayed, self.plain())  # the call that failed was Nimble's own, for the step's memory
            return
        self.check_told_of((step, ordinal), code, replayed, is_op)
        if code in FAULTS or replayed.errors[0][1] != ordinal:
            self.check_aside(replayed)

    def test_every_call_of_a_replayed_step(self):
        for ordinal in range(len(self.calls)):
            for code in self.some(RECOVERABLE, 1) + self.some(FAULTS, 1):
                self.check(BOUND, ordinal, code)

    def test_every_call_of_the_step_that_binds_and_of_the_next(self):
        for step, ordinal in self.some(itertools.product((0, 1), range(len(self.calls))), 40):
            self.check(step, ordinal, self.random.choice(CODES))

    def test_what_the_watchdog_submits(self):
        ops = [ordinal for ordinal, (_, is_op) in enumerate(self.calls) if is_op and self.calls[ordinal + 1][1]]
        by_watchdog = 0
        for ordinal in self.some(ops, 8):
            self.check(BOUND, ordinal, self.random.choice(CODES), NIMBLE_HOLD_US=500,
                       ERRORS_PAUSE=f"{BOUND}:{ordinal + 1}:20")
            by_watchdog += self.stats["watchdog_flushes"]
        self.assertGreater(by_watchdog, 0)

    def test_in_steps_that_are_audited(self):
        # An audit makes copies that look like the program's.
        others = [ordinal for ordinal, (symbol, _) in enumerate(self.calls) if not symbol.startswith("cuMemcpy")]
        for ordinal in self.some(others, 12):
            self.check(BOUND, ordinal, self.random.choice(RECOVERABLE), NIMBLE_AUDIT=1)

    def test_kernels_copies_and_sets_that_fault_when_they_run(self):
        ops = [o for o, (symbol, is_op) in enumerate(self.calls) if is_op and "Event" not in symbol]
        for ordinal in ops:
            code = self.random.choice(FAULTS)
            replayed = self.replay(ERRORS_RUN=f"{BOUND}:{ordinal}:{code}")
            self.assertEqual(replayed.failures, 1)
            self.check_told_of((BOUND, ordinal), code, replayed, True)
            self.check_aside(replayed)

    def test_while_recording(self):
        for ordinal in self.some(range(len(self.calls)), 20):
            at = f"{BOUND}:{ordinal}:{self.random.choice(CODES)}"
            done = self.run_program(["errors", STEPS, *self.MODE], mode="record", timeout=TIMEOUT, ERRORS_AT=at,
                                    NIMBLE_TRACE=self.path("errors.json"))
            self.assertEqual(done.stdout, self.plain(ERRORS_AT=at).text)
            self.read_json("errors.json")


class ErrorsOfReplay(ErrorsTest):
    """Each driver function that replay calls itself fails, as often as it is called by it."""

    # Under these, all of them are called: as it is; where nodes have priorities; where steps are audited; where ways of
    # submitting are compared; where the watchdog submits; where other streams free tensors and capture.
    SETTINGS = (
        {},
        {"NIMBLE_SCHEDULE": "priorities.json"},
        {"NIMBLE_AUDIT": "2"},
        {"NIMBLE_TUNE": "start"},
        {"NIMBLE_HOLD_US": 500, "ERRORS_PAUSE": f"{BOUND}:12:50"},
        {"ERRORS_ELSEWHERE": BOUND},
    )

    def functions(self):
        return self.run_program(["errors", "driver"]).stdout.split()

    def codes(self, symbol):
        if symbol == "cuGraphDestroy":
            return RECOVERABLE  # the program's, and Nimble does not see the call
        if symbol == "cuPointerGetAttribute":
            return [code for code in CODES if code != INVALID_VALUE]  # which says that there is no memory at an address
        return CODES

    def check(self, step, symbol, nth, code, settings):
        """Whether there was such a call, and whether replay stood aside for it."""
        inject = f"{step}:{symbol}:{nth}:{code}"
        plain_settings = {k: v for k, v in settings.items() if k == "ERRORS_ELSEWHERE"}
        clean = self.plain(**plain_settings)
        replayed = self.replay(**{**settings, "ERRORS_INJECT": inject, "SIMCUDA_SEED": 0})
        message = f"{self.settings}: {replayed}"
        if replayed.failures == 0 and "NIMBLE_HOLD_US" in settings:
            self.compare(replayed, clean)  # when the watchdog looks differs from run to run, and so does what is called
            return False, False
        self.assertGreater(replayed.failures, 0, message)
        if self.stats["stood_aside"]:
            self.check_aside(replayed)
        else:
            self.assertEqual(replayed.log, [], message)
        if code in FAULTS:
            # The context is gone, whichever call met the error first.
            self.assertTrue(replayed.errors or replayed.text == clean.text, message)
            if replayed.errors:
                told = f"{replayed.errors[0][0]}:{replayed.errors[0][1]}:{code}"
                self.compare(replayed, self.plain(ERRORS_AT=told, **plain_settings))
            return True, bool(self.stats["stood_aside"])
        if replayed.text == clean.text:
            return True, bool(self.stats["stood_aside"])
        # The call was one of the program's own after all, passed on or submitted late: one error, and the data of that.
        self.assertTrue(replayed.errors, message)
        told = replayed.errors[0][:2]
        places = [(told[0], at) for at in range(told[1] + 1) if self.told_by(told[0], at) >= told]
        self.assertTrue(any(self.the_same_but_later(replayed, place, code, **plain_settings) for place in places),
                        message)
        return True, bool(self.stats["stood_aside"])

    def test_every_function_at_the_first_a_middle_and_the_last_call_of_a_step(self):
        functions, reached, aside = self.functions(), set(), set()
        schedule = self.read_json("schedule.json")
        for op in schedule["ops"]:
            if op["kind"] == "launch" and op["submit"] == "graph":
                op["priority"] = 1
        with open(self.path("priorities.json"), "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        for settings in self.SETTINGS:
            counted = self.replay(**settings, ERRORS_COUNT=",".join(functions), SIMCUDA_SEED=0).counts
            of_steps = {(int(step), symbol): int(count) for step, symbol, count in counted if int(count) > 0}
            if settings:  # what there is more of than without
                of_steps = {key: count for key, count in of_steps.items() if count != usual.get(key, 0)}
            else:
                usual = of_steps
            for (step, symbol), count in of_steps.items():
                if step > BOUND + 1:
                    continue
                for nth in sorted({1, (count + 1) // 2, count}):
                    for code in self.some(self.codes(symbol), 1):
                        with self.subTest(step=step, symbol=symbol, nth=nth, code=code):
                            hit, stood_aside = self.check(step, symbol, nth, code, settings)
                            if hit:
                                reached.add(symbol)
                            if stood_aside:
                                aside.add(symbol)
        self.check_reached(set(functions), reached, aside)

    def check_reached(self, functions, reached, aside):
        # Devices are queried before the first step, and graphs are kept to the end.
        rest = functions - reached
        self.assertLessEqual(rest, {"cuDeviceGetCount", "cuDeviceGetAttribute", "cuGraphDestroy", "cuGraphExecDestroy"})
        self.assertGreater(len(aside), 10, aside)

    def test_out_of_memory_leaves_the_program_without_graphs(self):
        graphs = len(self.read_json("schedule.json")["segments"])
        self.assertGreater(graphs, 1)
        for call in ("cuMemAllocAsync:1", "cuGraphCreate:1", "cuGraphAddKernelNode_v2:3", "cuGraphInstantiateWithFlags:1",
                     f"cuGraphInstantiateWithFlags:{graphs}"):
            with self.subTest(call):
                replayed = self.replay(ERRORS_INJECT=f"1:{call}:{OUT_OF_MEMORY}")
                self.compare(replayed, self.plain())
                self.assertEqual(replayed.failures, 1)
                self.check_aside(replayed)
                self.assertEqual(self.stats["steps_replayed"], 0)


class EndsOfContexts(ErrorsTest):
    """The context ends in the middle of a step, and the program goes on with a new one."""

    def test_at_every_call(self):
        for how, who in itertools.product(("destroy", "reset", "release"), ("", ":thread")):
            for ordinal in self.some(range(len(self.calls)), 12):
                settings = {"ERRORS_END": f"{BOUND}:{ordinal}:{how}{who}"}
                plain = self.plain(**settings)
                self.assertIn("ended: 0", plain.data)
                replayed = self.replay(**settings)
                self.compare(replayed, plain)
                self.assertEqual(replayed.log, [])

    def test_after_an_error(self):
        """What is owed of a context that is gone is not told of another."""
        for ordinal in self.some(range(len(self.calls) - 1), 12):
            settings = {"ERRORS_RUN": f"{BOUND}:{ordinal}:{ILLEGAL_ADDRESS}", "ERRORS_END": f"{BOUND + 1}:3:destroy"}
            replayed, plain = self.replay(**settings), self.plain(**settings)
            again = plain.text.index("again")
            self.assertEqual(replayed.text[replayed.text.index("again"):], plain.text[again:], self.settings)


class TwoStreams(ErrorsTest):
    """The step is on two streams."""

    MODE = ["two"]
    WAITS = re.compile(r"cuCtxSynchronize")  # other waits are for one of the streams
    plain_runs = {}
    schedule_text = None
    calls = []


class ErrorsOfTheProgramOnTwoStreams(TwoStreams, ErrorsOfTheProgram):
    pass


class ErrorsOfReplayOnTwoStreams(TwoStreams, ErrorsOfReplay):
    def check_reached(self, functions, reached, aside):
        self.assertGreater(len(self.read_json("schedule.json")["streams"]), 1)
        self.assertLessEqual({"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuStreamQuery", "cuGraphLaunch"},
                             reached)
        self.assertLessEqual({"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}, aside)


class EndsOfContextsOnTwoStreams(TwoStreams, EndsOfContexts):
    pass


if __name__ == "__main__":
    harness.main()
