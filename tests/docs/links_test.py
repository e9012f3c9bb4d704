"""The pages lead where they say: links, anchors, and files of this repository that they name. And each page is led to.

Usage: links_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import tempfile
import unittest

import pages

ROOT = pathlib.Path(sys.argv[1]).resolve()
FOLDERS = ("analyzer", "bench", "cmake", "docs", "examples", "include", "python", "replayer", "scripts", "shim", "tests")
SOURCES = ("", ".h", ".in", ".def", ".cpp", ".c", ".cu", ".S", ".py", ".txt", ".cmake", ".json", ".html")
# Written into the tree by a user, so they are not in the repository.
MADE = ("bench/results/", "python/nimble/lib", "python/nimble/bin")


def markdown(root):
    skipped = ("build", ".git")
    return sorted(page for page in root.rglob("*.md") if page.relative_to(root).parts[0] not in skipped)


def broken(root):
    """A line for each link, anchor or name of a file that leads nowhere."""
    errors, texts = [], {page: page.read_text(encoding="utf-8") for page in markdown(root)}
    for page, text in texts.items():
        where = page.relative_to(root)
        for number, target in pages.links(text):
            path, _, name = target.partition("#")
            other = (page.parent / path).resolve() if path else page
            if not other.exists():
                errors.append(f"{where}:{number}: {target} is not there")
            elif name and other.suffix == ".md" and name not in set(pages.anchors(texts.get(other, ""))):
                errors.append(f"{where}:{number}: {target}: there is no such heading")
        if where.parts[:2] == ("bench", "results"):
            continue  # what was measured, of the files of that day
        for number, line in enumerate(pages.prose(text).split("\n"), 1):
            for name in re.findall(r"`((?:%s)/[\w./*-]+)`" % "|".join(FOLDERS), line):
                if not name.startswith(MADE) and not any(root.glob(name.rstrip("/"))):
                    errors.append(f"{where}:{number}: there is no {name}")
    return errors


def broken_in_sources(root):
    """A line for each page that a comment, a message or a script names and that is not there."""
    errors = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SOURCES and path.is_file() and not name.startswith(("docs/", "bench/results/", "tests/docs/")):
                for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
                    errors += [f"{name}:{number}: there is no {page}" for page in re.findall(r"\bdocs/[\w/-]+\.md", line)
                               if not (root / page).is_file()]
    return errors


def lonely(root, start):
    """Pages of docs/ that no page leads to, from `start` on; a link to a folder is one to its README.md."""
    reached, waiting = set(), [root / start]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        for _, target in pages.links(page.read_text(encoding="utf-8")):
            other = (page.parent / target.partition("#")[0]).resolve() if not target.startswith("#") else page
            if other.is_dir():
                other /= "README.md"
            if other.suffix == ".md":
                waiting.append(other)
    return [str(page.relative_to(root)) for page in markdown(root) if page.is_relative_to(root / "docs") and page not in reached]


class Repository(unittest.TestCase):
    def test_links_anchors_and_names_of_files(self):
        errors = broken(ROOT)
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def test_pages_that_sources_name(self):
        errors = broken_in_sources(ROOT)
        self.assertFalse(errors, "\n" + "\n".join(errors))

    def test_each_page_can_be_found(self):
        self.assertEqual(lonely(ROOT, "docs/README.md"), [])

    def test_decisions_have_their_parts_and_are_in_the_index(self):
        folder = ROOT / "docs" / "decisions"
        index = (folder / "README.md").read_text(encoding="utf-8")
        numbers = []
        for page in sorted(folder.glob("[0-9]*.md")):
            text = page.read_text(encoding="utf-8")
            title = re.match(r"# (\d+)\. (.+)\n", text)
            self.assertTrue(title and page.name.startswith(title.group(1) + "-"), page.name)
            self.assertEqual([part for part in re.findall(r"^## (.*)$", text, re.MULTILINE)],
                             ["Context", "Decision", "Evidence", "Consequences"], page.name)
            self.assertIn(f"[{title.group(2)}]({page.name})", index)
            numbers.append(int(title.group(1)))
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_a_change_is_asked_what_the_checklist_asks(self):
        def items(name):
            return re.findall(r"^- \[ \] .*(?:\n  .*)*", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)

        self.assertGreater(len(items("CONTRIBUTING.md")), 5)
        self.assertEqual(items("CONTRIBUTING.md"), items(".github/pull_request_template.md"))

    def test_each_function_of_the_c_api_is_on_its_page(self):
        header = (ROOT / "include" / "nimble" / "nimble.h").read_text(encoding="utf-8")
        page = (ROOT / "docs" / "reference" / "api-c.md").read_text(encoding="utf-8")
        functions = re.findall(r"^NIMBLE_FUNCTION\((\w+)", header, re.MULTILINE)
        self.assertGreater(len(functions), 20)
        self.assertEqual([name for name in functions if f"`{name}(" not in page], [])


class Trees(unittest.TestCase):
    """What turns it red, on small trees."""

    def tree(self, **files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name).resolve()
        for name, text in {"docs/README.md": "# All\n\n[one](one.md#two-words)\n", "docs/one.md": "# Two `words`\n", **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    def test_a_tree_that_is_well(self):
        root = self.tree(**{"shim/a.h": "", "docs/one.md": "# Two `words`\n\n`shim/a.h`, `shim/*.h`, ```not/a/file```\n"})
        self.assertEqual((broken(root), lonely(root, "docs/README.md")), ([], []))

    def test_a_page_that_is_not_there(self):
        root = self.tree(**{"docs/one.md": "# Two words\n\n[more](more.md)\n"})
        self.assertEqual(broken(root), ["docs/one.md:3: more.md is not there"])

    def test_a_heading_that_is_not_there(self):
        self.assertEqual(broken(self.tree(**{"docs/one.md": "# Three\n"})), ["docs/README.md:3: one.md#two-words: there is no such heading"])

    def test_a_file_that_is_not_there(self):
        self.assertEqual(broken(self.tree(**{"docs/one.md": "# Two words\n`shim/b.h`\n"})), ["docs/one.md:2: there is no shim/b.h"])

    def test_a_page_that_only_a_comment_names(self):
        self.assertEqual(broken_in_sources(self.tree(**{"shim/a.h": "// docs/one.md says.\n// docs/two.md says.\n"})),
                         ["shim/a.h:2: there is no docs/two.md"])

    def test_code_has_no_links(self):
        self.assertEqual(broken(self.tree(**{"docs/one.md": "# Two words\n```\n[a](b.md)\n```\n    [c](d.md)\n`[e](f.md)`\n"})), [])

    def test_a_page_that_nothing_leads_to(self):
        self.assertEqual(lonely(self.tree(**{"docs/two.md": "# Two\n"}), "docs/README.md"), ["docs/two.md"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
