"""The repository's pages as mkdocs wants them: copies in the same folders, and a navigation that the indexes give.

A link between copies is the link of the repository, so only two kinds are rewritten: links to folders, which a site cannot
list, and what GitHub's Markdown and Python-Markdown read differently.
"""

import pathlib
import re
import shutil

import pages

HOME, INDEX = "README.md", "docs/README.md"
STARTS = (HOME, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


class Tree:
    def __init__(self, root):
        self.root = root.resolve()
        self.errors = []  # a line for each link that leads nowhere
        self.listed = [name for name in STARTS if (self.root / name).is_file()]
        self.listed += sorted(page.relative_to(self.root).as_posix() for page in (self.root / "docs").rglob("*.md"))
        if HOME not in self.listed or INDEX not in self.listed:
            raise FileNotFoundError(f"{self.root} has no {HOME} or no {INDEX}")
        self.texts, self.files = {}, set()
        self._follow()

    def _follow(self):
        """Reads the listed pages and whatever they lead to, so that no link needs another site."""
        waiting = list(self.listed)
        while waiting:
            name = waiting.pop()
            if name in self.texts:
                continue
            self.texts[name] = (self.root / name).read_text(encoding="utf-8")
            for line, target in pages.links(self.texts[name]):
                other = self.target(name, target)
                if other is None:
                    self.errors.append(f"{name}:{line}: {target} leads nowhere")
                elif other.endswith(".md"):
                    waiting.append(other)
                elif (self.root / other).is_file():
                    self.files.add(other)

    def target(self, page, link):
        """What a page's link leads to, from the root of the tree; None if that is not there."""
        path = link.partition("#")[0]
        other = ((self.root / page).parent / path).resolve() if path else self.root / page
        if not other.exists() or not other.is_relative_to(self.root):
            return None
        return other.relative_to(self.root).as_posix()

    def index_of(self, folder):
        """The page that lists a folder's files: its README.md, or that of a folder above it, but not the root's."""
        for above in [pathlib.PurePosixPath(folder), *pathlib.PurePosixPath(folder).parents][:-1]:
            if (self.root / above / "README.md").is_file():
                return (above / "README.md").as_posix()
        return None

    def title(self, name):
        """A page's first heading, without its marks."""
        heading = re.search(r"^# +(.*?) *#*$", pages.prose(self.texts[name]), re.MULTILINE)
        return re.sub(r"[`*]", "", heading.group(1)) if heading else name

    # --- Copies.

    def stage(self, folder):
        for name in sorted(self.files):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, folder / name)
        for name in sorted(self.texts):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(for_python_markdown(self.without_folders(name)), encoding="utf-8")

    def without_folders(self, name):
        """The page's text with each link to a folder turned into one to its index or, if it has none, into plain text."""
        text = self.texts[name]
        for target in {target for _, target in pages.links(text)}:
            other = self.target(name, target)
            if other is None or not (self.root / other).is_dir():
                continue
            index = self.index_of(other)
            if index in self.texts:
                up = "../" * (len(pathlib.PurePosixPath(name).parts) - 1)
                text = text.replace(f"]({target})", f"]({up}{index})")
            else:
                text = re.sub(r"\[([^\[\]]*)\]\(%s\)" % re.escape(target), r"\1", text)
        return text

    # --- Navigation.

    def navigation(self):
        """mkdocs' `nav`: the index's lists under its headings, then what else it or the tree has.

        A README.md in it brings the pages that it lists itself.
        """
        placed, sections, rest = {HOME, INDEX}, {}, []
        for heading, in_list, name in self._listing(INDEX):
            if name in self.listed and name not in placed:
                (sections.setdefault(heading, []) if in_list else rest).append(name)
                placed.add(name)
        for name in self.listed:
            if name not in placed and self.index_of(str(pathlib.PurePosixPath(name).parent)) in (None, INDEX):
                folder = pathlib.PurePosixPath(name).parent
                beside = [each for each in sections.values() if pathlib.PurePosixPath(each[0]).parent == folder]
                (beside[0] if beside else rest).append(name)
                placed.add(name)
        entries = [self._entry(HOME), self._entry(INDEX)]
        entries += [{heading: [self._entry(name) for name in names]} for heading, names in sections.items()]
        # One section, since the theme folds only what lies deeper than the first level.
        return entries + ([{"More": [self._entry(name) for name in rest]}] if rest else [])

    def _listing(self, index):
        """(heading, whether in a list, page) of an index's links, in its order."""
        heading, in_list, lines = "", False, pages.prose(self.texts[index]).split("\n")
        targets = {}
        for number, target in pages.links(self.texts[index]):
            targets.setdefault(number, []).append(self.target(index, target))
        for number, line in enumerate(lines, 1):
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
            in_list = bool(re.match(r"[-*] ", line)) or (in_list and line.startswith("  "))
            for name in targets.get(number, []):
                yield heading, in_list, name

    def _entry(self, name):
        page = {self.title(name): name}
        if name in (HOME, INDEX) or not name.endswith("/README.md"):
            return page
        folder = name[: -len("README.md")]
        inside = [each for each in self.listed if each.startswith(folder) and each != name]
        order = [each for _, _, each in self._listing(name)]
        inside.sort(key=lambda each: (order.index(each) if each in order else len(order), each))
        return {self.title(name): [page, *({self.title(each): each} for each in inside)]} if inside else page


def for_python_markdown(text):
    """What GitHub reads and Python-Markdown, without this, reads otherwise."""
    lines, fenced, missing, apart = [], False, 0, False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            if not fenced:
                line = re.sub(r"^(\s*```\S*).*", r"\1", line)  # one word, the language
            fenced = not fenced
        elif not fenced and line.strip():
            line = re.sub(r"^(\s*[-*] )\[ \] ", "\\1\u2610 ", line)
            item = re.match(r"([-*]|\d+\.) +", line)
            if item or not line.startswith("  "):
                if item and apart:
                    lines.append("")  # or it would belong to the paragraph above
                # Further paragraphs of an item start below its text, where Python-Markdown wants four columns.
                missing, apart = max(0, 4 - len(item.group())) if item else 0, False
            elif missing and (apart or not lines[-1].strip()):
                line, apart = " " * missing + line, True
        lines.append(line)
    return "\n".join(lines)
