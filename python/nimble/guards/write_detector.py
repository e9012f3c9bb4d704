"""Whether a run has written to tensors that may be as large as a model: by checksums, a few megabytes at a time. No state; any
thread."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

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
            return versions(self._tensors), _checksums([_bytes(tensor) for tensor in blocks.values()])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory."""
    memory = storage_of(tensor)
    memory = memory.untyped() if hasattr(memory, "untyped") and not hasattr(tensor, "untyped_storage") else memory  # before 2.0
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory, 0, (memory.nbytes(),), (1,))


def _checksums(memories: Iterable[torch.Tensor]) -> List[torch.Tensor]:
    """On the memories' devices. Small ones are put together: there may be thousands, and each operation takes time of its own."""
    groups: Dict[Tuple[torch.device, torch.dtype], List[torch.Tensor]] = {}
    for memory in memories:
        words = memory.numel() // 8 if memory.data_ptr() % 8 == 0 else 0
        for part in (memory[:8 * words].view(torch.int64), memory[8 * words:]):
            for chunk in torch.split(part, _CHUNK) if part.numel() > 0 else ():
                groups.setdefault((chunk.device, chunk.dtype), []).append(chunk)
    return [_checksum(together) for chunks in groups.values() for together in _put_together(chunks)]


def _put_together(chunks: Iterable[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Lists of no more than _CHUNK elements together."""
    together: List[torch.Tensor] = []
    size = 0
    for chunk in chunks:
        if together and size + chunk.numel() > _CHUNK:
            yield together
            together, size = [], 0
        together.append(chunk)
        size += chunk.numel()
    if together:
        yield together


def _checksum(chunks: List[torch.Tensor]) -> torch.Tensor:
    """Of all of them; the place of each element enters it."""
    joined = torch.cat(chunks) if len(chunks) > 1 else chunks[0]
    factors = torch.arange(1, 2 * joined.numel(), 2, dtype=torch.int64, device=joined.device)  # odd, so that none loses bits
    return (joined * factors).sum()
