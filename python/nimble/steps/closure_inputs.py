"""What a function refers to: the modules, optimizers and tensors that it works with, and the Python values that it reads.

Looked at are closure cells, default arguments, global names that its code has, and of modules and classes what it names of them; the
same of functions that are found so. Of objects, however they are come by: the attributes that any of this code names, of their own or
of their class, and methods and properties of these names. It is no proof: what it gets at by other ways (getattr, a registry of
somebody else's) is not found, and has to be given. What is found, and is too much to be compared, or could not be put back, raises.

find() has no state. A Reached is constant; its slots read and write what they stand for.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import enum
import functools
import io
import os
import types
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.host_values import MOST_BYTES
from nimble.guards.state import has_memory, parts_of
from nimble.objects import containers
from nimble.objects.code_names import is_called, names_of, read_by, takes_all, walks
from nimble.objects.hooks import hooks_of, hooks_of_all_optimizers, hooks_of_module, hooks_of_tensor
from nimble.objects.host_random import is_generator
from nimble.objects.libraries import is_pythons
from nimble.objects.memory import is_array
from nimble.steps import library_objects as reach_library

_MOST = 4000  # objects that are looked at: models of transformers have 2100, where all that they can make use of is installed
MOST_ELEMENTS = 64  # of a container; more where all are plain values
_MOST_PLAIN = 10000
_MOST_SHOWN = 6  # functions

_OTHERS = {"torch", "numpy", "nimble"}
_LIBRARIES = {*_OTHERS, "builtins"}  # and Python's own: of which nothing is looked at, what they keep is theirs
_MAKES = ("__init__", "__new__", "__post_init__")
_COMPARED = {"state", "param_groups"}  # of optimizers, otherwise

_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_schedulers = torch.optim.lr_scheduler
_SCHEDULER = getattr(_schedulers, "LRScheduler", None) or getattr(_schedulers, "_LRScheduler")


class Slot:
    """A place that holds a value: a name for people, and how to read and write it. Where it is in a dictionary, that and the key."""

    __slots__ = ("name", "get", "set", "where")

    def __init__(self, name: str, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        self.name, self.get, self.set = name, get, set
        self.where: Optional[Tuple[Dict[Any, Any], Any]] = None
        if isinstance(get, functools.partial) and get.func is dict.get:
            self.where = get.args[0], get.args[1]


class Values:
    """Of slots, which are in `slots` in the order in which they are read: most are in dictionaries, and quickly fetched together."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.slots = sorted(slots, key=lambda slot: slot.where is None)
        self._others = [slot.get for slot in self.slots if slot.where is None]
        places = [slot.where for slot in self.slots if slot.where is not None]
        self._dictionaries, self._keys = [where for where, _ in places], [key for _, key in places]

    def now(self) -> List[Any]:
        return [*map(dict.get, self._dictionaries, self._keys), *(get() for get in self._others)]


