"""What a module is made of: put back after preparing, and guarded at each call of a graph.

ModuleGuard says whether the parameters, buffers, submodules, hooks and training flags are still the ones that a graph was
captured with. It costs less than a microsecond a module, so it compares identities, addresses and what tensors say of their memory
(Metadata): values of parameters and buffers on the graph's device may change, since the graph reads them where they are.

StateKeeper puts buffers, training flags and random numbers back. Neither may be used by two threads at once; guards only read.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, eq, is_, itemgetter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch
from torch.nn.modules import module as _module
from torch.nn.parameter import is_lazy

from nimble.errors import NimbleError
from nimble.host_random import HostRandom

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
_training = itemgetter("training")
_requires_grad = attrgetter("requires_grad")
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
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


def _found_tensor_guards() -> Any:
    """By which torch.compile compares all that tensors say of their memory, in a tenth of a microsecond each: a class, or None where
    it does not do as is needed here."""
    kind: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
    if kind is None:
        return None
    try:
        one, other = torch.empty(2, 3, device="cpu"), torch.empty(0, device="cpu")
        check = _guards_of(kind, [one, other]).check
        changed = [torch.empty(3, 2, device="cpu"), torch.empty(3, 2, device="cpu").t(), torch.empty(1, 2, 3, device="cpu"),
                   torch.empty(2, 3, device="cpu", dtype=torch.float64), torch.empty(2, 3, device="cpu", requires_grad=True)]
        return kind if check(torch.empty(2, 3, device="cpu"), other) and not any(check(each, other) for each in changed) else None
    except Exception:
        return None


def _guards_of(kind: Any, tensors: Sequence[torch.Tensor]) -> Any:
    return kind(*tensors, dynamic_dims_sizes=[list(t.shape) for t in tensors],
                dynamic_dims_strides=[list(t.stride()) for t in tensors])


_tensor_guards: Any = _found_tensor_guards()


def metadata_check(tensors: Sequence[torch.Tensor]) -> "Optional[Callable[..., bool]]":
    """What is True for as many tensors, each once, of whose memory all is told that is told of these; False may also be PyTorch's modes.
    Holds none of them. None where there is nothing that does."""
    try:
        check: "Callable[..., bool]" = _guards_of(_tensor_guards, tensors).check
        return check
    except Exception:
        return None  # not in this release, or tensors of a class that it does not know


_MOST_MODES = 4  # of PyTorch, which they compare, too


class Metadata:
    """Shapes, strides and dtypes of tensors, which it holds. trains: and which of them require gradients."""

    def __init__(self, tensors: Iterable[torch.Tensor], trains: bool) -> None:
        self._tensors = list({id(t): t for t in tensors}.values())
        self._wanting = [t for t in self._tensors if trains and t.requires_grad]
        self._others = [t for t in self._tensors if trains and not t.requires_grad]
        self._seen = self.look()
        self._checks: List[Callable[..., bool]] = []
        self._add_check()

    def look(self) -> List[Any]:
        """In the order of _METADATA."""
        return [
            list(map(torch.Tensor.stride, self._tensors)),
            list(map(_shape, self._tensors)),
            list(map(_dtype, self._tensors)),
            list(map(_requires_grad, self._wanting)),
            _any_requires_grad(*self._others),
        ]

    def difference(self) -> Optional[str]:
        """What has changed since, for people; None where nothing has."""
        if not self._tensors:
            return None
        for check in self._checks:
            if check(*self._tensors):
                return None
        for text, now, before in zip(_METADATA, self.look(), self._seen):
            if now != before:
                return text
        self._add_check()
        return None

    def _add_check(self) -> None:
        """For the modes that there are now."""
        check = metadata_check(self._tensors) if len(self._checks) < _MOST_MODES else None
        if check is not None:
            self._checks.append(check)


_METADATA = ("a parameter or buffer has other strides", "a parameter or buffer has another shape",
             "a parameter or buffer has another dtype", "a parameter wants no gradients any more",
             "a parameter or buffer wants gradients that wanted none")


def parts_of(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The strided tensors that one of any layout is made of, on the same memory. NimbleError where that is not known."""
    if tensor.layout is torch.strided:
        return [tensor]
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
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


