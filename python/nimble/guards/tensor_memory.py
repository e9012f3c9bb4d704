"""Where tensors keep their values, for tensors of any layout and those in modules' attributes, and whether two hold the same. No state; any
thread."""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, List, Tuple

import torch
from torch.nn.parameter import is_lazy

from nimble.errors import NimbleError
from nimble.guards.kept_parameters import path_of


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they hold the same values. Versions do not tell: batch norm writes its statistics without raising them."""
    with torch.no_grad():
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same except for rounding: kernels do not always add in the same order."""
    with torch.no_grad():
        return is_same(one, other) or one.is_floating_point() and torch.allclose(one.float(), other.float(), 1e-3, 1e-5, equal_nan=True)


def attribute_tensors(module: torch.nn.Module) -> "List[Tuple[Dict[str, Any], str, torch.Tensor, str]]":
    """Tensors that modules hold as attributes without registering them: the __dict__, the name, the tensor and the path."""
    return [(child.__dict__, attribute, value, path_of(name, attribute)) for name, child in module.named_modules()
            for attribute, value in child.__dict__.items() if isinstance(value, torch.Tensor)]


def strided_parts(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The strided tensors that a tensor of any layout is made of, on the same memory. Raises NimbleError where they are not known."""
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
            pass  # try the other one
    raise NimbleError(f"a tensor has layout {tensor.layout}, and it is not known where its memory is")


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor tells where its memory is. Lazy tensors and wrapper classes do not."""
    try:
        return not is_lazy(tensor) and all(part.data_ptr() or not part.numel() or part.is_meta for part in strided_parts(tensor))
    except RuntimeError:
        return False


def check_memory(module: torch.nn.Module) -> None:
    """Raises NimbleError where a graph could not follow the memory of a parameter, buffer or tensor attribute."""
    plain = [(path, tensor) for _, _, tensor, path in attribute_tensors(module)]
    for name, tensor in chain(module.named_parameters(), module.named_buffers(), plain):
        if is_lazy(tensor):
            raise NimbleError(f"the parameter or buffer {name!r} has no memory yet: run the module once before")
        if tensor.layout is not torch.strided or not has_memory(tensor):
            raise NimbleError(f"{name!r} is a {type(tensor).__name__} with layout {tensor.layout}, and a graph cannot follow its memory")
