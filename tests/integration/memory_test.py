"""A program that runs for long under Nimble has the memory that it had, and gets the memory that it asks for."""

import os
import re
import unittest

import harness
from harness import ProgramTest

GRAPHS = {"mode": "off", "NIMBLE_GRAPHS": "rewrite", "NIMBLE_AUTO_LIMIT": 1}
AUTO = {"mode": "auto", "NIMBLE_AUTO_LIMIT": 4}
RECORD = {"mode": "record", "NIMBLE_TRACE": "/dev/null"}
# What runs in which mode, and how many rounds.
RUNS = [
    ("graphs", GRAPHS, 2000),
    ("unlaunched", GRAPHS, 2000),
    ("launches", GRAPHS, 16000),
    ("recordings", GRAPHS, 64),
    ("objects", GRAPHS, 2000),
    ("threads", GRAPHS, 800),
    ("graphs", AUTO, 2000),
    ("launches", AUTO, 160000),
    ("phases", AUTO, 240000),
    ("objects", {**AUTO, "NIMBLE_AUTO_LIMIT": 1}, 16000),  # the first part is recorded
    ("regions", {"mode": "regions"}, 400),
    ("objects", {"mode": "regions"}, 2000),
    ("objects", RECORD, 2000),
    ("graphs", RECORD, 64000),  # so that an eighth takes longer than the writer waits, and sees the queue empty
]
# What may come in the second half, of the process and of the device. A recording that stays takes 4 MiB at least; what
# takes a KiB each round shows, too.
RESIDENT_KIB, DEVICE_KIB = 896, 64
# What the process may have more than without Nimble once a recording of 32 MiB has ended: mostly the library itself.
KEPT_KIB = 12 << 10


@unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "a sanitizer keeps what is released, and much beside it")
class Memory(ProgramTest):
    def grown(self, what, rounds, *more, **settings):
        """By how many KiB process and device have grown over half of the rounds: the middle one of the last three eighths
        against the middle one of three before these, since what is on its way to a writer comes and goes."""
        # One arena of the allocator's: how many there are, and what each keeps, is chance.
        done = self.run_program(["server", what, rounds, *more], MALLOC_ARENA_MAX=1, **settings)
        rows = re.findall(r"round \d+ resident (\d+) KiB device (\d+) KiB", done.stdout)
        self.assertEqual(len(rows), 8, done.stdout)
        columns = [[int(number) for number in column] for column in zip(*rows)]
        return [sorted(column[5:])[1] - sorted(column[1:4])[1] for column in columns] + [done.stdout]

    def test_what_ends_gives_back_all_it_had(self):
        for what, settings, rounds in RUNS:
            with self.subTest(what=what, **settings):
                # A recording's writer may lag for long while other tests run: it is waited for, eight times.
                more = ("calm",) if settings is RECORD else ()
                resident, device, text = self.grown(what, rounds, *more, **settings)
                self.assertLess(resident, RESIDENT_KIB, text)
                self.assertLess(device, DEVICE_KIB, text)

    def test_a_recording_that_has_ended_is_in_no_arena(self):
        # With the allocator as it is by default: what it keeps in arenas of our threads no one else may ever use.
        least = self.resident(80000, mode=None)
        for settings in ({"mode": "off", "NIMBLE_GRAPHS": "rewrite"}, {"mode": "auto"}):
            for _ in range(3):
                with self.subTest(**settings):
                    more = self.resident(80000, NIMBLE_AUTO_LIMIT=32, **settings) - least
                    self.assertLess(more, KEPT_KIB)

    def resident(self, rounds, **settings):
        done = self.run_program(["server", "launches", rounds, "calm"], **settings)
        return int(re.findall(r"resident (\d+) KiB", done.stdout)[-1])

    def test_a_loss_is_seen(self):
        resident, _, _ = self.grown("objects", 2000, "leak", **GRAPHS)
        self.assertGreater(resident, RESIDENT_KIB)
        _, device, _ = self.grown("objects", 2000, "device", **GRAPHS)
        self.assertGreater(device, DEVICE_KIB)


