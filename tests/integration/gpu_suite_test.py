#!/usr/bin/env python3
"""scripts/gpu_suite without a GPU: the dry run, and that a part that fails is reported as failed and stops nothing.

Usage: gpu_suite_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
SUITE = ROOT / "bench" / "gpu_suite"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SUITE))

import disorder  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import modes  # noqa: E402
import pack  # noqa: E402
import parts  # noqa: E402
import process  # noqa: E402
import report  # noqa: E402
import traces  # noqa: E402
import ways  # noqa: E402

# A stepped program that allocates some memory, and does what its first argument says.
PROGRAM = r"""
import ctypes, json, os, signal, sys, time
kind, recording = sys.argv[1], os.environ.get("NIMBLE_MODE") == "record"
if kind != "no-driver":
    driver, device, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
if kind == "missing":
    import nonesuch
print(json.dumps({"ready": True, "facts": {}}), flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "end":
        if kind == "crash-at-exit" and recording:
            os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit(4 if kind == "bad-status" else 0)
    if kind == "crash" and recording:
        print("about to crash", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang" and recording:
        time.sleep(1000)
    if kind == "rubbish":
        print("not an answer", flush=True)
        continue
    digest = "fixed"
    if kind == "wrong" and recording:
        digest = "other"
    if kind == "random":
        digest = str(os.getpid())
    print(json.dumps({"steps": int(words[1]), "median_us": 1.0, "digest": digest}), flush=True)
"""

KINDS = ("missing", "crash", "crash-at-exit", "hang", "bad-status", "rubbish", "wrong", "random", "no-driver", "good")


def write_parts(folder):
    """A file of parts, one for each kind of trouble, with the one that has none at the end."""
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    file = folder / "parts.py"
    file.write_text(textwrap.dedent(f"""\
        from parts import Part
        PARTS = [Part(kind, kind, ("{{python}}", {str(program)!r}, kind), simulated=("{{python}}", {str(program)!r}, kind),
                      start_limit=2) for kind in {KINDS!r}]
        PARTS.insert(0, Part("no-program", "", (), simulated=("/no/such/program",)))
        PARTS.append(Part("unbuilt", "", ("{{work}}/program",), build=(("sh", "-c", "echo no compiler; exit 7"),)))
        """), encoding="utf-8")
    return file


def run_suite(*arguments, **environment):
    return subprocess.run([sys.executable, ROOT / "scripts" / "gpu_suite", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=600)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def results(self):
        """The parts of the only results file, by name, and the table beside it."""
        files = sorted((self.folder / "results").iterdir())
        self.assertEqual([file.suffix for file in files], [".json", ".md"])
        facts = json.loads(files[0].read_text(encoding="utf-8"))
        return facts, {part["part"]: part for part in facts["parts"]}, files[1].read_text(encoding="utf-8")


class DryRun(Folder):
    def test_every_part(self):
        done = run_suite("--dry-run", "--build", BUILD, "--results", self.folder / "results", "--rounds", 2, "--groups", 2, "--keep-traces",
                         self.folder / "traces")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        facts, found, table = self.results()
        self.assertEqual(list(found), [part.name for part in parts.PARTS])
        self.assertTrue(facts["dry_run"])
        self.assertIn("simulated", table.lower())
        for part in parts.PARTS:
            with self.subTest(part.name):
                result = found[part.name]
                if not part.simulated:
                    self.assertEqual(result["status"], "not run", result)
                    self.assertTrue(result["why"].startswith("no GPU"), result["why"])
                    continue
                self.assertEqual(result["status"], "ok", result)
                if part.bundle:
                    self.check_bundle(part, result, table)
                    continue
                if part.disorder:
                    self.assertEqual(len(result["disorder"]), sum(len(ways) for *_, args, ways in disorder.PROGRAMS
                                                                  if args not in disorder.ON_A_GPU))
                    self.assertGreater(sum(row["steps_replayed"] for row in result["disorder"]), 1000)
                    self.assertNotIn("DIFFERS", table)
                    continue
                self.assertTrue(result["digests_equal"])
                if part.ways:
                    self.check_ways(part, result, table)
                    continue
                self.assertEqual(list(result["modes"]), [mode.name for mode in modes.MODES])
                self.assertEqual(len({run["digest"] for run in result["modes"].values()}), 1)
                self.assertEqual(set(result["ratios"]), {"again", "off", "record", "light"})
                self.assertTrue(result["trace"]["complete"])
                self.assertEqual(result["trace"]["coverage"]["source"], "cupti")
                self.assertGreater(result["trace"]["coverage"]["seen"], 100)
                self.assertGreater(result["trace"]["analysis"]["step"]["repeats"], 10)
                self.assertGreater(sum(result["trace"]["analysis"]["ops_by_evidence"].values()), 0)
                self.assertTrue((self.folder / "traces" / f"{part.name}.json.gz").exists())
        self.assertEqual(found["driver_api"]["trace"]["analysis"]["step"]["ops"], 14)
        for text in (json.dumps(facts), table):
            self.assertNotIn(str(ROOT), text)
            self.assertNotIn(tempfile.gettempdir() + "/gpu_suite", text)

    def check_ways(self, part, result, table):
        self.assertEqual(list(result["ways"]), [way.name for way in part.ways])
        for name, way in result["ways"].items():
            for figure in ways.FIGURES:
                self.assertGreater(way[figure]["median"], 0, name)
                self.assertEqual(set(way["ratios"][figure]), {"eager", "by_hand"})
            rows = [line for line in table.splitlines() if line.startswith(f"| {part.name} ") and f" {name} " in line]
            self.assertEqual(len(rows), 1, table)
            self.assertIn("equal", rows[0])
        for name in (ways.REPLAYED, "auto"):
            counters = result["ways"][name]["counters"]
            self.assertGreater(counters["steps_replayed"], 20, (name, counters))
        self.assertIn("the goal is at most", table)

    def check_bundle(self, part, result, table):
        found = {way["way"]: way for way in result["replay"]["ways"]}
        self.assertEqual(set(found), {"program", "cost", "nimble", "single", "levels", "greedy"})
        self.assertTrue(result["replay"]["simulated"])
        self.assertGreater(found["cost"]["speed_up"], 1.5)
        for name, way in found.items():
            self.assertTrue(way["equal"], way)
            rows = [line for line in table.splitlines() if line.startswith(f"| {part.name} ") and f" {name} " in line]
            self.assertEqual(len(rows), 1, table)
            self.assertIn(" equal ", rows[0])

    def test_without_a_gpu_it_says_so(self):
        if machine.device() is not None:
            self.skipTest("there is a GPU here")
        done = run_suite("--build", BUILD, "--results", self.folder / "results")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no GPU answers here", done.stderr)

    def test_a_build_that_is_not_there(self):
        done = run_suite("--dry-run", "--build", self.folder, "--results", self.folder / "results")
        self.assertEqual(done.returncode, 2)
        self.assertIn("lacks lib/libnimble.so", done.stderr)

    def test_unknown_part(self):
        done = run_suite("--only", "digits,nonesuch", "--list")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nonesuch", done.stderr)


class Bundles(Folder):
    def test_what_goes_wrong_is_told(self):
        (self.folder / "parts.py").write_text(textwrap.dedent("""\
            from parts import Part
            def saved(name, *command):
                return Part(name, "", (), simulated=command, bundle=True, whole=True)
            PARTS = [saved("ends", "sh", "-c", "exit 3"),
                     saved("short", "{bin}/bundled", "2"),
                     saved("own", "{bin}/bundled", "8", "callback"),
                     saved("twice", "{bin}/bundled", "8", "refill"),
                     saved("good", "{bin}/bundled", "8")]
            """), encoding="utf-8")
        done = run_suite("--dry-run", "--build", BUILD, "--results", self.folder / "results", "--parts", self.folder / "parts.py")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        _, found, table = self.results()
        for name, why in (("ends", "recording: exit status 3"), ("short", "no step repeated"),
                          ("own", "cuLaunchHostFunc"), ("twice", "nimble-replay: exit status 3")):
            self.assertEqual(found[name]["status"], "failed", found[name])
            self.assertIn(why, found[name]["why"])
            self.assertIn(why, table)
        self.assertEqual(found["good"]["status"], "ok", found["good"])


class Failures(Folder):
    def test_each_is_reported_and_none_stops_the_suite(self):
        begin = time.monotonic()
        done = run_suite("--dry-run", "--build", BUILD, "--results", self.folder / "results", "--rounds", 2, "--groups", 1, "--time-limit", 3,
                         "--parts", write_parts(self.folder), "--only", ",".join(["no-program", *KINDS]))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        _, found, table = self.results()
        self.assertEqual(list(found), ["no-program", *KINDS])
        expected = {
            "no-program": ("failed", "cannot be started"),
            "missing": ("not run", "not installed: No module named 'nonesuch'"),
            "crash": ("failed", "record, light: killed by SIGSEGV"),
            "crash-at-exit": ("failed", "record, light: killed by SIGSEGV after its last step"),
            "hang": ("failed", "record, light: timeout"),
            "bad-status": ("failed", "all modes: exit status 4 after its last step"),
            "rubbish": ("failed", "all modes: gave an answer that is not JSON: 'not an answer'"),
            "wrong": ("failed", "other output than without the shim: record, light"),
            "random": ("failed", "differs from run to run without the shim"),
            "no-driver": ("incomplete", "recording left no trace"),
            "good": ("ok", ""),
        }
        for name, (status, why) in expected.items():
            with self.subTest(name):
                self.assertEqual(found[name]["status"], status, found[name])
                self.assertIn(why, found[name]["why"])
                self.assertIn(found[name]["why"], table)
        for name in ("crash", "hang"):
            self.assertEqual([mode for mode, run in found[name]["modes"].items() if run["ok"]], ["bare", "again", "off"])
        self.assertIn("about to crash", found["crash"]["modes"]["record"]["last_words"])
        self.assertIn("last words of record, light: about to crash", table)
        self.assertEqual(found["good"]["trace"]["calls_by_kind"]["alloc"], 1)
        self.assertNotIn("step", found["good"]["trace"]["analysis"])
        self.assertEqual(found["good"]["trace"]["analysis"]["status"], 3)
        self.assertIn("no step: ", table)
        self.assertFalse(found["wrong"]["digests_equal"])
        self.assertIn("DIFFERS", next(line for line in table.splitlines() if line.startswith("| wrong")))
        self.assertLess(time.monotonic() - begin, 120)

    def test_as_on_a_gpu(self):
        """What a dry run leaves out: parts are built and run as they are, on whatever driver answers."""
        done = run_suite("--build", BUILD, "--results", self.folder / "results", "--rounds", 2, "--groups", 2, "--parts", write_parts(self.folder),
                         "--only", "good,unbuilt", LD_LIBRARY_PATH=str(BUILD / "simcuda"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        facts, found, table = self.results()
        self.assertFalse(facts["dry_run"])
        self.assertEqual(found["good"]["status"], "ok", found["good"])
        self.assertEqual(found["unbuilt"]["status"], "failed")
        self.assertIn("its program was not built: exit status 7", found["unbuilt"]["why"])
        self.assertIn("last words: no compiler", table)

    def test_time_spent(self):
        done = run_suite("--dry-run", "--build", BUILD, "--results", self.folder / "results", "--whole-limit", 0, "--parts",
                         write_parts(self.folder), "--only", "good")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.results()[1]["good"]["status"], "not run")

    def test_nothing_is_left_running(self):
        # A program that starts another one, which outlives it, in its session.
        log = self.folder / "log"
        command = ["sh", "-c", f"sleep 987 & echo $! > {self.folder}/pid; exit 0"]
        process.run(command, None, self.folder, 10, log)
        pid = int((self.folder / "pid").read_text())
        for _ in range(100):
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                return
            if state == "Z":  # ended; whoever adopted it has not looked yet
                return
            time.sleep(0.05)
        self.fail("it still runs")


class Figures(Folder):
    def group(self, **blocks):
        runs = []
        for mode in modes.MODES:
            run = object.__new__(measure.Run)
            run.mode, run.blocks = mode, blocks.get(mode.name, [])
            runs.append(run)
        return runs

    def test_ratios_are_of_fastest_blocks_and_of_groups(self):
        found = measure.ratios([self.group(bare=[10, 90, 80], off=[300, 11, 70], record=[20, 25]),
                                self.group(bare=[20, 20, 20], off=[20, 20, 20], record=[30, 30]),
                                self.group(bare=[10] * 6, off=[13, 11, 12, 50, 50, 50], record=[])])
        self.assertEqual(found["off"]["each"], [1.1, 1, 1.15])
        self.assertEqual((found["off"]["ratio"], found["off"]["range"]), (1.1, [1, 1.15]))
        self.assertEqual(found["record"]["each"], [2, 1.5])
        self.assertNotIn("light", found)

    def test_a_group_that_fails_is_what_is_told(self):
        good, bad = self.group(), self.group()
        for run in good + bad:
            run.__dict__.update(failure="", digest="a", steps=1, facts={}, seconds_to_start=0, log=self.folder / "log", pid=1)
        (self.folder / "log").write_text("")
        bad[2].digest = "b"
        told = measure.results_of([good, bad])
        self.assertEqual([run["digest"] for run in told.values()], ["a", "a", "b", "a", "a"])

    def trace(self, *events):
        path = self.folder / "trace.json"
        path.write_text("[\n" + ",\n".join(json.dumps(event, separators=(",", ":")) for event in events) + "\n]\n")
        return traces.read(path)

    def test_coverage(self):
        call = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "name": "k", "cat": "launch", "args": {"seq": 0}}
        bar = {**call, "pid": 2}
        facts, metadata = self.trace(call, bar, call, {
            "ph": "M", "pid": 1, "tid": 0, "name": "nimble.coverage",
            "args": {"source": "cupti", "seen": 5, "recorded": 2, "missed": [["cuLaunchKernel", 3]]}})
        self.assertEqual(facts["calls_by_kind"], {"launch": 2})
        self.assertFalse(facts["complete"])
        coverage = traces.coverage(metadata)
        self.assertEqual(coverage["missed_calls"], 3)
        self.assertEqual(traces.describe_coverage(coverage), "2 of 5, missed cuLaunchKernel x3")
        result = measure.add_trace({"status": "ok", "odd": []}, {**facts, "coverage": coverage, "odd": []})
        self.assertEqual(result["status"], "incomplete")
        self.assertIn("missed cuLaunchKernel x3", result["why"])

    def test_coverage_that_was_not_measured(self):
        self.assertEqual(traces.describe_coverage(traces.coverage({})), "not measured")
        none = traces.coverage({"nimble.coverage": {"source": "none", "why": "libcupti not found"}})
        self.assertEqual(traces.describe_coverage(none), "not measured (libcupti not found)")

    def test_shim_only_where_it_belongs(self):
        place = modes.Place(ROOT, BUILD, sys.executable)
        part = parts.Part("name", "what", ("{python}",), settings={"SOME_CACHE": "{run}/cache"})
        environments = {mode.name: place.environment(part, mode, self.folder, self.folder / mode.name) for mode in modes.MODES}
        for name in ("bare", "again"):
            self.assertFalse([key for key in environments[name] if key.startswith(("NIMBLE_", "LD_PRELOAD"))])
        for name in ("off", "record", "light"):
            self.assertEqual(environments[name]["LD_PRELOAD"], str(BUILD / "lib" / "libnimble.so"))
            self.assertEqual(environments[name]["NIMBLE_MODE"], "off" if name == "off" else "record")
        self.assertEqual(environments["light"]["NIMBLE_COVERAGE"], "off")
        self.assertEqual(len({environment["SOME_CACHE"] for environment in environments.values()}), len(modes.MODES))

    def test_every_part_has_a_row(self):
        for part in parts.PARTS:
            self.assertEqual(len(report.row({"part": part.name, "status": "not run"})), len(report.COLUMNS))


class Ways(unittest.TestCase):
    """What is made of the figures of several ways; their processes are those of the dry run."""

    @staticmethod
    def way(submit, step, digest="a", **rest):
        return {"submit_us": ways.spread([submit]), "cpu_us": None, "step_us": ways.spread([step]), "digests": [digest], "steps": 9,
                **rest}

    def judged(self, **changes):
        counters = {"steps_replayed": 9, "stood_aside": []}
        found = {"eager": self.way(100, 1000), "line": self.way(5, 400), "branches": self.way(10, 200),
                 "nimble": self.way(20, 210, counters=counters), **changes}
        ways.add_ratios(found)
        result = {"ways": found, "odd": []}
        ways.judge(result)
        return result

    def test_ratios_are_to_the_graph_whose_steps_are_shorter(self):
        result = self.judged()
        self.assertEqual(result["status"], "ok")
        self.assertEqual(result["ways"]["nimble"]["ratios"]["submit_us"], {"eager": 0.2, "by_hand": 2.0})
        self.assertEqual(result["ways"]["nimble"]["ratios"]["step_us"], {"eager": 0.21, "by_hand": 1.05})
        self.assertEqual(result["ways"]["nimble"]["ratios"].get("cpu_us"), None)

    def test_other_output_is_a_failure(self):
        result = self.judged(line=self.way(5, 400, "b"))
        self.assertEqual((result["status"], result["why"]), ("failed", "not all ways computed the same"))
        self.assertFalse(result["digests_equal"])

    def test_no_step_replayed_is_a_failure(self):
        result = self.judged(nimble=self.way(1, 1, counters={"steps_replayed": 0, "stood_aside": ["of a reason"]}))
        self.assertEqual((result["status"], result["why"]), ("failed", "no step was replayed: of a reason"))

    def test_a_way_that_failed(self):
        nothing = {"submit_us": None, "cpu_us": None, "step_us": None, "digests": [""], "steps": 0,
                   "failure": "killed by SIGSEGV"}
        result = self.judged(branches=nothing)
        self.assertEqual((result["status"], result["why"]), ("failed", "branches: killed by SIGSEGV"))
        self.assertEqual(result["ways"]["nimble"]["ratios"]["submit_us"], {"eager": 0.2, "by_hand": 4.0})
        result["part"] = "name"
        self.assertEqual({len(row) for row in report.rows_of_ways(result)}, {len(report.WAYS_COLUMNS)})

    def test_quartiles(self):
        self.assertEqual(ways.spread([]), None)
        self.assertEqual(ways.spread([3.0]), {"median": 3.0, "quartiles": [3.0, 3.0], "blocks": 1})
        self.assertEqual(ways.spread([5.0, 1.0, 2.0, 4.0, 3.0]), {"median": 3.0, "quartiles": [2.0, 4.0], "blocks": 5})


class Pack(Folder):
    def test_packed_build_is_small_and_serves(self):
        self.assertEqual(run_suite("--build", BUILD, "--pack", self.folder / "packed").returncode, 0)
        packed = self.folder / "packed"
        self.assertEqual(pack.missing_from(packed), [])
        self.assertLess(sum(file.stat().st_size for file in packed.rglob("*") if file.is_file()), 32 << 20)
        exported = [subprocess.run(["nm", "-D", "--defined-only", "-f", "posix", folder / "lib" / "libnimble.so"], check=True,
                                   capture_output=True, text=True).stdout.split() for folder in (BUILD, packed)]
        self.assertEqual([word for word in exported[0] if word[0].isalpha()],
                         [word for word in exported[1] if word[0].isalpha()])
        version = subprocess.run([packed / "bin" / "nimble", "--version"], capture_output=True, text=True)
        self.assertIn("nimble", version.stdout)


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
