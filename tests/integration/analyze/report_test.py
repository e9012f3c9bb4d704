"""nimble-analyze report: the page. tests/page/ has what a browser makes of it."""

import subprocess
import sys

import analyze_command
from analyze_command import ROOT, TimedTraceTest


class ReportTest(TimedTraceTest):
    """nimble-analyze report: the page. tests/page/ has what a browser makes of it."""

    def test_writes_a_page_and_replaces_its_own(self):
        trace = self.timed_trace("--device-times")
        done = self.analyze("report", trace)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "Written: report.html\n"))
        page = (self.folder / "report.html").read_text()
        self.assertTrue(page.startswith("<!doctype html>") and page.rstrip().endswith("</html>"))
        self.assertLess(len(page), 1 << 20)
        self.assertEqual(self.analyze("report", trace, "--quiet").stdout, "")
        other = self.write("<!doctype html><title>Mine</title>", "mine.html")
        self.assert_refused(self.analyze("report", trace, "-o", other), 1, "was not written by Nimble")
        self.assertEqual(self.analyze("report", trace, "-o", other, "--force").returncode, 0)

    def test_of_a_large_step_it_shows_a_part(self):
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "20000", "--steps", "3",
                        "--device-times", "-o", "trace.json"], cwd=self.folder, check=True)
        done = self.analyze("report", "trace.json")
        self.assertIn("It shows 12000 ops of 20000: --from N shows those from op N on.", done.stdout)
        self.assertLess((self.folder / "report.html").stat().st_size, 5e6)
        self.assertEqual(self.analyze("report", "trace.json", "--from", "19000").stdout, "Written: report.html\n")
        self.assert_refused(self.analyze("report", "trace.json", "--from", "20000"), 2, "--from: the step has ops 0 to 19999")

    def test_what_it_cannot_read(self):
        self.assert_refused(self.analyze("report", "gone.json"), 2, "gone.json: cannot be opened")


if __name__ == "__main__":
    analyze_command.main()
