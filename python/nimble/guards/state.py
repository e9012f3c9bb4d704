"""What a module is made of: put back after preparing, and guarded at each call of a graph.

ModuleGuard says whether the parameters, buffers, submodules, hooks and training flags are still the ones that a graph was
captured with. It costs a quarter of a microsecond a module, or half of one where Python does not tell by words (nimble.guards.dict_versions), so
it compares identities, addresses and what tensors say of their memory (nimble.guards.metadata): values of parameters and buffers on the
graph's device may change, since the graph reads them where they are.

StateKeeper puts buffers, training flags and random numbers back. Neither may be used by two threads at once; guards only read.
"""

from __future__ import annotations

import functools
import threading
from itertools import chain, repeat, takewhile
from operator import eq, is_, itemgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.nn.modules import module as _module
from torch.nn.parameter import is_lazy

from nimble.errors import NimbleError
from nimble.guards.dict_versions import words_of
from nimble.guards.dictionaries import Dictionaries, versions_of
from nimble.guards.host_values import host_key
from nimble.guards.metadata import Metadata
from nimble.guards.op_watch import Writes
from nimble.guards.registered import Registered, path_of
from nimble.objects.host_random import HostRandom
from nimble.objects.memory import storage, unique, version_of
from nimble.objects.module_contents import OF_EVERY_MODULE, Contents, find, tensors_of

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_training = itemgetter("training")
_MOST_KEPT = 1 << 28  # bytes of copies of tensors in containers
_MOST_LEARNED = 8  # runs behind which buffers are put back, those that are learned from among them
_MOST_LOOKS = 4  # for tensors that runs make: Python runs in a few of them, and then graphs do

def _values(dicts: List[Dict[Any, Any]]) -> List[Any]:
    return list(chain.from_iterable(map(dict.values, dicts)))