class Reached:
    """Each once. `slots` are the places where values are read from, `containers` the lists and the like among these."""

    def __init__(self) -> None:
        self.modules: List[torch.nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.scalers: List[Any] = []
        self.tensors: List[torch.Tensor] = []
        self.arrays: List[Any] = []  # NumPy's
        self.files: List[Tuple[str, Any]] = []
        self.generators: List[Any] = []  # of random numbers, on the host
        self.containers: List[Any] = []
        self.slots: List[Slot] = []
        self.held: List[Any] = []  # so that no id is used again


def find(function: Callable[..., Any], modules: Iterable[torch.nn.Module],
         optimizers: Iterable[torch.optim.Optimizer]) -> Reached:
    """With those that are given. NimbleError where something could not be compared, or put back."""
    given = (*modules, *optimizers)
    names: Set[str] = set()
    read: Set[str] = set()
    while True:  # names of methods that are found are names of attributes
        search = _Search(names, read)
        try:
            for each in (*given, function):
                search.visit("", each, set())
        except NimbleError as error:
            raise NimbleError(f"{error}{search.by_way_of()}") from None
        except RecursionError:
            raise NimbleError("the step refers to objects in objects without end, so that nobody can tell what it reads") from None
        if search.names <= names and search.read <= read:
            return search.reached
        names, read = names | search.names, read | search.read


class _Search:
    """`known`: names of attributes that count; of those that are not among `known_read` no plain values."""

    def __init__(self, known: Set[str], known_read: Set[str]) -> None:
        self.reached = Reached()
        self.names: Set[str] = set()  # that the code has
        self.read: Set[str] = set()  # those of them that are not only called, as methods are
        self._known, self._known_read = known, known_read
        self._walks, self._takes_all = walks(known), takes_all(known)
        self._walked: Set[int] = set()  # modules, of which there may be many
        self._seen: Set[Any] = set()
        self._slots: Set[Tuple[int, Any]] = set()
        self._functions: List[str] = []  # that it is in, one found by the other,
        self._raised_in: List[str] = []  # and was when something raised

    def by_way_of(self) -> str:
        """The functions by which what has raised was found, for people, if there are some between it and the step."""
        way = self._raised_in
        if len(way) > _MOST_SHOWN:
            way = [*way[:_MOST_SHOWN // 2], "...", *way[-(_MOST_SHOWN // 2):]]
        return f" (found by way of {', '.join(way)})" if len(way) > 1 else ""

    def visit(self, name: str, value: Any, names: Set[str]) -> None:
        """`names`: those that the code has which refers to the value."""
        reached = self.reached
        if is_plain(value):
            if isinstance(value, enum.Enum) and self._is_new(value):
                self._attributes(name, value)
            return
        if isinstance(value, (types.ModuleType, type)):
            self._namespace(name, value, names)
            return
        if isinstance(value, types.MethodType):
            self.visit(name, value.__self__, names)
            self.visit(name, value.__func__, names)
            return
        if isinstance(value, types.BuiltinFunctionType):
            self.visit(name, value.__self__, set())
            return
        if not self._is_new(value):
            return
        if isinstance(value, types.FunctionType):
            self._function(name, value)
        elif isinstance(value, torch.nn.Module):
            _add(reached.modules, value)
            self._module(name, value)
            self._submodules(name, value)
            for hook in hooks_of_module(value):
                self.visit(f"a hook of {name}" if name else "a hook", hook, set())
            for tensor in (*value.parameters(), *value.buffers()):
                self._of_tensor(name, tensor)
        elif isinstance(value, torch.optim.Optimizer):
            _add(reached.optimizers, value)
            self._attributes(name, value, _COMPARED, ("step", "zero_grad"))
            for hook in (*hooks_of(value), *hooks_of_all_optimizers()):
                self.visit(name, hook, set())
            for parameter in (each for group in value.param_groups for each in group["params"]):
                self._of_tensor(name, parameter)
        elif isinstance(value, torch.Tensor):
            self._tensor(name, value)
            self._of_tensor(name, value)
        elif is_generator(value):
            reached.generators.append(value)
        elif "_per_optimizer_states" in _dict_of(value) and "_growth_factor" in value.__dict__:
            _add(reached.scalers, value)
        elif isinstance(value, _SCHEDULER):
            self.visit(name + ".optimizer", getattr(value, "optimizer"), names)
            self._dictionary(name, value.__dict__, [key for key, each in value.__dict__.items() if is_plain(each)], names)
            self._attributes(name, value)
        elif isinstance(value, functools.partial):
            for each in (value.func, *value.args):
                self.visit(name, each, names)
            self._dictionary(name, value.keywords, list(value.keywords), names)
            self._attributes(name, value)
        elif isinstance(value, weakref.ref):
            self.visit(name, value(), names)
        elif isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            self._container(name, value, names)
            self._attributes(name, value)
        elif str(type(value).__module__).partition(".")[0] == "nimble":
            for inner in ("module", "function", "_given"):
                self.visit(name, getattr(value, inner, None), names)
        elif _is_iterator(value):
            raise NimbleError(f"{name!r} is an iterator (a {type(value).__name__}), of which a graph would take nothing: pass what it "
                              "gives as an argument")
        elif is_array(value):
            if value.nbytes > MOST_BYTES:
                raise NimbleError(f"{name!r} is an array of {value.nbytes} bytes on the host, which cannot be compared at each call: "
                                  "pass it as an argument, as a tensor")
            if value.dtype.hasobject:
                raise NimbleError(f"{name!r} is an array of objects, which cannot be compared at each call: pass what the step needs of it "
                                  "as an argument")
            reached.arrays.append(value)
        else:
            self._object(name, value, names)

    def _object(self, name: str, value: Any, names: Set[str]) -> None:
        """Of any class: the program's, or a library's."""
        self.visit(name, getattr(value, "__wrapped__", None), names)
        if own_classes(type(value)):
            self._place(f"{name}.__class__", value, "__class__", functools.partial(type, value), lambda _: None)
        read, content = reach_library.read_by_methods(value), reach_library.content_of(name, value)
        if read:
            self._dictionary(name, value.__dict__, read, names)
        elif content is not None:
            self._slot(name, value, "content", *content, names)
        elif isinstance(value, io.IOBase):
            self.reached.files.append((name, value))
        elif _is_of_python(type(value)):
            reach_library.check_known(name, value)
        for each in reach_library.leads_to(value):
            if not isinstance(each, torch.Tensor):  # which a graph keeps that reads it, whatever the cache does
                self.visit(name, each, names)
        self.names, self.read = (each | reach_library.names_in(value) for each in (self.names, self.read))
        if self._takes_all and _is_record(type(value)) and _dict_of(value):
            self._slot(f"{name}.__dict__", value, "__dict__", functools.partial(_dict_of, value), lambda _: None, names)
        elif self._takes_all and not _is_of_python(type(value)):  # of which the code may mean another: what is there may be a program
            self._plain_attributes(name, value, names)
        self._attributes(name, value)

    def _is_new(self, value: Any, key: Any = None) -> bool:
        if (id(value), key) in self._seen:
            return False
        if len(self._seen) >= _MOST:
            raise NimbleError(f"the step refers to more than {_MOST} objects, so that nobody can tell what it reads: have it name "
                              "less, of its objects and of globals")
        self._seen.add((id(value), key))
        self.reached.held.append(value)
        return True

    def _submodules(self, name: str, module: torch.nn.Module) -> None:
        """Those that are named, for their attributes' sake, and all of a list, or of any module where the code goes through them."""
        for key, child in module._modules.items():
            if child is None or id(child) in self._walked:
                continue
            if self._walks or key in self._known or isinstance(module, _LISTS):
                self._walked.add(id(child))
                self._module(f"{name}.{key}", child)
                self._submodules(f"{name}.{key}", child)

    def _module(self, name: str, module: torch.nn.Module) -> None:
        self._attributes(name, module)
        if self._takes_all:
            self._plain_attributes(name, module, set())

    def _plain_attributes(self, name: str, value: Any, names: Set[str]) -> None:
        mine = _dict_of(value)
        self._dictionary(name, mine, [key for key, each in mine.items() if is_plain(each)], names)

    def _tensor(self, name: str, tensor: torch.Tensor) -> None:
        if not has_memory(tensor):
            raise NimbleError(f"{name!r} is a {type(tensor).__name__} whose memory a graph cannot follow")
        for part in parts_of(tensor):
            _add(self.reached.tensors, part)

    def _of_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """What runs when it gets a gradient, and what the program has put into its attributes."""
        for hook in hooks_of_tensor(tensor):
            self.visit(f"a hook of {name}" if name else "a hook", hook, set())
        self._attributes(name, tensor)

    def _function(self, name: str, function: types.FunctionType) -> None:
        cells = list(zip(function.__code__.co_freevars, function.__closure__ or ()))
        self.visit(name, function.__dict__.get("__wrapped__"), set())
        if _is_librarys(str(function.__globals__.get("__name__"))):  # a decorator, perhaps
            for free, cell in cells:
                self.visit(free, _content(cell), set())
            return
        names = names_of(function.__code__)
        self.names, self.read = self.names | names, self.read | read_by(function.__code__)
        self._functions.append(function.__qualname__)
        try:
            for free, cell in cells:
                assign = functools.partial(setattr, cell, "cell_contents")
                self._slot(free, cell, "", functools.partial(_content, cell), assign, names)
            self._dictionary("", function.__globals__, [each for each in function.__globals__ if each in names], names)
            self._dictionary(name, function.__dict__, [each for each in function.__dict__ if each in self._known], names)
            if function.__defaults__:
                self._slot("a default", function, "__defaults__", functools.partial(getattr, function, "__defaults__"),
                           functools.partial(setattr, function, "__defaults__"), names)
            if function.__kwdefaults__:
                self._dictionary("a default", function.__kwdefaults__, list(function.__kwdefaults__), names)
        except NimbleError:
            self._raised_in = self._raised_in or [*self._functions]
            raise
        finally:
            self._functions.pop()

    def _namespace(self, name: str, space: Any, names: Set[str]) -> None:
        """A module of Python's, or a class: what the code names of it that refers to it."""
        if isinstance(space, types.ModuleType):
            if space is os and not names.isdisjoint(("environ", "getenv")):
                self.visit("os.environ", os.environ, names)
            named = names or self._known  # of one that an object leads to
            found = [] if _is_librarys(space.__name__) else [key for key in space.__dict__ if key in named]
            if found and self._is_new(space, tuple(found)):
                self._dictionary(name, space.__dict__, found, names)
            return
        more = ("forward", "backward", "setup_context") if issubclass(space, torch.autograd.Function) else _MAKES
        for owner in own_classes(space):
            found = [key for key, value in owner.__dict__.items()
                     if key in names or key in self._known or key in more or is_called(key, value)]
            if found and self._is_new(owner, tuple(found)):
                for key in found:
                    self._of_class(name, owner, key)

    def _attributes(self, name: str, owner: Any, but: Iterable[str] = (), methods: Tuple[str, ...] = ()) -> None:
        """Those that count, of its own or of its classes. `methods` that are called, named or not."""
        mine = _dict_of(owner)
        self._dictionary(name, mine, [key for key, value in mine.items() if self._counts(key, value) and key not in but], set())
        for kind in own_classes(type(owner)):
            for key, value in kind.__dict__.items():
                if key not in self._known and not is_called(key, value) and key not in methods or key in but:
                    continue
                if isinstance(value, types.MemberDescriptorType):  # of __slots__
                    self._slot(f"{name}.{key}", owner, key, functools.partial(getattr, owner, key, None),
                               functools.partial(setattr, owner, key), set())
                    continue
                if _is_code(value) or self._counts(key, value):
                    self._of_class(name, kind, key)
                if not _is_code(value) and key not in mine and self._counts(key, value):  # of which it may get one of its own
                    self._slot(f"{name}.{key}", owner, key, functools.partial(getattr, owner, key, None),
                               functools.partial(_no_own, mine, key), set())

    def _counts(self, key: Any, value: Any) -> bool:
        """Whether the code may read an attribute of this name: a number does not count where it calls what it names so."""
        return key in self._known_read or key in self._known and (callable(value) or not is_plain(value))

    def _of_class(self, name: str, kind: type, key: str) -> None:
        value = kind.__dict__[key]
        if isinstance(value, type):
            self.visit(f"{name}.{key}", value, set())
        if not _is_code(value):
            if not key.startswith("__"):
                self._slot(f"{name}.{key}", kind, key, functools.partial(kind.__dict__.get, key),
                           functools.partial(setattr, kind, key), set())
            return
        for function in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "fset", "func"))):
            if isinstance(function, (types.FunctionType, functools.partial)):
                self.visit(f"{name}.{key}", function, set())

    def _container(self, name: str, value: Any, names: Set[str]) -> None:
        if not isinstance(value, (tuple, frozenset)):
            self.reached.containers.append(value)
        elements = containers.values(value) if isinstance(value, dict) else containers.elements(value)
        if len(elements) > MOST_ELEMENTS:
            if len(elements) > _MOST_PLAIN or not all(map(is_plain, elements)):
                raise NimbleError(f"{name!r} has {len(elements)} elements, which are too many to be compared at each call: pass what "
                                  "the step needs of it as an argument")
        elif isinstance(value, dict):
            self._dictionary(name, value, containers.elements(value), names)
        elif isinstance(value, (list, collections.deque)):
            for i in range(len(elements)):
                self._slot(f"{name}[{i}]", value, i, functools.partial(containers.get, value, i),
                           functools.partial(containers.put, value, i), names)
        else:
            for each in elements:
                self.visit(name, each, names)

    def _dictionary(self, name: str, where: Dict[Any, Any], keys: List[Any], names: Set[str]) -> None:
        for key in keys:
            text = key if isinstance(key, str) else _text_of(key)
            self._slot(f"{name}.{text}" if name else text, where, key, functools.partial(dict.get, where, key),
                       functools.partial(containers.put, where, key), names)

    def _slot(self, name: str, where: Any, key: Any, get: Callable[[], Any], set: Callable[[Any], None], names: Set[str]) -> None:
        value = get()
        self._place(name, where, key, get, set)
        self.visit(name, value, names)

    def _place(self, name: str, where: Any, key: Any, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        if (id(where), key) not in self._slots:
            self._slots.add((id(where), key))
            self.reached.held.append(where)
            self.reached.slots.append(Slot(name, get, set))


def is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, enum.Enum))


