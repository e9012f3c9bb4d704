"""Reads the repository's Markdown: its blocks of code, its links, and the anchors of its headings."""

import re
import unicodedata
from typing import NamedTuple


class Block(NamedTuple):
    language: str
    gpu: bool  # it needs one, so a test may only read it
    text: str
    line: int


def blocks(text):
    """The fenced blocks of a page. The word `gpu` after the language marks those that need a GPU."""
    found, opened, inside = [], None, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"(\s*)```(.*)", line)
        if fence and opened is None:
            opened, inside = (fence.group(1), fence.group(2).split(), number), []
        elif fence:
            indent, words, start = opened
            body = "\n".join(each.removeprefix(indent) if hasattr(str, "removeprefix") else each[len(indent):] for each in inside)
            found.append(Block(words[0] if words else "", "gpu" in words, body, start))
            opened = None
        elif opened is not None:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"the block of line {opened[2]} has no end")
    return found


def prose(text):
    """A page without its blocks of code, line by line, so that numbers of lines stay."""
    lines, fenced = [], False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        code = fenced or is_fence or re.match(r" {4,}\S", line)
        lines.append("" if code else line)
        fenced ^= is_fence
    return "\n".join(lines)


def links(text):
    """(line, target) of each link that is no code and leads to no other site."""
    for number, line in enumerate(prose(text).split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def anchor(heading):
    """What a heading is called in links, as GitHub forms it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    words = "".join(c for c in words.lower() if c in "-_ " or unicodedata.category(c)[0] in "LN")
    return words.replace(" ", "-")


def anchors(text):
    seen = {}
    for line in prose(text).split("\n"):
        heading = re.match(r"#+ +(.*?) *#*$", line)
        if heading:
            name = anchor(heading.group(1))
            count = seen[name] = seen.get(name, -1) + 1
            yield name if count == 0 else f"{name}-{count}"
