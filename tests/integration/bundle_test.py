"""NIMBLE_CAPTURE=bundle and nimble-replay, in real processes: a saved step runs without its program as it did with it, in
any legal order, and what is wrong with a bundle or a schedule is told."""

import copy
import json
import os
import re
import unittest

import harness
from bundles import Bundle

RULES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "digits", "digits.rules.json")
DIGITS = ["digits", "train", "--epochs", 1, "--steps", 8, "--quiet"]
POLICIES = ["program", "cost", "nimble", "single", "levels", "greedy"]


class Equal(Bundle):
    def check(self, args, seeds, options=(), parallel=True):
        said = self.save(args)
        self.assertIn("Next: nimble-replay", said)
        for seed in [0, *harness.BUILD.seeds(seeds)]:
            ways, done = self.ways("--policy", "all", *options, SIMCUDA_SEED=seed)
            self.assertEqual(list(ways), POLICIES, done.stdout)
            for way in ways.values():
                self.assertTrue(way["equal"], f"seed {seed}: {way}")
                self.assertEqual(way["runs"], 3)
        if parallel:
            self.assertGreater(ways["nimble"]["streams"], 1)
            self.assertGreater(ways["nimble"]["speed_up"], ways["single"]["speed_up"])
        return ways

    def test_digits(self):
        ways = self.check(DIGITS, 12, ("--rules", RULES))
        self.assertGreater(ways["cost"]["speed_up"], 2)

    def test_several_streams(self):
        self.check(["streams", "fork", 8, 0], 12)

    def test_buffers_that_take_turns(self):
        self.check(["streams", "prefetch", 20, 0], 12)

    def test_memory_of_every_kind_of_life(self):
        self.check(["bundled", 8], 20)

    def test_tables_of_pointers(self):
        for mode in ("table_copy", "table_pageable", "table_kernel", "table_prologue", "tensor_map"):
            with self.subTest(mode=mode):
                self.check(["hidden_state", mode, 8, 0], 6, parallel=False)

    def test_variables_and_cooperative_launches(self):
        for mode in ("global", "constant", "cooperative", "print"):
            with self.subTest(mode=mode):
                self.check(["hidden_state", mode, 8, 0], 6, parallel=False)

    def test_what_is_saved_is_one_step(self):
        self.save(["bundled", 8])
        manifest = self.manifest()
        self.assertEqual(manifest["nimble_bundle"], 1)
        events = [event for event in self.read_json("bundle/trace.json") if event["ph"] == "X" and event["pid"] == 1]
        kinds = [event["cat"] for event in sorted(events, key=lambda event: event["args"]["seq"])
                 if manifest["step"]["first"] <= event["args"]["seq"] <= manifest["step"]["last"]]
        self.assertEqual(kinds.count("launch"), 7)
        self.assertEqual(kinds.count("alloc"), 1)
        # The pageable input, and the pinned one; rows that go to memory of the program's own.
        self.assertEqual(len(manifest["sources"]), 2)
        self.assertEqual(len(manifest["results"]), 1)
        objects = manifest["objects"]
        self.assertEqual(sum("start" not in item and "end" in item for item in objects), 2)   # kept, and freed later
        self.assertEqual(sum("start" in item and "end" not in item for item in objects), 1)   # kept by the one before
        self.assertEqual(sum("start" not in item and "end" not in item for item in objects), 2)
        self.assertEqual(len(manifest["images"]), 1)
        # The table is not named by any op of the step.
        self.assertEqual(sum(item["memory"] == "device" and "start" in item for item in objects), 3)

    def test_the_trace_may_lie_in_the_bundle(self):
        self.save(["bundled", 8])
        os.mkdir(self.path("itself"))
        for _ in range(2):
            trace = self.path("itself/trace.json")
            self.save(["bundled", 8], NIMBLE_TRACE=trace, NIMBLE_BUNDLE=self.path("itself"))
            self.analyze(trace, "--quiet")
            self.run_program(["nimble-replay", self.path("itself")])
        # A name that the bundle needs itself: the trace takes another one.
        trace = self.path("bundle/memory.bin")
        said = self.save(["bundled", 8], NIMBLE_TRACE=trace, NIMBLE_BUNDLE=self.path("bundle"))
        self.assertIn("memory.bin was not written by Nimble and is left alone", said)
        self.analyze(self.path("bundle/memory.nimble.bin"), "--quiet")
        self.run_program(["nimble-replay", self.path("bundle")])

    def test_what_a_bundle_does_not_hold_is_said_of_its_own_step(self):
        # A step with a kernel that may reach anything is looked at, and turns out to be another.
        self.save(["bundled", 16, "unknown"])
        self.assertEqual(self.manifest()["hidden"], [])
        self.assertEqual(self.manifest()["step"]["ops"], 21)
        self.save(["bundled", 16, "unknown_always"])
        (note,) = self.manifest()["hidden"]
        self.assertIn("kernel parent may reach unknown memory", note)

    def test_what_memory_leads_to_is_saved(self):
        self.save(["bundled", 8, "table"])
        self.check(["bundled", 8, "table"], 4)

    def test_an_objects_end_goes_with_it(self):
        self.check(["bundled", 8, "ends"], 6)
        moved, _ = self.ways("--policy", "all", SIMCUDA_NO_HINTS="1")
        self.assertTrue(all(way["equal"] for way in moved.values()), moved)
        self.assertTrue(self.read_json("replay.json")["moved"])

    def test_an_address_beside_all_objects_cannot_move(self):
        self.save(["bundled", 8, "ends"])
        with open(self.path("bundle/trace.json"), encoding="utf-8") as file:
            text = file.read()
        ends = {word for word in re.findall(r'"params":"[0-9a-f]{16}([0-9a-f]{16})[0-9a-f]{8}","nowhere":\[8\]', text)}
        self.assertTrue(ends)
        for end in ends:
            beside = int.from_bytes(bytes.fromhex(end), "little") + (1 << 19)  # in the same pages
            text = text.replace(end, beside.to_bytes(8, "little").hex())
        with open(self.path("bundle/trace.json"), "w", encoding="utf-8") as file:
            file.write(text)
        done = self.replay(expect=3, SIMCUDA_NO_HINTS="1")
        self.assertIn("a kernel parameter is an address beside the step's memory", done.stderr)

    def test_tables_that_lead_to_memory_of_the_steps_own(self):
        for mode in ("entries", "enter"):
            with self.subTest(mode=mode):
                self.check(["bundled", 8, mode], 6, parallel=False)

    def test_shared_memory(self):
        self.check(["bundled", 8, "shared"], 2)
        # The second kernel opts in for its own amount, too, though it is below the default limit.
        self.assertIn("for the shared memory of op", self.replay(expect=1, SIMCUDA_INJECT="cuFuncSetAttribute:2:1").stderr)

    def test_copies_from_the_host_to_the_host(self):
        self.check(["bundled", 8, "pageable"], 2)
        self.assertTrue(any(item["bytes"] == 1024 for item in self.manifest()["sources"]))

    def test_a_schedule_of_several_kinds_of_step(self):
        self.save(["kinds", "t5e3t4e5t6e3t2"])
        self.analyze(self.path("bundle/trace.json"), "-o", self.path("s.json"), "--quiet", "--whole-segments")
        self.assertEqual(len(self.read_json("s.json")["ends"]), 2)
        ways, _ = self.ways("--schedule", self.path("s.json"))
        self.assertTrue(ways[self.path("s.json")]["equal"])
        # Of another program: no kind is the bundle's.
        self.save(["bundled", 8])
        self.refused("s.json", "holds 2 kinds of step, of ", " and ", "and none is the bundle's, of 21",
                     options=("--schedule", self.path("s.json")))

    def test_a_schedule_of_the_users(self):
        self.save(["bundled", 8])
        step = self.manifest()["step"]
        self.analyze(self.path("bundle/trace.json"), "--step", step["first"], step["last"], "-o", self.path("s.json"),
                     "--quiet", "--whole-segments")
        ways, _ = self.ways("--schedule", self.path("s.json"))
        self.assertTrue(ways[self.path("s.json")]["equal"])
        # One for another step.
        self.analyze(self.path("bundle/trace.json"), "--step", step["first"], step["last"] - 1, "-o", self.path("s.json"),
                     "--quiet", "--whole-segments")
        self.refused("s.json", f"--step {step['first']} {step['last']}", options=("--schedule", self.path("s.json")))


