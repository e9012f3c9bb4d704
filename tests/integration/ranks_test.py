"""Programs of several ranks, each a process of its own: one recording and one schedule for each rank, and collectives,
which wait for the other rank's, in the same order in both whatever the schedule and the GPU make of the rest.

Which of the ops that may run the simulated GPU runs next is another choice in each rank, so whatever the schedules leave
open between two collectives ends in a deadlock for some seed: `ranks` sees that it is one, and exits with status 3."""

import itertools
import json
import subprocess

import harness
from harness import ProgramTest

POLICIES = ("cost", "nimble", "single", "levels", "greedy")
DEADLOCK = 3

# What a rules file must tell of the collectives that find their channel by themselves.
PARAMETERS = {"tiny_all_reduce": ["inout", "value", "value", "value"],
              "tiny_all_gather": ["in", "out", "value", "value", "value"]}


class Ranks(ProgramTest):
    trust = "observed"

    def rules(self, name, communicates):
        """A rules file; `communicates` None leaves that out."""
        rules = [dict({"kernel": kernel, "params": params}, **({} if communicates is None else {"communicates": communicates}))
                 for kernel, params in PARAMETERS.items()]
        if communicates is not None:
            rules.append({"kernel": "void all_(reduce|gather)<.*", "communicates": communicates})
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump({"nimble_rules": 3, "rules": rules}, file)
        return self.path(name)

    def run_ranks(self, how, steps, mode=None, expect=(0,), seeds=(0, 0), first=None, **settings):
        """Both ranks at once; their finished processes. None of them can outlive the test. `settings` are both ranks', or
        where `first` is there, that is the first rank's mode and these are its settings alone: the other has no shim."""
        self.meetings = getattr(self, "meetings", itertools.count())
        meeting = self.path(f"meeting.{next(self.meetings)}")
        command = [harness.BUILD.program("ranks"), how, str(steps), meeting]
        both = [(first, settings), (None, {})] if first else [(mode, settings)] * 2
        processes = [subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=harness.BUILD.environment(of_rank, RANK=rank, WORLD_SIZE=2, SIMCUDA_SEED=seeds[rank], **own))
            for rank, (of_rank, own) in enumerate(both)]
        done = []
        try:
            for process in processes:
                out, err = process.communicate(timeout=200)
                done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        for rank in done:
            self.assertIn(rank.returncode, expect, f"{how} {seeds}: {rank.stdout}\n{rank.stderr}")
        return done

    def record(self, how):
        return self.run_ranks(how, 12, mode="record", NIMBLE_TRACE=self.path("trace.%r.json"))

    def schedules(self, *options):
        """From the traces of both ranks."""
        result = []
        for rank in (0, 1):
            schedule = self.path(f"schedule.{rank}.json")
            self.analyze(self.path(f"trace.{rank}.json"), "-o", schedule, "--quiet", "--whole-segments", *options)
            result.append(self.read_json(f"schedule.{rank}.json"))
        return result

    def replay(self, how, steps, seed, **settings):
        settings.setdefault("NIMBLE_SCHEDULE", self.path("schedule.%r.json"))
        done = self.run_ranks(how, steps, mode="replay", seeds=(seed, seed * 7919 + 1),
                              NIMBLE_STATS=self.path("stats.%r.json"), **settings)
        return done, [self.read_json(f"stats.{rank}.json") for rank in (0, 1)]

    def collectives(self, schedule):
        """The places of the step's collectives."""
        names = [function["name"] for function in schedule["functions"]]
        return [i for i, op in enumerate(schedule["ops"])
                if op["kind"] == "launch" and ("all_reduce" in names[op["function"]] or "all_gather" in names[op["function"]])]