def _is_iterator(value: Any) -> bool:
    """One whose state nobody can put back: not of a class of the program's own, which is looked at."""
    return (isinstance(value, collections.abc.Iterator) and not isinstance(value, io.IOBase)
            and not any("__next__" in kind.__dict__ for kind in own_classes(type(value))))


@functools.lru_cache(maxsize=4096)
def _is_librarys(module: str) -> bool:
    """Whether the module of this name belongs to one of those that are not looked at."""
    return module.partition(".")[0] in _LIBRARIES or is_pythons(module)


def own_classes(kind: type) -> List[type]:
    return [each for each in kind.__mro__ if not _is_librarys(str(each.__module__))]


def _is_of_python(kind: type) -> bool:  # and no subclass of the program's
    return not own_classes(kind) and not any(str(each.__module__).partition(".")[0] in _OTHERS for each in kind.__mro__)


def _is_record(kind: type) -> bool:
    """Whether it has attributes, and no methods that are called by a name."""
    own = own_classes(kind)
    return bool(own or issubclass(kind, (argparse.Namespace, types.SimpleNamespace))) and not any(
        _is_code(value) and not key.startswith("__") for each in own for key, value in each.__dict__.items())


def _is_code(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, staticmethod, classmethod, property, functools.cached_property,
                              types.GetSetDescriptorType, types.MemberDescriptorType, type, functools.partialmethod))


def _dict_of(value: Any) -> Dict[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}


def _add(where: List[Any], value: Any) -> None:
    if not any(each is value for each in where):
        where.append(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _text_of(key: Any) -> str:
    """Not of tensors, which would wait for the GPU for it."""
    return str(key) if is_plain(key) else f"<{type(key).__name__}>"


def _no_own(mine: Dict[str, Any], key: str, _: Any) -> None:
    mine.pop(key, None)
