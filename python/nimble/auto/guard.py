"""All of a module that its graph rests on, compared at each call: what state.ModuleGuard compares, and what only a module needs
for which nobody has vouched: Python values in its attributes, attributes of its classes, globals that its code reads.

Nothing of the module is held, so that the module goes when the program lets go of it: objects are compared by id, and a weak
reference to each tells when an id may be another object's. What has neither is compared by content alone.

A Guard only reads, from any thread; difference() may miss what another thread changes meanwhile.
"""

from __future__ import annotations

import weakref
from itertools import chain
from operator import is_, itemgetter
from typing import Any, Dict, Hashable, List, Optional, Tuple

import torch
from torch.nn.modules import module as _module

from nimble.auto.contents import content, hides_module, is_mutable, is_plain, may_hold_tensor
from nimble.auto.watch import Watched, is_programs
from nimble.errors import NimbleError

_OF_ANY_MODULE = frozenset(vars(torch.nn.Module())) - {"training"}
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_MOST_WATCHED = 256  # values whose content is compared

_registries = [itemgetter(name) for name in ("_parameters", "_buffers", "_modules")]
_hooks = [itemgetter(name) for name in ("_forward_hooks", "_forward_pre_hooks")]
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_requires_grad = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]
_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


def has_hooks(modules: "List[Dict[str, Any]]", trains: bool = False) -> bool:
    """Whether any of the modules with these dictionaries, or all that there are, have hooks for a forward run, which a
    graph would not call. trains: or for a backward."""
    if any(getattr(_module, name) for name in _GLOBAL_HOOKS) or any(any(map(hooks, modules)) for hooks in _hooks):
        return True
    return trains and (any(getattr(_module, name, None) for name in _GLOBAL_BACKWARD_HOOKS)
                       or any(each.get(name) for each in modules for name in _BACKWARD_HOOKS))


def _ids(values: Any) -> List[int]:
    return list(map(id, values))


def _value_of(namespace: Any, name: str) -> Any:
    return (namespace if isinstance(namespace, dict) else namespace.__dict__).get(name)


