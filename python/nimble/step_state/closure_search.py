"""Finds what a step's function refers to (closure_inputs.py), as the visitor of a walk over Python objects.

It looks at closure cells, default arguments and the global names that the code has; at the names that the code reads from modules
and classes; and at the same for each function found this way. Of an object it takes the attributes that any of this code names, of
the object or its class, and the methods and properties of these names. It cannot find everything: what the code reaches by other
ways (getattr, a library's registry) must be given. It raises for finds that are too large to compare, or could not be restored.

find() has no state.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import io
import os
import types
import weakref
from typing import AbstractSet, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.host_values import MOST_BYTES
from nimble.guards.tensor_memory import has_memory, strided_parts
from nimble.objects import containers
from nimble.objects.code_names import globals_of, is_called, names_of, read_by, takes_all, walks
from nimble.objects.hooks import hooks_of, hooks_of_all_optimizers, hooks_of_module, hooks_of_tensor
from nimble.objects.host_random import is_generator
from nimble.objects.memory import is_array
from nimble.objects.plain import KINDS
from nimble.objects.walk import Walk
from nimble.step_state import library_objects
from nimble.step_state.closure_inputs import ClosureInputs, Names, Slot, add_once, cell_content
from nimble.step_state.library_objects import (attributes_of, is_code, is_iterator, is_librarys, is_of_python, is_record, own_classes,
                                               text_of)

_MOST = 4000  # objects to visit: models of transformers have 2100, with all their optional dependencies installed
_MOST_LEVELS = 500
MOST_ELEMENTS = 64  # of a container; more where all are plain values, or short lists of them
_MOST_PLAIN = 10000
_MOST_SHOWN = 6  # functions

_MAKES = ("__init__", "__new__", "__post_init__")
_COMPARED = {"state", "param_groups"}  # attributes of optimizers that are compared separately

_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_schedulers = torch.optim.lr_scheduler
_SCHEDULER = getattr(_schedulers, "LRScheduler", None) or getattr(_schedulers, "_LRScheduler")


class _At(NamedTuple):
    """The walk's position: a name for messages, the names that the referring code has, and the functions on the way."""

    name: str
    names: AbstractSet[str]
    functions: Tuple[str, ...]

    def to(self, name: str, names: AbstractSet[str] = frozenset()) -> "_At":
        """The same way, to another object."""
        return _At(name, names, self.functions)


_Found = Iterator[Tuple[Any, _At]]


def find(function: Callable[..., Any], modules: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer],
         known: Names = Names()) -> ClosureInputs:
    """The function's references, and the given modules and optimizers. Raises NimbleError where something could not be compared or
    restored. known: the names of an earlier find, with which it is done sooner."""
    given = (*modules, *optimizers)
    if known != Names():
        with contextlib.suppress(NimbleError):  # perhaps only for a name that no code has any more
            return _found(function, given, known)
    return _found(function, given, Names())


def _found(function: Callable[..., Any], given: Tuple[Any, ...], known: Names) -> ClosureInputs:
    while True:  # names of methods found are names of attributes
        search = _Search(known)
        try:
            search.walk.depth_first(search, [(each, _At("", frozenset(), ())) for each in (*given, function)])
        except NimbleError as error:
            raise NimbleError(f"{error}{_by_way_of(search.raised_at)}") from None
        except RecursionError:
            raise NimbleError(_TOO_DEEP) from None
        found = search.found.names
        if found.named <= known.named and found.read <= known.read:
            return search.found
        known = Names(known.named | found.named, known.read | found.read)


_TOO_DEEP = "the step refers to objects nested without end: have it name fewer of its objects and of globals"


