"""The driver's surface beyond launches and copies: what is recorded of it, and that replay leaves it as it is."""

import harness
from harness import ProgramTest

OPS = {"launch", "copy", "set", "event_record", "event_wait", "host_function", "graph_launch", "alloc_async", "free_async",
       "opaque"}
# The analyzer's possible results for a program's step: a schedule, or a reason why there is none.
SCHEDULE, UNSCHEDULABLE = 0, 4


class SurfaceTest(ProgramTest):
    def record(self, *args, **settings):
        """Runs a program plainly and recorded, and compares; the trace's events."""
        plain = self.run_program(args)
        recorded = self.run_program(args, mode="record", NIMBLE_TRACE=self.path("trace.json"), **settings)
        self.assertEqual(plain.stdout, recorded.stdout)
        self.plain = plain.stdout
        return self.read_json("trace.json")

    @staticmethod
    def calls(trace, symbol=""):
        return [e for e in trace if e["ph"] == "X" and e["pid"] == 1 and e["args"]["call"].startswith(symbol)]

    @staticmethod
    def named(trace, name):
        return [e["args"] for e in trace if e["ph"] == "M" and e["name"] == name]

    def understand(self, expect=SCHEDULE):
        """What the analyzer makes of the trace: its report. Leaves a schedule."""
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--json", self.path("report.json"),
                     "--quiet", expect=expect)
        return self.read_json("report.json")

    def replay(self, *args, seeds=5):
        """Replays with the schedule that understand() left; the counters of the last run."""
        for seed in range(seeds):
            done = self.run_program(args, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                    NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed)
            self.assertEqual(self.plain, done.stdout, f"seed {seed}")
        return self.read_json("stats.json")


class Copies(SurfaceTest):
    def test_every_form_says_what_it_touches(self):
        trace = self.record("surface", "copies", 20)
        boxes = self.calls(trace, "cuMemcpy3DAsync")
        self.assertEqual([e["cat"] for e in boxes[:2]], ["opaque", "copy"], "layers, and one layer")
        self.assertEqual([[a[1], a[2]] for a in boxes[0]["args"]["accesses"]],
                         [[6 * 64 + 16, "r"], [10 * 32 + 16, "w"]])
        self.assertEqual(boxes[1]["args"]["height"], 3)
        batch = self.calls(trace, "cuMemcpyBatchAsync")[0]["args"]["accesses"]
        self.assertEqual([[a[1], a[2]] for a in batch], [[256, "r"], [256, "w"], [512, "r"], [512, "w"]])
        box = self.calls(trace, "cuMemcpy3DBatchAsync")[0]["args"]["accesses"]
        self.assertEqual([[a[1], a[2]] for a in box], [[6 * 64 + 32, "r"], [5 * 32 + 32, "w"]])
        report = self.understand()
        self.assertEqual(report["ops_by_evidence"]["exact"], 12)
        self.assertEqual(report["ops_by_evidence"]["assumed"], 0)
        stats = self.replay("surface", "copies", 20)
        self.assertEqual(stats["steps_replayed"], 19)
        self.assertEqual(stats["divergences"], 0)


class Graphs(SurfaceTest):
    def test_their_nodes_are_in_the_trace_and_changes_are_followed(self):
        trace = self.record("surface", "graphs", 20)
        launches = self.calls(trace, "cuGraphLaunch")
        graphs = self.named(trace, "nimble.graph")
        self.assertTrue(all(g["known"] for g in graphs), graphs)
        # A state for each change: as made, changed, updated, made anew.
        self.assertEqual([e["args"]["graph"] for e in launches], [0] * 7 + [1] * 3 + [2] * 3 + [3] * 7)
        nodes = self.named(trace, "nimble.graph_nodes")
        kernels = {n["graph"]: n["kernels"] for n in nodes if "kernels" in n}
        self.assertEqual([len(kernels[g]) for g in range(4)], [1] * 4)
        self.assertNotEqual(kernels[0], kernels[1])
        self.assertEqual(kernels[0], kernels[2])
        accesses = [n["accesses"] for n in nodes if n["graph"] == 0 and "accesses" in n][0]
        self.assertEqual(sorted(a[1:] for a in accesses), [[64, "w"], [128, "r"], [128, "w"]])
        self.understand()
        self.replay("surface", "graphs", 20)

    def test_they_are_ordered_by_what_they_touch(self):
        self.record("surface", "graphs", 6)
        report = self.understand()
        self.assertEqual(report["ops_by_kind"]["graph_launch"], 1)
        self.assertEqual(report["ops_by_evidence"]["assumed"], 0)
        self.assertEqual(report["ops_by_evidence"]["proven"], 4)


class Attributes(SurfaceTest):
    def test_events_that_launches_record(self):
        trace = self.record("surface", "attributes", 20)
        launches = [e["args"] for e in self.calls(trace, "cuLaunchKernelEx")]
        # At its default an attribute says nothing, and nor does one that only permits something.
        self.assertEqual([e.get("attrs") for e in launches[:5]], [None, None, [8], [2], [12]])
        self.assertTrue(launches[3]["coop"])
        self.assertIn("event", launches[4])
        waits = [e["args"]["event"] for e in self.calls(trace, "cuStreamWaitEvent")]
        self.assertEqual(waits[0], launches[4]["event"])
        # What it waits for is not known to be done: the other stream's work counts as a race, and no schedule is made.
        self.assertGreater(self.understand(expect=UNSCHEDULABLE)["races"], 0)


