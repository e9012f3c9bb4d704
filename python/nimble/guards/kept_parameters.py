"""Checks that runs neither replace nor move a module's parameters and buffers, and do not change values of parameters and
gradients.

Parameters may take most of a device's memory, so only those that an op is about to write to are copied. Belongs to one thread."""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.op_watch import OpWrites
from nimble.guards.write_detector import WriteDetector
from nimble.objects.memory import version_of

_Where = Tuple[int, torch.Size, Tuple[int, ...], torch.dtype]


def path_of(name: str, attribute: str) -> str:
    return f"{name}.{attribute}" if name else attribute


def where_of(tensor: torch.Tensor) -> _Where:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


class RegisteredTensors:
    """The registered tensors of some modules, by path, at construction. more: tensors that count as parameters. placed: others,
    which must not move. is_checked: check() will be called."""

    def __init__(self, modules: "Iterable[Tuple[str, torch.nn.Module]]", more: "Iterable[Tuple[str, torch.Tensor]]",
                 placed: "Iterable[Tuple[str, torch.Tensor]]", is_checked: bool) -> None:
        self._places: List[Tuple[Any, Dict[str, Any], str, str]] = []
        parameters: Dict[int, Tuple[str, torch.Tensor]] = {}
        tensors: Dict[int, Tuple[str, torch.Tensor]] = {}
        for name, module in modules:
            for where, kind in ((module._parameters, "parameter"), (module._buffers, "buffer")):
                self._places.append((where, dict(where), name, kind))
                for key, tensor in where.items():
                    if tensor is not None and can_be_located(tensor):
                        tensors.setdefault(id(tensor), (path_of(name, key), tensor))
                        if kind == "parameter":
                            parameters.setdefault(id(tensor), (path_of(name, key), tensor))
        for path, tensor in placed:
            if can_be_located(tensor):
                tensors.setdefault(id(tensor), (path, tensor))
        # The current memory, whatever memory the tensors get later.
        self._where = [(path, tensor, tensor.detach(), where_of(tensor)) for path, tensor in tensors.values()]
        self._grads = [(path, p, p.grad, None if p.grad is None else version_of(p.grad))
                       for path, p in parameters.values() if p.is_leaf]
        self._versions = [(path, p, version_of(p)) for path, p in parameters.values()]
        self._values = [*parameters.values(), *more]
        self._before = [(path, WriteDetector([tensor])) for path, tensor in (self._values if is_checked else ())]
        self._writes: Optional[OpWrites] = None

    def watch_writes(self, buffers: Iterable[torch.Tensor]) -> OpWrites:
        """The watch for the first run: what it sees written is restored, except these buffers, which are only noted."""
        self._writes = OpWrites([*(tensor for _, tensor in self._values), *(grad for _, _, grad, _ in self._grads if grad is not None)],
                              buffers)
        return self._writes

    def _own_grads(self) -> "List[Tuple[str, torch.Tensor, Optional[torch.Tensor], Optional[int]]]":
        """Gradients that the run may have changed. Other threads may run their own backwards meanwhile."""
        return self._grads if self._writes is not None and self._writes.has_backward else []

    def has_written(self) -> bool:
        """Whether an op wrote to a parameter, even with the same values."""
        return self._writes is not None and bool(self._writes.kept)

    def check(self) -> None:
        """Raises NimbleError where a run has changed one."""
        for now, before, name, kind in self._places:
            for key in chain(now, before):
                if now.get(key) is not before.get(key):
                    what_to_do = "it has to write in place" if kind == "buffer" else "do so outside of the forward"
                    raise NimbleError(f"the module replaces its {kind} {path_of(name, key)!r} when it runs: {what_to_do}")
        for path, tensor, _, where in self._where:
            if where_of(tensor) != where:
                raise NimbleError(f"the module gives {path!r} other memory when it runs, which a graph would not do: run the module "
                                  "once before if it does so only once, or write in place to a buffer")
        for path, parameter, version in self._versions:
            if version_of(parameter) != version:
                raise NimbleError(_written(path))
        for path, parameter, grad, grad_version in self._own_grads():
            if parameter.grad is not grad or grad is not None and version_of(grad) != grad_version:
                raise NimbleError(f"the module computes gradients of its own when it runs: {path!r} gets another .grad, which "
                                  "preparing would change several times over. Use torch.autograd.grad, or run the backward outside")
        for path, written in self._before:
            if written.any():
                raise NimbleError(_written(path))

    def restore(self) -> None:
        """Restores the tensors, their memory, their gradients, and the values that it saw written."""
        for now, before, _, _ in self._places:
            if any(now.get(key) is not before.get(key) for key in chain(now, before)):
                now.clear()
                now.update(before)
        for _, tensor, memory, where in self._where:
            if where_of(tensor) != where:
                tensor.data = memory
        for _, parameter, grad, _ in self._own_grads():
            if parameter.grad is not grad:
                parameter.grad = grad
        with torch.no_grad():
            for tensor, value in self._writes.kept if self._writes is not None else ():
                tensor.data.copy_(value)


def _written(path: str) -> str:
    return f"the module writes to its parameter {path!r} when it runs: make it a buffer, or write to it outside of the forward"


def can_be_located(tensor: torch.Tensor) -> bool:
    """Whether the tensor can tell where its memory is."""
    try:
        return tensor.layout is torch.strided and (tensor.is_meta or tensor.data_ptr() != 0 or tensor.numel() == 0)
    except RuntimeError:
        return False
