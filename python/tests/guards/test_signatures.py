"""Signatures are equal where, and only where, one graph can serve both calls; the cache keeps what was used last."""

import enum
import itertools
import random
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from nimble.errors import NimbleError  # noqa: E402
from torch.utils import _pytree  # noqa: E402
from nimble.guards.signatures import Call, GraphCache, place_of  # noqa: E402


Pair = namedtuple("Pair", "first second")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class ByContent:
    def __init__(self, content):
        self.content = content

    def __hash__(self):
        return 1


class Text(str):
    pass


def signature(*args, training=False, **kwargs):
    return Call(args, kwargs, training).signature


def distinct_calls():
    """Makers of signatures; no two of them may be equal, and each must equal itself when made again."""
    shared = torch.ones(3)
    z = torch.zeros
    return [
        lambda: signature(),
        lambda: signature(z(2, 3)),
        lambda: signature(z(3, 2)),
        lambda: signature(z(3, 2).t()),
        lambda: signature(z(1, 3).expand(2, 3)),
        lambda: signature(z(2, 3, dtype=torch.float64)),
        lambda: signature(z(2, 3, device="meta")),
        lambda: signature(torch.nn.Parameter(z(2, 3), requires_grad=False)),
        lambda: signature(z(2, 3), z(2, 3)),
        lambda: signature(z(2, 3), other=z(2, 3)),
        lambda: signature(z(2, 3), another=z(2, 3)),
        lambda: signature((z(2, 3), z(2, 3))),
        lambda: signature([z(2, 3), z(2, 3)]),
        lambda: signature(Pair(z(2, 3), z(2, 3))),
        lambda: signature({"a": z(2, 3)}),
        lambda: signature({"b": z(2, 3)}),
        lambda: signature(shared, shared),
        lambda: signature(shared, shared.clone()),
        lambda: signature(z(2, 3), training=True),
        lambda: signature(z(2, 3, requires_grad=True)),
        *[lambda value=value: signature(value) for value in (
            0, 1, True, False, None, 0.0, -0.0, 1.0, float("nan"), float("inf"), 1j, complex(0.0, -0.0), complex(-0.0, 0.0),
            complex(0.0, 0.0), "1", b"1",
            torch.float32, torch.device("cpu"), torch.channels_last, Colour.RED, Colour.BLUE, ...)],
        lambda: signature(torch.Size([2])),
    ]


def test_equal_where_and_only_where_one_graph_serves_both():
    makers = distinct_calls()
    made = [(make(), make()) for make in makers]
    for i, (one, again) in enumerate(made):
        assert one == again and hash(one) == hash(again), i
    for (i, (one, _)), (j, (other, _)) in itertools.combinations(enumerate(made), 2):
        assert one != other, (i, j)


def test_random_structures_equal_their_copies_and_no_others():
    rng = random.Random(5)

    def tree(depth):
        kind = rng.randrange(6 if depth else 3)
        if kind == 0:
            return torch.zeros([rng.randrange(1, 4) for _ in range(rng.randrange(3))])
        if kind == 1:
            return rng.randrange(3)
        if kind == 2:
            return rng.choice(["x", None, 1.5])
        children = [tree(depth - 1) for _ in range(rng.randrange(3))]
        return {3: tuple(children), 4: children, 5: dict(zip("abc", children))}[kind]

    def text(value):
        return f"T{tuple(value.shape)}" if isinstance(value, torch.Tensor) else (
            {k: text(v) for k, v in value.items()} if isinstance(value, dict) else
            type(value)(map(text, value)) if isinstance(value, (tuple, list)) else repr(value))

    by_text = {}
    for _ in range(600):
        value = tree(3)
        made = signature(value)
        assert by_text.setdefault(repr(text(value)), made) == made
    distinct = list(by_text.values())
    assert len(distinct) > 150 and len(set(distinct)) == len(distinct)


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    one = signature(numpy.float32(0.0))
    assert one == signature(numpy.float32(0.0)) and one != signature(numpy.float32(-0.0)) and one != signature(numpy.float64(0.0))


def test_modes_of_pytorch_count():
    x = torch.zeros(2)
    plain = signature(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert signature(x) != plain
    with torch.no_grad():
        assert signature(x.clone().requires_grad_()) != plain  # which a module may read
    torch.set_default_dtype(torch.float64)
    try:
        assert signature(x) != plain
    finally:
        torch.set_default_dtype(torch.float32)
    assert signature(x) == plain


@pytest.mark.parametrize("args, kwargs, said", [
    ((1, [torch.zeros(1), {3}]), {}, r"args\[1\]\[1\] is a set, and its content may change"),
    ((ByContent([1]),), {}, r"args\[0\] is a ByContent, and its content may change"),
    ((Text("a"),), {}, r"args\[0\] is a Text, and its content may change"),
    (([].append,), {}, r"args\[0\] is a builtin_function_or_method, and its content may change"),
    ((), {"mask": {"a": object()}}, r"kwargs\['mask'\]\['a'\] is a object, and its content may change"),
    ((torch.nn.ReLU(),), {}, r"args\[0\] is a ReLU, and its content may change"),
    ((1, torch.eye(2).to_sparse()), {}, r"args\[1\] is a tensor with layout torch.sparse_coo"),
])
def test_what_cannot_be_compared_is_named_with_its_place(args, kwargs, said):
    with pytest.raises(NimbleError, match=said):
        Call(args, kwargs, False)


def test_places_are_those_of_the_leaves():
    tree = (1, [2, {"x": 3, "y": (4, 5)}], Pair(6, 7))
    said = [place_of(tree, i, "args") for i in range(7)]
    assert said[:5] == ["args[0]", "args[1][0]", "args[1][1]['x']", "args[1][1]['y'][0]", "args[1][1]['y'][1]"]
    assert said[5:] == ["args[2][0]", "args[2][1]"]


def test_the_cache_keeps_what_was_used_last():
    rng = random.Random(3)
    keys = [signature(i) for i in range(7)]
    for most in (1, 2, 5):
        cache, model = GraphCache(most), []  # the model: keys, the last used last
        for step in range(400):
            key = rng.choice(keys)
            what = rng.randrange(3)
            if what == 0:
                assert (cache.get(key) is not None) == (key in model)
                if key in model:
                    model.append(model.pop(model.index(key)))
            elif what == 1:
                if key in model:
                    model.remove(key)
                model.append(key)
                gone = model.pop(0) if len(model) > most else None
                assert cache.put(key, [key]) == (None if gone is None else [gone])
            elif step % 5 == 0:
                cache.drop(key)
                model = [k for k in model if k is not key]
            assert [entry[0] for entry in cache] == model and len(cache) == len(model)
    with pytest.raises(ValueError):
        GraphCache(0)


@pytest.mark.parametrize("args", [(), (torch.ones(2),), (torch.ones(2), torch.zeros(3, 1)), (torch.ones(1), 2),
                                  (torch.nn.Parameter(torch.ones(2)),), ([torch.ones(2)],)])
def test_calls_of_tensors_in_a_row_are_like_all_others(args):
    call, leaves = Call(args, {}, False), _pytree.tree_flatten((args, {}))
    assert list(map(id, call.leaves)) == list(map(id, leaves[0])) and call.structure == leaves[1]
    again, more = call.rebuilt(call.leaves)
    assert list(map(id, again)) == list(map(id, args)) or isinstance(args[0], list)
    assert type(again) is tuple and more == {}
    assert (call.signature == Call(args, {"more": torch.ones(1)}, False).signature) is False
