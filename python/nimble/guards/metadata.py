"""Quickly compares tensors' metadata: shapes, strides, dtypes, and which require gradients. Values do not matter.

A Metadata only reads, except for the checks that it caches; so not by two threads at once."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Callable, Iterable, List, Optional, Sequence

import torch

from nimble.objects.memory import unique

_requires_grad = attrgetter("requires_grad")
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
_grad_dtype = attrgetter("grad_dtype") if hasattr(torch.Tensor, "grad_dtype") else None  # the dtype that a leaf's gradients must have
_any_requires_grad: "Callable[..., bool]" = getattr(torch._C, "_any_requires_grad", lambda *tensors: any(map(_requires_grad, tensors)))


def _found_tensor_guards() -> Any:
    """torch.compile's class that compares the metadata of tensors, in a tenth of a microsecond each. None where it misses changes."""
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
    """A function that is True for tensors with the same metadata as these, each tensor once. It may also be False for other modes of
    PyTorch. It holds none of the tensors. None where this PyTorch has no such function."""
    try:
        check: "Callable[..., bool]" = _guards_of(_tensor_guards, tensors).check
        return check
    except Exception:
        return None  # missing in this release, or tensors of an unknown class


_MOST_MODES = 4  # of PyTorch, which these checks compare, too


def grad_dtypes(leaves: Iterable[torch.Tensor]) -> List[Any]:
    """The dtypes that gradients of these leaves must have. Empty where this PyTorch has no such setting."""
    return list(map(_grad_dtype, leaves)) if _grad_dtype is not None else []


class Metadata:
    """Shapes, strides and dtypes of tensors, which it holds, and which of them require gradients: kernels depend on that even where
    no gradients are computed (torch.matmul). trains: also the dtypes of gradients."""

    def __init__(self, tensors: Iterable[torch.Tensor], trains: bool = False) -> None:
        self._tensors = unique(tensors)
        self._wanting = [t for t in self._tensors if t.requires_grad]
        self._others = [t for t in self._tensors if not t.requires_grad]
        self._leaves = [t for t in self._wanting if t.is_leaf] if trains else []
        self._grad_dtypes = grad_dtypes(self._leaves)
        self._seen = self.look()
        self._checks: List[Callable[..., bool]] = []
        self._add_check()

    def look(self) -> List[Any]:
        """What is compared, in the order of _METADATA."""
        return [
            list(map(torch.Tensor.stride, self._tensors)),
            list(map(_shape, self._tensors)),
            list(map(_dtype, self._tensors)),
            list(map(_requires_grad, self._wanting)),
            _any_requires_grad(*self._others),
        ]

    def difference(self) -> Optional[str]:
        """What has changed, as a phrase for a message; None where nothing has changed."""
        if not self._tensors:
            return None
        if self._leaves and grad_dtypes(self._leaves) != self._grad_dtypes:
            return "a parameter has another grad_dtype"
        for check in self._checks:
            if check(*self._tensors):
                return None
        for text, now, before in zip(_METADATA, self.look(), self._seen):
            if now != before:
                return text
        self._add_check()
        return None

    def _add_check(self) -> None:
        """Adds a check for PyTorch's current modes."""
        check = metadata_check(self._tensors) if len(self._checks) < _MOST_MODES else None
        if check is not None:
            self._checks.append(check)


_METADATA = ("a parameter or buffer has other strides", "a parameter or buffer has another shape",
             "a parameter or buffer has another dtype", "a parameter no longer requires gradients",
             "a parameter or buffer now requires gradients")
