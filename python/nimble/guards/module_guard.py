"""Whether a module's parameters, buffers, submodules, hooks and training flags are still those that a graph was captured with.

The guard compares identities, addresses and tensors' metadata (metadata.py). Values of parameters and buffers on the
graph's device may change, since the graph reads them where they are. It costs a quarter of a microsecond a module, or
half of one where this Python has no versions of dictionaries (dict_versions.py). Any thread: a lock guards what it has
learned. """

from __future__ import annotations

import functools
import threading
from itertools import chain, repeat, takewhile
from operator import eq, is_, itemgetter
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn.modules import module as _module

from nimble.guards.dict_versions import dict_versions_of
from nimble.guards.dictionaries import Dictionaries, versions_of
from nimble.guards.guard import Guard
from nimble.guards.host_values import host_key
from nimble.guards.metadata import Metadata
from nimble.guards.tensor_memory import attribute_tensors, check_memory
from nimble.objects.module_contents import OF_EVERY_MODULE

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_training = itemgetter("training")


def _values(dicts: List[Dict[Any, Any]]) -> List[Any]:
    return list(chain.from_iterable(map(dict.values, dicts)))


def _are_identical(now: List[Any], before: List[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


@functools.lru_cache(maxsize=1024)
def none_in_class(kind: type) -> Tuple[str, ...]:
    """Names of class attributes that are None, until a module has an attribute of its own."""
    found: Dict[str, Any] = {}
    for base in takewhile(lambda each: each is not torch.nn.Module, kind.__mro__):
        found = {**vars(base), **found}
    return tuple(name for name, value in found.items() if value is None and not name.startswith("__"))


class ModuleGuard(Guard):
    """The guard of a module in its current state. Holds all that it compares by identity, so that no id is reused.
    trains: also guards what only gradients depend on."""

    def __init__(self, module: torch.nn.Module, device_type: str, trains: bool = False) -> None:
        check_memory(module)
        self._modules = list(module.modules())
        self._attributes = [m.__dict__ for m in self._modules]
        self._namespaces = [*self._attributes, vars(_module)]
        self._versions = versions_of(self._namespaces)
        registered, children = (Dictionaries(self._attributes, names) for names in (("_parameters", "_buffers"), ("_modules",)))
        hooks = Dictionaries(self._namespaces,
                             (*_HOOKS, *_GLOBAL_HOOKS, *(_BACKWARD_HOOKS + _GLOBAL_BACKWARD_HOOKS if trains else ())))
        self._dictionaries = registered, children, hooks
        inside = [d for each in self._dictionaries for d in each.all]
        self._dict_versions = dict_versions_of([*self._namespaces, *inside], self._modules)
        self._versions_have_changed = False  # since the last look that found no difference
        self._lock = threading.Lock()
        # Most of these are empty, and it is quick to see that they still are.
        self._registered, self._children, self._hooks = ([d for d in each.all if d] for each in self._dictionaries)
        self._empty = [d for each in self._dictionaries for d in each.all if not d]
        self._flags = [d for d in self._attributes if "training" in d]
        self._flagged = [m for m in self._modules if "training" not in m.__dict__]  # for example torch.compile's
        self._plain = attribute_tensors(module)
        slots = [(m.__dict__, name) for m in self._modules for name, value in m.__dict__.items()
                 if value is None and name not in OF_EVERY_MODULE]
        slots += [(m.__dict__, name) for m in self._modules
                  for name in none_in_class(type(m)) if name not in m.__dict__]  # type: ignore[arg-type]
        slots += [(where, name) for where, name, _, _ in self._plain]
        self._slots = [where for where, _ in slots], [name for _, name in slots]
        registered_now = _values(self._registered)  # None, too
        self._tensors: List[torch.Tensor] = [t for t in registered_now if t is not None] + [t for _, _, t, _ in self._plain]
        self._metadata = Metadata(self._tensors, trains)
        # The host read the tensors on other devices when the graph was captured.
        self._elsewhere = [t for t in self._tensors if t.device.type != device_type]
        self._kinds = list(dict.fromkeys(map(type, self._modules)))
        self._seen, self._seen_in_dictionaries, self._seen_in_attributes = (
            self._look(), self._look_at_dictionaries(), self._look_at_attributes())

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the current memory of parameters, buffers and tensor attributes. Holding them keeps it
        allocated."""
        return [t.detach() for t in self._tensors]

    def _look(self) -> List[Any]:
        """The values compared each time, in the order of _PARTS."""
        return [
            list(map(torch.Tensor.data_ptr, self._tensors)),
            [m.training for m in self._flagged],
            [getattr(kind, "forward", None) for kind in self._kinds],
            list(map(host_key, self._elsewhere)),
        ]

    def _look_at_dictionaries(self) -> List[Any]:
        """The values that can only differ once a dictionary has changed, in the order of _IN_DICTIONARIES."""
        return [
            _values(self._registered),
            _values(self._children),
            _values(self._hooks),
            any(self._empty),
            list(map(type, self._modules)),
            list(map(is_, map(vars, self._modules), self._attributes)),
        ]

    def _look_at_attributes(self) -> List[Any]:
        """The values that can only differ once an attribute has changed, in the order of _IN_ATTRIBUTES."""
        return [
            [each.are_same() for each in self._dictionaries],
            list(map(_training, self._flags)),
            list(map(dict.get, self._attributes, repeat("forward"))),
            list(map(dict.get, *self._slots)),
        ]

    def difference(self) -> Optional[str]:
        with self._lock:
            # Changes during this look show in the words at the next one.
            if self._dict_versions is None or self._dict_versions.have_changed() or self._versions_have_changed:
                self._versions_have_changed = True
                text = self._difference_in_dictionaries()
                if text is not None:
                    return text
                self._versions_have_changed = False
            return _different(_PARTS, self._look(), self._seen) or self._metadata.difference()

    def _difference_in_dictionaries(self) -> Optional[str]:
        versions_now = versions_of(self._namespaces)
        if versions_now is None or versions_now != self._versions:
            try:
                text = _different(_IN_ATTRIBUTES, self._look_at_attributes(), self._seen_in_attributes)
            except KeyError as error:
                text = f"a module no longer has {error.args[0]}"
            if text is not None:
                return text
            self._versions = versions_now
        return _different(_IN_DICTIONARIES, self._look_at_dictionaries(), self._seen_in_dictionaries)


_Parts = Tuple[Tuple[str, Callable[[Any, Any], bool]], ...]


def _different(parts: _Parts, now: List[Any], before: List[Any]) -> Optional[str]:
    for (text, are_same), one, other in zip(parts, now, before):
        if not are_same(one, other):
            return text
    return None


_PARTS: _Parts = (
    ("a parameter or buffer has other storage", eq),
    ("a training flag has changed", eq),
    ("a class's forward method was replaced", _are_identical),
    ("a tensor on another device has changed", eq),
)
_IN_DICTIONARIES: _Parts = (
    ("a parameter or buffer was replaced", _are_identical),
    ("a submodule was replaced", _are_identical),
    ("a hook was added or removed", _are_identical),
    ("a first parameter, buffer, submodule or hook was added", eq),
    ("a module is of another class", _are_identical),
    ("a module's attributes are in another dictionary", eq),
)
_IN_ATTRIBUTES: _Parts = (
    ("parameters, buffers, submodules or hooks are in another dictionary", eq),
    ("a training flag has changed", eq),
    ("a forward method was replaced", _are_identical),
    ("a tensor attribute was replaced, or one that was None no longer is", _are_identical),
)
