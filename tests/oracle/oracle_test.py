"""What the analyzer infers, against what the simulated driver saw; and random programs, checked in every way there is."""

import collections
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import harness  # noqa: E402
from harness import ProgramTest  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DIGITS_RULES = os.path.join(SOURCE, "examples", "digits", "digits.rules.json")
# Random programs. Each takes about 20 ms.
PROGRAMS = 1000


def check_many(tool, first, count, *options):
    """The outcomes of random programs, by seed."""
    done = subprocess.run([harness.BUILD.program(tool), "--json", *options, str(first), str(count)],
                          env=harness.BUILD.environment(NIMBLE_TEST_PRELOAD=harness.BUILD.preload_first),
                          capture_output=True, text=True, timeout=1700)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if len(rows) != count:
        raise AssertionError(f"seed {first + len(rows)} ended the check: {done.stderr}")
    return rows


def check_programs(first, count, *options):
    return check_many("check_programs", first, count, *options)


class TestPrograms(ProgramTest):
    """Of the test programs, every op: no inferred access is narrower than the truth."""

    def record(self, *args):
        self.run_program(args, mode="record", NIMBLE_TRACE=self.path("trace.json"), SIMCUDA_ACCESS=1,
                         SIMCUDA_REPORT=self.path("report.json"))

    def compare(self, *options, expect=0):
        done = self.run_program(["compare_accesses", *options, self.path("trace.json"), self.path("report.json")],
                                expect=expect)
        return done.stdout

    def check(self, *args, rules=()):
        """Records and compares; the table's rows by evidence: ops, bytes touched, bytes inferred."""
        self.record(*args)
        text = self.compare(*[word for file in rules for word in ("--rules", file)])
        print(f"{' '.join(map(str, args))}:\n{text}")
        self.assertNotIn("the trace does not hold", text)
        rows = {}
        for line in text.splitlines():
            words = line.split()
            if words and words[0] in ("exact", "proven", "declared", "observed", "assumed", "all") and len(words) == 8:
                rows[words[0]] = (int(words[1]), int(words[2]), int(words[3]))
        self.assertGreater(rows["all"][0], 0, text)
        return rows

    def test_digits(self):
        rows = self.check("digits", "train", "--epochs", 1, "--steps", 8, "--quiet", "--save", self.path("weights"),
                          rules=[DIGITS_RULES])
        self.assertGreater(rows["all"][0], 1000)
        self.assertNotIn("assumed", rows)
        self.assertLess(rows["all"][2], 1.2 * rows["all"][1])
        self.check("digits", "infer", "--weights", self.path("weights"), "--batch", 1, "--repeat", 8)

    def test_programs_with_a_step(self):
        for args in (("chaos", 12, 0), ("crowd", 1, 12, 0)):
            rows = self.check(*args)
            # A write that code tells may be partial, and counts as a read, too.
            self.assertLess(rows["all"][2], 1.4 * rows["all"][1])

    def test_a_program_in_disorder(self):
        for seed in harness.BUILD.seeds(10):
            self.check("chaos", 60, seed)

    def test_every_part_of_the_driver(self):
        for part in ("copies", "graphs", "attributes", "managed", "pointers", "settings", "mappings", "contexts"):
            self.check("surface", part, 8)
        for seed in range(4):
            self.check("captures", 12, seed)

    def test_a_lie_is_seen(self):
        self.record("chaos", 12, 0)
        with open(self.path("trace.json"), encoding="utf-8") as file:
            lines = file.readlines()
        proofs = [i for i, line in enumerate(lines) if '"nimble.function"' in line and "update" in line]
        self.assertEqual(len(proofs), 1)
        self.assertIn('"proven":[[[0],"rw"]', lines[proofs[0]])
        lines[proofs[0]] = lines[proofs[0]].replace('[[0],"rw"', '[[0],"r"')
        with open(self.path("trace.json"), "w", encoding="utf-8") as file:
            file.writelines(lines)
        text = self.compare(expect=1)
        self.assertRegex(text, r"missed: .*update.*wrote \[0x")