class Guard:
    """Of `root` as it is now, and of what a watched run of it has read. trains: also of what only gradients depend on.
    NimbleError where that cannot be guarded."""

    def __init__(self, root: torch.nn.Module, device_type: str, watched: Watched, trains: bool = False) -> None:
        self._trains = trains
        modules = list(root.modules())
        dicts = [vars(m) for m in modules]
        self._gone: List[Any] = []  # references to what is no more
        self._kept: List[Any] = []  # weak references, and values that lead to nothing else
        self._modules = [weakref.ref(m, self._gone.append) for m in modules]
        self._names = [tuple(name for name in d if name not in _OF_ANY_MODULE and name != "training") for d in dicts]
        # Most attributes never change but by being replaced, and may be held: they are the quickest to compare.
        plain = [[name for name in names if is_plain(d[name])] for names, d in zip(self._names, dicts)]
        self._getters = [itemgetter("training", "training", *names) for names in plain]  # of one name it gives no tuple
        self._plain = list(chain.from_iterable(g(d) for g, d in zip(self._getters, dicts)))
        self._others = [(number, name) for number, names in enumerate(self._names) for name in names if name not in plain[number]]
        # Most modules have no parameters, buffers or children, and that they still have none is quickly seen.
        registries = self._registries_now(dicts)
        modules_begin = 2 * len(dicts)  # behind those of parameters and of buffers
        self._full = _several([number for number, registry in enumerate(registries) if registry and number < modules_begin])
        self._parents = _several([number for number, registry in enumerate(registries) if registry and number >= modules_begin])
        self._empty = _several([number for number, registry in enumerate(registries) if not registry])
        self._classes = self._classes_of(modules)
        self._globals = [(namespace, name) for namespace, name, _ in watched.names]
        values = [dicts[number][name] for number, name in self._others] + self._outside_now()
        known = {id(m) for m in modules}
        # Of the module's own tensors others know where their memory is.
        self.reads_own_memory_alone = not may_hold_tensor(values)
        if any(hides_module(value, known) for value in values):
            raise NimbleError("it uses modules that are not registered as its own")
        self._tensors = self._plain_tensors(dicts)
        tensors = self._tensors_now(dicts, self._registered_now(registries))
        self._elsewhere = [number for number, t in enumerate(tensors) if t.device.type != device_type]
        self._watched = self._mutable_values(dicts)
        if len(self._watched) > _MOST_WATCHED:
            raise NimbleError("its attributes hold more Python objects than can be compared at each call")
        for each in chain(values, tensors):
            self._keep(each)
        if has_hooks(dicts, trains):
            raise NimbleError("it has hooks")
        self._seen = self._look(root)

    def _keep(self, value: Any) -> None:
        """Sees to it that the value's id is not another's without our knowing, if that can be had without holding a module."""
        if is_plain(value):
            self._kept.append(value)
            return
        try:
            self._kept.append(weakref.ref(value, self._gone.append))
        except TypeError:
            pass  # a list or a dictionary: compared by content

    @staticmethod
    def _classes_of(modules: List[torch.nn.Module]) -> List[type]:
        """Those of the program's, whose methods and values may be replaced. PyTorch's own stay as they are."""
        classes = {base for kind in {type(m) for m in modules} for base in kind.__mro__ if is_programs(base.__module__)}
        return sorted(classes, key=lambda kind: kind.__qualname__)

    def _outside_now(self) -> List[Any]:
        """The values of globals, and of all that is in the classes."""
        values = [_value_of(*where) for where in self._globals]
        values.extend(chain.from_iterable([vars(kind).values() for kind in self._classes]))
        return values

    def _plain_tensors(self, dicts: "List[Dict[str, Any]]") -> "List[Tuple[int, str]]":
        """Where tensors are plain attributes."""
        return [(number, name) for number, names in enumerate(self._names) for name in names
                if isinstance(dicts[number][name], torch.Tensor)]

    @staticmethod
    def _registries_now(dicts: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
        return list(chain.from_iterable([map(registry, dicts) for registry in _registries]))

    def _registered_now(self, registries: "List[Dict[str, Any]]") -> "List[Optional[torch.Tensor]]":
        return list(chain.from_iterable(map(dict.values, self._full(registries))))

    def _tensors_now(self, dicts: "List[Dict[str, Any]]", registered: "List[Optional[torch.Tensor]]") -> List[torch.Tensor]:
        tensors: List[torch.Tensor] = [t for t in registered if t is not None]
        tensors += [dicts[number][name] for number, name in self._tensors]
        tensors += [t for t in (_value_of(*where) for where in self._globals) if isinstance(t, torch.Tensor)]
        return tensors

    def _mutable_values(self, dicts: "List[Dict[str, Any]]") -> "List[Tuple[int, str]]":
        """Where values are whose content is compared: (module, attribute), or (-1 - number, "") of those outside. Each object
        once."""
        places: "List[Tuple[int, str]]" = []
        known = set()
        for number, names in enumerate(self._names):
            for name in names:
                value = dicts[number][name]
                if is_mutable(value) and id(value) not in known:
                    known.add(id(value))
                    places.append((number, name))
        for number, value in enumerate(self._outside_now()):
            if is_mutable(value) and id(value) not in known:
                known.add(id(value))
                places.append((-1 - number, ""))
        return places

    def _look(self, root: torch.nn.Module) -> "Optional[Tuple[Any, ...]]":
        """None where something that has been seen is gone."""
        modules = [reference() for reference in self._modules]
        if self._gone or modules[0] is not root:
            return None
        dicts: "List[Dict[str, Any]]" = list(map(vars, modules))
        try:
            plain = list(chain.from_iterable([g(d) for g, d in zip(self._getters, dicts)]))
            others = [dicts[number][name] for number, name in self._others]
        except KeyError:
            return None
        outside = self._outside_now()
        registries = self._registries_now(dicts)
        registered = self._registered_now(registries)
        tensors = self._tensors_now(dicts, registered)
        watched: List[Hashable] = [content(dicts[number][name] if number >= 0 else outside[-1 - number])
                                   for number, name in self._watched if number >= -len(outside)]
        return (
            _ids(registered),
            _ids(chain.from_iterable(map(dict.values, self._parents(registries)))),
            any(self._empty(registries)),
            all(map(is_, plain, self._plain)),
            _ids(others),
            list(map(len, dicts)),
            _ids(outside),
            watched,
            list(map(torch.Tensor.data_ptr, tensors)),
            list(map(_dtype, tensors)),
            [t.stride() for t in tensors if t.dim() > 1],
            [0 if tensors[number].is_inference() else tensors[number]._version for number in self._elsewhere],
            has_hooks(dicts, self._trains),
            list(map(_requires_grad, tensors)) if self._trains else None,
        )

    def difference(self, root: torch.nn.Module) -> Optional[str]:
        """What has changed since, for people; None where nothing has."""
        now = self._look(root)
        if now is None or self._seen is None:
            return "a submodule, a parameter or a value that it used is gone"
        if now == self._seen:
            return None
        what = (
            "a parameter or buffer is another tensor",
            "a submodule is another one",
            "a first parameter, buffer or submodule was added",
            "the value of an attribute has changed",
            "the value of an attribute has changed",
            "an attribute was added",
            "a global, or an attribute of a class, that its code uses has changed",
            "the content of an attribute or global has changed",
            "a tensor has other storage",
            "a tensor has another type",
            "a tensor has other strides",
            "a tensor on another device has changed",
            "a hook was added",
            "a parameter wants gradients, or wants none any more",
        )
        return next(text for text, before, after in zip(what, self._seen, now) if before != after)


def _several(numbers: List[int]) -> Any:
    """What takes the items of these numbers out of a list, as a tuple."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda items: tuple(items[number] for number in numbers)
