"""An extension of Python-Markdown, loaded by mkdocs: headings get the anchors that GitHub gives them.

The pages' links are for GitHub, so its anchors are the ones that have to exist.
"""

import html
import re

import pages
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor


class Anchors(Treeprocessor):
    def run(self, root):
        seen = {}
        for element in root.iter():
            if re.fullmatch("h[1-6]", str(element.tag)):
                # What stands between these two marks is Python-Markdown's own, put back later.
                text = re.sub("\x02[^\x03]*\x03", "", html.unescape("".join(element.itertext())))
                name = pages.anchor(text)
                count = seen[name] = seen.get(name, -1) + 1
                element.set("id", name if count == 0 else f"{name}-{count}")


class GitHubHeadings(Extension):
    def extendMarkdown(self, md):
        # After the text of headings is parsed (20), before the table of contents names those without an id (5).
        md.treeprocessors.register(Anchors(md), "github_headings", 10)


def makeExtension(**options):
    return GitHubHeadings(**options)
