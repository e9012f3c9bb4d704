"""Small stacks, limits on the address space, and threads that cannot be started: nothing is in the program's way."""

import json
import os
import re
import resource
import signal
import subprocess

import harness
from harness import ProgramTest

# Each mode, by the settings that make it; replay's schedule is made first.
MODES = {"off": ("off", {}), "record": ("record", {}), "writes": ("record", {"NIMBLE_PROBE": "writes"}),
         "bundle": ("record", {"NIMBLE_CAPTURE": "bundle"}), "replay": ("replay", {}), "auto": ("auto", {}),
         "regions": ("regions", {}), "graphs": ("off", {"NIMBLE_GRAPHS": "rewrite"}),
         "check": ("check", {"NIMBLE_CHECK_EVERY": "1"})}
STEPS = ["chaos", 30, 0]  # a program that has a step
SMALL = 64
# How much of the program's stack a wrapper takes before it switches stacks.
WRAPPERS = 3 << 10
NOT_SANITIZED = "a sanitizer's frames are large"


def beside(name):
    """One of the tests' own libraries."""
    return os.path.join(os.path.dirname(harness.BUILD.library), f"lib{name}.so")


def preload(name):
    return f"{beside(name)}:{harness.BUILD.library}"


def digest(done):
    """What a program has computed. Some say first what Nimble answers, or then what memory is taken."""
    return done.stdout.splitlines()[-1].split(",")[0]


class LimitsTest(ProgramTest):
    def schedule_of(self, args):
        """Of what the program does, or, where it has no step, of another one's: it is read all the same."""
        made = self.path("-".join(map(str, args)) + ".schedule")
        if not os.path.exists(made):
            self.run_program(args, mode="record", NIMBLE_TRACE=self.path("recorded.json"))
            for other in ([], STEPS):
                if other:
                    self.run_program(other, mode="record", NIMBLE_TRACE=self.path("recorded.json"))
                done = subprocess.run([harness.BUILD.program("nimble-analyze"), self.path("recorded.json"), "-o", made, "--quiet"],
                                      env=harness.BUILD.environment(), capture_output=True, check=False)
                if done.returncode == 0:
                    break
        self.assertTrue(os.path.exists(made))
        return made

    def in_mode(self, name, args, **settings):
        """Runs a program in one of the modes."""
        mode, own = MODES[name]
        own = dict(own, NIMBLE_TRACE=self.path(f"{name}.json"), NIMBLE_BUNDLE=self.path("bundle"), NIMBLE_TUNE="off")
        if name == "replay":
            own["NIMBLE_SCHEDULE"] = self.schedule_of(args)
        return self.run_program(args, mode=mode, **{**own, **settings})


class SmallStacks(LimitsTest):
    """The program's main runs on a thread with 64 KiB of stack."""

    PROGRAMS = (["chaos", 30, 0], ["rewritten", "pool", 12], ["rewritten", "learned", 12], ["regions", "region", 12],
                ["surface", "graphs", 12], ["surface", "copies", 12], ["captures", 30, 3], ["kinds", 30])

    def setUp(self):
        super().setUp()
        if harness.BUILD.preload_first:
            self.skipTest(NOT_SANITIZED)

    def used(self):
        with open(self.path("used"), encoding="utf-8") as file:
            return int(file.read())

    def small(self, **settings):
        return {"SMALL_STACK": SMALL, "SMALL_STACK_USED": self.path("used"), **settings}

    def test_it_is_measured_and_can_overflow(self):
        for kib in 20, 40:
            self.run_program(["limits", "deep", kib], LD_PRELOAD=beside("small_stack"), **self.small())
            self.assertGreaterEqual(self.used(), kib << 10)
            self.assertLess(self.used(), (kib + 16) << 10)
        self.run_program(["limits", "deep", SMALL], expect=-signal.SIGSEGV, LD_PRELOAD=beside("small_stack"), **self.small())

    def test_each_mode_takes_next_to_nothing_of_it(self):
        for args in self.PROGRAMS:
            plain = self.run_program(args, LD_PRELOAD=beside("small_stack"), **self.small())
            before = self.used()
            for name in MODES:
                with self.subTest(program=args, mode=name):
                    done = self.in_mode(name, args, **self.small(LD_PRELOAD=preload("small_stack")))
                    self.assertEqual(digest(plain), digest(done))
                    self.assertLess(self.used() - before, WRAPPERS)

    def test_a_first_thread_with_a_small_stack(self):
        """`ulimit -s`, which threads of ours would have as well."""
        for kib in 128, 64 << 20, resource.RLIM_INFINITY:
            limit = kib if kib == resource.RLIM_INFINITY else kib << 10
            for name in MODES:
                with self.subTest(limit=kib, mode=name):
                    args = ["rewritten", "pool", 12]
                    plain = self.run_program(args)
                    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
                    before = resource.getrlimit(resource.RLIMIT_STACK)
                    resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))
                    try:
                        done = self.in_mode(name, args)
                    finally:
                        resource.setrlimit(resource.RLIMIT_STACK, before)
                    self.assertEqual(plain.stdout, done.stdout)

    def test_stacks_that_no_thread_has(self):
        for what in "fiber", "alternate":
            plain = self.run_program(["limits", what])
            for name in MODES:
                with self.subTest(stack=what, mode=name):
                    self.assertEqual(plain.stdout, self.in_mode(name, ["limits", what]).stdout)


