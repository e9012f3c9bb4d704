"""The gradients that a captured step finds and leaves: whether a replay fits the present ones, and how it hands out its own.

Not to be used by two threads at once."""

from __future__ import annotations

import sys
from itertools import repeat
from operator import attrgetter, is_, is_not
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import mark_written
from nimble.guards.metadata import Metadata
from nimble.objects.memory import storage_of, version_of, weakly

_grad = attrgetter("grad")
_none = repeat(None)
# The number of references to a tensor, including autograd's, which Python's count leaves out.
_uses: "Callable[[Any], int]" = getattr(torch.Tensor, "_use_count", sys.getrefcount)


class Grads:
    """p.grad of each parameter before and after the capture. touched: whether the capture has read or written the earlier
    gradient; versions: of the earlier gradients."""

    def __init__(self, parameters: Sequence[torch.Tensor], before: "List[Optional[torch.Tensor]]",
                 after: "List[Optional[torch.Tensor]]", touched: Sequence[bool], versions: Sequence[int]) -> None:
        self._parameters = parameters
        self._there = [grad is not None for grad in before]
        # Those that are read, or written in place, must be the same memory then. A gradient that a step does not use may be
        # anything, and stays unless it is dropped. Weakly: a reference to another graph's gradient would keep that graph from
        # being replayed.
        same = [(p, b) for p, b, is_read in zip(parameters, before, touched) if b is not None and is_read]
        self._wearers, self._same = [p for p, _ in same], [weakly(b) for _, b in same]
        self._addresses = [b.data_ptr() for _, b in same]
        self._dropped = [p for p, b, a in zip(parameters, before, after) if b is not None and a is None]
        # The others are the graph's own.
        own = [(p, a) for p, b, a in zip(parameters, before, after) if a is not None and a is not b]
        self._owners, self._own = [p for p, _ in own], [a for _, a in own]
        # Separate tensors that hold their memory, since the program may give them other memory (p.grad.data = ...).
        self._memory = [a.detach() for a in self._own]
        self._places = list(map(torch.Tensor.data_ptr, self._own))
        self._metadata = Metadata(self._own)
        self._storages = [a.untyped_storage()._cdata for a in self._own] if hasattr(torch._C, "_storage_Use_Count") else []
        self._wanting = [a.requires_grad for a in self._own]
        self._adds_to = [weakly(b) for b, a, version in zip(before, after, versions)
                         if b is not None and b is a and version_of(b) != version]
        self._counts: Dict[bool, List[int]] = {}
        self._fits_as_worn = len(self._own) == len(parameters) and all(self._there)
        self._are_worn = False  # as of fit(): each of the graph's own is the gradient of its parameter

    def found(self) -> List[torch.Tensor]:
        """Earlier gradients that the graph reads, or writes in place."""
        return [grad for grad in (each() for each in self._same) if grad is not None]

    def fit(self) -> bool:
        """Whether the graph may be replayed with the present gradients."""
        self._are_worn = all(map(is_, map(_grad, self._owners), self._own))
        if not (self._are_worn and self._fits_as_worn) and list(map(is_not, map(_grad, self._parameters), _none)) != self._there:
            return False
        if not self._same:
            return True
        now = list(map(_grad, self._wearers))
        return (all(map(is_, now, [each() for each in self._same]))
                and list(map(torch.Tensor.data_ptr, now)) == self._addresses)

    def put(self) -> None:
        """Called after a replay: gives the parameters their gradients."""
        for parameter in self._dropped:
            parameter.grad = None
        if self._have_moved() or self._metadata.difference() is not None:
            for own, memory, wants in zip(self._own, self._memory, self._wanting):
                if own.requires_grad and not wants:
                    own.detach_()
                own.requires_grad_(wants)
                own.data = memory
            del own
        if not all(map(is_, map(_grad, self._owners), self._own)):
            for i in range(len(self._own)):  # by index: a loop variable would count as a use
                self._owners[i].grad = self._own[i]
        # Tensors that autograd has saved from them are no longer valid.
        mark_written([*self._memory, *(grad for grad in (each() for each in self._adds_to) if grad is not None)])
        if not self._counts:  # nothing else can refer to them yet
            for is_there in (False, True):
                for i in range(len(self._own)):
                    self._owners[i].grad = self._own[i] if is_there else None
                self._counts[is_there] = self.uses()

    def leave(self) -> None:
        """Moves the parameters' gradients to their own memory, since the graph is freed."""
        for i in range(len(self._own)):
            if self._owners[i].grad is self._own[i]:
                self._owners[i].grad = self._own[i].clone()
        for each in (self._own, self._same, self._storages, self._memory, self._places, self._adds_to):
            each.clear()
        self._metadata = Metadata(())

    def are_held(self) -> bool:
        """Whether the program still refers to a gradient of an earlier step, which a replay would overwrite. Called after fit()."""
        if not self._counts or not self._own:
            return False
        there, gone, now = self._counts[True], self._counts[False], self.uses()
        if self._have_moved():  # these no longer use the memory, but others may
            there, gone = self._without_moved(there), self._without_moved(gone)
        if now == gone or self._are_worn and now == there:  # each belongs to the graph alone, as after zero_grad(), or to a parameter
            return False
        worn = list(map(is_, map(_grad, self._owners), self._own))
        return any(count > (there if worn[i % len(worn)] else gone)[i] for i, count in enumerate(now))

    def _have_moved(self) -> bool:
        return list(map(torch.Tensor.data_ptr, self._own)) != self._places

    def _without_moved(self, counts: List[int]) -> List[int]:
        """The counts without the use of a memory by a gradient that has other memory now."""
        after = len(counts) - len(self._storages)
        moved = [storage_of(own)._cdata != where for own, where in zip(self._own, self._storages)]
        return [*counts[:after], *(count - is_moved for count, is_moved in zip(counts[after:], moved))]

    def uses(self) -> List[int]:
        """The number of references to each of the graph's own gradients, in Python and in total; then to the memory of each,
        where PyTorch shows it."""
        references = [*map(sys.getrefcount, self._own), *map(_uses, self._own)]
        if self._storages:
            references += map(torch._C._storage_Use_Count, self._storages)
        return references


def check_layouts(parameters: Sequence[torch.Tensor]) -> None:
    """Raises NimbleError where a gradient has no strided memory that a graph could write to."""
    for parameter in parameters:
        grad = parameter.grad
        if grad is not None and grad.layout is not torch.strided:
            raise NimbleError(f"a gradient has layout {grad.layout}, and a graph cannot tell its size")