def _by_way_of(functions: Tuple[str, ...]) -> str:
    """For messages: the functions through which something was found, if any besides the step itself."""
    way = functions
    if len(way) > _MOST_SHOWN:
        way = (*way[:_MOST_SHOWN // 2], "...", *way[-(_MOST_SHOWN // 2):])
    return f" (found by way of {', '.join(way)})" if len(way) > 1 else ""


class _Search:
    """The visitor of find(). known: the names of attributes that matter."""

    def __init__(self, known: Names) -> None:
        self.found = ClosureInputs()
        self.walk: "Walk[_At]" = Walk()
        self.raised_at: Tuple[str, ...] = ()  # the functions on the way to the object that raised
        self._known, self._known_read = known.named, known.read
        self._walks, self._takes_all = walks(known.named), takes_all(known.named)
        self._walked: Set[int] = set()  # ids of submodules
        self._slots: Set[Tuple[int, Any]] = set()

    def visit(self, value: Any, at: _At) -> _Found:
        try:
            yield from self._looked_into(value, at)
        except NimbleError:
            self.raised_at = self.raised_at or at.functions
            raise

    def _looked_into(self, value: Any, at: _At) -> _Found:
        if isinstance(value, KINDS):
            return self._attributes(value, at) if isinstance(value, enum.Enum) and self._is_new(value) else iter(())
        if isinstance(value, (types.ModuleType, type)):
            return self._namespace(value, at)
        if isinstance(value, types.MethodType):
            return iter([(value.__self__, at), (value.__func__, at)])
        if isinstance(value, types.BuiltinFunctionType):
            return iter([(value.__self__, at.to(at.name))])
        return self._handler_of(value, at.name)(value, at) if self._is_new(value) else iter(())

    def _handler_of(self, value: Any, name: str) -> "Callable[[Any, _At], _Found]":
        """The handler for an object other than a plain value, namespace or method."""
        for kinds, method in _FIRST_KINDS:
            if isinstance(value, kinds):
                return getattr(self, method)  # type: ignore[no-any-return]
        if is_generator(value):
            return self._generator
        if "_per_optimizer_states" in attributes_of(value) and "_growth_factor" in value.__dict__:
            return self._scaler
        for kinds, method in _OTHER_KINDS:
            if isinstance(value, kinds):
                return getattr(self, method)  # type: ignore[no-any-return]
        if str(type(value).__module__).partition(".")[0] == "nimble":
            return self._our_own
        if is_iterator(value):
            raise NimbleError(f"{name!r} is an iterator (a {type(value).__name__}), and a graph would take nothing from it: pass what it "
                              "gives as an argument")
        return self._array if is_array(value) else self._object

    def _is_new(self, value: Any, key: Any = None) -> bool:
        if not self.walk.is_new(value, key):
            return False
        if self.walk.new > _MOST:
            raise NimbleError(f"the step refers to more than {_MOST} objects, too many to tell what it reads: have it name fewer of its "
                              "objects and of globals")
        if self.walk.depth > _MOST_LEVELS:
            raise NimbleError(_TOO_DEEP)
        self.found.kept_alive.append(value)
        return True

    def _has(self, names: AbstractSet[str], read: AbstractSet[str]) -> None:
        """Code with these names was found."""
        there = self.found.names
        if not (names <= there.named and read <= there.read):
            self.found.names = Names(there.named | names, there.read | read)

    def _root_module(self, module: torch.nn.Module, at: _At) -> _Found:
        add_once(self.found.modules, module)
        yield from self._module(module, at)
        yield from self._submodules(module, at)
        for hook in hooks_of_module(module):
            yield hook, at.to(_hook_of(at.name))
        for tensor in (*module.parameters(), *module.buffers()):
            yield from self._of_tensor(tensor, at)

    def _module(self, module: torch.nn.Module, at: _At) -> _Found:
        yield from self._attributes(module, at)
        if self._takes_all:
            yield from self._plain_attributes(module, at.to(at.name))

    def _submodules(self, module: torch.nn.Module, at: _At) -> _Found:
        """The named ones, for their attributes; all of a list, or of any module whose submodules the code iterates over."""
        for key, child in module._modules.items():
            if child is None or id(child) in self._walked:
                continue
            if self._walks or key in self._known or isinstance(module, _LISTS):
                self._walked.add(id(child))
                inner = at.to(f"{at.name}.{key}")
                yield from self._module(child, inner)
                yield from self._submodules(child, inner)

    def _optimizer(self, optimizer: torch.optim.Optimizer, at: _At) -> _Found:
        add_once(self.found.optimizers, optimizer)
        yield from self._attributes(optimizer, at, _COMPARED, ("step", "zero_grad"))
        for hook in (*hooks_of(optimizer), *hooks_of_all_optimizers()):
            yield hook, at.to(at.name)
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            yield from self._of_tensor(parameter, at)

    def _tensor(self, tensor: torch.Tensor, at: _At) -> _Found:
        if not has_memory(tensor):
            raise NimbleError(f"{at.name!r} is a {type(tensor).__name__}, and a graph cannot follow its memory")
        for part in strided_parts(tensor):
            add_once(self.found.tensors, part)
        return self._of_tensor(tensor, at)

    def _of_tensor(self, tensor: torch.Tensor, at: _At) -> _Found:
        """The hooks that run when the tensor gets a gradient, and the attributes that the program has set."""
        for hook in hooks_of_tensor(tensor):
            yield hook, at.to(_hook_of(at.name))
        yield from self._attributes(tensor, at)

    def _generator(self, generator: Any, _: _At) -> _Found:
        self.found.generators.append(generator)
        return iter(())

    def _scaler(self, scaler: Any, _: _At) -> _Found:
        add_once(self.found.scalers, scaler)
        return iter(())

    def _scheduler(self, scheduler: Any, at: _At) -> _Found:
        yield getattr(scheduler, "optimizer"), at.to(at.name + ".optimizer", at.names)
        yield from self._plain_attributes(scheduler, at)
        yield from self._attributes(scheduler, at)

    def _partial(self, partial: Any, at: _At) -> _Found:
        for each in (partial.func, *partial.args):
            yield each, at
        yield from self._dictionary(partial.keywords, list(partial.keywords), at)
        yield from self._attributes(partial, at)

    def _reference(self, reference: Any, at: _At) -> _Found:
        return iter([(reference(), at)])

    def _our_own(self, value: Any, at: _At) -> _Found:
        return iter([(getattr(value, inner, None), at) for inner in ("module", "function", "_given")])

    def _array(self, array: Any, at: _At) -> _Found:
        if array.nbytes > MOST_BYTES:
            raise NimbleError(f"{at.name!r} is an array of {array.nbytes} bytes on the host, which cannot be compared at each call: pass "
                              "it as an argument, as a tensor")
        if array.dtype.hasobject:
            raise NimbleError(f"{at.name!r} is an array of objects, which cannot be compared at each call: pass what the step needs of it "
                              "as an argument")
        self.found.arrays.append(array)
        return iter(())

    def _object(self, value: Any, at: _At) -> _Found:
        """Handles any other class: the program's, or a library's."""
        yield getattr(value, "__wrapped__", None), at
        if own_classes(type(value)):
            self._place(f"{at.name}.__class__", value, "__class__", functools.partial(type, value), lambda _: None)
        read, content = library_objects.read_by_methods(value), library_objects.content_of(at.name, value)
        if read:
            yield from self._dictionary(value.__dict__, read, at)
        elif content is not None:
            yield from self._slot(value, "content", *content, at)
        elif isinstance(value, io.IOBase):
            self.found.files.append((at.name, value))
        elif is_of_python(type(value)):
            library_objects.check_known(at.name, value)
        for each in library_objects.leads_to(value):
            if not isinstance(each, torch.Tensor):  # a graph that reads it keeps it, whatever the cache does
                yield each, at
        names = library_objects.names_in(value)
        self._has(names, names)
        if self._takes_all and is_record(type(value)) and attributes_of(value):
            there = at.to(f"{at.name}.__dict__", at.names)
            yield from self._slot(value, "__dict__", functools.partial(attributes_of, value), lambda _: None, there)
        elif self._takes_all and not is_of_python(type(value)):  # the code may mean another object: this one may lead to a whole program
            yield from self._plain_attributes(value, at)
        yield from self._attributes(value, at)

    def _plain_attributes(self, value: Any, at: _At) -> _Found:
        mine = attributes_of(value)
        return self._dictionary(mine, [key for key, each in mine.items() if isinstance(each, KINDS)], at)

    def _function(self, function: types.FunctionType, at: _At) -> _Found:
        cells = list(zip(function.__code__.co_freevars, function.__closure__ or ()))
        yield function.__dict__.get("__wrapped__"), at.to(at.name)
        if is_librarys(str(function.__globals__.get("__name__"))):  # a decorator, perhaps
            yield from ((cell_content(cell), at.to(free)) for free, cell in cells)
            return
        names = names_of(function.__code__)
        self._has(names, read_by(function.__code__))
        inside = _At("", names, (*at.functions, function.__qualname__))
        for free, cell in cells:
            assign = functools.partial(setattr, cell, "cell_contents")
            yield from self._slot(cell, "", functools.partial(cell_content, cell), assign, inside.to(free, names))
        looked_up = globals_of(function.__code__)
        yield from self._dictionary(function.__globals__, [each for each in function.__globals__ if each in looked_up], inside)
        named = [each for each in function.__dict__ if each in self._known]
        yield from self._dictionary(function.__dict__, named, inside.to(at.name, names))
        if function.__defaults__:
            yield from self._slot(function, "__defaults__", functools.partial(getattr, function, "__defaults__"),
                                  functools.partial(setattr, function, "__defaults__"), inside.to("a default", names))
        if function.__kwdefaults__:
            yield from self._dictionary(function.__kwdefaults__, list(function.__kwdefaults__), inside.to("a default", names))

    def _namespace(self, space: Any, at: _At) -> _Found:
        """A Python module, or a class: the names that the referring code reads from it."""
        if isinstance(space, types.ModuleType):
            if space is os and not at.names.isdisjoint(("environ", "getenv")):
                yield os.environ, at.to("os.environ", at.names)
            named = at.names or self._known  # for a class reached from an object
            found = [] if is_librarys(space.__name__) else [key for key in space.__dict__ if key in named]
            if found and self._is_new(space, tuple(found)):
                yield from self._dictionary(space.__dict__, found, at)
            return
        more = ("forward", "backward", "setup_context") if issubclass(space, torch.autograd.Function) else _MAKES
        for owner in own_classes(space):
            found = [key for key, value in owner.__dict__.items()
                     if key in at.names or key in self._known or key in more or is_called(key, value)]
            if found and self._is_new(owner, tuple(found)):
                for key in found:
                    yield from self._of_class(owner, key, at)

    def _attributes(self, owner: Any, at: _At, but: Iterable[str] = (), methods: Tuple[str, ...] = ()) -> _Found:
        """The attributes that matter, of an object and of its classes. `methods` are called, named or not."""
        mine = attributes_of(owner)
        keys = [key for key, value in mine.items() if self._counts(key, value) and key not in but] if mine else []
        if keys:
            yield from self._dictionary(mine, keys, at.to(at.name))
        for kind in own_classes(type(owner)):
            for key, value in kind.__dict__.items():
                if key not in self._known and not is_called(key, value) and key not in methods or key in but:
                    continue
                there = at.to(f"{at.name}.{key}")
                if isinstance(value, types.MemberDescriptorType):  # of __slots__
                    yield from self._slot(owner, key, functools.partial(getattr, owner, key, None),
                                          functools.partial(setattr, owner, key), there)
                    continue
                if is_code(value) or self._counts(key, value):
                    yield from self._of_class(kind, key, at)
                if not is_code(value) and key not in mine and self._counts(key, value):  # the object may get its own
                    yield from self._slot(owner, key, functools.partial(getattr, owner, key, None),
                                          functools.partial(_no_own, mine, key), there)

    def _counts(self, key: Any, value: Any) -> bool:
        """Whether the code may read an attribute of this name: a number does not where the code calls that name."""
        return key in self._known_read or key in self._known and (callable(value) or not isinstance(value, KINDS))

    def _of_class(self, kind: type, key: str, at: _At) -> _Found:
        value, there = kind.__dict__[key], at.to(f"{at.name}.{key}")
        if isinstance(value, type):
            yield value, there
        if not is_code(value):
            if not key.startswith("__"):
                yield from self._slot(kind, key, functools.partial(kind.__dict__.get, key), functools.partial(setattr, kind, key), there)
            return
        for function in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "fset", "func"))):
            if isinstance(function, (types.FunctionType, functools.partial)):
                yield function, there

    def _container(self, value: Any, at: _At) -> _Found:
        if not isinstance(value, (tuple, frozenset)):
            self.found.containers.append(value)
        elements = containers.values(value) if isinstance(value, dict) else containers.elements(value)
        if len(elements) > MOST_ELEMENTS:
            nested = [each for each in elements if not isinstance(each, KINDS)]
            if len(elements) + sum(map(len, filter(_is_flat, nested))) > _MOST_PLAIN or not all(map(_is_flat, nested)):
                raise NimbleError(f"{at.name!r} has {len(elements)} elements, which are too many to be compared at each call: pass what "
                                  "the step needs of it as an argument")
            yield from ((each, at) for each in nested)
        elif isinstance(value, dict):
            yield from self._dictionary(value, containers.elements(value), at)
        elif isinstance(value, (list, collections.deque)):
            for i in range(len(elements)):
                yield from self._slot(value, i, functools.partial(containers.get, value, i),
                                      functools.partial(containers.put, value, i), at.to(f"{at.name}[{i}]", at.names))
        else:
            yield from ((each, at) for each in elements)
        yield from self._attributes(value, at)

    def _dictionary(self, where: Dict[Any, Any], keys: List[Any], at: _At) -> _Found:
        for key in keys:
            text = key if isinstance(key, str) else text_of(key)
            yield from self._slot(where, key, functools.partial(dict.get, where, key), functools.partial(containers.put, where, key),
                                  at.to(f"{at.name}.{text}" if at.name else text, at.names))

    def _slot(self, where: Any, key: Any, get: Callable[[], Any], set: Callable[[Any], None], at: _At) -> _Found:
        value = get()
        self._place(at.name, where, key, get, set)
        yield value, at

    def _place(self, name: str, where: Any, key: Any, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        if (id(where), key) not in self._slots:
            self._slots.add((id(where), key))
            self.found.kept_alive.append(where)
            self.found.slots.append(Slot(name, get, set))


# The methods that look into objects of these kinds. By name: bound methods would make a cycle that keeps all finds alive.
_FIRST_KINDS: "Tuple[Tuple[Any, str], ...]" = (
    (types.FunctionType, "_function"), (torch.nn.Module, "_root_module"), (torch.optim.Optimizer, "_optimizer"), (torch.Tensor, "_tensor"))
_OTHER_KINDS: "Tuple[Tuple[Any, str], ...]" = (
    (_SCHEDULER, "_scheduler"), (functools.partial, "_partial"), (weakref.ref, "_reference"),
    ((dict, list, tuple, set, frozenset, collections.deque), "_container"))


def _is_flat(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) <= MOST_ELEMENTS and all(isinstance(each, KINDS) for each in value)


def _hook_of(name: str) -> str:
    return f"a hook of {name}" if name else "a hook"


def _no_own(mine: Dict[str, Any], key: str, _: Any) -> None:
    mine.pop(key, None)
