"""The includes and imports of this repository keep to tests/layering/rooms.txt."""

import pathlib
import sys
import tempfile
import unittest

import layering

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/layering/rooms.txt"


class Repository(unittest.TestCase):
    def test_every_include_and_import_is_in_the_table(self):
        self.assertEqual(layering.check(ROOT, layering.read_table(TABLE.read_text(encoding="utf-8"))), [])

    def test_parts_use_each_other_in_one_direction(self):
        for room, used in layering.read_table(TABLE.read_text(encoding="utf-8")).items():
            parts = {name.split("/")[0] for name in used}
            if room.startswith("include"):
                self.assertLessEqual(parts, {"include"}, room)
            if room.startswith("analyzer"):
                self.assertLessEqual(parts, {"include", "analyzer"}, room)
            if room.startswith("replayer") and not room.startswith("replayer/bundle"):
                self.assertLessEqual(parts, {"include", "replayer"}, room)
            if not room.startswith("shim"):
                self.assertNotIn("shim", parts, room)
            if room not in ("python/nimble/auto", "python/nimble/startup"):
                self.assertNotIn("python/nimble/auto", used, room)


class Trees(unittest.TestCase):
    """What turns it red, on small trees."""

    TABLE = "include/nimble/internal:\nshim/driver: include/nimble/internal\nshim/modes: shim/driver\n"
    FILES = {
        "include/nimble/internal/call.h": "",
        "shim/driver/guard.h": '#include "nimble/internal/call.h"\n',
        "shim/modes/session.cpp": '#include <vector>\n\n#include "shim/driver/guard.h"\n',
    }

    def errors(self, table=TABLE, **changed):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name, text in {**self.FILES, **{key.replace("__", "/"): text for key, text in changed.items()}}.items():
            path = root / (name if "." in name else name + ".h")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return layering.check(root, layering.read_table(table))

    def test_a_tree_that_keeps_to_its_table_is_well(self):
        self.assertEqual(self.errors(), [])

    def test_a_forbidden_include_is_named(self):
        self.assertEqual(self.errors(shim__driver__hook='  #  include "shim/modes/session.h"\n'),
                         ["shim/driver/hook.h uses shim/modes/session.h: shim/driver may not use shim/modes"])

    def test_a_file_without_a_room_is_named(self):
        self.assertEqual(self.errors(shim__other__file='#include "shim/driver/guard.h"\n'),
                         ["shim/other/file.h is in no room of the table"])

    def test_a_row_that_nothing_needs_is_named(self):
        self.assertEqual(self.errors(self.TABLE.replace("modes: ", "modes: include/nimble/internal, ")),
                         ["shim/modes may use include/nimble/internal and does not: take it out"])

    def test_a_circle_in_the_table_is_named(self):
        table = self.TABLE.replace("driver: ", "driver: shim/modes, ")
        found = self.errors(table, shim__driver__hook='#include "shim/modes/session.h"\n')
        self.assertEqual(found, ["a circle: shim/driver -> shim/modes -> shim/driver"])

    def test_a_room_that_is_not_there_is_named(self):
        self.assertIn("shim/modes may use shim/nowhere, which is no room of the table",
                      self.errors(self.TABLE.replace("modes: ", "modes: shim/nowhere, ")))

    def test_a_file_may_be_a_room_of_its_own(self):
        table = "shim/driver/guard:\nshim/driver: shim/driver/guard\n"
        root = pathlib.Path(tempfile.mkdtemp())
        (root / "shim/driver").mkdir(parents=True)
        (root / "shim/driver/guard.h").write_text("", encoding="utf-8")
        (root / "shim/driver/hook.cpp").write_text('#include "shim/driver/guard.h"\n', encoding="utf-8")
        self.assertEqual(layering.check(root, layering.read_table(table)), [])
        (root / "shim/driver/guard.h").write_text('#include "shim/driver/hook.h"\n', encoding="utf-8")
        self.assertEqual(layering.check(root, layering.read_table(table)),
                         ["shim/driver/guard.h uses shim/driver/hook.h: shim/driver/guard may not use shim/driver"])

    def test_python_imports_count_wherever_they_stand(self):
        table = "python/nimble:\npython/nimble/guards:\npython/nimble/graphs: python/nimble\n"
        root = pathlib.Path(tempfile.mkdtemp())
        for name, text in {"__init__": "", "errors": "", "guards/__init__": "", "guards/guard": "",
                           "graphs/__init__": "",
                           "graphs/graph": "from ..errors import Error\n\ndef f():\n    from nimble.guards import guard\n",
                           }.items():
            path = root / "python/nimble" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.assertEqual(layering.check(root, layering.read_table(table)),
                         ["python/nimble/graphs/graph.py uses python/nimble/guards/guard.py: "
                          "python/nimble/graphs may not use python/nimble/guards"])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
        TABLE = ROOT / "tests/layering/rooms.txt"
    unittest.main()
