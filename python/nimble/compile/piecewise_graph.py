"""A graph that Dynamo has traced with symbolic sizes, cut into pieces (pieces.py). Each piece is a function with CUDA graphs of its own
(piece_calls.py), whatever the sizes are; what lies between pieces runs as traced, in the graph's own order.

The first call runs as traced. From then on a piece writes what only this graph uses to buffers of its own (output_buffers.py), where other
pieces read it in place. What a call returns is the caller's own memory: outputs of a piece that the graph returns are copies, as from any
CUDA graph of ours, and whatever else turns out to lie in a buffer is copied at the end.

Any thread: a call made while another thread is in this graph runs as traced. Calls on different streams are ordered."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from nimble.compile.compiled_function import why_not_now
from nimble.compile.graphed_call import Engine
from nimble.compile.piece_calls import PieceCalls, Shared
from nimble.compile.pieces import CutGraph
from nimble.compile.traced_graph import TracedGraph
from nimble.graphs.graph_io import GraphReport
from nimble.graphs.outputs import OutputCopies
from nimble.guards import switches

_LOOKS = (8, 32, 128, 512)  # calls after which it is decided whether pieces are worth it


class PiecewiseGraph:
    """The calls of one traced graph, and its pieces. forward: called where no CUDA graph can serve."""

    def __init__(self, cut: CutGraph, forward: "Callable[..., Any]", engine: Engine, name: str) -> None:
        self.name = name
        self._forward, self._backend = forward, engine.backend
        self._busy = threading.Lock()
        self._process = os.getpid()
        self._why: Optional[str] = None
        self._as_traced: "Counter[str]" = Counter()  # whole calls
        self._calls = 0
        self._order = _Order(engine.backend.device_type)
        self._shared = Shared()
        self._pieces: Dict[str, PieceCalls] = {}
        for number, piece in enumerate(cut.pieces, 1):
            self._pieces[piece.name] = PieceCalls(piece, engine, f"{name}, piece {number} of {len(cut.pieces)}", self._pieces,
                                                   self._shared, cut.may_have_buffers)
            setattr(cut.module, piece.name, _Part(self._pieces[piece.name]))
        for between in cut.between:
            setattr(cut.module, between, _Part(getattr(cut.module, between).forward))
        self._run = cut.module.forward

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """What the graph returns, or raises, for these arguments."""
        why = self._why or why_not_now(self._backend, self._process) or switches.why_not_replayed()
        if why is None and not self._busy.acquire(blocking=False):
            why = "while another thread was in it"
        if why is not None:
            self._as_traced[why] += 1
            return self._forward(*arguments)
        try:
            self._shared.kernels = switches.kernels()
            self._order.begin()
            outputs = self._own(self._run(*arguments))
            self._calls += 1
            if self._calls in _LOOKS:
                self._why = self._why_not_worth_it()
            return outputs
        finally:
            self._order.end(self._shared.device)
            self._busy.release()

    def _why_not_worth_it(self) -> Optional[str]:
        """Why no piece will have a CUDA graph; None where one may. Then buffers would only cost time."""
        whys = [piece.why_ended() for piece in self._pieces.values()]
        return whys[0] if all(whys) else self._why

    def _own(self, outputs: Any) -> Any:
        """The outputs, without those that lie in buffers."""
        memory = self._shared.memory
        numbers = [number for number, each in enumerate(outputs)
                   if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.untyped_storage().data_ptr() in memory]
        if not numbers:
            return outputs
        owned = list(outputs)
        for number, copy in zip(numbers, OutputCopies([outputs[number] for number in numbers])()):
            owned[number] = copy
        return type(outputs)(owned)

    def pieces(self) -> List[TracedGraph]:
        """Those that have been called."""
        return [each.graph for each in self._pieces.values() if each.graph is not None]

    @property
    def served(self) -> int:
        """Calls in which CUDA graphs served all pieces, at least."""
        return min((piece.served for piece in self.pieces()), default=0)

    @property
    def compared(self) -> int:
        return max((piece.compared for piece in self.pieces()), default=0)

    @property
    def as_compiled(self) -> "Counter[str]":
        """Calls that ran as traced, or a piece in them, by reason: of the piece that did so most often."""
        counts: "Counter[str]" = Counter()
        for piece in self.pieces():
            counts |= piece.as_compiled
        return counts + self._as_traced

    def reports(self) -> List[GraphReport]:
        """Reports of its CUDA graphs."""
        return [report for piece in self.pieces() for report in piece.reports()]

    def close(self) -> None:
        """Frees its CUDA graphs. From now on calls run as traced."""
        self._why = "the process ends"
        for piece in self.pieces():
            piece.close()


class _Part(torch.nn.Module):
    """In place of a submodule. Its call is none of the program's, which hooks and observers of modules would see."""

    def __init__(self, function: "Callable[..., Any]") -> None:
        super().__init__()
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class _Order:
    """Keeps what a call does to buffers after the call before it, which may have been on another stream."""

    def __init__(self, device_type: str) -> None:
        self._is_cuda = device_type == "cuda"
        self._event: Any = None
        self._device: Optional[torch.device] = None

    def begin(self) -> None:
        if self._event is not None:
            self._event.wait(torch.cuda.current_stream(self._device))

    def end(self, device: Optional[torch.device]) -> None:
        if self._is_cuda and device is not None:
            if self._event is None:
                self._event, self._device = torch.cuda.Event(), device  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))
