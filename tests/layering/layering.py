"""Reads the includes and imports of a source tree, and holds them against a table of rooms.

A room is a folder, or one file of it by its name without the extension; the longest name that fits counts. Each line of
the table is `room: rooms that it may use`. A room may always use itself. Errors are returned as lines of text.
"""

import ast
import pathlib
import re

CPP = ("include", "analyzer", "replayer", "shim")
PYTHON = ("python/nimble",)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_table(text):
    table = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        room, _, uses = line.partition(":")
        table[room.strip()] = [name.strip() for name in uses.split(",") if name.strip()]
    return table


def room_of(path, rooms):
    """The room of a file, given from the root of the tree, without its extension; None where there is none."""
    names = path.split("/")
    for length in range(len(names), 0, -1):
        name = "/".join(names[:length])
        # A folder's row stands for the files in it, not for the folders.
        if name in rooms and len(names) - length <= 1:
            return name
    return None


def cpp_arrows(root):
    """Pairs of the file that includes and the file that is included, without extensions."""
    for part in CPP:
        for path in sorted((root / part).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".def", ".S") or not path.is_file():
                continue
            for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
                target = f"include/{name}" if name.startswith("nimble/") else name
                if target.split("/")[0] in CPP:
                    yield str(path.relative_to(root)), target


def python_arrows(root):
    for part in PYTHON:
        top = (root / part).parent
        for path in sorted((root / part).rglob("*.py")):
            for name in imported(path, top):
                yield str(path.relative_to(root)), str(name.relative_to(root))


def imported(path, top):
    """The files of the package that a module imports, inside functions as well."""
    package = path.relative_to(top).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            bases = [(alias.name.split("."), []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = list(package[: len(package) - node.level + 1]) if node.level else []
            bases = [(start + (node.module.split(".") if node.module else []), [alias.name for alias in node.names])]
        else:
            continue
        for base, names in bases:
            found = [top.joinpath(*base, name).with_suffix(".py") for name in names]
            found = [file for file in found if file.is_file()]
            found += [top.joinpath(*base, name, "__init__.py") for name in names
                      if top.joinpath(*base, name, "__init__.py").is_file()]
            itself = top.joinpath(*base).with_suffix(".py")
            if not found or len(found) < len(names):
                found += [file for file in (itself, top.joinpath(*base, "__init__.py")) if file.is_file()]
            yield from found


def circle(table):
    """Rooms that use each other in a circle, or []."""
    done, path = set(), []

    def visit(room):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return []
        path.append(room)
        for used in table.get(room, []):
            if found := visit(used):
                return found
        path.pop()
        done.add(room)
        return []

    for room in table:
        if found := visit(room):
            return found
    return []


def check(root, table):
    errors, used = [], {room: set() for room in table}
    for arrows in (cpp_arrows(root), python_arrows(root)):
        for file, target in arrows:
            source, other = (room_of(str(pathlib.PurePath(name).with_suffix("")), table) for name in (file, target))
            for name, room in ((file, source), (target, other)):
                if room is None:
                    errors.append(f"{name} is in no room of the table")
            if source is None or other is None or source == other:
                continue
            if other in table[source]:
                used[source].add(other)
            else:
                errors.append(f"{file} uses {target}: {source} may not use {other}")
    for room, allowed in table.items():
        for other in allowed:
            if other not in table:
                errors.append(f"{room} may use {other}, which is no room of the table")
            elif other not in used[room]:
                errors.append(f"{room} may use {other} and does not: take it out")
    if rooms := circle(table):
        errors.append("a circle: " + " -> ".join(rooms))
    return sorted(set(errors))
