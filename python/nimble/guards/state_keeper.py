"""Remembers a module's buffers, attributes, training flags and random numbers, and restores them after speculative runs. A StateKeeper
belongs to one thread."""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.op_watch import OpWrites
from nimble.guards.kept_parameters import RegisteredTensors
from nimble.guards.tensor_memory import attribute_tensors, check_memory, has_memory, is_alike, is_same
from nimble.objects.host_random import HostRandom
from nimble.objects.memory import storage_address, unique, version_of
from nimble.objects.module_contents import AttributeValues, find, tensors_of

_MOST_KEPT = 1 << 28  # bytes of copies of tensors in containers
_MOST_LEARNED = 8  # runs after which buffers are restored, including the learning runs
_MOST_LOOKS = 4  # for tensors that runs make: Python runs in a few of them, and then graphs do


class StateKeeper:
    """Remembers a module's state at construction: buffers, tensors in attributes and containers there, parameters and their values,
    training flags, and the host's random numbers, also those of generators in attributes. restore() restores all of it. is_checked:
    check_module() or restore_buffers() will be called, so all memory of parameters is read now and then."""

    def __init__(self, module: torch.nn.Module, is_checked: bool = True) -> None:
        check_memory(module)
        contents = find(module)
        self._modules = [*module.named_modules(), *contents.modules]
        self._training = [m.training for _, m in self._modules]
        self._module = module
        self._tensors = contents.tensors
        self._contents = AttributeValues(contents)
        registered = {id(t) for _, m in self._modules for t in (*m._parameters.values(), *m._buffers.values())}
        buffers, large = self._found_buffers(registered)
        with torch.no_grad():
            self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers]
        self._versions = [version_of(tensor) for tensor, _ in self._buffers]
        self._known = {*registered, *map(id, (t for _, t in contents.tensors))}
        self._made: Dict[int, _Made] = {}  # tensors that the runs have put into attributes
        self._looks = 0
        self._dirty: Optional[List[Tuple[torch.Tensor, torch.Tensor]]] = None  # those that the first run has written to
        self._seen: Optional[OpWrites] = None  # of that run
        self._flags: Dict[Tuple[int, str], Any] = {}  # plain values of attributes that it has changed, and, if any,
        self._first: List[torch.Tensor] = []  # what it has written
        plain = [(path, tensor) for _, _, tensor, path in attribute_tensors(module)]
        self._registered = RegisteredTensors(self._modules, large, chain(plain, contents.tensors), is_checked)
        self._random = HostRandom(contents.generators)

    def _found_buffers(self, registered: "Set[int]") -> "Tuple[List[torch.Tensor], List[Tuple[str, torch.Tensor]]]":
        """The tensors to copy, and those that are too large for it, with their paths. registered: ids of parameters and buffers."""
        buffers = {id(t): t for _, m in self._modules for t in m._buffers.values() if t is not None and has_memory(t)}
        buffers.update((id(t), t) for _, _, t, _ in attribute_tensors(self._module))
        mine = {storage_address(p) for _, m in self._modules for p in m._parameters.values() if p is not None and has_memory(p)}
        large: Dict[int, Tuple[str, torch.Tensor]] = {}
        room = _MOST_KEPT
        for path, tensor in self._tensors:
            if id(tensor) not in buffers and id(tensor) not in registered and _can_be_kept(tensor) and storage_address(tensor) not in mine:
                room -= tensor.numel() * tensor.element_size()
                if room >= 0:
                    buffers[id(tensor)] = tensor
                else:
                    large[id(tensor)] = path, tensor
        return list(buffers.values()), list(large.values())

    def watch_writes(self) -> OpWrites:
        """The watch for the first run, so that its writes to parameters can be undone."""
        self._seen = self._registered.watch_writes(buffer for buffer, _ in self._buffers)
        return self._seen

    def tensors(self) -> List[torch.Tensor]:
        """The tensors that a guard of the module compares, as they are now: parameters, buffers, tensor attributes."""
        return [*self._module.parameters(), *self._module.buffers(), *(t for _, _, t, _ in attribute_tensors(self._module))]

    def kept(self) -> List[torch.Tensor]:
        """The tensors that it has copies of: buffers, tensors in attributes and in containers there."""
        return [tensor for tensor, _ in self._buffers]

    def check_random(self, but_torch: bool = False) -> None:
        """Raises NimbleError where the host's random numbers have advanced: a graph would have frozen them. but_torch: PyTorch's are the
        device's, and do not count."""
        who = self._random.who_has_drawn(but_torch)
        if who is not None:
            raise NimbleError(f"the module draws random numbers {who}, which a graph would never draw again")

    def check_elsewhere(self, device_type: str) -> None:
        """Raises NimbleError where the runs have written to a buffer or attribute on another type of device: no replay would write there.
        Called before restore()."""
        written = {id(t) for t in self.may_write()}
        for tensor, value in self._buffers:
            if tensor.device.type != device_type and (id(tensor) in written or not is_same(tensor, value)):
                raise NimbleError(f"the module writes to its buffer {self.name_of(tensor)}, which is on {tensor.device}, when it runs, and a graph would "
                                  f"not: have it on {device_type}")

    def name_of(self, tensor: torch.Tensor) -> str:
        """The path of a parameter, a buffer or a tensor in an attribute, in quotes for messages."""
        names = chain(self._module.named_parameters(), self._module.named_buffers(),
                      ((path, t) for _, _, t, path in attribute_tensors(self._module)), self._tensors)
        return repr(next((name for name, each in names if each is tensor), "?"))

    def has_drawn(self) -> bool:
        """Whether the host's random numbers have advanced. Called before restore()."""
        return self._random.who_has_drawn() is not None

    def written(self) -> List[torch.Tensor]:
        """The buffers that the first run has written to, as far as values and its ops tell, even with the same values: a later run may
        write others. Called after restore_buffers()."""
        return unique((*(buffer for buffer, _ in self._dirty or []), *(self._seen.written if self._seen is not None else ())))

    def may_write(self) -> List[torch.Tensor]:
        """written(), and the buffers with other versions."""
        return [*self.written(), *(t for (t, _), version in zip(self._buffers, self._versions) if version_of(t) != version)]

    def has_written(self, but: Sequence[torch.Tensor] = ()) -> bool:
        """Whether the runs so far may have written to a buffer or a tensor in an attribute, even one that they made. Called before
        restore(). `but`: buffers that the first run may have written to."""
        apart = set(map(id, but))
        return (any(id(buffer) not in apart for buffer in self.written()) or self._registered.has_written()
                or any(version_of(t) != version for (t, _), version in zip(self._buffers, self._versions))
                or not all(is_same(tensor, value) for tensor, value in self._buffers)
                or [id(t) for t in tensors_of(self._module).values()] != [id(t) for t in dict(self._tensors).values()])

    def check_module(self) -> None:
        """Raises NimbleError where the module has replaced a buffer or parameter, written to a parameter, or made a tensor that it
        writes to in each run."""
        self._registered.check()
        for made in self._made.values():
            if version_of(made.tensor) != made.version or not is_same(made.tensor, made.value):
                raise NimbleError(f"the module makes a tensor in its first run, {made.path!r}, and writes to it in each: run the module "
                                  "once before, so that preparing can restore what it holds")

    def restore(self) -> None:
        """Restores everything except attributes (restore_attributes())."""
        self._random.put_back()
        for (_, child), training in zip(self._modules, self._training):
            child.training = training
        self._registered.restore()
        # A few runs later others may have changed.
        self._copy([(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)])

    def restore_attributes(self) -> None:
        """Restores the tensors in attributes and containers, and plain values of modules' attributes. Called where preparing has failed; a
        graph uses their new values."""
        self._contents.put_back()

    def restore_buffers(self) -> None:
        """Restores the values of the buffers that the first run has written to. Called after each run, a graph's too. Raises NimbleError
        after the first run where its effects cannot be undone each time."""
        self._looks += 1
        if self._dirty is None:
            self.check_module()
            self._dirty = [(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)]
            self._flags = self._contents.changed_values()
            self._first = [buffer.detach().clone() for buffer, _ in self._dirty] if self._flags else []
        elif self._looks == 2 and self.has_flags():
            self._check_first_run(self._dirty)
        if 2 <= self._looks <= _MOST_LEARNED:  # in learning runs: kernels that name the copies show that they contain no addresses
            for buffer, value in self._dirty:
                is_same(buffer, value)
        self._copy(self._dirty)
        if self._looks <= _MOST_LOOKS:
            for path, tensor in tensors_of(self._module).items():
                if id(tensor) not in self._known and id(tensor) not in self._made and _can_be_kept(tensor):
                    self._made[id(tensor)] = _Made(path, tensor)

    def has_flags(self) -> bool:
        """Whether the first run has changed plain values of attributes that have not changed since (unlike counters)."""
        if self._flags:
            now = self._contents.changed_values()
            self._flags = {key: value for key, value in self._flags.items() if key in now and now[key] == value}
        return bool(self._flags)

    def _check_first_run(self, dirty: List[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Called after the second run, with the buffers that the first has written. Raises NimbleError where the second has not written
        the same ones: these were restored, and would never be written again."""
        if any(is_same(buffer, value) or not is_alike(buffer, first) for (buffer, value), first in zip(dirty, self._first)):
            names = ", ".join(sorted({repr(key) for _, key in self._flags}))
            raise NimbleError(f"the module's first run writes to a buffer as later ones do not, and notes in attributes ({names}) that it "
                              "has: run the module once before")

    @staticmethod
    def _copy(pairs: List[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        with torch.no_grad():
            for buffer, value in pairs:
                buffer.data.copy_(value)  # by .data, since tensors saved by autograd are unchanged in the end


class _Made:
    """A tensor as it is when it is first seen."""

    def __init__(self, path: str, tensor: torch.Tensor) -> None:
        self.path, self.tensor, self.version, self.value = path, tensor, version_of(tensor), tensor.detach().clone()


def _can_be_kept(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and has_memory(tensor)
