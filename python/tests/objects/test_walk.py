"""The walk over Python objects: its orders, its budget, and which objects it calls new."""

import pytest

pytest.importorskip("torch", minversion="2.1")
from nimble.objects.walk import Walk  # noqa: E402


class Lists:
    """Notes each object that the walk reaches, with its level, and visits the elements of new lists."""

    def __init__(self, walk):
        self.walk, self.seen = walk, []

    def visit(self, value, at):
        self.seen.append((value, at))
        return [(each, at + 1) for each in value] if isinstance(value, list) and self.walk.is_new(value) else []

    def numbers(self):
        return [value for value, _ in self.seen if isinstance(value, int)]


TREE = [[1, [2, [3]]], 4, [5]]


@pytest.mark.parametrize("order, numbers", [("breadth_first", [4, 1, 5, 2, 3]), ("depth_first", [1, 2, 3, 4, 5])])
def test_orders(order, numbers):
    lists = Lists(Walk())
    getattr(lists.walk, order)(lists, [(TREE, 0)])
    assert lists.numbers() == numbers and lists.walk.is_complete
    assert dict((value, at) for value, at in lists.seen if isinstance(value, int)) == {1: 2, 2: 3, 3: 4, 4: 1, 5: 2}


@pytest.mark.parametrize("order", ["breadth_first", "depth_first"])
def test_what_refers_to_itself_is_seen_once(order):
    loop = [7]
    loop.append(loop)
    lists = Lists(Walk())
    getattr(lists.walk, order)(lists, [(loop, 0)])
    assert lists.numbers() == [7] and lists.walk.new == 1


@pytest.mark.parametrize("order", ["breadth_first", "depth_first"])
def test_a_budget(order):
    lists = Lists(Walk(3))
    getattr(lists.walk, order)(lists, [(TREE, 0)])
    assert len(lists.seen) == 3 and not lists.walk.is_complete


@pytest.mark.parametrize("order", ["breadth_first", "depth_first"])
def test_an_end(order):
    class Finds(Lists):
        def visit(self, value, at):
            if value == 4:
                self.walk.end()
            return super().visit(value, at)

    finds = Finds(Walk())
    getattr(finds.walk, order)(finds, [(TREE, 0)])
    assert finds.numbers()[-1] == 4 and finds.walk.is_complete


def test_what_is_new_is_held():
    """No id is reused while the walk exists."""
    walk = Walk()
    assert all(walk.is_new([number]) for number in range(100)) and walk.new == 100
    one = []
    assert walk.is_new(one) and not walk.is_new(one) and walk.is_new(one, "other") and not walk.is_new(one, "other")


def test_a_visit_goes_on_when_what_it_leads_to_is_done():
    """So that a search that learns on the way needs no recursion, however deeply nested the objects are."""
    events, walk = [], Walk()

    class Visits:
        def visit(self, value, at):
            events.append(("begins", at))
            for each in value:
                yield each, at + 1
            events.append(("ends", at))

    deep = []
    for _ in range(5000):
        deep = [deep]
    walk.depth_first(Visits(), [(deep, 0)])
    assert events == [*(("begins", at) for at in range(5001)), *(("ends", at) for at in reversed(range(5001)))]
