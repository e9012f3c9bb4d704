"""From the moment on that somebody outside may reach a program's memory or see its progress, with no further call of the
program's, all is done in the program's order: whatever lets them in, before there is anything to replay or while it
runs, in each mode."""

import harness
from harness import ProgramTest

STEPS = 90
# What lets them look, and why replay says that it ends.
WAYS = {
    "ipc": "cuIpcGetMemHandle", "range": "cuMemGetHandleForAddressRange", "tokens": "cuPointerGetAttribute",
    "all_tokens": "cuPointerGetAttributes", "synchronous": "cuPointerSetAttribute", "event": "cuIpcGetEventHandle",
    "export": "cuMemExportToShareableHandle", "map_access": "cuMemSetAccess", "mixed_access": "cuMemSetAccess",
    "pool_access": "cuMemPoolSetAccess",
    "pool_export": "cuMemPoolExportToShareableHandle", "pool_pointer": "cuMemPoolExportPointer",
    "peer": "cuCtxEnablePeerAccess", "open": "that something else also reaches", "open_event": "cuIpcOpenEventHandle",
    "pool_import": "cuMemPoolImportFromShareableHandle", "host_pool": "cuMemPoolCreate", "managed_pool": "cuMemPoolCreate",
    "hosts_pool": "cuMemGetDefaultMemPool", "managed_hosts_pool": "cuMemGetDefaultMemPool",
    "node": "that something else also reaches",
}
# Memory that several addresses may name is in the program's order anyway.
IN_ORDER_ANYWAY = ["export", "map_access"]


class Granted(ProgramTest):
    def check(self, done, what):
        words = done.stdout.split()
        self.assertEqual(words[2:], ["wrong", "0", "said", "0"], f"{what}: {done.stdout}\n{done.stderr}")
        return int(words[1])

    def run_granted(self, way, when, seed, kind, mode, **settings):
        return self.run_program(["granted", way, when, STEPS, seed, kind], mode=mode, SIMCUDA_SEED=seed, NIMBLE_LOG="info",
                                NIMBLE_STATS=self.path("stats.json"), **settings)

    def replay(self, way, when, seed, schedule):
        done = self.run_granted(way, when, seed, "calls", "replay", NIMBLE_SCHEDULE=schedule)
        return done, self.read_json("stats.json")

    def in_graphs(self, way, when, seed):
        return self.run_granted(way, when, seed, "graph", "off", NIMBLE_GRAPHS="rewrite", NIMBLE_TUNE="off")

    def seen_wrong(self, done):
        return int(done.stdout.split()[3])

    # Or the tests below would find nothing: who looks without having been let may find the data older than its flag.
    def test_who_is_not_let_sees_another_order(self):
        for way in ("ipc", "pool_export"):
            schedule = self.make_schedule(["granted", way, "never", 12, 1])
            wrong = {"replay": 0, "graph": 0, "region": 0}
            for seed in harness.BUILD.seeds(12):
                self.check(self.run_granted(way, "ever", seed, "calls", None), f"{way} seed {seed}")
                wrong["replay"] += self.seen_wrong(self.replay(way, "ever", seed, schedule)[0])
                wrong["graph"] += self.seen_wrong(self.in_graphs(way, "ever", seed))
                wrong["region"] += self.seen_wrong(self.run_granted(way, "ever", seed, "region", "regions"))
            self.assertGreater(min(wrong.values()), 0, wrong)

    # Another process may wait for it: what the program has put before it is done, and it is recorded once in each step.
    def test_an_event_comes_after_all_before_it(self):
        schedule = self.make_schedule(["granted", "event", "never", 12, 1])
        for seed in harness.BUILD.seeds(12):
            done, stats = self.replay("event", "never", seed, schedule)
            self.check(done, f"seed {seed}: {stats}")
            self.assertGreater(stats["steps_replayed"], STEPS - 4, stats)
            self.check(self.run_granted("event", "never", seed, "region", "regions"), f"seed {seed}")

    def test_replay(self):
        for way, why in WAYS.items():
            schedule = self.make_schedule(["granted", way, "never", 12, 1])
            for when in ("first", "later"):
                with self.subTest(way=way, when=when):
                    seen = 0
                    for seed in harness.BUILD.seeds(6):
                        done, stats = self.replay(way, when, seed, schedule)
                        seen += self.check(done, f"seed {seed}: {stats}")
                        self.assertIn(why, stats["stood_aside"])
                        if when == "first":
                            self.assertEqual(stats["steps_replayed"], 0, stats)
                        else:
                            self.assertGreater(stats["steps_replayed"], STEPS // 3 - 4, stats)
                    self.assertGreater(seen, 6 * harness.BUILD.share)

    # A recording with such a call orders everything.
    def test_what_is_recorded(self):
        for way in WAYS:
            for when in ("first", "later"):
                with self.subTest(way=way, when=when):
                    self.run_program(["granted", way, when, 30, 1], mode="record", NIMBLE_TRACE=self.path("trace.json"))
                    self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments")
                    for segment in self.read_json("schedule.json")["segments"]:
                        order = sorted(segment["order"])
                        self.assertEqual(sorted(map(tuple, segment["edges"])), list(zip(order, order[1:])))
                    for seed in harness.BUILD.seeds(3):
                        self.check(self.replay(way, when, seed, self.path("schedule.json"))[0], f"seed {seed}")

    def check_each_way(self, run, seeds, least):
        """run(way, when, seed): a process that has ended. `least`: flags that are seen to change, of each way."""
        for way in WAYS:
            for when in ("first", "later"):
                with self.subTest(way=way, when=when):
                    seen = 0
                    for seed in harness.BUILD.seeds(seeds):
                        done = run(way, when, seed)
                        seen += self.check(done, f"seed {seed}: {done.stderr}")
                    self.assertGreater(seen, least * harness.BUILD.share)

    def test_auto(self):
        def run(way, when, seed):
            done = self.run_program(["granted", way, when, 300, seed], mode="auto", SIMCUDA_SEED=seed,
                                    NIMBLE_STATS=self.path("stats.json"))
            self.assertIn(WAYS[way], self.read_json("stats.json")["stood_aside"])
            return done
        self.check_each_way(run, seeds=4, least=20)

    def test_regions(self):
        self.check_each_way(lambda way, when, seed: self.run_granted(way, when, seed, "region", "regions"), seeds=6, least=6)

    def test_graphs(self):
        def run(way, when, seed):
            done = self.in_graphs(way, when, seed)
            if when == "later" and way not in IN_ORDER_ANYWAY:
                self.assertIn("the program's own is launched from now on: others may reach its memory now", done.stderr)
            return done
        self.check_each_way(run, seeds=6, least=6)


if __name__ == "__main__":
    harness.main()
