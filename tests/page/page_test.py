#!/usr/bin/env python3
"""The report's page in a browser: what it shows, against the files and the other reports; and that it can be used.

Run by ctest. Needs chromium, its driver and selenium, which scripts/setup --tests installs; without them it is skipped.
With --keep-pictures the goldens are written anew."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import picture

SYSTEM_PYTHON = "/usr/bin/python3"
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    # Debian's package is for Debian's Python, which need not be the first on the PATH.
    if __name__ == "__main__" and sys.executable != SYSTEM_PYTHON and os.path.exists(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-B", *sys.argv])
    webdriver = None

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDENS = HERE / "goldens.json"
ANALYZE = None
KEEP_PICTURES = False
DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")


def contrast(one, other):
    """The contrast of two colors, as the Web Content Accessibility Guidelines define it."""

    def luminance(color):
        parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055)**2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                         "--window-size=1300,1500", "--force-device-scale-factor=1", "--disable-background-networking"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.browser = webdriver.Chrome(service=Service(DRIVER), options=options)
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "80", "--steps", "5", "--device-times",
                        "-o", cls.path / "trace.json"], check=True)
        cls.run_analyze("report", "trace.json", "-o", "report.html", "--trust", "declared")

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    @classmethod
    def run_analyze(cls, *arguments):
        return subprocess.run([ANALYZE, *map(str, arguments)], cwd=cls.path, check=True, capture_output=True,
                              text=True).stdout

    def setUp(self):
        self.media("light")
        self.open("report.html")

    def open(self, name):
        self.browser.get((self.path / name).as_uri())
        self.data = self.script("return data")

    def media(self, scheme, kind=""):
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": kind, "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def by_id(self, name):
        return self.browser.find_element(By.ID, name)

    def text(self, name):
        return self.by_id(name).text

    def op_name(self, op):
        return self.data["texts"][self.data["ops"]["name"][op]]

    def view(self):
        """What the timeline shows, in microseconds."""
        return [float(self.by_id("timeline").get_attribute("data-" + end)) for end in ("from", "until")]

    def press(self, *keys):
        canvas = self.by_id("timeline")
        self.script("arguments[0].focus()", canvas)
        ActionChains(self.browser).send_keys(*keys).perform()

    # --- As a whole.

    def test_opens_without_errors_and_without_a_network(self):
        self.browser.get_log("performance")
        self.open("report.html")
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])
        asked = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
        self.assertEqual([url for url in urls if not url.startswith(("file:", "data:"))], [])
        self.assertTrue(any(url.endswith("report.html") for url in urls), urls)
        self.assertTrue(self.browser.title.startswith("Nimble report: make_trace"))

    def test_figures_are_those_of_the_other_reports(self):
        self.run_analyze("why-slow", "trace.json", "--trust", "declared", "--json", "ledger.json")
        ledger = json.loads((self.path / "ledger.json").read_text())
        self.assertIn(f"{ledger['step_us']:.1f} us", self.text("figures"))
        self.assertIn(f"{ledger['idle_us']:.1f} us", self.text("figures"))
        rows = self.browser.find_elements(By.CSS_SELECTOR, "#ledger tbody tr")
        self.assertEqual(len(rows), len(ledger["entries"]))
        self.assertIn(ledger["entries"][0]["what"], rows[0].text)
        names = {self.op_name(op) for op in range(self.data["until"])}
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#kernels tbody tr")), len(names))

    def test_pictures_are_like_the_goldens(self):
        found = {}
        for name, scheme in (("light", "light"), ("dark", "dark")):
            self.media(scheme)
            self.open("report.html")
            found[name] = picture.brightness(self.browser.get_screenshot_as_png())
        if KEEP_PICTURES:
            lines = ",\n".join(f' "{name}": [\n' + ",\n".join("  " + json.dumps(row) for row in grid) + "\n ]"
                               for name, grid in found.items())
            GOLDENS.write_text("{\n" + lines + "\n}\n")
        goldens = json.loads(GOLDENS.read_text())
        for name, grid in found.items():
            mean, most = picture.difference(grid, goldens[name])
            self.assertLess(mean, 4, f"{name}: --keep-pictures writes the goldens anew")
            self.assertLess(most, 70, name)
        # Such a difference would be noticed.
        self.assertGreater(picture.difference(found["light"], found["dark"])[0], 100)

    def test_text_can_be_read_in_both_schemes(self):
        for scheme in ("light", "dark"):
            self.media(scheme)
            colors = {name: self.script("colors.clear(); return color(arguments[0])", "--" + name)
                      for name in ("back", "panel", "fore", "soft", "accent", "hit")}
            for name in ("fore", "soft", "accent"):
                for back in ("back", "panel"):
                    self.assertGreaterEqual(contrast(colors[name], colors[back]), 4.5, (scheme, name, back))
            self.assertGreaterEqual(contrast(colors["hit"], colors["back"]), 3, scheme)

    def test_print_shows_all_rows(self):
        self.media("light", "print")
        self.assertEqual(self.script("return getComputedStyle(document.querySelector('.scroll')).overflowY"), "visible")
        self.assertFalse(self.by_id("search").is_displayed())

    def test_everything_has_a_name_for_those_who_do_not_see_it(self):
        unnamed = self.script("""
            return [...document.querySelectorAll("button, input, canvas, svg[role=img], table")].filter((each) =>
              !(each.textContent.trim() || each.getAttribute("aria-label") || (each.labels && each.labels.length)
                || (each.querySelector && each.querySelector("caption")))).map((each) => each.outerHTML.slice(0, 100))""")
        self.assertEqual(unnamed, [])
        self.assertEqual(self.script("return document.documentElement.lang"), "en")

    # --- The timeline.

    def click_op(self, op):
        """Clicks in the middle of an op's bar in the row of its stream."""
        begin, end = self.data["ops"]["begin"][op], self.data["ops"]["end"][op]
        canvas = self.by_id("timeline")
        threads = len(set(self.data["host"]["thread"]))
        streams = list(dict.fromkeys(self.data["ops"]["stream"][each] for each in range(self.data["until"])
                                     if self.data["ops"]["begin"][each] >= 0))
        row = threads + streams.index(self.data["ops"]["stream"][op])
        first, last = self.view()
        width = canvas.size["width"]
        x = 190 + (begin + (end - begin) / 2 - first) / (last - first) * (width - 10 - 190)
        y = 24 + 22 * row + 11
        ActionChains(self.browser).move_to_element_with_offset(
            canvas, round(x - width / 2), round(y - canvas.size["height"] / 2)).click().perform()

    def test_a_click_tells_of_an_op(self):
        timed = [op for op in range(self.data["until"]) if self.data["ops"]["begin"][op] >= 0]
        for op in (timed[0], timed[len(timed) // 2], timed[-1]):
            self.click_op(op)
            self.assertTrue(self.text("details").startswith(f"op {op} {self.op_name(op)}"), self.text("details"))
            self.assertIn(f"op {op} ", self.by_id("timeline").get_attribute("aria-label"))
        touched = self.run_analyze("--why", timed[0], timed[-1], "--trust", "declared", "trace.json")
        self.assertIn(self.op_name(timed[0])[:40], touched)

    def test_zoom_and_pan_by_keys_and_wheel(self):
        whole = self.view()
        self.press("+")
        half = self.view()
        self.assertAlmostEqual(half[1] - half[0], (whole[1] - whole[0]) / 2, delta=0.1)
        self.press(Keys.ARROW_RIGHT)
        self.assertGreater(self.view()[0], half[0])
        self.press(Keys.ARROW_LEFT)
        self.assertAlmostEqual(self.view()[0], half[0], delta=0.1)
        self.press("0")
        self.assertEqual(self.view(), whole)
        canvas = self.by_id("timeline")
        self.script("""const box = arguments[0].getBoundingClientRect();
            arguments[0].dispatchEvent(new WheelEvent("wheel", {deltaY: -300, bubbles: true, cancelable: true,
              clientX: box.left + box.width / 2, clientY: box.top + 60}))""", canvas)
        self.assertLess(self.view()[1] - self.view()[0], 0.9 * (whole[1] - whole[0]))
        self.by_id("zoom-all").click()
        self.assertEqual(self.view(), whole)

    def test_a_drag_pans(self):
        self.press("+", "+")
        before = self.view()
        ActionChains(self.browser).drag_and_drop_by_offset(self.by_id("timeline"), 120, 0).perform()
        self.assertLess(self.view()[0], before[0])
        self.assertAlmostEqual(self.view()[1] - self.view()[0], before[1] - before[0], delta=0.1)

    def test_search_finds_ops_and_goes_from_one_to_the_next(self):
        wanted = [op for op in range(self.data["until"]) if "gemm" in self.op_name(op)]
        self.by_id("search").send_keys("GEMM")
        self.assertEqual(self.text("found"), f"{len(wanted)} ops")
        for op in wanted[:2]:
            self.by_id("search").send_keys(Keys.ENTER)
            self.assertTrue(self.text("details").startswith(f"op {op} "), self.text("details"))
        self.by_id("search").clear()
        self.by_id("search").send_keys("no such kernel")
        self.assertEqual(self.text("found"), "0 ops")

    def test_keys_go_from_op_to_op(self):
        self.press("n")
        self.assertTrue(self.text("details").startswith("op 0 "))
        self.press("n", "n", "p")
        self.assertTrue(self.text("details").startswith("op 1 "))

    # --- Why, the graph, tables.

    def why(self, first, second):
        for name, op in (("why-first", first), ("why-second", second)):
            self.by_id(name).clear()
            self.by_id(name).send_keys(str(op))
        self.browser.find_element(By.CSS_SELECTOR, "#why-form button").click()
        return self.text("why")

    def test_why_says_what_the_command_says(self):
        verdicts = set()
        chosen = random.Random(7)
        pairs = [tuple(sorted(chosen.sample(range(self.data["until"]), 2))) for _ in range(25)]
        pairs += [tuple(self.data["dependencies"][i][:2]) for i in range(0, len(self.data["dependencies"]), 9)]
        for first, second in pairs:
            command = self.run_analyze("--why", first, second, "--trust", "declared", "trace.json")
            page = self.why(first, second)
            through = re.search(r"^Ordered: through (\d+) dependencies", command, re.M)
            if through:
                self.assertIn(f"Ordered: through {through[1]} dependencies.", page)
            elif "\nOrdered: op" in command:
                self.assertIn("Ordered: they depend on each other.", page)
                kind = re.search(r"^  \d+ -> \d+  (read after write|write after read|write after write|order)", command, re.M)
                self.assertIn(kind[1], page)
            else:
                self.assertIn("\nNot ordered:", command)
                self.assertIn("Not ordered.", page)
            self.assertEqual("not in one graph" in page, "not in one graph" in command, (first, second, page, command))
            verdicts.add(page.split("\n")[0][:16])
        self.assertGreaterEqual(len(verdicts), 3, verdicts)
        self.assertIn("The page has ops 0 to", self.why(0, 100000))

    def test_why_tells_races_from_what_may_run_side_by_side(self):
        """Of a program with several streams, some of whose waits are missing."""
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "60", "--steps", "4", "--device-times",
                        "--multi-stream", "-o", self.path / "streams.json"], check=True)
        lines = (self.path / "streams.json").read_text().splitlines(keepends=True)
        (self.path / "racy.json").write_text("".join(line for line in lines if '"event_wait"' not in line))
        self.run_analyze("report", "racy.json", "-o", "racy.html", "--trust", "declared")
        self.open("racy.html")
        told = set()
        for first, second, _ in self.data["races"][:3]:
            self.assertIn("a possible race", self.why(first, second))
            self.assertIn("a possible race", self.run_analyze("--why", first, second, "--trust", "declared", "racy.json"))
        for first in range(0, 14):
            for second in range(first + 1, 14, 3):
                page = self.why(first, second)
                command = self.run_analyze("--why", first, second, "--trust", "declared", "racy.json")
                for both in ("a possible race", "is answered from the memory plan", "touches no memory: only a wait",
                             "so they may run side by side"):
                    in_page = both.replace("so they may", "they may") in page
                    self.assertEqual(in_page, both in command, (first, second, page, command))
                    told |= {both} if in_page else set()
        self.assertGreaterEqual(len(told), 3, told)

    def test_the_graph_has_each_dependency_and_the_critical_path(self):
        nodes = self.browser.find_elements(By.CSS_SELECTOR, "#graph .node")
        self.assertEqual(len(nodes), len({op for edge in self.data["needed"] for op in edge}))
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#graph .edge")), len(self.data["needed"]))
        critical = len(self.browser.find_elements(By.CSS_SELECTOR, "#graph .node.critical"))
        self.assertEqual(critical, sum(self.data["ops"]["critical"]))
        title = self.script("return arguments[0].querySelector('title').textContent", nodes[3])
        self.script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", nodes[3])
        self.assertTrue(self.text("details").startswith(title))

    def test_tables_are_sorted_by_their_heads(self):
        heads = self.browser.find_elements(By.CSS_SELECTOR, "#kernels thead th")
        names = lambda: [row.text for row in self.browser.find_elements(By.CSS_SELECTOR, "#kernels tbody td:nth-child(3)")]
        heads[2].find_element(By.TAG_NAME, "button").click()
        self.assertEqual(heads[2].get_attribute("aria-sort"), "ascending")
        self.assertEqual(names(), sorted(names()))
        heads[2].find_element(By.TAG_NAME, "button").click()
        self.assertEqual(names(), sorted(names(), reverse=True))

    def test_memory_has_each_object_in_its_place(self):
        boxes = self.browser.find_elements(By.CSS_SELECTOR, "#memory .object")
        self.assertEqual(len(boxes), len(self.data["memory"]["objects"]))
        self.assertGreater(len(boxes), 0)
        self.assertIn("Planned: ", self.text("memory-sums"))

    def test_a_trace_without_times_has_a_page_too(self):
        subprocess.run([sys.executable, ROOT / "scripts/make_trace", "--step-ops", "40", "--steps", "5", "-o",
                        self.path / "untimed.json"], check=True)
        self.run_analyze("report", "untimed.json", "-o", "untimed.html")
        self.browser.get_log("browser")
        self.open("untimed.html")
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"], [])
        self.assertIn("NIMBLE_TIMING", self.text("ledger-sums"))
        self.press("n")
        self.assertTrue(self.text("details").startswith("op 0 "))


if __name__ == "__main__":
    ANALYZE = pathlib.Path(sys.argv[1]).resolve()
    KEEP_PICTURES = "--keep-pictures" in sys.argv
    if webdriver is None or DRIVER is None or CHROMIUM is None:
        print("left out: no chromium, chromedriver or python3-selenium here; scripts/setup --tests installs them")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + [each for each in sys.argv[2:] if each != "--keep-pictures"])
