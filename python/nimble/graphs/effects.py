"""A run's effects on tensors that others can see, as far as versions and values tell. Belongs to one thread."""

from __future__ import annotations

from typing import Iterable, List, Tuple

import torch

from nimble.guards.tensor_memory import is_same
from nimble.objects.memory import unique, version_of


class VersionRises:
    """Which versions a run raises: autograd then reports that a saved tensor was written to, and replays must raise
    them as well. Made before the run, from tensors, each with its stand-in in the run."""

    def __init__(self, pairs: Iterable[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._before = [(mine, given, version_of(mine)) for mine, given in pairs]

    def found(self) -> List[torch.Tensor]:
        """The tensors with a higher version now."""
        return unique(given for mine, given, version in self._before if version_of(mine) != version)


class Effects:
    """Which tensors a run writes to. Made before the run."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            self._before = [(t, version_of(t), t.detach().clone()) for t in unique(tensors)]

    def written(self) -> List[torch.Tensor]:
        """The tensors written to since, even with the same values where a version tells."""
        return [t for t, version, value in self._before if version_of(t) != version or not is_same(t, value)]