def _are_identical(now: List[Any], before: List[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they hold the same values. Versions do not tell: batch norm writes its statistics without raising them."""
    with torch.no_grad():
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same but for rounding: kernels do not always add in the same order."""
    with torch.no_grad():
        return is_same(one, other) or one.is_floating_point() and torch.allclose(one.float(), other.float(), 1e-3, 1e-5, equal_nan=True)


def plain_tensors(module: torch.nn.Module) -> "List[Tuple[Dict[str, Any], str, torch.Tensor, str]]":
    """Tensors that modules hold as plain attributes: where, under which name, which, and the path."""
    return [(child.__dict__, attribute, value, path_of(name, attribute)) for name, child in module.named_modules()
            for attribute, value in child.__dict__.items() if isinstance(value, torch.Tensor)]


def parts_of(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The strided tensors that one of any layout is made of, on the same memory. NimbleError where that is not known."""
    if tensor.layout is torch.strided:
        return [tensor]
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout is getattr(torch, "jagged", None):
        return [tensor.values(), tensor.offsets()]  # type: ignore[attr-defined]
    names = [("crow_indices", "col_indices"), ("ccol_indices", "row_indices")]
    for rows, columns in names:
        try:
            return [getattr(tensor, rows)(), getattr(tensor, columns)(), tensor.values()]
        except RuntimeError:
            pass  # the other one, then
    raise NimbleError(f"a tensor has layout {tensor.layout}, whose memory is not known")


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether it can be told where it lies. Not of lazy ones, nor of classes that have other tensors inside."""
    try:
        return not is_lazy(tensor) and all(part.data_ptr() or not part.numel() or part.is_meta for part in parts_of(tensor))
    except RuntimeError:
        return False


def check_memory(module: torch.nn.Module) -> None:
    """NimbleError where it has a parameter, buffer or tensor attribute whose memory cannot be told."""
    plain = [(path, tensor) for _, _, tensor, path in plain_tensors(module)]
    for name, tensor in chain(module.named_parameters(), module.named_buffers(), plain):
        if is_lazy(tensor):
            raise NimbleError(f"the parameter or buffer {name!r} has no memory yet: run the module once before")
        if tensor.layout is not torch.strided or not has_memory(tensor):
            raise NimbleError(f"{name!r} is a {type(tensor).__name__} with layout {tensor.layout}, whose memory a graph cannot follow")


@functools.lru_cache(maxsize=1024)
def none_in_class(kind: type) -> Tuple[str, ...]:
    """Names of attributes that are None for all modules of a class, until one has its own."""
    found: Dict[str, Any] = {}
    for base in takewhile(lambda each: each is not torch.nn.Module, kind.__mro__):
        found = {**vars(base), **found}
    return tuple(name for name, value in found.items() if value is None and not name.startswith("__"))


class ModuleGuard:
    """The module as it is now. Holds all that it compares by identity, so that no id is used again. trains: also what only
    gradients depend on."""

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
        self._words = words_of([*self._namespaces, *inside], self._modules)
        self._words_have_changed = False  # since a look has found all the same
        self._lock = threading.Lock()
        # Most of these are empty, and that they still are is quickly seen.
        self._registered, self._children, self._hooks = ([d for d in each.all if d] for each in self._dictionaries)
        self._empty = [d for each in self._dictionaries for d in each.all if not d]
        self._flags = [d for d in self._attributes if "training" in d]
        self._flagged = [m for m in self._modules if "training" not in m.__dict__]  # as those of torch.compile
        self._plain = plain_tensors(module)
        slots = [(m.__dict__, name) for m in self._modules for name, value in m.__dict__.items()
                 if value is None and name not in OF_EVERY_MODULE]
        slots += [(m.__dict__, name) for m in self._modules
                  for name in none_in_class(type(m)) if name not in m.__dict__]  # type: ignore[arg-type]
        slots += [(where, name) for where, name, _, _ in self._plain]
        self._slots = [where for where, _ in slots], [name for _, name in slots]
        registered_now = _values(self._registered)  # None, too
        self._tensors: List[torch.Tensor] = [t for t in registered_now if t is not None] + [t for _, _, t, _ in self._plain]
        self._metadata = Metadata(self._tensors, trains)
        # What lies elsewhere was read by the host when the graph was captured.
        self._elsewhere = [t for t in self._tensors if t.device.type != device_type]
        self._kinds = list(dict.fromkeys(map(type, self._modules)))
        self._seen, self._seen_in_dictionaries, self._seen_in_attributes = (
            self._look(), self._look_at_dictionaries(), self._look_at_attributes())

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the memory of parameters, buffers and tensors in plain attributes, as they are now: who holds them keeps it."""
        return [t.detach() for t in self._tensors]

    def _look(self) -> List[Any]:
        """What is compared each time, in the order of _PARTS."""
        return [
            list(map(torch.Tensor.data_ptr, self._tensors)),
            [m.training for m in self._flagged],
            [getattr(kind, "forward", None) for kind in self._kinds],
            list(map(host_key, self._elsewhere)),
        ]

    def _look_at_dictionaries(self) -> List[Any]:
        """What need not be compared while nothing was put into any dictionary, in the order of _IN_DICTIONARIES."""
        return [
            _values(self._registered),
            _values(self._children),
            _values(self._hooks),
            any(self._empty),
            list(map(type, self._modules)),
            list(map(is_, map(vars, self._modules), self._attributes)),
        ]

    def _look_at_attributes(self) -> List[Any]:
        """What need not be compared while nothing was put into any attribute, in the order of _IN_ATTRIBUTES."""
        return [
            [each.are_same() for each in self._dictionaries],
            list(map(_training, self._flags)),
            list(map(dict.get, self._attributes, repeat("forward"))),
            list(map(dict.get, *self._slots)),
        ]

    def difference(self) -> Optional[str]:
        """What has changed since, for people; None where nothing has."""
        with self._lock:
            # What is put in while it is looked at shows in the words the next time.
            if self._words is None or self._words.have_changed() or self._words_have_changed:
                self._words_have_changed = True
                text = self._difference_in_dictionaries()
                if text is not None:
                    return text
                self._words_have_changed = False
            return _different(_PARTS, self._look(), self._seen) or self._metadata.difference()

    def _difference_in_dictionaries(self) -> Optional[str]:
        versions_now = versions_of(self._namespaces)
        if versions_now is None or versions_now != self._versions:
            try:
                text = _different(_IN_ATTRIBUTES, self._look_at_attributes(), self._seen_in_attributes)
            except KeyError as error:
                text = f"a module has no {error.args[0]} any more"
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
    ("a parameter or buffer is another tensor", _are_identical),
    ("a submodule is another one", _are_identical),
    ("a hook was added or removed", _are_identical),
    ("a first parameter, buffer, submodule or hook was added", eq),
    ("a module is of another class", _are_identical),
    ("a module's attributes are in another dictionary", eq),
)
_IN_ATTRIBUTES: _Parts = (
    ("parameters, buffers, submodules or hooks are in another dictionary", eq),
    ("a training flag has changed", eq),
    ("a forward method was replaced", _are_identical),
    ("a tensor attribute is another one, or one that was None is none any more", _are_identical),
)


class StateKeeper:
    """Remembers what a module is made of when made: buffers, tensors in attributes and in containers there, which parameters there are
    and what they hold, training flags, and the host's random numbers, also those of generators in attributes. restore() puts it back.
    is_checked: check_module() or restore_buffers() will be called, which takes a look at all the memory of parameters, now and then."""

    def __init__(self, module: torch.nn.Module, is_checked: bool = True) -> None:
        check_memory(module)
        held = find(module)
        self._modules = [*module.named_modules(), *held.modules]
        self._training = [m.training for _, m in self._modules]
        self._module = module
        self._tensors = held.tensors
        self._contents = Contents(held)
        registered = {id(t) for _, m in self._modules for t in (*m._parameters.values(), *m._buffers.values())}
        buffers = {id(t): t for _, m in self._modules for t in m._buffers.values() if t is not None and has_memory(t)}
        buffers.update((id(t), t) for _, _, t, _ in plain_tensors(module))
        mine = {storage(p) for _, m in self._modules for p in m._parameters.values() if p is not None and has_memory(p)}
        large: Dict[int, Tuple[str, torch.Tensor]] = {}
        room = _MOST_KEPT
        for path, tensor in held.tensors:
            if id(tensor) not in buffers and id(tensor) not in registered and _can_be_kept(tensor) and storage(tensor) not in mine:
                room -= tensor.numel() * tensor.element_size()
                if room >= 0:
                    buffers[id(tensor)] = tensor
                else:
                    large[id(tensor)] = path, tensor
        with torch.no_grad():
            self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers.values()]
        self._versions = [version_of(tensor) for tensor, _ in self._buffers]
        self._known = {*registered, *map(id, (t for _, t in held.tensors))}
        self._made: Dict[int, _Made] = {}  # tensors that the runs have put into attributes
        self._looks = 0
        self._dirty: Optional[List[Tuple[torch.Tensor, torch.Tensor]]] = None  # those that the first run has written to
        self._seen: Optional[Writes] = None  # of that run
        self._flags: Dict[Tuple[int, str], Any] = {}  # plain values of attributes that it has changed, and, if any,
        self._first: List[torch.Tensor] = []  # what it has written
        plain = [(path, tensor) for _, _, tensor, path in plain_tensors(module)]
        self._registered = Registered(self._modules, large.values(), chain(plain, held.tensors), is_checked)
        self._random = HostRandom(held.generators)

    def watch(self) -> Writes:
        """Of the first run: what it is on for. So what a run writes to parameters can be put back."""
        self._seen = self._registered.watch(buffer for buffer, _ in self._buffers)
        return self._seen

    def tensors(self) -> List[torch.Tensor]:
        """Those that a guard of the module looks at: parameters, buffers, tensors in plain attributes. As they are now."""
        return [*self._module.parameters(), *self._module.buffers(), *(t for _, _, t, _ in plain_tensors(self._module))]

    def kept(self) -> List[torch.Tensor]:
        """Those of which it has copies: buffers, tensors in attributes and in containers there."""
        return [tensor for tensor, _ in self._buffers]

    def check_random(self, but_torch: bool = False) -> None:
        """Raises NimbleError where the host's random numbers have advanced: what they were would be in the graph. but_torch: those of
        PyTorch are the device's."""
        who = self._random.who_has_drawn(but_torch)
        if who is not None:
            raise NimbleError(f"the module draws random numbers {who}, which a graph would never draw anew")

    def check_elsewhere(self, device_type: str) -> None:
        """Raises NimbleError where the runs have written to a buffer or a tensor in an attribute that is not on such a device: no replay
        would. Asked before restore()."""
        written = {id(t) for t in self.may_write()}
        for tensor, value in self._buffers:
            if tensor.device.type != device_type and (id(tensor) in written or not is_same(tensor, value)):
                names = chain(self._module.named_buffers(), ((path, t) for _, _, t, path in plain_tensors(self._module)), self._tensors)
                path = next((name for name, each in names if each is tensor), "?")
                raise NimbleError(f"the module writes to its buffer {path!r}, which is on {tensor.device}, when it runs, and a graph would "
                                  f"not: have it on {device_type}")

    def has_drawn(self) -> bool:
        """Whether the host's random numbers have advanced. Asked before restore()."""
        return self._random.who_has_drawn() is not None

    def written(self) -> List[torch.Tensor]:
        """The buffers that the first run has written to, as far as values and its ops tell: those that hold the same again behind it
        may be others in a run to come. Asked behind restore_buffers()."""
        return unique((*(buffer for buffer, _ in self._dirty or []), *(self._seen.written if self._seen is not None else ())))

    def may_write(self) -> List[torch.Tensor]:
        """With those that versions tell of."""
        return [*self.written(), *(t for (t, _), version in zip(self._buffers, self._versions) if version_of(t) != version)]

    def has_written(self, but: Sequence[torch.Tensor] = ()) -> bool:
        """Whether the runs so far may have written to a buffer, or to a tensor in an attribute: also to one that they have made. Asked
        before restore(). `but`: the first run may have written to these buffers."""
        apart = set(map(id, but))
        return (any(id(buffer) not in apart for buffer in self.written()) or self._registered.has_written()
                or any(version_of(t) != version for (t, _), version in zip(self._buffers, self._versions))
                or not all(is_same(tensor, value) for tensor, value in self._buffers)
                or [id(t) for t in tensors_of(self._module).values()] != [id(t) for t in dict(self._tensors).values()])

    def check_module(self) -> None:
        """Raises NimbleError where the module has replaced a buffer or parameter, written to a parameter, or made something that it
        writes to in each run."""
        self._registered.check()
        for made in self._made.values():
            if version_of(made.tensor) != made.version or not is_same(made.tensor, made.value):
                raise NimbleError(f"the module makes a tensor in its first run, {made.path!r}, and writes to it in each: run the module "
                                  "once before, so that preparing can put back what it holds")

    def restore(self) -> None:
        """Puts all back."""
        self._random.put_back()
        for (_, child), training in zip(self._modules, self._training):
            child.training = training
        self._registered.restore()
        # A few runs later it may be others that have changed.
        self._copy([(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)])

    def restore_attributes(self) -> None:
        """Puts back which tensors attributes are, what containers of such hold, and plain values of modules' attributes: where preparing
        has failed. A graph works with what they are by then."""
        self._contents.put_back()

    def restore_buffers(self) -> None:
        """Puts back the values of the buffers that the first run has written to. Called behind each run, also of a graph. NimbleError
        behind the first, where that has done what cannot be put back each time."""
        self._looks += 1
        if self._dirty is None:
            self.check_module()
            self._dirty = [(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)]
            self._flags = self._contents.changed_values()
            self._first = [buffer.detach().clone() for buffer, _ in self._dirty] if self._flags else []
        elif self._looks == 2 and self.has_flags():
            self._check_first_run(self._dirty)
        if 2 <= self._looks <= _MOST_LEARNED:  # where runs are learned from: kernels that name the copies show that no addresses lie there
            for buffer, value in self._dirty:
                is_same(buffer, value)
        self._copy(self._dirty)
        if self._looks <= _MOST_LOOKS:
            for path, tensor in tensors_of(self._module).items():
                if id(tensor) not in self._known and id(tensor) not in self._made and _can_be_kept(tensor):
                    self._made[id(tensor)] = _Made(path, tensor)

    def has_flags(self) -> bool:
        """Whether the first run has changed plain values of attributes, which are as they were behind that: no counters are."""
        if self._flags:
            now = self._contents.changed_values()
            self._flags = {key: value for key, value in self._flags.items() if key in now and now[key] == value}
        return bool(self._flags)

    def _check_first_run(self, dirty: List[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Behind the second, with these written by the first. NimbleError where that has written what the second has not: it is put back,
        and would never be written."""
        if any(is_same(buffer, value) or not _is_alike(buffer, first) for (buffer, value), first in zip(dirty, self._first)):
            names = ", ".join(sorted({repr(key) for _, key in self._flags}))
            raise NimbleError(f"the module's first run writes to a buffer as later ones do not, and notes in attributes ({names}) that it "
                              "has: run the module once before")

    @staticmethod
    def _copy(pairs: List[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        with torch.no_grad():
            for buffer, value in pairs:
                buffer.data.copy_(value)  # nothing that autograd has saved has changed in the end


class _Made:
    """A tensor as it is when it is first seen."""

    def __init__(self, path: str, tensor: torch.Tensor) -> None:
        self.path, self.tensor, self.version, self.value = path, tensor, version_of(tensor), tensor.detach().clone()


def _can_be_kept(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and has_memory(tensor)
