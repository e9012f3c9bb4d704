"""Words of memory show every change of dictionaries and objects, or are not relied on."""

import sys
from collections import OrderedDict

import pytest

from nimble.guards import dict_versions
from test_shim import python
from dict_versions_tools import update

# Later releases of Python note that elsewhere.
tells = pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python does not tell")


class Made:
    pass


class Other(Made):
    pass


@tells
def test_every_change_shows():
    assert dict_versions.tells(update)


@tells
def test_under_libnimble(build):
    done = python(build, "-c", "from nimble.guards import dict_versions; print(dict_versions._update() is not None)")
    assert done.stdout == "True\n", done.stderr


def test_without_libnimble(build):
    done = python(build, "-c", "from nimble.guards import dict_versions; print(dict_versions._update())", preload=False)
    assert done.stdout == "None\n", done.stderr


@pytest.mark.parametrize("where, other", [("_VERSION_AT", 0), ("_VERSION_AT", 16), ("_CLASS_AT", 16)])
def test_what_lies_elsewhere_is_not_relied_on(monkeypatch, where, other):
    """A count of references, or of entries, which does not change when a value is replaced."""
    monkeypatch.setattr(dict_versions, where, other)
    assert not dict_versions.tells(update)


@pytest.mark.parametrize("result", [0, 6])
def test_who_always_says_the_same_is_not_relied_on(result):
    assert not dict_versions.tells(lambda *_: result)


@pytest.mark.parametrize("change", [
    lambda made, held: held.update(a=2), lambda made, held: held.pop("a"), lambda made, held: held.clear(),
    lambda made, held: setattr(made, "value", 3), lambda made, held: setattr(made, "__class__", Other),
    lambda made, held: setattr(made, "__dict__", dict(vars(made)))])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@tells
def test_changes(monkeypatch, kind, change):
    monkeypatch.setattr(dict_versions, "_update", lambda: update)
    made, held, apart = Made(), kind(a=1, b=2), {}
    seen = dict_versions.dict_versions_of([vars(made), held], [made])
    assert not seen.have_changed() and not seen.have_changed()
    apart["c"] = held["a"], made  # what is only read
    assert not seen.have_changed()
    change(made, held)
    assert seen.have_changed() and not seen.have_changed()


def test_objects_without_a_dictionary(monkeypatch):
    monkeypatch.setattr(dict_versions, "_update", lambda: update)
    assert dict_versions.dict_versions_of([], [1]) is None
