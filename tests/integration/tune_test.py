"""Replay tries the ways in which a step can be submitted, and keeps the fastest. Times are the simulated device's."""

import json

import harness
from harness import ProgramTest

PROGRAM = ["hidden_state", "table_copy", 80, 0]


class Tune(ProgramTest):
    def replay(self, when, schedule="schedule.json"):
        done = self.run_program(PROGRAM, mode="replay", NIMBLE_SCHEDULE=self.path(schedule), NIMBLE_TUNE=when,
                                NIMBLE_STATS=self.path("stats.json"))
        return done.stdout, self.read_json("stats.json")

    def test_what_is_found_stays(self):
        plain = self.run_program(PROGRAM).stdout
        self.make_schedule(PROGRAM)
        for when in ("start", "always"):
            out, stats = self.replay(when)
            self.assertEqual(plain, out)
            self.assertEqual(stats["tuned"], "schedule", stats)
            self.assertEqual(set(stats["tuned_us"]), {"own", "one_stream", "schedule"}, stats)
            self.assertLess(stats["tuned_us"]["schedule"], stats["tuned_us"]["own"])
            self.assertEqual(stats["steps_passed_through"], 1 + 12, "the first, and the turns of the program's own order")
        out, stats = self.replay("off")
        self.assertEqual((out, stats["tuned"], stats["steps_passed_through"]), (plain, "", 1))

    def test_what_is_found_is_kept_for_later_runs(self):
        plain = self.run_program(PROGRAM).stdout
        self.make_schedule(PROGRAM)
        before = self.read_json("schedule.json")

        def again(when="start", **settings):
            done = self.run_program(PROGRAM, mode="replay", NIMBLE_SCHEDULE=self.path("schedule.json"), NIMBLE_TUNE=when,
                                    NIMBLE_STATS=self.path("stats.json"), NIMBLE_LOG="info", **settings)
            self.assertEqual(done.stdout, plain)
            return done.stderr, self.read_json("stats.json")

        again()
        self.assertEqual(self.read_json("schedule.json"), before, "nothing is kept unless it is asked for")
        said, first = again(NIMBLE_TUNE_SAVE="on")
        self.assertIn("saved the fastest way there", said)
        kept = self.read_json("schedule.json")
        way, times = kept.pop("tuned")[0]
        self.assertEqual((kept, way), (before, "schedule"))
        for ns, name in zip(times, ("own", "one_stream", "schedule")):
            self.assertAlmostEqual(ns / 1000, first["tuned_us"][name], places=2)
        said, second = again(NIMBLE_TUNE_SAVE="on")
        self.assertEqual((second["steps_passed_through"], second["tuned"]), (1, ""), "no trial")
        self.assertNotIn("is kept there", said)
        self.assertEqual(again("always")[1]["steps_passed_through"], 1 + 12, "a trial all the same")
        # Where the program's own order was the fastest, nothing is replayed.
        kept["tuned"] = [["own", [1000, 2000, None]]]
        with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
            json.dump(kept, file)
        self.assertEqual(again()[1]["steps_replayed"], 0)
        kept["tuned"] = [["fastest", [1, 2, 3]]]
        with open(self.path("schedule.json"), "w", encoding="utf-8") as file:
            json.dump(kept, file)
        self.assertIn("tuned[0][0]", again()[0])

    def test_a_step_whose_last_op_goes_to_the_driver_is_timed_as_well(self):
        plain = self.run_program(PROGRAM).stdout
        self.make_schedule(PROGRAM)
        schedule = self.read_json("schedule.json")
        last = len(schedule["ops"]) - 1
        op, segment = schedule["ops"][last], schedule["segments"][-1]
        self.assertEqual((op["submit"], segment["last"]), ("graph", last))
        op.update(submit="direct", segment=None, lane=0)
        segment["order"].remove(last)
        segment["last"] = max(segment["order"])
        segment["edges"] = [edge for edge in segment["edges"] if last not in edge]
        with open(self.path("direct.json"), "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        out, stats = self.replay("start", "direct.json")
        self.assertEqual(plain, out)
        self.assertEqual(stats["tuned"], "schedule", stats)
        self.assertEqual(set(stats["tuned_us"]), {"own", "one_stream", "schedule"}, stats)


if __name__ == "__main__":
    harness.main()
