"""Quickly compares tensors' metadata: shapes, strides, dtypes, which require gradients, and where they lie. Values do not matter.

A Metadata only reads, except for the words that it keeps (tensor_words.py); so not by two threads at once."""

from __future__ import annotations

from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, Callable, Iterable, List, Optional, Sequence

import torch

from nimble.guards.tensor_words import TensorWords, metadata_layout
from nimble.objects.memory import unique

_requires_grad = attrgetter("requires_grad")
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
_grad_dtype = attrgetter("grad_dtype") if hasattr(torch.Tensor, "grad_dtype") else None  # the dtype that a leaf's gradients must have
_any_requires_grad: "Callable[..., bool]" = getattr(torch._C, "_any_requires_grad", lambda *tensors: any(map(_requires_grad, tensors)))


def grad_dtypes(leaves: Iterable[torch.Tensor]) -> List[Any]:
    """The dtypes that gradients of these leaves must have. Empty where this PyTorch has no such setting."""
    return list(map(_grad_dtype, leaves)) if _grad_dtype is not None else []


class Metadata:
    """Shapes, strides and dtypes of tensors, which it holds, and which of them require gradients: kernels depend on that even where
    no gradients are computed (torch.matmul). trains: also the dtypes of gradients. have_places: also their addresses."""

    def __init__(self, tensors: Iterable[torch.Tensor], trains: bool = False, have_places: bool = False) -> None:
        self._tensors = tuple(unique(tensors))
        wanting = [t.requires_grad for t in self._tensors]
        self._leaves = [t for t in compress(self._tensors, wanting) if t.is_leaf] if trains else []
        self._grad_dtypes = grad_dtypes(self._leaves)
        self._look = partial(_look, wanting, [not each for each in wanting], have_places)
        self._words = TensorWords(metadata_layout, range(len(self._tensors)), self._look, self._tensors)

    def difference(self) -> Optional[str]:
        """What has changed, as a phrase for a message; None where nothing has changed."""
        if not self._tensors:
            return None
        if self._leaves and grad_dtypes(self._leaves) != self._grad_dtypes:
            return "a parameter has another grad_dtype"
        if self._words.are_same(self._tensors):
            return None
        return next((text for text, now, before in zip(_METADATA, self._look(self._tensors), self._words.seen) if now != before), None)


def _look(wanting: List[bool], others: List[bool], have_places: bool, tensors: Sequence[torch.Tensor]) -> List[Any]:
    """What is compared, in the order of _METADATA. wanting, others: of each tensor, whether it requires gradients, or does not."""
    return [
        list(map(torch.Tensor.data_ptr, tensors)) if have_places else [],
        list(map(torch.Tensor.stride, tensors)),
        list(map(_shape, tensors)),
        list(map(_dtype, tensors)),
        list(map(_requires_grad, compress(tensors, wanting))),
        _any_requires_grad(*compress(tensors, others)),
    ]


_METADATA = ("a parameter or buffer has other storage", "a parameter or buffer has other strides", "a parameter or buffer has another shape",
             "a parameter or buffer has another dtype", "a parameter no longer requires gradients",
             "a parameter or buffer now requires gradients")
