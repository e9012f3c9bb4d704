"""scripts/site: what it builds of this repository, twice the same, and what turns it red on a small tree.

Usage: site_test.py SOURCE_FOLDER

Needs mkdocs, which scripts/setup --tests installs; without it all is skipped, without a browser what only one can tell.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    webdriver = None

ROOT = pathlib.Path(sys.argv[1]).resolve()
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SMALL = {
    "README.md": "# Small\n\n[All](docs/README.md), [folder](docs/), [code](shim/), [data](data/numbers.json)\n",
    "docs/README.md": "# Pages\n\n## How to\n\n- [Two](two.md), then [one](one.md#two-words)\n\n[Why](why/README.md)\n",
    "docs/one.md": "# One\n\n## Two `words`\n\n## Two `words`\n\n```python gpu\nx = 1\n```\n\n- a\n\n  b\n- c\n\n[again](#two-words-1)\n",
    "docs/two.md": "# `two`\n\nText about a walrus.\n",
    "docs/unlisted.md": "# Unlisted\n",
    "docs/why/README.md": "# Reasons\n\n- [First](first.md)\n",
    "docs/why/first.md": "# The first\n",
    "data/numbers.json": "[1]\n",
    "shim/a.h": "\n",
}


def site(*arguments, **variables):
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **variables}
    return subprocess.run([sys.executable, ROOT / "scripts/site", *map(str, arguments)], env=environment, capture_output=True,
                          text=True, timeout=300, check=False)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Repository(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name)
        for name in ("one", "two"):
            done = site("--output", cls.path / name)
            if done.returncode != 0:
                raise AssertionError(done.stderr)
        cls.out = cls.path / "one"

    def test_the_same_twice(self):
        one, two = contents(self.out), contents(self.path / "two")
        self.assertEqual([name for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)], [])

    def test_has_every_page_with_its_title(self):
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md"]:
            made = self.out / page.relative_to(ROOT).with_name("index.html" if page.name == "README.md" else page.stem + ".html")
            self.assertTrue(made.is_file(), page)
        self.assertIn("<title>Set up a framework - Nimble</title>", (self.out / "docs/howto/frameworks.html").read_text())
        self.assertIn("<title>Nimble</title>", (self.out / "index.html").read_text())

    def test_names_no_folder_of_the_machine(self):
        for name, data in contents(self.out).items():
            self.assertNotIn(str(ROOT).encode(), data, name)
            self.assertNotIn(b"nimble-site-", data, name)

    def test_the_index_of_the_search_has_the_text(self):
        entries = json.loads((self.out / "search/search_index.json").read_text())["docs"]
        self.assertGreater(len(entries), 200)
        self.assertTrue(any("simulated driver" in entry["text"] for entry in entries))

    @unittest.skipIf(webdriver is None or not CHROMIUM or not DRIVER, "no chromium, chromedriver or python3-selenium here")
    def test_a_browser_finds_pages_without_a_server(self):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browser = webdriver.Chrome(options=options)
        try:
            browser.get((self.out / "search.html").as_uri() + "?q=schedule")
            WebDriverWait(browser, 30).until(lambda page: page.find_elements("css selector", "#mkdocs-search-results article"))
            self.assertIn(self.out.as_uri(), browser.find_element("css selector", "#mkdocs-search-results a").get_attribute("href"))
            browser.get((self.out / "docs/reference/formats.html").as_uri())
            self.assertTrue(browser.find_elements("css selector", ".wy-table-responsive > table.docutils"))
            self.assertEqual(browser.get_log("browser"), [])
        finally:
            browser.quit()


class Trees(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.out = self.path / "site"

    def build(self, files=None, **variables):
        for name, text in {**SMALL, **(files or {})}.items():
            path = self.path / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return site("--source", self.path / "tree", "--output", self.out, **variables)

    def assert_fails(self, line, files):
        done = self.build(files)
        self.assertEqual((done.returncode, done.stderr), (1, f"site: {line}\n"))
        self.assertFalse(self.out.exists())

    def test_navigation_is_that_of_the_indexes(self):
        done = self.build()
        self.assertEqual(done.returncode, 0, done.stderr)
        menu = (self.out / "docs/two.html").read_text().partition('role="navigation"')[2].partition("</nav>")[0]
        self.assertEqual(re.findall(r'(?:caption-text">|reference internal[^>]*>)([^<]+)', menu),
                         ["Small", "Pages", "How to", "two", "One", "Unlisted", "More", "Reasons", "Reasons", "The first"])

    def test_markdown_is_read_as_github_reads_it(self):
        self.assertEqual(self.build().returncode, 0)
        page = (self.out / "docs/one.html").read_text()
        self.assertIn('<h2 id="two-words">', page)
        self.assertIn('<h2 id="two-words-1">', page)
        self.assertIn('<code class="language-python">x = 1', page)
        self.assertEqual(page.count("<li>\n<p>"), 2)  # an item with two paragraphs, and the one after it

    def test_folders_lead_to_their_index_and_files_are_copied(self):
        self.assertEqual(self.build().returncode, 0)
        page = (self.out / "index.html").read_text()
        self.assertIn('<a href="docs/index.html">folder</a>', page)
        self.assertIn(", code, ", page)
        self.assertEqual((self.out / "data/numbers.json").read_text(), "[1]\n")

    def test_a_link_that_leads_nowhere(self):
        self.assert_fails("docs/two.md:3: three.md leads nowhere", {"docs/two.md": "# Two\n\n[three](three.md)\n"})

    def test_a_link_out_of_the_tree(self):
        self.assert_fails("docs/two.md:3: ../../../ leads nowhere", {"docs/two.md": "# Two\n\n[up](../../../)\n"})

    def test_an_anchor_that_is_not_there(self):
        self.assert_fails("docs/README.md: one.html#two-words leads to no heading", {"docs/one.md": "# One\n"})

    def test_a_link_in_html_that_leads_nowhere(self):
        self.assert_fails("docs/two.md: gone.html leads nowhere", {"docs/two.md": '# Two\n\n<a href="gone.html">gone</a>\n'})

    def test_what_comes_from_elsewhere(self):
        for text, link in (("![p](https://example.org/p.png)", "https://example.org/p.png"),
                           ('<script src="//example.org/s.js"></script>', "//example.org/s.js"),
                           ('<p style="background: url(https://example.org/b.png)">b</p>', "https://example.org/b.png"),
                           ("<style>@import 'https://example.org/c.css';</style>", "https://example.org/c.css")):
            with self.subTest(link):
                self.assert_fails(f"docs/two.md: {link} is loaded from elsewhere", {"docs/two.md": f"# Two\n\n{text}\n"})

    def test_links_to_other_sites_may_stay(self):
        self.assertEqual(self.build({"docs/two.md": "# Two\n\n[there](https://example.org/)\n"}).returncode, 0)

    def test_a_broken_tree_leaves_the_earlier_site(self):
        self.assertEqual(self.build().returncode, 0)
        before = contents(self.out)
        self.assertEqual(self.build({"docs/two.md": "# Two\n\n[three](three.md)\n"}).returncode, 1)
        self.assertEqual(contents(self.out), before)

    def test_a_later_site_takes_its_place(self):
        self.assertEqual(self.build({"docs/old.md": "# Old\n"}).returncode, 0)
        (self.path / "tree/docs/old.md").unlink()
        self.assertEqual(self.build().returncode, 0)
        self.assertFalse((self.out / "docs/old.html").exists())

    def test_it_does_not_replace_a_folder_of_other_things(self):
        self.out.mkdir()
        (self.out / "mine").write_text("")
        done = self.build()
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not empty", done.stderr)
        self.assertEqual(list(contents(self.out)), ["mine"])

    def test_without_mkdocs_it_says_what_installs_it(self):
        done = self.build(PATH="")
        self.assertEqual((done.returncode, done.stderr), (1, "site: missing: mkdocs; scripts/setup --tests installs it\n"))


if __name__ == "__main__":
    if shutil.which("mkdocs") is None:
        print("left out: no mkdocs here; scripts/setup --tests installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