class Unequal(Bundle):
    def test_a_dropped_edge_is_seen(self):
        self.save(["streams", "fork", 8, 0])
        step = self.manifest()["step"]
        self.analyze(self.path("bundle/trace.json"), "--step", step["first"], step["last"], "-o", self.path("s.json"),
                     "--quiet", "--whole-segments")
        schedule = self.read_json("s.json")
        edges = schedule["segments"][0]["edges"]
        seen = 0
        for i in range(len(edges)):
            wrong = copy.deepcopy(schedule)
            del wrong["segments"][0]["edges"][i]
            # Nothing may share memory, so that the schedule's reader has nothing to say.
            at = 0
            for item in wrong["objects"]:
                if item["step_local"]:
                    item["plan_offset"], at = at, at + (item["size"] + 255) // 256 * 256
            wrong["arena_bytes"] = at
            with open(self.path("wrong.json"), "w", encoding="utf-8") as file:
                json.dump(wrong, file)
            for seed in range(1, 5):
                done = self.run_program(
                    ["nimble-replay", self.path("bundle"), "--schedule", self.path("wrong.json"), "--repeat", 1, "--json",
                     "-"], expect=None, SIMCUDA_SEED=seed)
                ways = json.loads(done.stdout)["ways"]
                self.assertTrue(ways[0]["equal"])
                self.assertEqual(done.returncode, 0 if ways[1]["equal"] else 1)
                if not ways[1]["equal"]:
                    self.assertRegex(done.stderr, r"not as recorded: .*object \d+ .*byte \d+: recorded .., found ..")
                    self.assertRegex(ways[1]["difference"]["last_writer"], r"op \d+ \(launch ")
                    seen += 1
                    break
        # An edge that only orders an event's record after its work changes no memory.
        self.assertGreater(seen, len(edges) / 3, edges)

    def test_a_flipped_byte_of_the_end_is_seen(self):
        self.save(["bundled", 8])
        manifest = self.manifest()
        # The end of an object that changes becomes its start: which is whole, and wrong.
        index, item = next((i, item) for i, item in enumerate(manifest["objects"])
                           if item["memory"] == "device" and item.get("start") not in (None, item.get("end")))
        item["end"] = item["start"]
        self.write_manifest(manifest)
        done = self.replay("--policy", "nimble", expect=1)
        self.assertIn(f"Not as recorded: program order: run 1: object {index} (device, 2.0 KiB), byte ", done.stdout)
        self.assertIn(f"Not as recorded: nimble: run 1: object {index} ", done.stdout)
        self.assertIn("last written by op ", done.stdout)
        self.assertIn("The program's own order gives this, too", done.stdout)

    def test_what_addresses_in_memory_leave_open_is_no_difference(self):
        self.save(["bundled", 8, "entries"])
        manifest = self.manifest()
        item = next(item for item in manifest["objects"]
                    if item["memory"] == "device" and item.get("start") not in (None, item.get("end")))
        item["end"] = item["start"]
        self.write_manifest(manifest)
        ways, done = self.ways("--policy", "nimble", expect=1)
        self.assertEqual((ways["program"]["equal"], ways["nimble"]["equal"]), (False, None))
        self.assertRegex(done.stdout, r"No result: nimble: memory differs .* takes from the host holds an address of "
                         "memory that the step allocates")

    def test_damage_is_told_from_difference(self):
        self.save(["bundled", 8])
        memory = self.path("bundle/memory.bin")
        with open(memory, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        self.refused("memory.bin", "is damaged")
        with open(memory, "r+b") as file:
            file.truncate(1000)
        self.refused("memory.bin", "truncated")
        os.unlink(memory)
        self.refused("memory.bin", "No such file")


class Refused(Bundle):
    def nothing(self, args, why, **settings):
        self.assertIn(f"NIMBLE_CAPTURE: no bundle was saved: {why}", self.save(args, **settings))
        self.assertFalse(os.path.exists(self.path("bundle/manifest.json")))

    def test_what_cannot_be_saved_is_said(self):
        self.nothing(["bundled", 8, "callback"], "cuLaunchHostFunc: a host function")
        self.nothing(["bundled", 8, "graph"], "cuGraphLaunch: a CUDA graph of the program")
        self.nothing(["bundled", 3], "no step repeated three times")
        self.nothing(["hidden_state", "texture", 8, 0], "kernel sum_texture may read a texture")

    def test_all_live_memory_counts(self):
        for what in ("large", "unreached"):
            with self.subTest(what=what):
                self.nothing(["bundled", 8, what],
                             "all live memory, whether the step reaches it or not, takes more than the 1 MiB of "
                             "NIMBLE_BUNDLE_LIMIT; no other step is tried", NIMBLE_BUNDLE_LIMIT=1)
        self.save(["bundled", 8, "unreached"], NIMBLE_BUNDLE_LIMIT=3)
        self.assertLess(os.path.getsize(self.path("bundle/memory.bin")), 1 << 20)

    def test_a_limit_that_is_enough(self):
        self.save(["bundled", 8, "large"], NIMBLE_BUNDLE_LIMIT=3)
        self.ways()

    def test_memory_that_the_host_fills_twice(self):
        self.save(["bundled", 8, "refill"])
        self.refused("writes the host memory", "twice within the step", expect=3)

    def test_the_heap_of_the_device(self):
        self.save(["hidden_state", "heap", 8, 0])
        self.refused("may reach an address in the device's heap", "its image calls malloc", expect=3)
        # A kernel of the same image, which is led to none.
        self.save(["hidden_state", "child", 8, 0])
        self.ways("--policy", "all")

    def test_the_bundle_may_be_elsewhere(self):
        self.save(["bundled", 8], NIMBLE_BUNDLE=self.path("some/where/%p"), NIMBLE_MODE="record")
        (folder,) = os.listdir(self.path("some/where"))
        self.assertTrue(folder.isdigit())
        self.run_program(["nimble-replay", self.path(f"some/where/{folder}/")])

    def test_bad_bundles(self):
        self.save(["bundled", 8])
        good = self.manifest()

        def change(path, value):
            manifest = copy.deepcopy(good)
            place = manifest
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            self.write_manifest(manifest)

        for path, value, words in (
                (["nimble_bundle"], 2, ["nimble_bundle", "reads version 1"]),
                (["images", 0, "file"], "../memory.bin", ["images[0].file", "plain name"]),
                (["images", 0, "bytes"], 12, ["image-0.bin", "does not have the 12 bytes"]),
                (["images", 0, "digest"], "0" * 16, ["image-0.bin", "is damaged"]),
                (["images_of_ops"], [], ["images_of_ops", "each op"]),
                (["objects", 0, "size"], 1 << 60, ["objects[0].size"]),
                (["objects", 0, "size"], 1 << 46, ["objects[0].start", "a piece for every"]),
                (["objects", 0, "memory"], "imaginary", ["objects[0].memory"]),
                (["objects", 1, "address"], good["objects"][0]["address"], ["objects", "overlaps"]),
                (["objects", 0, "start"], [10**6], ["objects[0].start"]),
                (["step", "last"], 10**9, ["trace.json", "does not hold a step"]),
                (["step", "ops"], 10**9, ["step.ops"]),
                (["sources", 0, "op"], 10**6, ["sources[0].op"]),
                (["sources"], [], ["trace.json", "op ", "memory that the bundle does not hold"]),
                (["pieces", 0, 0], 1 << 40, ["memory.bin", "truncated"])):
            with self.subTest(path=path, value=value):
                change(path, value)
                self.refused(*words)
        for text, words in (("{", ["is not JSON"]), ("[]", ["must be a JSON object"]), ("{}", ["nimble_bundle"])):
            with open(self.path("bundle/manifest.json"), "w", encoding="utf-8") as file:
                file.write(text)
            self.refused("manifest.json", *words)
        self.write_manifest(good)
        os.unlink(self.path("bundle/trace.json"))
        self.refused("trace.json", "is missing")
        os.unlink(self.path("bundle/manifest.json"))
        self.refused("manifest.json", "No such file")


class CommandLine(Bundle):
    def test_the_table(self):
        self.save(["bundled", 8])
        done = self.replay("--policy", "single", "--policy", "nimble")
        for word in ("program order", "single", "nimble", "p50", "p99", "speed-up", "(simulated)", "Next:"):
            self.assertIn(word, done.stdout)
        self.assertNotIn("levels", done.stdout)
        self.assertRegex(done.stdout, r"Next:    nimble-analyze \S*trace.json --step \d+ \d+ --policy nimble")
        self.assertEqual(self.replay("--quiet").stdout, "")
        self.assertIn("--policy all", self.replay("--repeat", 1, "--warmup", 0).stdout)

    def test_usage(self):
        self.save(["bundled", 8])
        self.assertIn("--repeat", self.replay("--help").stdout)
        self.replay("--policy", "best", expect=2)
        self.replay("--repeat", 0, expect=2)
        self.replay("--device", 7, expect=1)
        refused = self.run_program(["nimble-replay"], expect=2)
        self.assertEqual(refused.stderr, "nimble-replay: bundle is required; see nimble-replay --help\n")

    def test_a_driver_that_refuses_ends_it_with_a_line(self):
        self.save(["bundled", 8])
        done = self.replay(expect=1, SIMCUDA_INJECT="cuLaunchKernel:2:719")
        self.assertRegex(done.stderr, r"CUDA_ERROR_LAUNCH_FAILED for op \d+ \(launch ")
        self.assertEqual(done.stdout, "")  # nothing was measured
        self.assertIn("no addresses", self.replay(expect=3, SIMCUDA_INJECT="cuMemAddressReserve:1:2").stderr)
        # If an address is not available memory moves, and parameters with it.
        moved, _ = self.ways("--policy", "all", SIMCUDA_NO_HINTS="1")
        self.assertTrue(all(way["equal"] for way in moved.values()))
        self.assertTrue(self.read_json("replay.json")["moved"])

    def test_all_is_given_back(self):
        self.save(["bundled", 8])
        self.replay("--policy", "all", SIMCUDA_REPORT=self.path("calls.json"))
        calls = self.read_json("calls.json")["calls"]
        for made, ended in (("cuStreamCreate", "cuStreamDestroy_v2"), ("cuEventCreate", "cuEventDestroy_v2"),
                            ("cuModuleLoadData", "cuModuleUnload"), ("cuMemAlloc_v2", "cuMemFree_v2"),
                            ("cuMemCreate", "cuMemRelease"), ("cuMemHostRegister_v2", "cuMemHostUnregister"),
                            ("cuGraphCreate", "cuGraphDestroy")):
            self.assertGreater(calls[made], 0, made)
            self.assertEqual(calls[made], calls.get(ended), made)

    def test_what_was_measured_before_an_error_stands(self):
        self.save(["bundled", 8])
        for inject, status in (("cuGraphLaunch:2:719", 1), ("cuMemAlloc_v2:1:2", 3)):
            with self.subTest(inject=inject):
                ways, done = self.ways("--policy", "all", expect=status, SIMCUDA_INJECT=inject)
                self.assertEqual((ways["program"]["equal"], len(ways["program"]["gpu_us"])), (True, 4))
                self.assertIsNone(ways["cost"]["equal"])
                self.assertIn("CUDA_ERROR_LAUNCH_FAILED" if status == 1 else "no room", ways["cost"]["failure"])
                self.assertIn("No result: cost: ", done.stdout)
                # Behind an error of the driver nothing can be run.
                self.assertEqual(list(ways), POLICIES[:2] if status == 1 else POLICIES)

    def test_what_is_wrong_is_said_before_anything_runs(self):
        self.save(["bundled", 8])
        broken = {"SIMCUDA_INJECT": "cuLaunchKernel:1:719"}
        done = self.replay("--json", self.path("no/such/folder"), expect=1, **broken)
        self.assertIn("no/such/folder: No such file", done.stderr)
        done = self.replay("--schedule", self.path("nothere.json"), expect=2, **broken)
        self.assertIn("nothere.json: No such file", done.stderr)
        self.assertNotIn("NIMBLE_SCHEDULE", done.stderr)

    def test_pointers_in_memory_need_their_addresses(self):
        self.save(["bundled", 8, "table"])
        done = self.run_program(["nimble-replay", self.path("bundle")], expect=3, SIMCUDA_NO_HINTS="1")
        self.assertIn("may hold the address of memory that cannot lie at its recorded address", done.stderr)


if __name__ == "__main__":
    harness.main()
