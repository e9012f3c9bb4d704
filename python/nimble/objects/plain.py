"""The package's one notion of a plain value: a number, a text or the like that never changes and leads to nothing else.

KINDS lists the types once. is_plain() takes exactly these: identity stands for the value, and the value may be held. Instances of
subclasses may carry attributes; where that does not matter, use isinstance(value, KINDS). No state, and runs none of the
program's code; any thread. """

from __future__ import annotations

import enum
from typing import Any, Hashable

import torch

from nimble.objects.libraries import is_programs

SCALARS = (type(None), bool, int, float, complex, str, bytes)
_EXACT = frozenset((*SCALARS, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format))
KINDS = (*_EXACT, torch.Size, enum.Enum)
_MOST_ELEMENTS = 64  # of a tuple that counts as plain


def is_plain(value: Any) -> bool:
    """Whether the value never changes and leads to nothing else. That includes tuples of such values, members of enums, and bare
    object()s."""
    kind = type(value)
    return (kind in _EXACT or kind is object or issubclass(kind, enum.Enum)
            or kind in (tuple, torch.Size) and len(value) <= _MOST_ELEMENTS and all(map(is_plain, value)))


def is_atom(value: Any) -> bool:
    """Whether the value is plain and not made of others."""
    return type(value) in _EXACT or isinstance(value, enum.Enum)


def is_constant(value: Any) -> bool:
    """Whether the value is plain and not a member of the program's own enums, which may have attributes."""
    if issubclass(type(value), enum.Enum):
        return not is_programs(type(value).__module__)
    return all(map(is_constant, value)) if type(value) is tuple and len(value) <= _MOST_ELEMENTS else is_plain(value)


def plain_key(value: Any) -> Hashable:
    """A key of a plain value, equal only for values that a program cannot distinguish."""
    kind: Any = type(value)
    if kind is float:
        return kind, value.hex()  # 0.0 == -0.0, and nan is never equal to itself
    if kind is complex:
        return kind, repr(value)
    return (kind, *map(plain_key, value)) if kind in (tuple, torch.Size) else (kind, value)