class Depth(LimitsTest):
    """What comes from outside is read on a stack of 128 KiB, however deep it is."""

    def setUp(self):
        super().setUp()
        if harness.BUILD.preload_first:
            self.skipTest(NOT_SANITIZED)
        self.run_program(STEPS, mode="record", NIMBLE_TRACE=self.path("trace.json"))

    def analyze_small(self, *args):
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        done = subprocess.run([harness.BUILD.program("nimble-analyze"), *args, "--quiet", "-o", self.path("schedule.json")],
                              env=harness.BUILD.environment(), text=True, capture_output=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, hard)))
        self.assertIn(done.returncode, (0, 2, 4), done.stderr)
        return done

    def rules(self, *expressions):
        path = self.path("rules.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 1, "rules": [{"kernel": each, "params": ["in"]} for each in expressions]}, file)
        return path

    def with_name(self, name):
        with open(self.path("trace.json"), encoding="utf-8") as file:
            text = file.read()
        old = re.search(r'"name":"(_Z[^"]*)"', text)[1]
        with open(self.path("named.json"), "w", encoding="utf-8") as file:
            file.write(text.replace(json.dumps(old), json.dumps(name)))
        return self.path("named.json")

    def test_long_names_of_kernels(self):
        rules = self.rules(".*x.*", "(a|aa)*b", "(\\w+)+,")
        for name in ("a" * 7000, "a" * 200_000, "_Z1f" + "P" * 7000 + "i", "f(int" + "*" * 200_000 + ")"):
            with self.subTest(name=name[:8]):
                self.assertEqual(self.analyze_small(self.with_name(name), "--rules", rules).returncode, 0)

    def test_expressions_that_cannot_be(self):
        for expression in ("(a)\\1", "(?=a)b", "(" * 30_000, "(?:" * 20_000 + ")*" * 20_000):
            with self.subTest(expression=expression[:8]):
                done = self.analyze_small(self.path("trace.json"), "--rules", self.rules(expression))
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"^nimble-analyze: \S*rules.json: rules\[0\].kernel: is not a regular expression: .*\n$")

    def test_lists_in_lists(self):
        deep = "[" * 500_000 + "]" * 500_000
        with open(self.path("trace.json"), encoding="utf-8") as file:
            lines = file.read().split("\n")
        for text, of_rules, of_trace in (
                (deep, "is not a JSON object", ":1: is not a trace"), ("[" * 1_000_000, "is not a JSON object", ":1: is not a trace"),
                ('{"nimble_rules": 5, "rules": [{"kernel": "a", "params": %s}]}' % deep, "rules[0].params: must be text",
                 ":1: is not a trace"),
                (f"[\n{deep}\n]", "is not a JSON object", ":2: an event must be a JSON object"),
                ("\n".join(lines[:2] + ['{"ph": "X", "args": %s},' % deep] + lines[2:]), "is not a JSON object",
                 ":3: args: must be an object")):
            with self.subTest(text=text[:40], said=of_trace):
                with open(self.path("deep.json"), "w", encoding="utf-8") as file:
                    file.write(text)
                for done, why in ((self.analyze_small(self.path("trace.json"), "--rules", self.path("deep.json")), of_rules),
                                  (self.analyze_small(self.path("deep.json")), of_trace)):
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(why, done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1)
                done = self.run_program(STEPS, mode="replay", NIMBLE_SCHEDULE=self.path("deep.json"))
                self.assertIn("The program continues without Nimble", done.stderr)


