"""Detects what a step's modules assign during its capture: to their attributes, and to containers, arrays and objects there and
elsewhere. Replays would assign nothing, so the capture is undone or refused. Belongs to one capture."""

from __future__ import annotations

import collections
from itertools import chain
from operator import is_
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from nimble.errors import NimbleError
from nimble.graphs.graph_io import Input, check_attributes
from nimble.objects import containers
from nimble.objects.memory import is_array
from nimble.objects.module_contents import OF_EVERY_MODULE, find, slots_of
from nimble.objects.plain import is_plain, plain_key
from nimble.step_state import outer_state

_ORDER = object()
_MOST_BYTES = 1 << 26  # of an array to compare


class Assignments:
    """The state of these modules now, to compare with."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        found = [(module, find(module)) for module in modules]
        self._tensors = [(module, dict(contents.tensors)) for module, contents in found]
        self._containers: Dict[int, Tuple[Any, Any]] = {}
        for where, content, is_dict_of_object in chain.from_iterable(contents.containers for _, contents in found):
            if is_dict_of_object:  # the modules' guards check the rest
                content = {key: value for key, value in content.items() if key not in OF_EVERY_MODULE}
            self._containers[id(where)] = where, content
        places, outside = outer_state.find(module for module, _ in found)
        attributes = [each for each in map(containers.attributes, outside) if each is not None]
        others = chain(chain.from_iterable(contents.others for _, contents in found), outside, attributes)
        self._others = [(each, _content_of(each)) for each in others if id(each) not in self._containers]
        self._places = [(what, get, put, get()) for what, get, put in places]

    def check(self, inputs: List[Input]) -> None:
        """Raises NimbleError where something has changed. Lazily made values were made in eager runs."""
        for module, tensors in self._tensors:
            check_attributes(tensors, module, inputs)
        for where, content in self._containers.values():
            for key in _differences(where, content):
                what = f"a {type(where).__name__} that it holds" if key is _ORDER else f"its attribute or key {key!r}"
                raise NimbleError(f"a module of the step changes {what} at each run, which a graph would not do: have it write in place "
                                  "to a buffer, or return what is new")
        changed = [f"a {type(where).__name__} that it holds, or names" for where, content in self._others if _is_another(where, content)]
        changed += [what for what, get, _, before in self._places if not _is_alike(get(), before)]
        if changed:
            raise NimbleError(f"a module of the step changes {changed[0]} at each run, which a graph would not do: have it count in a "
                              "buffer, in place")

    def put_back(self) -> None:
        for where, content in self._containers.values():
            for key in _differences(where, content):
                if key is _ORDER:
                    containers.fill(where, content)
                elif key in content:
                    containers.put(where, key, content[key])
                else:
                    containers.remove(where, key)
        for where, content in self._others:
            if _is_another(where, content):
                _put_back(where, content)
        for _, get, put, before in self._places:
            if not _is_alike(get(), before):
                put(before)


def _content_of(where: Any) -> Any:
    """A copy; None where it would be too large, or could not be restored."""
    if is_array(where):
        return where.copy() if where.nbytes <= _MOST_BYTES else None
    if isinstance(where, bytearray):
        return bytes(where) if len(where) <= _MOST_BYTES else None
    if isinstance(where, containers.KINDS):
        return containers.content(where)
    return {key: getattr(where, key, outer_state.MISSING) for key in slots_of(where)}  # none for iterators


def _is_another(where: Any, content: Any) -> bool:
    if content is None:
        return False
    now = _content_of(where)
    if is_array(where):
        return bool(now is None or now.tobytes() != content.tobytes())
    if isinstance(now, dict):
        return list(map(id, now)) != list(map(id, content)) or not all(map(_is_alike, now.values(), content.values()))
    return bool(not all(map(_is_alike, now, content)) or len(now) != len(content)) if isinstance(now, list) else bool(now != content)


def _put_back(where: Any, content: Any) -> None:
    if is_array(where):
        if where.flags.writeable:
            where[...] = content
    elif isinstance(where, bytearray):
        where[:] = content
    elif isinstance(where, containers.KINDS):
        containers.fill(where, content)
    else:
        for key, value in content.items():
            if value is not outer_state.MISSING:
                setattr(where, key, value)
            elif hasattr(where, key):
                delattr(where, key)


def _differences(where: Any, content: Any) -> Iterator[Any]:
    """Keys of values that have changed; _ORDER for a list, and for an ordered dictionary with its keys in another order."""
    if isinstance(where, dict):
        found = containers.content(where)
        if isinstance(where, collections.OrderedDict) and found.keys() == content.keys() and list(found) != list(content):
            yield _ORDER
        elif len(found) != len(content) or not all(map(is_, found.values(), content.values())):
            now = {key: value for key, value in found.items() if key not in OF_EVERY_MODULE or key in content}
            yield from [key for key in {**now, **content} if key not in now or key not in content or not _is_alike(now[key], content[key])]
    else:
        elements = containers.elements(where)
        if len(elements) != len(content) or not all(map(_is_alike, elements, content)):
            yield _ORDER


def _is_alike(one: Any, other: Any) -> bool:
    """Whether code cannot distinguish the values."""
    if one is other:
        return True
    if type(one) is type(other) and isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_alike, one, other))
    return is_plain(one) and is_plain(other) and plain_key(one) == plain_key(other)
