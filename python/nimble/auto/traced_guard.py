"""The guard of a module that the user has not prepared: all that its graph depends on, compared at each call.

It compares what guards.module_guard.ModuleGuard does, and what matters only for a module with unknown code: Python values in its
attributes, attributes of its classes, globals that its code reads, and all that these lead to (value_snapshot.py).

It holds no part of the module, so that the module is freed when the program drops it: objects are compared by id, and a weak
reference to each tells when an id may belong to another object. It only reads, from any thread; difference() may miss what
another thread changes meanwhile."""

from __future__ import annotations

import weakref
from itertools import chain
from operator import attrgetter, is_, itemgetter
from types import FunctionType
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch.nn.modules import module as _module

from nimble.auto.value_snapshot import ValueSnapshot, tensors_in
from nimble.errors import NimbleError
from nimble.guards.dictionaries import Classes
from nimble.guards.guard import Guard
from nimble.guards.host_values import host_key
from nimble.guards.metadata import grad_dtypes, metadata_check
from nimble.objects.libraries import bases_of
from nimble.objects.memory import weakly
from nimble.objects.plain import is_constant, is_plain
from nimble.objects.python_trace import TracedRun

_OF_ANY_MODULE = frozenset(vars(torch.nn.Module())) - {"training"}
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")

_registries = [itemgetter(name) for name in ("_parameters", "_buffers", "_modules")]
_hooks = [itemgetter(name) for name in ("_forward_hooks", "_forward_pre_hooks")]
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_HEAP_TYPE = 1 << 9  # in type.__flags__: other types cannot be patched
_requires_grad = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]
_attributes = attrgetter("__dict__")
_dtype = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


def has_hooks(modules: "List[Dict[str, Any]]", trains: bool = False) -> bool:
    """Whether the modules with these dictionaries, or all modules, have forward hooks, which a graph would not call. trains:
    or backward hooks."""
    if any(getattr(_module, name) for name in _GLOBAL_HOOKS) or any(any(map(hooks, modules)) for hooks in _hooks):
        return True
    return trains and (any(getattr(_module, name, None) for name in _GLOBAL_BACKWARD_HOOKS)
                       or any(each.get(name) for each in modules for name in _BACKWARD_HOOKS))


def _ids(values: Any) -> List[int]:
    return list(map(id, values))