class InOrder(Ranks):
    def check(self, how, *options):
        plain = self.run_ranks(how, 30)
        recorded = self.record(how)
        self.assertEqual([r.stdout for r in recorded], [r.stdout for r in self.run_ranks(how, 12)])
        for policy in POLICIES:
            for schedule in self.schedules("--policy", policy, *options):
                (segment,) = schedule["segments"]
                # There is something to put in another order.
                self.assertEqual(segment["lanes"] > 1, policy != "single", policy)
                ops = self.collectives(schedule)
                self.assertEqual(len(ops), 4)
                self.assertEqual(len({schedule["ops"][op]["lane"] for op in ops}), 1, policy)
            for seed in harness.BUILD.seeds(40 if policy == "cost" else 12):
                done, stats = self.replay(how, 30, seed)
                self.assertEqual([r.stdout for r in plain], [r.stdout for r in done], f"{policy}, seed {seed}")
                self.assertEqual([s["steps_replayed"] for s in stats], [29, 29], stats)

    def test_collectives_that_are_given_shared_memory(self):
        self.check("memory")

    def test_collectives_of_which_a_rule_says_that_they_are(self):
        self.check("name", "--rules", self.rules("rules.json", True))

    def test_ranks_choose_the_fastest_way_each_for_itself(self):
        """Which way that is rests on the time, and may differ; what comes out does not."""
        plain = self.run_ranks("memory", 80)
        self.record("memory")
        self.schedules()
        for seed in harness.BUILD.seeds(4):
            done, _ = self.replay("memory", 80, seed, NIMBLE_TUNE="start")
            self.assertEqual([r.stdout for r in plain], [r.stdout for r in done], f"seed {seed}")

    def test_one_schedule_serves_both_ranks(self):
        plain = self.run_ranks("memory", 30)
        self.record("memory")
        self.schedules()
        done, stats = self.replay("memory", 30, 5, NIMBLE_SCHEDULE=self.path("schedule.0.json"))
        self.assertEqual([r.stdout for r in plain], [r.stdout for r in done])
        self.assertEqual([s["steps_replayed"] for s in stats], [29, 29], stats)


    def test_a_rank_is_replayed_beside_one_without_the_shim(self):
        plain = self.run_ranks("memory", 30)
        self.record("memory")
        self.schedules()
        for seed in harness.BUILD.seeds(8):
            done = self.run_ranks("memory", 30, first="replay", seeds=(seed, seed + 100),
                                  NIMBLE_SCHEDULE=self.path("schedule.0.json"), NIMBLE_STATS=self.path("stats.json"))
            self.assertEqual([r.stdout for r in plain], [r.stdout for r in done], f"seed {seed}")
            self.assertEqual(self.read_json("stats.json")["steps_replayed"], 29)


    def test_hosts_that_wait_for_each_other_get_what_is_held(self):
        """The first rank's collectives are held back when its host stops to wait for what the other makes of them."""
        idle = {"SIMCUDA_IDLE_MS": 1}  # the GPU runs without being asked
        plain = self.run_ranks("hosts", 30, **idle)
        self.run_ranks("hosts", 12, mode="record", NIMBLE_TRACE=self.path("trace.%r.json"), **idle)
        self.schedules()
        for seed in harness.BUILD.seeds(4):
            done, stats = self.replay("hosts", 30, seed, NIMBLE_HOLD_US=1000, **idle)
            self.assertEqual([r.stdout for r in plain], [r.stdout for r in done], f"seed {seed}")
            self.assertGreater(stats[0]["watchdog_flushes"], 0, stats)


class OutOfOrder(Ranks):
    """The tests above can fail: without the order there are seeds for which the ranks wait for each other for ever."""

    def deadlocks(self, how):
        found = 0
        for seed in range(1, 21):
            done = self.run_ranks(how, 30, mode="replay", expect=(0, DEADLOCK), seeds=(seed, seed * 7919 + 1),
                                  NIMBLE_SCHEDULE=self.path("schedule.%r.json"))
            found += any(rank.returncode == DEADLOCK for rank in done)
        return found

    def check(self, how, rules, *rules_of_the_check):
        self.record(how)
        self.schedules("--policy", "nimble", "--rules", rules)
        self.assertGreater(self.deadlocks(how), 0)
        # And such a schedule does not pass its check.
        for rank in (0, 1):
            done = self.run_program(["nimble-analyze", "check", *rules_of_the_check, self.path(f"trace.{rank}.json"),
                                     self.path(f"schedule.{rank}.json")], expect=1)
            self.assertRegex(done.stderr, "may both be communicating with another process or the host|may be taken as a sign")

    def test_without_the_order_collectives_over_shared_memory_deadlock(self):
        self.check("memory", self.rules("silent.json", False))

    def test_without_the_order_collectives_that_are_known_by_name_deadlock(self):
        self.check("name", self.rules("unsaid.json", None), "--rules", self.rules("said.json", True))


class Audited(Ranks):
    def test_no_collective_runs_twice(self):
        """An audit runs a step once more, in its own rank alone: the other would take it for its next step's."""
        for how in ("memory", "name"):
            with self.subTest(how):
                plain = self.run_ranks(how, 30)
                self.record(how)
                self.schedules("--rules", self.rules("rules.json", True))
                done = self.run_ranks(how, 30, first="replay", NIMBLE_AUDIT=4, NIMBLE_STATS=self.path("stats.json"),
                                      NIMBLE_SCHEDULE=self.path("schedule.0.json"))
                self.assertEqual([r.stdout for r in plain], [r.stdout for r in done])
                stats = self.read_json("stats.json")
                self.assertEqual(stats["steps_audited"], 0, stats)
                self.assertGreater(sum(stats["audits_skipped"].values()), 0, stats)


class Files(Ranks):
    def test_ranks_that_are_given_one_name_write_two_files(self):
        recorded = self.run_ranks("memory", 12, mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.assertEqual(recorded[0].stderr, "")
        self.assertEqual(recorded[1].stderr, f"nimble: warning: rank 1 writes {self.path('trace.1.json')}, since "
                         f"{self.path('trace.json')} is the first rank's: NIMBLE_TRACE={self.path('trace.%r.json')} names "
                         "the file of every rank\n")
        for name in ("trace.json", "trace.1.json"):
            self.assertEqual(self.read_json(name)[-1]["name"], "nimble.end")
        self.analyze(self.path("trace.json"), "-o", self.path("schedule.json"), "--quiet", "--whole-segments")
        self.run_ranks("memory", 30, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"),
                       NIMBLE_STATS=self.path("stats.json"))
        for name in ("stats.json", "stats.1.json"):
            self.assertEqual(self.read_json(name)["steps_replayed"], 29)


if __name__ == "__main__":
    harness.main()
