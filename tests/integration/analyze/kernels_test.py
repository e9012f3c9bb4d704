"""nimble-analyze kernels: what the kernels of a trace touch."""

import json

import analyze_command
from analyze_command import GOLDEN, CommandTest, branches_one_by_one


class KernelsTest(CommandTest):
    """nimble-analyze kernels: what the kernels of a trace touch."""

    def kernels(self, *arguments):
        return self.analyze("kernels", *arguments)

    def test_each_kernel_of_a_trace_is_accounted_for(self):
        done = self.kernels(GOLDEN, "--trust", "declared", "--json", "kernels.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads((self.folder / "kernels.json").read_text())
        self.assertEqual(report["nimble_kernels"], 1)
        launches = sum(each["launches"] for each in report["kernels"])
        self.assertGreater(launches, 0)
        self.assertEqual((report["launches"], sum(report["known"].values())), (launches, launches))
        self.assertIn(f"kernels         {len(report['kernels'])}, {launches} launches\n", done.stdout)
        for kernel in report["kernels"]:
            self.assertIn("\n" + kernel["readable"] + "\n", done.stdout)
            self.assertEqual(sum(kernel["known"].values()), kernel["launches"])
            self.assertTrue(all(word["reads"] or word["writes"] for word in kernel["words"]))
        self.assertIn("  parameter 0, bytes 0-7: ", done.stdout)

    def test_what_is_not_believed_is_not_known(self):
        trace = self.write(branches_one_by_one(2), "trace.json")
        done = self.kernels(trace)
        self.assertIn("known           assumed 100.0 % of the launches (--trust proven)\n", done.stdout)
        self.assertIn("  not known in 32 launches: ", done.stdout)
        self.assertIn("known           declared 100.0 %", self.kernels(trace, "--trust", "declared").stdout)
        self.assertNotIn("f(float*", self.kernels(trace, "--trust", "declared", "--unknown").stdout)
        self.assertIn("f(float*", self.kernels(trace, "--unknown").stdout)

    def test_kernels_are_chosen_and_files_are_not_overwritten(self):
        trace = self.write(branches_one_by_one(2), "trace.json")
        self.assertIn("\nf(float*, float const*)\n", self.kernels(trace, "--kernel", "_Z1f.*").stdout)
        self.assert_refused(self.kernels(trace, "--kernel", "g"), 2, "launches no kernel that --kernel asks for")
        self.assert_refused(self.kernels(trace, "--kernel", "("), 2, "--kernel: is not a regular expression")
        self.assert_refused(self.kernels("gone.json"), 2, "gone.json: cannot be opened")
        other = self.write("{}", "other.json")
        self.assert_refused(self.kernels(trace, "--json", other), 1, "was not written by Nimble")
        self.assertEqual(self.kernels(trace, "--json", other, "--force").returncode, 0)
        self.assertEqual(self.kernels(trace, "--json", other).returncode, 0)


if __name__ == "__main__":
    analyze_command.main()