class ModuleGuard:
    """The module as it is now. Holds all that it compares by identity, so that no id is used again. trains: also what only
    gradients depend on."""

    def __init__(self, module: torch.nn.Module, device_type: str, trains: bool = False) -> None:
        check_memory(module)
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
        self._metadata = Metadata(self._tensors, trains)
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
            _values(self._children),
            _values(self._hooks),
            list(filter(None, self._empty)),
            list(map(_training, self._flags)) + [m.training for m in self._flagged],
            ["forward" in attributes for attributes in self._attributes],
            [d.get(name) for d, name, _, _ in self._plain],
            list(map(_version, self._elsewhere)),
        ]

    def difference(self) -> Optional[str]:
        """What has changed since, for people; None where nothing has."""
        for (text, are_same), now, before in zip(_PARTS, self._look(), self._seen):
            if not are_same(now, before):
                return text
        return self._metadata.difference()


_PARTS: "Tuple[Tuple[str, Callable[[Any, Any], bool]], ...]" = (
    ("a parameter or buffer is another tensor", _are_identical),
    ("a parameter or buffer has other storage", eq),
    ("a submodule is another one", _are_identical),
    ("a hook was added or removed", _are_identical),
    ("a first parameter, buffer, submodule or hook was added", eq),
    ("a training flag has changed", eq),
    ("a forward method was replaced", eq),
    ("a tensor attribute is another one", _are_identical),
    ("a tensor on another device has changed", eq),
)


class StateKeeper:
    """Remembers buffers (and tensors in plain attributes, which are none), training flags and the host's random numbers when made;
    restore() puts them back."""

    def __init__(self, module: torch.nn.Module) -> None:
        check_memory(module)
        self._modules = list(module.named_modules())
        self._training = [m.training for _, m in self._modules]
        self._registered = [(m._buffers, dict(m._buffers), name) for name, m in self._modules]
        with torch.no_grad():
            self._plain = plain_tensors(module)
            self._attributes = {id(t): t for _, _, t, _ in self._plain}
            buffers = {id(t): t for t in (*module.buffers(), *self._attributes.values())}
            self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers.values()]
        self._versions = [_version(tensor) for tensor, _ in self._buffers]
        self._module = module
        self._dirty: Optional[List[Tuple[torch.Tensor, torch.Tensor]]] = None  # those that the first run has written to
        self._parameters = [(name, p, _version(p)) for name, p in module.named_parameters()]
        self._random = HostRandom()

    def check_random(self, but_torch: bool = False) -> None:
        """Raises NimbleError where the host's random numbers have advanced: what they were would be in the graph. but_torch: those of
        PyTorch are the device's."""
        who = self._random.who_has_drawn(but_torch)
        if who is not None:
            raise NimbleError(f"the module draws random numbers {who}, which a graph would never draw anew")

    def has_drawn(self) -> bool:
        """Whether the host's random numbers have advanced. Asked before restore()."""
        return self._random.who_has_drawn() is not None

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
        self._random.put_back()
        for (_, child), training in zip(self._modules, self._training):
            child.training = training
        for now, before, _ in self._registered:
            if any(now.get(k) is not before.get(k) for k in chain(now, before)):
                now.clear()
                now.update(before)
        # A few runs later it may be others that have changed.
        self._copy([(buffer, value) for buffer, value in self._buffers if not is_same(buffer, value)])

    def restore_attributes(self) -> None:
        """Puts back which tensors plain attributes are: where preparing has failed. A graph works with what they are by then."""
        for where, name, tensor, _ in self._plain:
            if where.get(name) is not tensor:
                where[name] = tensor

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