class Memory(SurfaceTest):
    def test_what_numbers_look_like_is_no_memory(self):
        """On a driver whose memory begins among such addresses, if they are free."""
        if harness.BUILD.preload_first:
            self.skipTest("sanitizers have use for these addresses")
        numbers = range(0x302000000, 16411 << 32)
        keeps = [{}, {"SIMCUDA_NO_HINTS": 1},  # a driver that gives no such addresses keeps them itself,
                 {"SIMCUDA_ATTRIBUTE": "75=6"}, {"SIMCUDA_ATTRIBUTE": "18=1"}]  # and these devices need them, or may: CC 6, integrated
        for what, count in ("settings", 5), ("mappings", 7):
            for kept in keeps:
                with self.subTest(program=what, kept=kept):
                    trace = self.record("surface", what, count, SIMCUDA_REGION="0x302000000", **kept)
                    addresses = [e["args"]["addr"] for e in self.calls(trace) if "addr" in e["args"]]
                    self.assertNotEqual([], addresses)
                    self.assertEqual(bool(kept), any(each in numbers for each in addresses))

    def test_hints_are_ordered_by_their_ranges(self):
        trace = self.record("surface", "managed", 20)
        for symbol in ("cuMemPrefetchAsync", "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync", "cuStreamAttachMemAsync"):
            self.assertIn("accesses", self.calls(trace, symbol)[0]["args"], symbol)
        self.understand()
        self.replay("surface", "managed", 20)

    def test_what_the_program_is_told_of_its_memory(self):
        self.record("surface", "pointers", 20)
        self.understand()
        stats = self.replay("surface", "pointers", 20)
        self.assertGreater(stats["steps_replayed"], 10)

    def test_settings_come_after_what_is_held_and_another_pool_is_no_default_one(self):
        trace = self.record("surface", "settings", 20)
        owned = [e["args"].get("own_pool", False) for e in self.calls(trace, "cuMemAllocAsync")]
        self.assertEqual(owned, [False] * 22 + [True] * 18)
        self.run_program(["surface", "settings", 5], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.understand()
        stats = self.replay("surface", "settings", 20)
        self.assertGreater(stats["steps_replayed"], 4)
        self.assertLess(stats["steps_replayed"], 11)
        self.assertGreater(stats["flushes"], 1)

    def test_mappings_end_together_and_imported_memory_ends_replay(self):
        trace = self.record("surface", "mappings", 20)
        unmapped = self.calls(trace, "cuMemUnmap")[0]["args"]
        self.assertEqual(unmapped["size"], 4 << 20)
        hidden = [e["args"]["note"] for e in self.calls(trace) if e["cat"] == "hidden"]
        self.assertEqual(hidden, ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"])
        self.run_program(["surface", "mappings", 7], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.understand()
        stats = self.replay("surface", "mappings", 20)
        self.assertIn("cuMemExportToShareableHandle", stats["stood_aside"])


class Contexts(SurfaceTest):
    def test_memory_and_streams_belong_to_contexts_and_only_the_last_release_ends_one(self):
        trace = self.record("surface", "contexts", 20)
        ends = [e for e in self.calls(trace) if e["cat"] == "context_end"]
        self.assertEqual([e["args"]["call"] for e in ends], ["cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2"])
        self.assertNotEqual(ends[0]["args"]["context"], ends[1]["args"]["context"])
        context_of = {s["id"]: s["context"] for s in self.named(trace, "nimble.stream")}
        other = [e["args"]["stream"] for e in self.calls(trace, "cuMemsetD32Async")]
        self.assertEqual([context_of[s] for s in other], [ends[0]["args"]["context"]] * 2)
        waits = [e["args"]["context"] for e in self.calls(trace, "cuCtxSynchronize")]
        self.assertEqual(waits, [ends[1]["args"]["context"], ends[0]["args"]["context"]])
        self.understand()
        stats = self.replay("surface", "contexts", 20)
        # Neither the other context's end nor a release that leaves users stops replay.
        self.assertGreater(stats["steps_replayed"], 15)


class CapturesOfAllKinds(SurfaceTest):
    def test_only_what_is_executed_is_recorded(self):
        executed_more = 0
        for seed in harness.BUILD.seeds(40):
            trace = self.record("captures", 60, seed, SIMCUDA_SEED=seed)
            ops = [e for e in self.calls(trace) if e["cat"] in OPS and "result" not in e["args"]]
            self.assertEqual(len(ops), int(self.plain.split()[1]), f"seed {seed}")
            begun = [e for e in self.calls(trace) if e["cat"] == "capture_begin"]
            executed_more += len(begun)
        self.assertGreater(executed_more, 20)

    def test_replay_stands_back_while_anything_captures(self):
        self.run_program(["captures", 20, 0], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.understand()
        replayed = 0
        for seed in harness.BUILD.seeds(40):
            plain = self.run_program(["captures", 60, seed])
            done = self.run_program(["captures", 60, seed], mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                                    NIMBLE_STATS=self.path("stats.json"), SIMCUDA_SEED=seed)
            self.assertEqual(plain.stdout, done.stdout, f"seed {seed}")
            replayed += self.read_json("stats.json")["steps_replayed"]
        self.assertGreater(replayed, 50)


if __name__ == "__main__":
    harness.main()
