"""Whether a run advances an iterator that a step's modules hold, as far as Python shows an iterator's position.

A replay would not advance it, and a capture's advance cannot be undone; so eager runs are observed. Belongs to one run."""

from __future__ import annotations

import gc
import itertools
import operator
import types
import warnings
from typing import Any, Iterable

import torch

from nimble.objects.module_contents import find, is_iterator
from nimble.objects.plain import is_plain

_MOST_LEVELS = 3  # of nested iterators


class Iterators:
    """The iterators of these modules, and their positions now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        found = [each for module in modules for each in find(module).others if is_iterator(each)]
        self._positions = [(each, _position(each)) for each in found]

    def have_moved(self) -> bool:
        return any(_position(each) != before for each, before in self._positions)


def _position(iterator: Any, level: int = 0) -> Any:
    within = [] if level >= _MOST_LEVELS else [_position(each, level + 1) for each in gc.get_referents(iterator) if is_iterator(each)]
    if isinstance(iterator, itertools.count):
        return repr(iterator)
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        seen = {key: value if is_plain(value) else id(value) for key, value in frame.f_locals.items()} if frame is not None else {}
        return frame is None, frame is not None and frame.f_lasti, seen, within
    if isinstance(iterator, itertools.cycle):
        return _of_cycle(iterator), within
    try:
        return operator.length_hint(iterator, -1), within
    except Exception:  # raised by an underlying iterator
        return within


def _of_cycle(cycle: Any) -> Any:
    """The position; in releases of Python that do not show it, the elements that the cycle has kept in its first round."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, (inner,), (kept, _) = cycle.__reduce__()
        return len(kept), operator.length_hint(inner, -1)
    except Exception:
        return [len(each) for each in gc.get_referents(cycle) if isinstance(each, list)]