class AddressSpace(LimitsTest):
    def setUp(self):
        super().setUp()
        if harness.BUILD.preload_first:
            self.skipTest("sanitizers have use for these addresses")

    def limited(self, gib, run):
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (gib << 30, before[1]))
        try:
            return run()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def test_under_a_limit_none_is_reserved(self):
        plain = int(self.limited(200, lambda: self.run_program(["limits", "size"])).stdout)
        for name in MODES:
            with self.subTest(mode=name):
                size = int(self.limited(200, lambda name=name: self.in_mode(name, ["limits", "size"])).stdout)
                self.assertLess(abs(size - plain), 200, "MiB")

    def test_what_is_reserved_is_neither_dumped_nor_forked(self):
        self.assertEqual(self.run_program(["limits", "reserved"]).stdout, "0 0 0\n")
        parent = int(self.run_program(["limits", "child"]).stdout)
        for name in MODES:
            with self.subTest(mode=name):
                done = self.in_mode(name, ["limits", "reserved"])
                self.assertEqual(done.stdout, "0 0 0\n" if name == "off" else "64 0 0\n")
                self.assertLess(abs(int(self.in_mode(name, ["limits", "child"]).stdout) - parent), 2, "GiB")

    def test_a_later_limit_has_it_given_back(self):
        for how in "setrlimit", "prlimit":
            plain = self.run_program(["limits", "later", how])
            self.assertEqual(plain.stdout, "0 8\n7\n")
            for name in MODES:
                with self.subTest(how=how, mode=name):
                    self.assertEqual(plain.stdout, self.in_mode(name, ["limits", "later", how]).stdout)

    def test_what_the_driver_did_not_take_back_goes_back_at_the_next_limit(self):
        for inject in "cuMemAddressFree:1:4", "cuMemAddressFree:2:4":
            done = self.in_mode("record", ["limits", "later", "twice"], SIMCUDA_INJECT=inject)
            self.assertEqual(done.stdout, "0 8\n7\n", inject)
            self.assertIn("of reserved addresses (error", done.stderr)

    def test_the_limit_of_another_process_has_nothing_given_back(self):
        for name in MODES:
            with self.subTest(mode=name):
                done = self.in_mode(name, ["limits", "other"])
                self.assertEqual(done.stdout, "0 0 0\n" if name == "off" else "64 0 0\n")

    def test_a_limit_at_an_address_that_leads_nowhere_is_an_error(self):
        plain = self.run_program(["limits", "nowhere"])
        self.assertEqual(plain.stdout, "-1 1\n")
        self.assertEqual(plain.stdout, self.in_mode("record", ["limits", "nowhere"]).stdout)


class NoThreads(LimitsTest):
    """A full cgroup, or RLIMIT_NPROC."""

    def setUp(self):
        super().setUp()
        if harness.BUILD.preload_first:
            self.skipTest("sanitizers start threads")

    def test_each_mode_stands_aside(self):
        for args in (["rewritten", "pool", 12], ["chaos", 30, 0]):
            plain = self.run_program(args)
            for most in 0, 1:
                for name in MODES:
                    with self.subTest(program=args, mode=name, most=most):
                        done = self.in_mode(name, args, LD_PRELOAD=preload("no_threads"), NO_THREADS=most)
                        self.assertEqual(plain.stdout, done.stdout)
                        self.assertEqual([left for left in os.listdir(self.folder) if left.endswith(".part")], [])
                        if most == 0 and name in ("record", "replay", "auto"):
                            self.assertIn("cannot be started", done.stderr)

    def test_nor_does_it_need_the_stack_then(self):
        for args in (["rewritten", "pool", 12], ["chaos", 30, 0]):
            plain = self.run_program(args, LD_PRELOAD=beside("small_stack"), SMALL_STACK=SMALL)
            for most in 1, 2:  # the first is the program's own
                for name in MODES:
                    with self.subTest(program=args, mode=name, most=most):
                        done = self.in_mode(name, args, LD_PRELOAD=f"{beside('small_stack')}:{preload('no_threads')}",
                                            NO_THREADS=most, SMALL_STACK=SMALL)
                        self.assertEqual(digest(plain), digest(done))


if __name__ == "__main__":
    harness.main()