# Programs by which bugs were found, beyond those that all_is_well runs.
FOUND = {2636: "a step on the legacy stream and a blocking one was taken to begin in its middle",
         17914: "the program itself freed memory of a pool while a blocking copy within the device still wrote to it"}


class RandomPrograms(ProgramTest):
    def test_programs_that_have_found_something(self):
        for seed, what in FOUND.items():
            (row,) = check_programs(seed, 1)
            self.assertEqual(row["failures"], [], what)

    def test_all_is_well(self):
        count = int(PROGRAMS * harness.BUILD.share)
        rows = check_programs(1, count)
        self.assertEqual([(row["seed"], row["failures"]) for row in rows if row["failures"]], [])
        # Nothing would be shown by programs that were not replayed.
        self.assertGreater(sum(row["steps_replayed"] > 0 for row in rows), 0.5 * count)
        self.assertGreater(sum(row["steps_replayed"] for row in rows), 5 * count)
        self.assertEqual([row["seed"] for row in rows if row["stood_aside"]], [])
        for evidence in ("exact", "proven", "declared", "assumed"):
            self.assertGreater(sum(row["width"][evidence][0] for row in rows), count, evidence)

    def seen(self, what):
        """Programs that were broken, and how many of them each check saw."""
        rows = [row for row in check_programs(1, 200, "--break", what) if row["broken"]]
        seen = collections.Counter()
        for row in rows:
            checks = {failure.split(":")[0] for failure in row["failures"]}
            seen.update(checks)
            seen["race or digest"] += bool(checks & {"race", "digest"})
        return len(rows), seen

    # From here on the checks are checked, to which a sanitizer adds nothing but time.
    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_what_fails_can_be_made_smaller(self):
        tool = harness.BUILD.program("check_programs")
        environment = harness.BUILD.environment(NIMBLE_TEST_PRELOAD=harness.BUILD.preload_first)

        def run(*options):
            done = subprocess.run([tool, *options], env=environment, capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            return done.stdout

        whole = next(row for row in check_programs(1, 60, "--break", "access")
                     if row["ops"] > 12 and row["failures"] and row["failures"][0].startswith("accesses"))
        text = run("--break", "access", "--shrink", str(whole["seed"]))
        command = next(line for line in text.splitlines() if line.startswith("smaller: check_programs ")).split()[2:]
        self.assertIn("accesses: ", run(*command))
        # A kernel that writes is all it takes.
        self.assertRegex(text, r"(?m)^  0  stream \d  launch")
        self.assertNotRegex(text, r"(?m)^  4 ")

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_a_missing_dependency_is_seen(self):
        broken, seen = self.seen("dependency")
        # An edge between two ops of one lane may order no conflict, and if accesses are wider than the truth not every
        # conflict is real.
        self.assertGreater(seen["checker"], 0.9 * broken, seen)
        self.assertGreater(seen["truth"], 0.6 * broken, seen)
        self.assertGreater(seen["race"], 0.35 * broken, seen)
        self.assertGreater(seen["digest"], 0.2 * broken, seen)

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_an_access_that_is_too_narrow_is_seen(self):
        broken, seen = self.seen("access")
        # For kernels with proven code the rule does not count.
        self.assertGreater(seen["accesses"], 0.5 * broken, seen)
        self.assertGreater(seen["truth"], 0.25 * broken, seen)
        self.assertGreater(seen["race or digest"], 0.2 * broken, seen)
        self.assertEqual(seen["checker"], 0, seen)  # it knows no better


class Divergences(ProgramTest):
    """Random programs that do not keep to their steps: tests/oracle/disorder/disorder.h."""

    PROGRAMS = 250  # each takes about 60 ms
    CHANGES = 30
    FAULTS = {"refused", "fatal", "runs", "memory", "own"}

    def check(self, first, count, *options):
        # A hang is one where nothing moves for long; on a machine that is busy with a sanitizer things may take theirs.
        patience = 20 if harness.BUILD.share == 1 else 100
        return check_many("check_divergences", first, count, "--patience", str(patience), *options)

    def test_all_is_well(self):
        count = int(self.PROGRAMS * harness.BUILD.share)
        rows = self.check(1, count)
        self.assertEqual([(row["seed"], row["failures"]) for row in rows if row["failures"]], [])
        # Nothing would be shown by programs that were not replayed, or did not diverge.
        replayed = [row for row in rows if row["steps_replayed"]]
        self.assertGreater(len(replayed), 0.8 * count)
        self.assertGreater(len([row for row in replayed if row["streams"] > 1]), 0.1 * count)
        self.assertGreater(len([row for row in replayed if row["kinds"] > 1]), 0.1 * count)
        self.assertGreater(sum(row["steps_of_other_kinds"] for row in rows), count)
        calm = [row for row in rows if row["fault"] in ("none", "memory")]
        steps = sum(row["steps"] for row in calm)
        self.assertGreater(sum(row["steps_replayed"] for row in calm), 0.3 * steps)
        self.assertGreater(sum(sum(row["divergences"].values()) for row in rows), 5 * count)
        self.assertGreater(sum(row["disturbed"] for row in calm), 0.2 * steps)
        if harness.BUILD.share < 1:
            return
        self.assertEqual(len({change for row in rows for change in row["changes"]}), self.CHANGES)
        self.assertEqual({row["fault"] for row in rows if row["faults_met"]}, self.FAULTS)
        self.assertLessEqual({"one", "in turn", "freely"}, {row["threads"] for row in rows})

    # The checks themselves; a sanitizer adds nothing here.
    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_a_missing_dependency_is_seen(self):
        broken, seen = self.seen("dependency", 100)
        # Many edges order nothing that conflicts in truth, or an order was had that is right by chance.
        self.assertGreater(seen["race"] + seen["digest"], 0.1 * broken, seen)

    def seen(self, what, count):
        rows = [row for row in self.check(1, count, "--break", what) if row["broken"]]
        seen = collections.Counter()
        for row in rows:
            seen.update({failure.split(":")[0] for failure in row["failures"]})
        return len(rows), seen

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_a_program_that_does_something_else_is_seen(self):
        broken, seen = self.seen("change", 100)
        # Many changes do not affect the results.
        self.assertGreater(seen["digest"], 0.1 * broken, seen)

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_an_error_that_is_lost_is_seen(self):
        broken, seen = self.seen("error", 100)
        self.assertGreater(broken, 0)
        self.assertGreaterEqual(seen["errors"], broken)

    def test_a_hang_is_seen(self):
        rows = check_many("check_divergences", 1, 2, "--patience", "2", "--runs", "1", "--break", "hang")
        self.assertEqual([row["failures"][0].split(":")[0] for row in rows], ["hung", "hung"])

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "slow under a sanitizer")
    def test_what_fails_can_be_made_smaller(self):
        tool = harness.BUILD.program("check_divergences")
        environment = harness.BUILD.environment(NIMBLE_TEST_PRELOAD=harness.BUILD.preload_first)
        # Those replayed in an order, and held for a time, that no measured time decides: they race whenever they run.
        whole = [row["seed"] for row in self.check(1, 150, "--break", "dependency")
                 if row["failures"] and row["failures"][0].startswith("race")
                 and "NIMBLE_TUNE=off" in row["failures"][0] and "NIMBLE_HOLD_US=60000000" in row["failures"][0]]

        def run(*options):
            done = subprocess.run([tool, "--break", "dependency", *options], env=environment, capture_output=True,
                                  text=True, timeout=600)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            return done.stdout

        commands = []
        for seed in whole[:12]:
            if len(commands) >= 3 and any("--without-changes" in command for command in commands):
                break  # others race without any change
            text = run("--shrink", str(seed))
            commands.append(next(line for line in text.splitlines() if line.startswith("smaller: check_")).split()[4:])
            self.assertIn("race: ", run(*commands[-1]))
        # Of some no change is left at all.
        self.assertTrue(any("--without-changes" in command for command in commands), commands)


if __name__ == "__main__":
    harness.main()
