"""Plain values, and their keys."""

import enum

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble.objects.plain import KINDS, is_atom, is_constant, is_plain, plain_key  # noqa: E402


class Colour(enum.Enum):
    RED = 1


class Number(int):
    """With attributes that code may read."""


ATOMS = [None, True, 3, 1.5, 2j, "text", b"bytes", ..., torch.float16, torch.device("cpu"), torch.strided, torch.channels_last, Colour.RED]


@pytest.mark.parametrize("value", ATOMS, ids=str)
def test_what_is_plain(value):
    assert is_plain(value) and is_atom(value) and isinstance(value, KINDS)
    assert is_plain((value, (value,))) and not is_atom((value,))
    assert plain_key(value) == plain_key(value) and hash(plain_key((value,))) == hash(plain_key((value,)))


@pytest.mark.parametrize("value", [[], {}, set(), ([],), torch.ones(1), Number(3), print, Colour], ids=str)
def test_what_is_not(value):
    assert not is_plain(value) and not is_atom(value)


def test_large_tuples_are_not():
    assert is_plain((1,) * 64) and not is_plain((1,) * 65) and is_plain(torch.Size((1, 2)))


def test_members_of_the_programs_enums_are_no_constants():
    assert not is_constant(Colour.RED) and not is_constant((1, Colour.RED)) and is_constant((1, "a", torch.float16))


def test_keys_tell_apart_what_code_can():
    nan = float("nan")
    assert plain_key(nan) == plain_key(float("nan"))
    pairs = [(0.0, -0.0), (1, True), (1, 1.0), ("a", b"a"), ((1,), torch.Size((1,))), (0j, complex(0.0, -0.0)), ((1, (0.0,)), (1, (-0.0,)))]
    assert not any(plain_key(one) == plain_key(other) for one, other in pairs)
