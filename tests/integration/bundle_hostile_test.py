"""Tampered, but well-formed bundles and schedules: nimble-replay runs them or says why not, and never ends otherwise.
tests/fuzz has what is not well-formed."""

import copy
import json
import random
import subprocess
import unittest

import harness
from bundles import Bundle

ROUNDS = 400
STATUSES = (0, 1, 2, 3, 4)
WORDS = ["", "pinned", "device", "registered", "managed", "global", "stream_ordered", "graph", "direct", "plan", "order",
         "launch", "copy", "set"]


def containers(value):
    """All lists and objects in a JSON value, itself among them. What launches pass is the program's own affair, as its
    code is: a number there may be how far a kernel goes."""
    if isinstance(value, (dict, list)):
        yield value
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key != "params":
                yield from containers(item)


def numbers(value):
    return [item for place in containers(value) for item in (place.values() if isinstance(place, dict) else place)
            if type(item) is int]


def another(chance, value, known):
    """What may stand in the place of a value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        # Of lengths nothing between what a machine has to spare and what none has.
        return chance.choice([0, 1, value + 1, max(0, value - 1), value * 2, value + 8, value + 4096, 1 << 26, 1 << 45,
                              (1 << 64) - 1, chance.choice(known), chance.choice(known)])
    if isinstance(value, str):
        return chance.choice(WORDS)
    if isinstance(value, list):
        return chance.choice([[], value * 2, value[1:], value[::-1], value[:-1] + value[:1]])
    return chance.choice([None, 0, 1, 5])


def grown(chance, place):
    """Of an object or what a copy carries: another size, and zeros to fit."""
    size = "size" if type(place.get("size")) is int else "bytes"
    place[size] = chance.choice([1, 64 << 10, 1 << 20, 4 << 20, place[size] * 2, place[size] // 2 or 1])
    for content in ("start", "end", "content"):
        if content in place:
            place[content] = [None] * ((place[size] + (64 << 10) - 1) // (64 << 10))


def tampered(chance, value):
    value = copy.deepcopy(value)
    known = numbers(value)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        sized = [item for item in containers(value) if isinstance(item, dict) and type(item.get("address")) is int
                 and (type(item.get("size")) is int or type(item.get("bytes")) is int)]
        if sized and chance.random() < 0.5:
            # Something else of an address and a size, or one more.
            one = chance.choice(sized)
            items = next(place for place in containers(value) if isinstance(place, list) and one in place)
            if chance.random() < 0.5:
                items.append(one := copy.deepcopy(one))
            if chance.random() < 0.7:
                grown(chance, one)
            if chance.random() < 0.5:
                one["address"] = chance.choice(sized)["address"] + chance.choice([0, 8, 1 << 20, 1 << 30])
            continue
        # Each part of a file alike, however long its lists are.
        part = value[chance.choice(list(value))] if value and chance.random() < 0.9 else value
        place = chance.choice([place for place in containers(part) if place] or [value or {"": 0}])
        key = chance.choice([key for key in place if key != "params"] if isinstance(place, dict)
                            else range(len(place)))
        kind = chance.random()
        if kind < 0.15:
            del place[key]
        elif kind < 0.3 and isinstance(place, list):
            place.append(copy.deepcopy(place[key]))
        else:
            place[key] = another(chance, place[key], known)
    return value


class Hostile(Bundle):
    """Manifests that are well formed, and say what is not so."""

    def change(self, function):
        manifest = copy.deepcopy(self.good)
        function(manifest)
        self.write_manifest(manifest)

    def object_at(self, address):
        return next(i for i, item in enumerate(self.good["objects"])
                    if item["address"] <= address < item["address"] + item["size"])

    def test_payloads_are_what_their_ops_copy(self):
        self.save(["bundled", 8])
        self.good = self.manifest()
        pageable, pinned = sorted(self.good["sources"], key=lambda item: item["op"])
        result = self.good["results"][0]

        def no_host(manifest):
            for item in manifest["objects"]:
                item["memory"] = "device" if item["memory"] == "pinned" else item["memory"]

        zeros = {"content": [None] * 16, "bytes": 1 << 20}
        other = next(i for i in range(self.good["step"]["ops"])
                     if i not in (pageable["op"], pinned["op"], result["op"]))
        for what, function, words in (
                ("larger", lambda m: m["sources"].append({**pageable, **zeros}), ["sources", "is not what op"]),
                ("huge", lambda m: m["sources"].append({**pageable, "bytes": 64 << 30, "content": [None] * (1 << 20)}), ["is not what op"]),
                ("elsewhere", lambda m: m["sources"].append({**pageable, "address": 4096 * 100}), ["is not what op"]),
                ("twice", lambda m: m["sources"].append(pageable), ["sources", "is the second of op"]),
                ("of no copy", lambda m: m["sources"].append({**pageable, "op": other}), ["is not what op"]),
                ("result larger", lambda m: m["results"][0].update(zeros), ["results", "is not what op"]),
                ("result twice", lambda m: m["results"].append(result), ["results", "is the second of op"]),
                ("on the device", no_host, ["sources", "is in memory of the device"])):
            with self.subTest(what=what):
                self.change(function)
                self.refused("manifest.json", *words)

    def test_memory_of_two_kinds_in_one_place(self):
        self.save(["bundled", 8])
        self.good = self.manifest()
        address = self.good["objects"][self.object_at(max(self.good["sources"], key=lambda s: s["op"])["address"])]["address"]
        around = {"address": address & ~((2 << 20) - 1), "size": 8 << 20, "memory": "device"}
        self.change(lambda m: m["objects"].append(around))
        self.refused("manifest.json", "objects", "overlaps one of another kind of memory")
        # Not in the next page, where nothing is of the host's: each run has other addresses.
        apart = (64 << 10) * (1 if address % (2 << 20) < (1 << 20) else -1)
        beside = {"address": address + apart, "size": 8, "memory": "device"}
        self.change(lambda m: m["objects"].append(beside))
        # In pages of the device's that are around the host's: one of them lies elsewhere.
        self.ways("--policy", "all")
        self.assertTrue(self.read_json("replay.json")["moved"])

    def test_no_kernel_is_given_memory_that_is_not_there(self):
        self.save(["bundled", 8])
        self.good = self.manifest()
        found = []
        for i in range(len(self.good["objects"])):
            self.change(lambda m: m["objects"].pop(i))
            done = self.replay(expect=None)
            # Another object may have been in the same place, at another time.
            self.assertIn((done.returncode, len(done.stderr.splitlines())), ((2, 1), (0, 0)), done.stderr)
            found.append("gets an address of memory that the bundle does not hold" in done.stderr)
        self.assertIn(True, found)

    def test_more_memory_than_there_is(self):
        self.save(["bundled", 8])
        self.good = self.manifest()
        # Below everything that a system maps by default (under the thread sanitizer 0x55...): it overlaps nothing.
        for memory, words in (("pinned", "no room for the step's host memory"), ("device", "for the step's memory")):
            self.change(lambda m: m["objects"].append({"address": 1 << 40, "size": 1 << 45, "memory": memory}))
            self.refused(words, expect=3)


class Tampered(Bundle):
    def setUp(self):
        super().setUp()
        self.save(["bundled", 8])
        step = self.read_json("bundle/manifest.json")["step"]
        self.analyze(self.path("bundle/trace.json"), "--step", step["first"], step["last"], "-o", self.path("s.json"),
                     "--quiet", "--whole-segments")

    def check(self, name, seed, *options):
        environment = harness.BUILD.environment()
        environment["ASAN_OPTIONS"] = "allocator_may_return_null=1:" + environment.get("ASAN_OPTIONS", "")
        done = subprocess.run(
            [harness.BUILD.program("nimble-replay"), self.path("bundle"), "--repeat", "1", "--warmup", "0", *options],
            env=environment, cwd=self.folder, text=True, capture_output=True, timeout=120, check=False)
        told = f"{name}, seed {seed}: status {done.returncode}\n{done.stderr}"
        self.assertIn(done.returncode, STATUSES, told)
        self.assertFalse("Sanitizer" in done.stderr, told[-4000:])
        for line in done.stderr.splitlines():
            self.assertTrue(line.startswith(("nimble-replay: ", "simcuda: ")), told)
        if done.returncode >= 2:
            self.assertIn("nimble-replay: ", done.stderr, told)
        return done.returncode

    def rounds(self, name, what, *options):
        """Damages the file again and again; that it went both ways says that the damage goes deep enough."""
        good, found = self.read_json(what), set()
        for seed in harness.BUILD.seeds(ROUNDS):
            with open(self.path(what), "w", encoding="utf-8") as file:
                json.dump(tampered(random.Random(seed), good), file)
            found.add(self.check(name, seed, *options))
        self.assertLessEqual({0, 2}, found)

    def test_manifest(self):
        self.rounds("manifest", "bundle/manifest.json", "--policy", "nimble")

    def test_schedule(self):
        self.rounds("schedule", "s.json", "--schedule", self.path("s.json"))

    def test_trace(self):
        with open(self.path("bundle/trace.json"), encoding="utf-8") as file:
            good = file.read().splitlines()
        places = [i for i, line in enumerate(good) if line.startswith("{")]
        for seed in harness.BUILD.seeds(ROUNDS):
            chance, lines = random.Random(seed), list(good)
            i = chance.choice(places)
            lines[i] = json.dumps(tampered(chance, json.loads(lines[i].rstrip(",")))) + "," * lines[i].endswith(",")
            with open(self.path("bundle/trace.json"), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            self.check("trace", seed, "--policy", "nimble")


if __name__ == "__main__":
    harness.main()
