"""What a part of a run does to tensors that others can see, as far as versions and values tell. Belongs to one thread."""

from __future__ import annotations

from typing import Iterable, List, Tuple

import torch

from nimble.guards.tensor_memory import is_same
from nimble.objects.memory import unique, version_of


class VersionRises:
    """Which versions a run raises: autograd then reports that what it has saved was written to, and replays have to raise them as well.
    Made before the run, of tensors, each with what stands for it in the run."""

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
        """The tensors that were written to since, also with the same values, where a version tells."""
        return [t for t, version, value in self._before if version_of(t) != version or not is_same(t, value)]