class TracedModuleGuard(Guard):
    """The guard of `root` as it is now, and of what a traced run has read. trains: includes what only gradients depend on.
    Raises NimbleError where that cannot be guarded."""

    def __init__(self, root: torch.nn.Module, device_type: str, traced: TracedRun, trains: bool = False) -> None:
        self._trains = trains
        modules = list(root.modules())
        dicts = [vars(m) for m in modules]
        self._gone: List[Any] = []  # references to freed objects
        self._kept: List[Any] = []  # weak references
        self._modules = [weakref.ref(m, self._gone.append) for m in modules]
        self._names = [tuple(name for name in d if name not in _OF_ANY_MODULE and name != "training") for d in dicts]
        # Most attributes change only by being replaced, and may be held: these are the quickest to compare.
        plain = [[name for name in names if is_constant(d[name])] for names, d in zip(self._names, dicts)]
        self._getters = [itemgetter("training", *(names or ["training"])) for names in plain]  # for one name it returns no tuple
        self._plain = list(chain.from_iterable(g(d) for g, d in zip(self._getters, dicts)))
        self._others = [(number, name) for number, names in enumerate(self._names) for name in names if name not in plain[number]]
        # Most modules have no parameters, buffers or children, and it is quick to see that they still have none.
        registries = self._registries_now(dicts)
        modules_begin = 2 * len(dicts)  # after those of parameters and of buffers
        self._full = _several([number for number, registry in enumerate(registries) if registry and number < modules_begin])
        self._parents = _several([number for number, registry in enumerate(registries) if registry and number >= modules_begin])
        self._empty = _several([number for number, registry in enumerate(registries) if not registry])
        self._classes = self._classes_of(modules)
        # The program may have patched PyTorch's classes.
        torchs = self._torchs_of(modules)
        self._torchs = Classes(torchs, self._keep_or_hold)
        self._getters_outside = [((space if isinstance(space, dict) else vars(space)).get, name)
                                 for space, name in (*traced.places, *_patched(torchs, traced))]
        tensors = self._tensors_now(registries)
        first = {id(t): number for number, t in reversed(list(enumerate(tensors)))}
        self._each_once = _several(sorted(first.values()))
        self._elsewhere = [number for number, t in enumerate(tensors) if t.device.type != device_type]
        values = self._values_now(dicts, self._attributes_now(tensors))
        others, are_all = self._others_of(values, tensors)
        # The owner checks where the module's own tensors lie.
        self.reads_own_memory_alone = are_all and not others
        self._compares_grad = trains or torch.is_grad_enabled()
        self._metadata = self._metadata_of(tensors)
        self._has_metadata = metadata_check(self._each_once(tensors))
        if self._compares_grad and not trains and any(t.requires_grad for t in others):
            raise NimbleError("a tensor that it finds elsewhere requires gradients")
        if has_hooks(dicts, trains):
            raise NimbleError("it has hooks")
        for each in tensors:
            self._keep(each)
        self._snapshot = ValueSnapshot(values, {id(m) for m in modules}, self._keep, device_type, traced.codes, traced.names,
                                  [name for _, name in (*self._others, *self._getters_outside)])
        self._seen = self._look()

    def is_of(self, root: torch.nn.Module) -> bool:
        """Whether this is the module that was guarded."""
        return self._modules[0]() is root

    def others(self) -> List[torch.Tensor]:
        """Tensors, as far as they can be found, that the module reads or writes besides its parameters and buffers."""
        root = self._modules[0]()
        dicts = list(map(vars, root.modules())) if root is not None else []
        tensors = self._tensors_now(self._registries_now(dicts))
        return self._others_of(self._values_now(dicts, self._attributes_now(tensors)), tensors)[0]

    def _keep(self, value: Any) -> None:
        """Detects when the value's id may be reused. Raises TypeError where the value has no weak references."""
        is_tensor = isinstance(value, torch.Tensor)
        self._kept.append(weakly(value, self._gone.append) if is_tensor else weakref.ref(value, self._gone.append))

    def _keep_or_hold(self, value: Any) -> None:
        try:
            self._keep(value)
        except TypeError:
            self._kept.append(value)

    @staticmethod
    def _torchs_of(modules: List[torch.nn.Module]) -> List[type]:
        """PyTorch's own classes among those of the modules and tensors."""
        kinds: List[type] = [torch.nn.Parameter, *{type(m) for m in modules}]
        return list({base: None for kind in kinds for base in kind.__mro__
                     if base.__module__.split(".")[0] == "torch" and base.__flags__ & _HEAP_TYPE})

    @staticmethod
    def _classes_of(modules: List[torch.nn.Module]) -> List[type]:
        """The program's classes, which are inspected. For PyTorch's own, the identity of their attributes is enough."""
        classes = {base for kind in {type(m) for m in modules} for base in bases_of(kind)}
        return sorted(classes, key=lambda kind: kind.__qualname__)

    @staticmethod
    def _attributes_now(tensors: List[torch.Tensor]) -> "List[Dict[str, Any]]":
        """Attributes that the program has set on tensors; usually none."""
        return list(filter(None, map(_attributes, tensors)))

    def _values_now(self, dicts: "List[Dict[str, Any]]", attributes: "List[Dict[str, Any]]") -> List[Any]:
        """The values of attributes and globals, of classes, and of attributes of tensors."""
        values = [dicts[number][name] for number, name in self._others]
        values += [get(name) for get, name in self._getters_outside]
        values.extend(chain.from_iterable([vars(kind).values() for kind in self._classes]))
        values.extend(chain.from_iterable(map(dict.values, attributes)))
        return values

    @staticmethod
    def _others_of(values: List[Any], tensors: List[torch.Tensor]) -> "Tuple[List[torch.Tensor], bool]":
        """Tensors in the values other than the module's own, and whether the list is complete."""
        found, are_all = tensors_in(values)
        own = set(map(id, tensors))
        return [t for t in found if id(t) not in own], are_all

    @staticmethod
    def _registries_now(dicts: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
        return list(chain.from_iterable([map(registry, dicts) for registry in _registries]))

    def _tensors_now(self, registries: "List[Dict[str, Any]]") -> List[torch.Tensor]:
        return [t for t in self._registered_now(registries) if t is not None]

    def _registered_now(self, registries: "List[Dict[str, Any]]") -> "List[Optional[torch.Tensor]]":
        return list(chain.from_iterable(map(dict.values, self._full(registries))))

    def _look(self) -> "Optional[Tuple[Any, ...]]":
        """None where something seen earlier is gone."""
        modules = [reference() for reference in self._modules]
        if self._gone:
            return None
        dicts: "List[Dict[str, Any]]" = list(map(_attributes, modules))
        registries = self._registries_now(dicts)
        full, parents = self._full(registries), self._parents(registries)
        registered = self._registered_now(registries)
        tensors: List[torch.Tensor] = [t for t in registered if t is not None]
        try:
            are_same = all(map(is_, chain.from_iterable([g(d) for g, d in zip(self._getters, dicts)]), self._plain))
            attributes = self._attributes_now(tensors)
            values = self._values_now(dicts, attributes)
            each_once = self._each_once(tensors)
        except (KeyError, IndexError):
            return None
        return (
            list(map(type, modules)),
            _ids(registered),
            [*chain.from_iterable(full), *map(len, full)],
            _ids(chain.from_iterable(map(dict.values, parents))),
            [*chain.from_iterable(parents), *map(len, parents)],
            any(self._empty(registries)),
            are_same,
            list(map(len, dicts)),
            [_ids(attributes), *map(tuple, attributes)] if attributes else None,
            self._snapshot.is_same(values),
            list(map(torch.Tensor.data_ptr, tensors)),
            # The quick check also fails under other modes of PyTorch.
            self._has_metadata is not None and self._has_metadata(*each_once) or self._metadata_of(tensors) == self._metadata,
            [host_key(tensors[number]) for number in self._elsewhere],
            has_hooks(dicts, self._trains),
            self._torchs.are_same(),
            grad_dtypes(t for t in tensors if t.is_leaf) if self._trains else [],
        )

    def _metadata_of(self, tensors: List[torch.Tensor]) -> "Tuple[List[Any], ...]":
        return (list(map(_dtype, tensors)), list(map(torch.Tensor.size, tensors)), list(map(torch.Tensor.stride, tensors)),
                list(map(_requires_grad, tensors)) if self._compares_grad else [])

    def difference(self) -> Optional[str]:
        now = self._look()
        if now is None or self._seen is None:
            return "a submodule, a parameter or a value that it used is gone"
        if now == self._seen:
            return None
        what = (
            "a submodule is of another class",
            "a parameter or buffer was replaced",
            "a parameter or buffer has another name",
            "a submodule was replaced",
            "a submodule has another name",
            "a first parameter, buffer or submodule was added",
            "the value of an attribute has changed",
            "an attribute was added",
            "an attribute was set on a tensor",
            "the content of an attribute or global, or an attribute of a class, has changed",
            "a tensor has other storage",
            "a tensor has another type, another shape or other strides, or its requires_grad has changed",
            "a tensor on another device has changed",
            "a hook was added",
            "a PyTorch class was patched",
            "a parameter has another grad_dtype",
        )
        return next(text for text, before, after in zip(what, self._seen, now) if before != after)


def _patched(kinds: List[type], traced: TracedRun) -> "List[Tuple[type, str]]":
    """Attributes of PyTorch's classes that the program may have set: functions that have run, and others that its code
    names."""
    return [(kind, name) for kind in kinds for name, value in vars(kind).items()
            if (value.__code__ in traced.codes if isinstance(value, FunctionType) else name in traced.names and not is_plain(value))]


def _several(numbers: List[int]) -> Any:
    """A function that takes the items of these numbers out of a list, as a tuple."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda items: tuple(items[number] for number in numbers)
