"""What a part of a run does to tensors that others see, as far as versions and values tell. No graph here.

An Effects belongs to one thread.
"""

from __future__ import annotations

from typing import Iterable, List, Tuple

import torch

from nimble.guards.state import is_same
from nimble.objects.memory import unique, version_of


class Rises:
    """Made before a run, of tensors, each with what stands for it in the run. Where eager runs raise versions, and autograd would tell who
    has saved what is written to, replays have to."""

    def __init__(self, pairs: Iterable[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._before = [(mine, given, version_of(mine)) for mine, given in pairs]

    def found(self) -> List[torch.Tensor]:
        """Those whose versions have risen since."""
        return unique(given for mine, given, version in self._before if version_of(mine) != version)


class Effects:
    """Made before a run."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            self._before = [(t, version_of(t), t.detach().clone()) for t in unique(tensors)]

    def written(self) -> List[torch.Tensor]:
        """Those that were written to since: also with what was there before, where a version tells."""
        return [t for t, version, value in self._before if version_of(t) != version or not is_same(t, value)]
