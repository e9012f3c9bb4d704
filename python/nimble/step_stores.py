"""What a step's modules put into their attributes, and into lists, dictionaries and objects there, while it is captured: replays put
nothing there. No state but what was there before; of one capture."""

from __future__ import annotations

from itertools import chain
from operator import is_
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from nimble.auto.values import is_plain, plain_key
from nimble.errors import NimbleError
from nimble.held import OF_EVERY_MODULE, find
from nimble.static import Input, check_attributes


class Stores:
    """Of these modules as they are now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        found = [(module, find(module)) for module in modules]
        self._tensors = [(module, dict(held.tensors)) for module, held in found]
        self._containers: Dict[int, Tuple[Any, Any]] = {}
        for where, content, is_dict_of_object in chain.from_iterable(held.containers for _, held in found):
            if is_dict_of_object:  # the rest is looked at by the modules' guards
                content = {key: value for key, value in content.items() if key not in OF_EVERY_MODULE}
            self._containers[id(where)] = where, content

    def check(self, inputs: List[Input]) -> None:
        """NimbleError where something else is there now. What is made once, and kept, was made in eager runs."""
        for module, tensors in self._tensors:
            check_attributes(tensors, module, inputs)
        for where, content in self._containers.values():
            for key in _differences(where, content):
                what = f"its attribute or key {key!r}" if isinstance(where, dict) else f"a {type(where).__name__} that it holds"
                raise NimbleError(f"a module of the step changes {what} at each run, which a graph would not do: have it write in place "
                                  "to a buffer, or return what is new")

    def put_back(self) -> None:
        for where, content in self._containers.values():
            for key in _differences(where, content):
                if not isinstance(where, dict):
                    where.clear()
                    where.extend(content)
                elif key in content:
                    where[key] = content[key]
                else:
                    del where[key]


def _differences(where: Any, content: Any) -> Iterator[Any]:
    """Keys of what is another now; of a list None, once."""
    if isinstance(where, dict):
        if len(where) != len(content) or not all(map(is_, where.values(), content.values())):
            now = {key: value for key, value in where.items() if key not in OF_EVERY_MODULE or key in content}
            yield from [key for key in {**now, **content} if key not in now or key not in content or not _is_alike(now[key], content[key])]
    elif len(where) != len(content) or not all(map(_is_alike, where, content)):
        yield None


def _is_alike(one: Any, other: Any) -> bool:
    """Whether nobody can tell them apart by looking."""
    if one is other:
        return True
    if type(one) is type(other) and isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_alike, one, other))
    return is_plain(one) and is_plain(other) and plain_key(one) == plain_key(other)
