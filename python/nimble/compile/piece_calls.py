"""The calls of one piece (pieces.py) of a graph that is called in pieces (piecewise_graph.py).

The first call runs as traced. From then on the piece writes its outputs to buffers (output_buffers.py), and is a function (traced_graph.py)
of its inputs and these. Buffers, and what lies in them, are static inputs of the pieces that take them: these read them in place.
An output that the whole graph returns has no buffer, nor one that lies in an input's memory: TracedGraph makes a copy, or a view of that
input. One thread at a time; the owner ensures that."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch

from nimble.compile.graphed_call import Engine
from nimble.compile.output_buffers import OutputBuffers
from nimble.compile.pieces import Piece
from nimble.compile.traced_graph import BEFORE, TracedGraph
from nimble.objects.memory import storage_address

_CHANGES = "its outputs change their layout, or what they share memory with"


class Shared:
    """What the pieces of a graph share. kernels: the switches of this call; memory: the addresses of all buffers."""

    def __init__(self) -> None:
        self.kernels: Any = None
        self.memory: Set[int] = set()
        self.device: Optional[torch.device] = None


class _Function:
    """The piece as TracedGraph calls it: its arguments are followed by the buffers. Returns what has no buffer. (TracedGraph's graphs hold
    it, so it holds no TracedGraph.) changed: outputs that do not fit the buffers, until they are taken."""

    def __init__(self, run: "Callable[..., Sequence[Any]]", buffers: OutputBuffers, passed: List[int]) -> None:
        self.changed: Optional[Sequence[Any]] = None
        self._run, self._buffers, self._passed = run, buffers, passed

    def __call__(self, arguments: List[Any]) -> Any:
        count = len(arguments) - len(self._buffers.tensors)
        outputs = self._run(*arguments[:count])
        if not self._buffers.fit(arguments[:count], outputs):
            self.changed = outputs
            return [None] * len(self._passed)
        self._buffers.write(outputs, arguments[count:])
        return [outputs[number] for number in self._passed]


class PieceCalls:
    """graph: None before the first call. static: of its outputs, those that lie at one place in all later calls. others: the pieces of the
    graph by name; those that come before have been called."""

    def __init__(self, piece: Piece, engine: Engine, name: str, others: "Dict[str, PieceCalls]", shared: Shared,
                 may_have_buffers: bool) -> None:
        self.graph: Optional[TracedGraph] = None
        self.static: Set[int] = set()
        self._piece, self._engine, self._name, self._others, self._shared = piece, engine, name, others, shared
        self._run = piece.module.forward
        self._without = piece.returned if may_have_buffers else frozenset(range(piece.outputs))
        self._function: Optional[_Function] = None
        self._buffers: List[torch.Tensor] = []
        self._passed: List[int] = []  # outputs without one
        self._outputs: List[Any] = []  # the buffers in place
        self._changes = False  # it runs as traced, since outputs did not fit the buffers

    def __call__(self, *arguments: Any) -> Any:
        graph, function = self.graph, self._function
        if graph is None or function is None:
            outputs = self._first(arguments)
        elif self._changes:
            graph.as_compiled[_CHANGES] += 1
            outputs = self._run(*arguments)
        else:
            made = graph.call([*arguments, *self._buffers], self._shared.kernels)
            outputs = self._outputs
            if function.changed is not None:
                outputs, function.changed, self._changes = function.changed, None, True
                graph.close()
            elif self._passed:
                outputs = list(outputs)
                for number, value in zip(self._passed, made):
                    outputs[number] = value
        return outputs[0] if self._piece.returns_one else outputs

    def why_ended(self) -> Optional[str]:
        """Why it will have no CUDA graph; None where it may have one."""
        return _CHANGES if self._changes else self.graph.why_ended() if self.graph is not None else None

    def _first(self, arguments: Sequence[Any]) -> Any:
        """Runs as traced, and makes buffers for later calls."""
        outputs = self._run(*arguments)
        buffers = OutputBuffers(arguments, outputs, self._without)
        static = set(self._piece.static)
        static.update(number for number, source in enumerate(self._piece.sources)
                      if source is not None and source[1] in self._others[source[0]].static)
        memory = {storage_address(arguments[number]) for number in static} - {0}
        self.static = {number for number, each in enumerate(outputs)
                       if number in buffers.numbers or isinstance(each, torch.Tensor) and storage_address(each) in memory}
        own = range(len(arguments), len(arguments) + len(buffers.tensors))
        numbers = frozenset(static.union(own))
        self._buffers = buffers.tensors
        self._passed = [number for number in range(len(outputs)) if number not in buffers.numbers]
        self._outputs = [None] * len(outputs)
        for number, tensor in zip(buffers.numbers, buffers.tensors):
            self._outputs[number] = tensor
            self._shared.device = tensor.device
        self._shared.memory.update(buffers.memory)
        self._others = {}  # it would hold itself
        self._function = _Function(self._run, buffers, self._passed)
        self.graph = TracedGraph(self._function, lambda _: numbers, self._engine, self._name, outputs=frozenset(own))
        self.graph.as_compiled[BEFORE] += 1
        return outputs
