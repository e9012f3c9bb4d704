"""Checks a site that was built: every link and anchor inside it leads somewhere, and it loads nothing from elsewhere."""

import html.parser
import posixpath
import re
import urllib.parse

# Attributes by which a page makes a browser fetch something without a click.
LOADS = {"src", "srcset", "poster", "data", "background"}
LOADING_TAGS = {"link", "image", "use"}  # elements whose href loads something, too
STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self._in_style = tag == "style"
        for key, value in attributes:
            value = value or ""
            if key == "id" or (key == "name" and tag == "a"):
                self.ids.add(value)
            elif key in LOADS or (key in ("href", "xlink:href") and tag in LOADING_TAGS):
                self.loads += [part.split()[0] for part in value.split(",") if part.split()] if key == "srcset" else [value]
            elif key in ("href", "action"):
                self.links.append(value)
            elif key == "style":
                self.loads += STYLE.findall(value)

    def handle_data(self, data):
        if self._in_style:
            self.loads += STYLE.findall(data)

    def handle_endtag(self, tag):
        self._in_style = False


def problems(site, source_of):
    """A line for each link that leads nowhere and each thing loaded from elsewhere. `source_of` names the file that a reader
    would look into for a file of the site."""
    files = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    present, read, found = set(files), {}, []
    for name in files:
        if name.endswith((".html", ".svg")):
            read[name] = Page((site / name).read_text(encoding="utf-8"))
    for name in files:
        if name in read:
            links, loads = read[name].links, read[name].loads
        elif name.endswith(".css"):
            links, loads = [], STYLE.findall((site / name).read_text(encoding="utf-8"))
        else:
            continue
        where = source_of(name)
        for link in dict.fromkeys(loads):
            if is_elsewhere(link) and not link.startswith("data:"):
                found.append(f"{where}: {link} is loaded from elsewhere")
        for link in dict.fromkeys([*links, *loads]):
            if not is_elsewhere(link):
                wrong = leads_nowhere(name, link, present, read)
                found += [f"{where}: {link} {wrong}"] if wrong else []
    return found


def is_elsewhere(link):
    return link.startswith("//") or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", link) is not None


def leads_nowhere(name, link, present, read):
    """Why a link of the file `name` is broken, or None."""
    parts = urllib.parse.urlsplit(link)
    if parts.path.startswith("/"):
        return "leads to the root of a server"
    other = posixpath.normpath(posixpath.join(posixpath.dirname(name), urllib.parse.unquote(parts.path))) if parts.path else name
    if other not in present and posixpath.normpath(f"{other}/index.html") in present:
        other = posixpath.normpath(f"{other}/index.html")
    if other not in present:
        return "leads nowhere"
    anchor = urllib.parse.unquote(parts.fragment)
    if anchor and other in read and other.endswith(".html") and anchor not in read[other].ids:
        return "leads to no heading"
    return None
