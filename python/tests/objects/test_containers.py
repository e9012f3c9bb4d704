"""Lists, dictionaries and sets of classes whose methods do not show their content."""

import collections
import random

import pytest

from nimble.objects import containers


def refuse(self, *_, **__):
    raise AssertionError("its class must not be asked")


REFUSED = ("__iter__", "__getitem__", "__setitem__", "__delitem__", "__len__", "__contains__", "__eq__", "__bool__", "keys", "values", "items",
           "get", "copy", "update", "clear", "pop", "append", "extend", "add", "remove", "__missing__", "__reversed__")
BASES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter, list, set, collections.deque)


def closed(base):
    """A container class whose own methods forbid reads and writes."""
    names = {name: refuse for name in REFUSED if hasattr(base, name) or name == "__bool__"}
    return type("Closed", (base,), {**names, "__hash__": None})


def filled(kind, base, count):
    made = kind.__new__(kind)
    for number in range(count):
        if issubclass(base, dict):
            containers._base(made).__setitem__(made, f"key {number}", [number])
        elif base is set:
            set.add(made, f"key {number}")
        else:
            base.append(made, [number])
    return made


def spoil(where, base, choose):
    """As some code's run might leave it."""
    if issubclass(base, dict):
        mine = containers._base(where)
        for key in choose.sample(containers.elements(where), 2):
            mine.__delitem__(where, key)
        mine.__setitem__(where, "new", [])
        mine.__setitem__(where, containers.elements(where)[0], [])
    elif base is set:
        set.pop(where), set.add(where, "new")
    else:
        base.pop(where), base.append(where, []), base.reverse(where)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("is_closed", [False, True])
def test_all_is_put_back(base, is_closed):
    kind = closed(base) if is_closed else base
    for seed in range(20):
        choose = random.Random(seed)
        where = filled(kind, base, choose.randrange(3, 9))
        before = containers.content(where)
        assert type(before) in (dict, set, list) and containers.has(where, before)
        spoil(where, base, choose)
        assert not containers.has(where, before)
        containers.fill(where, before)
        assert containers.has(where, before) and type(where) is kind
        if issubclass(base, dict):
            assert containers.elements(where) == list(before) and list(containers.items(where)) == list(before.items())


@pytest.mark.parametrize("base", [dict, collections.OrderedDict, collections.defaultdict])
def test_single_values(base):
    where = filled(closed(base), base, 3)
    containers.put(where, "key 1", "other")
    containers.remove(where, "key 0")
    assert containers.get(where, "key 1") == "other" and containers.get(where, "key 0", 5) == 5 and containers.get(where, "none") is None
    assert containers.elements(where) == ["key 1", "key 2"] and containers.values(where) == ["other", [2]]


def test_the_order_of_one_that_was_moved():
    where = collections.OrderedDict.fromkeys("abc", 1)
    before = containers.content(where)
    where.move_to_end("a")
    assert containers.elements(where) == list("bca") and not containers.has(where, before)
    containers.fill(where, before)
    assert list(where) == list("abc") and list(reversed(where)) == list("cba")


def test_elements_of_what_cannot_be_changed():
    assert containers.elements((1, 2)) == [1, 2] and containers.content((1, 2)) == [1, 2]
    where = frozenset(["a key"])
    assert containers.content(where) == {"a key"} and containers.has(where, containers.content(where))


def test_equal_and_not_the_same():
    """For example 1 and True."""
    assert not containers.has([1], [True]) and not containers.has({"a": 0}, {"a": False}) and not containers.has([float("nan")], [float("nan")])
