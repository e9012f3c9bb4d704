"""What a module is made of: put back after preparing, and guarded at each call of a graph.

ModuleGuard says whether the parameters, buffers, submodules, hooks and training flags are still the ones that a graph was
captured with. It costs less than a microsecond a module, so it compares identities and addresses alone: values of parameters
and buffers on the graph's device may change, since the graph reads them where they are.

StateKeeper puts buffers, training flags and random numbers back. Neither may be used by two threads at once; guards only read.
"""

from __future__ import annotations

import random
from itertools import chain
from operator import attrgetter, eq, is_, itemgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.nn.modules import module as _module

from nimble.errors import NimbleError

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_training = itemgetter("training")
_requires_grad = attrgetter("requires_grad")
_any_requires_grad: "Callable[..., bool]" = getattr(torch._C, "_any_requires_grad", lambda *tensors: any(map(_requires_grad, tensors)))


def _values(dicts: List[Dict[Any, Any]]) -> List[Any]:
    return list(chain.from_iterable(map(dict.values, dicts)))


def _are_identical(now: List[Any], before: List[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _path(name: str, attribute: str) -> str:
    return f"{name}.{attribute}" if name else attribute


def _version(tensor: torch.Tensor) -> int:
    """Rises when the tensor is written to. Inference tensors have none, but no graph is prepared where they can be written."""
    return 0 if tensor.is_inference() else tensor._version


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they hold the same values. Versions do not tell: batch norm writes its statistics without raising them."""
    with torch.no_grad():
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def plain_tensors(module: torch.nn.Module) -> "List[Tuple[Dict[str, Any], str, torch.Tensor, str]]":
    """Tensors that modules hold as plain attributes: where, under which name, which, and the path."""
    return [(child.__dict__, attribute, value, _path(name, attribute)) for name, child in module.named_modules()
            for attribute, value in child.__dict__.items() if isinstance(value, torch.Tensor)]


class ModuleGuard:
    """The module as it is now. Holds all that it compares by identity, so that no id is used again. trains: also what only
    gradients depend on."""

    def __init__(self, module: torch.nn.Module, device_type: str, trains: bool = False) -> None:
        self._modules = list(module.modules())
        registered: List[Dict[str, Any]] = [d for m in self._modules for d in (m._parameters, m._buffers)]
        children = [m._modules for m in self._modules]
        hooks = [getattr(m, name) for m in self._modules for name in _HOOKS]
        hooks += [getattr(_module, name) for name in _GLOBAL_HOOKS]
        if trains:
            hooks += [getattr(m, name) for m in self._modules for name in _BACKWARD_HOOKS if hasattr(m, name)]
            hooks += [getattr(_module, name) for name in _GLOBAL_BACKWARD_HOOKS if hasattr(_module, name)]
        # Most of these are empty, and that they still are is quickly seen.
        self._registered, self._children, self._hooks = ([d for d in dicts if d] for dicts in (registered, children, hooks))
        self._empty = [d for d in registered + children + hooks if not d]
        self._attributes = [m.__dict__ for m in self._modules]
        self._flags = [d for d in self._attributes if "training" in d]
        self._flagged = [m for m in self._modules if "training" not in m.__dict__]  # as those of torch.compile
        self._plain = plain_tensors(module)
        registered_now = _values(self._registered)  # None, too
        self._tensors: List[torch.Tensor] = [t for t in registered_now if t is not None] + [t for _, _, t, _ in self._plain]
        self._matrices = [t for t in self._tensors if t.dim() > 1]
        self._wanting = [t for t in self._tensors if trains and t.requires_grad]
        self._others = [t for t in self._tensors if trains and not t.requires_grad]
        # What lies elsewhere was read by the host when the graph was captured.
        self._elsewhere = [t for t in self._tensors if t.device.type != device_type]
        self._seen = self._look()

    def memory(self) -> List[torch.Tensor]:
        """Tensors on the memory of parameters, buffers and tensors in plain attributes, as they are now: who holds them keeps it."""
        return [t.detach() for t in self._tensors]

    def _look(self) -> List[Any]:
        """What is compared, in the order of _PARTS."""
        return [
            _values(self._registered),
            list(map(torch.Tensor.data_ptr, self._tensors)),
            list(map(torch.Tensor.stride, self._matrices)),
            _values(self._children),
            _values(self._hooks),
            list(filter(None, self._empty)),
            list(map(_training, self._flags)) + [m.training for m in self._flagged],
            ["forward" in attributes for attributes in self._attributes],
            [d.get(name) for d, name, _, _ in self._plain],
            list(map(_version, self._elsewhere)),
            list(map(_requires_grad, self._wanting)),
            _any_requires_grad(*self._others),
        ]

    def difference(self) -> Optional[str]:
        """What has changed since, for people; None where nothing has."""
        for (text, are_same), now, before in zip(_PARTS, self._look(), self._seen):
            if not are_same(now, before):
                return text
        return None


_PARTS: "Tuple[Tuple[str, Callable[[Any, Any], bool]], ...]" = (
    ("a parameter or buffer is another tensor", _are_identical),
    ("a parameter or buffer has other storage", eq),
    ("a parameter or buffer has other strides", eq),
    ("a submodule is another one", _are_identical),
    ("a hook was added or removed", _are_identical),
    ("a first parameter, buffer, submodule or hook was added", eq),
    ("a training flag has changed", eq),
    ("a forward method was replaced", eq),
    ("a tensor attribute is another one", _are_identical),
    ("a tensor on another device has changed", eq),
    ("a parameter wants no gradients any more", eq),
    ("a parameter or buffer wants gradients that wanted none", eq),
)


class StateKeeper:
    """Remembers buffers (and tensors in plain attributes, which are none), training flags and the host's random numbers when made;
    restore() puts them back."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modules = list(module.named_modules())
        self._training = [m.training for _, m in self._modules]
        self._registered = [(m._buffers, dict(m._buffers), name) for name, m in self._modules]
        with torch.no_grad():
            self._attributes = {id(t): t for _, _, t, _ in plain_tensors(module)}
            buffers = {id(t): t for t in (*module.buffers(), *self._attributes.values())}
            self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers.values()]
        self._versions = [_version(tensor) for tensor, _ in self._buffers]
        self._module = module
        self._dirty: Optional[List[Tuple[torch.Tensor, torch.Tensor]]] = None  # those that the first run has written to
        self._parameters = [(name, p, _version(p)) for name, p in module.named_parameters()]
        self._random = random.getstate(), torch.get_rng_state()

    def check_random(self) -> None:
        """Raises NimbleError where the host's random numbers have advanced: what they were would be in the graph."""
        python, host = self._random
        if random.getstate() != python:
            raise NimbleError("the module draws random numbers by Python's `random`, which a graph would never draw anew")
        if not torch.equal(torch.get_rng_state(), host):
            raise NimbleError("the module draws random numbers on the CPU, which a graph would never draw anew")

    def has_drawn(self) -> bool:
        """Whether the host's random numbers have advanced. Asked before restore()."""
        python, host = self._random
        return random.getstate() != python or not torch.equal(torch.get_rng_state(), host)

    def written(self) -> List[torch.Tensor]:
        """The buffers that the first run has written to, as far as values tell. Asked behind restore_buffers()."""
        return [buffer for buffer, _ in self._dirty or []]

    def has_written(self, but: Sequence[torch.Tensor] = ()) -> bool:
        """Whether the runs so far may have written to a buffer, or to a tensor in a plain attribute: also to one that they have
        made. Asked before restore(). `but`: the first run may have written to these buffers."""
        apart = set(map(id, but))
        return (any(id(buffer) not in apart for buffer in self.written())
                or any(_version(t) != version for (t, _), version in zip(self._buffers, self._versions))
                or not all(is_same(tensor, value) for tensor, value in self._buffers)
                or [id(t) for _, _, t, _ in plain_tensors(self._module)] != list(self._attributes))

    def check_module(self) -> None:
        """Raises NimbleError where the module has replaced a buffer or written to a parameter."""
        for now, before, name in self._registered:
            for key in chain(now, before):
                if now.get(key) is not before.get(key):
                    raise NimbleError(f"the module replaces its buffer {_path(name, key)!r} when it runs: it has to write in "
                                      "place")
        for name, parameter, version in self._parameters:
            if _version(parameter) != version:
                raise NimbleError(f"the module writes to its parameter {name!r} when it runs, which is not put back")

    def restore(self) -> None:
        """Puts all back but parameters' values."""
        python, host = self._random
        random.setstate(python)
        torch.set_rng_state(host)
        for (_, child), training in zip(self._modules, self._training):
            child.training = training
        for now, before, _ in self._registered:
            if any(now.get(k) is not before.get(k) for k in chain(now, before)):
                now.clear()
                now.update(before)
        # A few runs later it may be others that have changed.
        self._copy([(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)])

    def restore_buffers(self) -> None:
        """Puts back the values of the buffers that the first run has written to. Called behind each run, also of a graph."""
        if self._dirty is None:
            self._dirty = [(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)]
        self._copy(self._dirty)

    @staticmethod
    def _copy(pairs: List[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        with torch.no_grad():
            for buffer, value in pairs:
                buffer.data.copy_(value)  # nothing that autograd has saved has changed in the end