class Shortage(ProgramTest):
    """The device has 64 MiB."""

    def outputs(self, *args, **settings):
        settings.setdefault("SIMCUDA_MEMORY", 64)
        return (self.run_program(["shortage", *args], **settings).stdout,
                self.run_program(["shortage", *args], **{**settings, "mode": None}).stdout)

    def test_memory_of_a_graph_that_has_ended_is_there_for_who_asks(self):
        for how in ("alloc", "async", "create", "array", "managed"):
            with self.subTest(how):
                with_it, without = self.outputs("retired", how, **GRAPHS)
                self.assertIn("told 0", without)
                self.assertEqual(with_it, without)

    def test_a_call_that_got_no_memory_is_made_once_more(self):
        for symbol in ("cuGraphInstantiateWithFlags", "cuModuleLoad", "cuGraphLaunch", "cuMemAlloc_v2",
                       "cuLaunchKernel"):
            with self.subTest(symbol):
                counted = self.run_program(["shortage", "retry", symbol], **GRAPHS, SIMCUDA_REPORT=self.path("report"))
                calls = self.read_json("report")["calls"][symbol]
                inject = f"{symbol}:{calls}:2"
                failed = self.run_program(["shortage", "retry", symbol], **GRAPHS, SIMCUDA_INJECT=inject)
                self.assertEqual(failed.stdout, counted.stdout)

    def test_graphs_that_run_one_at_a_time_need_no_more_than_the_drivers(self):
        for graphs in (2, 8, 24):
            with self.subTest(graphs):
                with_it, without = self.outputs("many", graphs, **GRAPHS)
                self.assertIn(f"{graphs} graphs, told 0", without)
                self.assertEqual(with_it, without)

    def test_a_step_is_released_if_the_program_needs_its_memory(self):
        with_it, without = self.outputs("steps", 1200, mode="auto", NIMBLE_AUTO_LIMIT=16)
        self.assertNotIn("told 2", without)
        self.assertEqual(with_it, without)

    def test_a_region_is_given_back_if_the_program_needs_its_memory(self):
        for how, told in (("enough", 0), ("racing", 0), ("little", 0), ("hopeless", 2), ("busy", 2), ("captures", 2)):
            with self.subTest(how):
                done = self.run_program(["shortage", "region", how], mode="regions", SIMCUDA_MEMORY=64)
                plain = self.run_program(["shortage", "region", how], SIMCUDA_MEMORY=64)
                self.assertIn("stale: the program needed its memory\n" if how in ("enough", "racing") else "stale: \n", done.stderr)
                self.assertIn(f"told {told}\n", done.stdout)
                # Only what may not be waited for costs the program its memory, as before it asked.
                self.assertEqual(done.stdout.replace("told 2", "told 0") if how in ("busy", "captures") else done.stdout,
                                 plain.stdout)

    def test_a_recording_has_none_of_the_devices(self):
        for settings in ({"NIMBLE_TIMING": "events"}, {"NIMBLE_PROBE": "writes"},
                         {"NIMBLE_CAPTURE": "bundle", "NIMBLE_BUNDLE": self.path("bundle")}, {"NIMBLE_STEPS": 10}):
            for args in (("retired", "alloc"), ("many", 2), ("steps", 200)):
                with self.subTest(args=args, **settings):
                    with_it, without = self.outputs(*args, mode="record", NIMBLE_TRACE=self.path("trace.json"), **settings)
                    self.assertNotIn("told 2", without)
                    self.assertEqual(with_it, without)

    def test_a_replayed_step_is_released_if_the_program_needs_its_memory(self):
        schedule = self.make_schedule(["shortage", "steps", 400])
        for args in (("steps", 1200), ("steps", 1200, "cancelled")):
            with self.subTest(args):
                with_it, without = self.outputs(*args, mode="replay", NIMBLE_SCHEDULE=schedule,
                                                NIMBLE_STATS=self.path("stats.json"))
                self.assertNotIn("told 2", without)
                self.assertEqual(with_it, without)
                self.assertGreater(self.read_json("stats.json")["steps_replayed"], 100)

    def test_a_thread_that_is_cancelled_meanwhile_goes_on(self):
        for args, settings in ((("retired", "alloc"), GRAPHS),
                               (("steps", 1200), {"mode": "auto", "NIMBLE_AUTO_LIMIT": 16}),
                               (("region", "enough"), {"mode": "regions"})):
            with self.subTest(args):
                with_it, without = self.outputs(*args, "cancelled", **settings)
                self.assertIn("digest", without)
                self.assertEqual(with_it, without)


@unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "a sanitizer has use for the memory")
class HostShortage(ProgramTest):
    """The host's memory is taken, but for what the program and the driver need."""

    STEPS = 400
    MODES = {"off": {"mode": "off"}, "graphs": GRAPHS, "auto": {"mode": "auto"}, "regions": {"mode": "regions"}}

    def run_full(self, left, *more, steps=STEPS, **settings):
        return self.run_program(["host_full", steps, left, *more], timeout=60, **settings)

    def record(self, left, **settings):
        trace = self.path("trace.json")
        done = self.run_full(left, mode="record", NIMBLE_TRACE=trace, NIMBLE_LOG="info", **settings)
        events = self.read_json("trace.json")
        self.assertEqual((events[0]["name"], events[-1]["name"]), ("nimble.trace", "nimble.end"))
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".part")], [])
        return done, {event["name"] for event in events}

    def test_a_recording_ends_and_says_so(self):
        for settings in ({}, {"NIMBLE_TIMING": "events"}, {"NIMBLE_TIMING": "none"}, {"NIMBLE_PROBE": "writes"},
                         {"NIMBLE_STEPS": 1000}):
            for left in (64, 256, 512):
                plain = self.run_full(left)
                self.assertIn(f"result 0: {7 * self.STEPS} times", plain.stdout)
                with self.subTest(left=left, **settings):
                    done, names = self.record(left, **settings)
                    self.assertEqual(done.stdout, plain.stdout)
                    self.assertIn("recording ends here: the host's memory is full. wrote", done.stderr)
                    self.assertIn("nimble.stopped", names)

    def test_a_call_that_then_gets_no_memory_is_made_once_more(self):
        inject = f"cuMemsetD32Async:{self.STEPS // 4 + 2}:2"
        for left in (64, -1):
            with self.subTest(left=left):
                plain = self.run_full(left, SIMCUDA_INJECT=inject)
                self.assertIn("result 2: 1 times", plain.stdout)
                done, names = self.record(left, SIMCUDA_INJECT=inject)
                if left < 0:  # it is the device that has none
                    self.assertEqual(done.stdout, plain.stdout)
                    self.assertNotIn("nimble.stopped", names)
                else:
                    self.assertEqual(done.stdout, self.run_full(left).stdout)
                    self.assertIn("nimble.stopped", names)

    def test_recordings_in_memory_give_it_back(self):
        steps = 40  # too few for a replay
        inject = f"cuMemsetD32Async:{steps // 4 + 2}:2"
        # The recording's own thread may be the first to run out.
        for more, settings, said in (((), {"mode": "auto"}, "auto stops: (the host's memory is full|the recording cannot be kept)"),
                                     (("region",), {"mode": "regions"}, "region: ")):
            for left in (64, -1):
                with self.subTest(left=left, **settings):
                    plain = self.run_full(left, *more, steps=steps, SIMCUDA_INJECT=inject)
                    self.assertIn("result 2: 1 times", plain.stdout)
                    done = self.run_full(left, *more, steps=steps, SIMCUDA_INJECT=inject, **settings)
                    if left < 0:  # it is the device that has none
                        self.assertEqual(done.stdout, plain.stdout)
                    else:
                        self.assertEqual(done.stdout, self.run_full(left, *more, steps=steps).stdout)
                        self.assertRegex(done.stderr, said)

    def test_other_modes(self):
        plain = self.run_full(64)
        for mode, settings in self.MODES.items():
            with self.subTest(mode=mode):
                self.assertEqual(self.run_full(64, **settings).stdout, plain.stdout)


if __name__ == "__main__":
    harness.main()
