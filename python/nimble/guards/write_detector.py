"""Whether a run has written to tensors that may be as large as a model: by a checksum of each block of memory, without copies. No state;
any thread."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import torch

from nimble.objects.memory import storage_address, storage_of, unique, versions

_CHUNK = 1 << 20  # words per step


def memory_start(tensor: torch.Tensor) -> int:
    """The address where the tensor's memory begins. 0 where it has none, as with wrapper classes."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return 0
    try:
        return storage_address(tensor)
    except RuntimeError:
        return 0


class WriteDetector:
    """Made before a run; any() says after it whether one of the tensors was written to."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = unique(tensors)
        self._before = self._now()

    def any(self) -> bool:
        (known, before), (known_now, now) = self._before, self._now()
        return known != known_now or len(before) != len(now) or not all(map(torch.equal, before, now))

    def _now(self) -> "Tuple[List[int], List[torch.Tensor]]":
        blocks: Dict[int, torch.Tensor] = {}
        for tensor in self._tensors:
            where = memory_start(tensor)
            if where != 0:
                blocks.setdefault(where, tensor)
        with torch.no_grad(), torch.inference_mode(False):
            return versions(self._tensors), [_number(_bytes(t)) for t in blocks.values()]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory."""
    memory = storage_of(tensor)
    memory = memory.untyped() if hasattr(memory, "untyped") and not hasattr(tensor, "untyped_storage") else memory  # before 2.0
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory, 0, (memory.nbytes(),), (1,))


def _number(memory: torch.Tensor) -> torch.Tensor:
    """A checksum on the tensor's device. The positions of words and chunks enter it."""
    words = memory.numel() // 8 if memory.data_ptr() % 8 == 0 else 0
    parts = [*torch.split(memory[:8 * words].view(torch.int64), _CHUNK), *torch.split(memory[8 * words:], _CHUNK)]
    most = max((part.numel() for part in parts), default=0)
    factors = torch.arange(1, 2 * most, 2, dtype=torch.int64, device=memory.device)  # odd, so that none loses bits
    sums = [(part * factors[:part.numel()]).sum() for part in parts if part.numel() > 0]
    return torch.stack(sums) if sums else factors
