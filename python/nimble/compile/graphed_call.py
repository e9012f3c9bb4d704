"""One kind of call of a compiled function (compiled_function.py, traced_graph.py): prepares a graph for it, compares its first calls
with runs without the graph, to the bit (nimble.graphs.compare), and serves it from then on.

The arguments are in two lists: static ones, which the graph reads and writes in place, at addresses that are checked at each call;
and others, which it copies. Calls differ only in values of tensors, and addresses.

One thread at a time prepares or compares; its owner ensures that. Graphs have their own locks."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Callable, FrozenSet, List, Optional, Sequence

import torch

from nimble.capture.backend import Backend
from nimble.graphs.compare import compare
from nimble.capture.cudnn_dropout import DROPOUT, may_have_cudnn_dropout
from nimble.graphs.graph_io import GraphReport, Options
from nimble.graphs.prepared import PreparedGraph, prepare
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.settings import Settings

COMPARED = 3  # calls, before a graph is trusted
MOST_GRAPHS = 16  # for kinds of integers and shapes of one function; calls of still other kinds run without
RELAXED = Options(use_multi_stream=True, relaxed=True)  # other threads keep running meanwhile
WITHOUT = object()  # instead of outputs

Model = Callable[[List[Any], List[Any]], Any]  # called with the static arguments and the others


@dataclass(frozen=True)
class Engine:
    """What graphs are made with. has_room: whether a device has memory left for another graph."""

    backend: Backend
    settings: Settings
    has_room: "Callable[[torch.device], bool]"
    clock: "Callable[[], float]" = time.perf_counter
    options: Options = RELAXED


class _Module(torch.nn.Module):
    """The function as a module. Static arguments are parameters, or buffers where the function writes to them."""

    def __init__(self, model: Model, static: Sequence[Any], written: FrozenSet[int]) -> None:
        super().__init__()
        self.eval()
        self._model = (model,)
        self._count = len(static)
        for number, tensor in enumerate(static):
            (self._buffers if number in written else self._parameters)[str(number)] = tensor

    def forward(self, *others: Any) -> Any:
        buffers, parameters = self._buffers, self._parameters
        return self._model[0]([buffers.get(key, parameters.get(key)) for key in map(str, range(self._count))], list(others))


class GraphedCall:
    """written: the indices of those static arguments that the function writes to. most_moves: times that static arguments may turn
    out to lie elsewhere, before no graph is made any more. `why_without`: why there is no graph, and none will be tried."""

    def __init__(self, engine: Engine, model: Model, written: FrozenSet[int] = frozenset(), most_moves: int = 0) -> None:
        self.compared = self.moves = 0
        self.graph: Optional[PreparedGraph] = None
        self.is_trusted = False
        self.graph_seconds = self.without_seconds = math.inf  # per call, the fastest compared
        self.prepare_seconds = 0.0
        self.why_without: Optional[str] = None
        self._engine, self._model, self._written, self._most_moves = engine, model, written, most_moves
        self._addresses: List[int] = []  # of each static argument

    def is_at(self, static: Sequence[Any]) -> bool:
        """Whether the static arguments have the graph's addresses."""
        return list(map(torch.Tensor.data_ptr, static)) == self._addresses

    def advance(self, static: List[Any], others: List[Any]) -> Any:
        """Prepares or compares with a call that no trusted graph serves. Returns what the function returns, or WITHOUT if it was not
        called: then it runs without a graph, and `why_without` says why."""
        module = call = None
        try:
            if self.why_without is None:
                module = _Module(self._model, static, self._written)
                with torch.no_grad():
                    call = Call(tuple(others), {}, False)
                device = self._device_of(call, static)
                self._prepare(module, call, static, device)
        except Exception as error:
            self.end(str(error) or type(error).__name__)
        if self.why_without is not None or self.graph is None or module is None or call is None:
            return WITHOUT
        return self._compare(self.graph, module, call, device)

    @staticmethod
    def _device_of(call: Call, static: List[Any]) -> torch.device:
        tensors = [call.leaves[number] for number in call.tensors] or static
        if not tensors:
            raise ValueError("none of its arguments is a tensor")
        device: torch.device = tensors[0].device
        return device

    def _prepare(self, module: _Module, call: Call, static: List[Any], device: torch.device) -> None:
        """Prepares a graph where none fits. Raises where there cannot be one, or it could not be compared."""
        engine = self._engine
        if may_have_cudnn_dropout(engine.backend.device_type):
            raise ValueError(DROPOUT)
        if self.graph is not None:
            if self.is_at(static):
                return
            self.let_go()
            self.moves += 1
            if self.moves > self._most_moves:
                raise ValueError("its weights move again and again")
        if len(call.tensors) < sum(isinstance(leaf, torch.Tensor) for leaf in call.leaves):
            raise ValueError("two of its arguments are one tensor")  # they may differ the next time
        if switches.has_other_ranks():
            raise ValueError("other ranks may be waiting for what it sends, which preparing would send more often")
        if not engine.has_room(device):
            raise ValueError("too little of the GPU's memory is free")
        addresses = list(map(torch.Tensor.data_ptr, static))
        began = time.perf_counter()
        with torch.no_grad():
            graph = prepare(module, call, engine.backend, engine.options, is_compared=False)
        graph.forget_module()  # the arguments are checked at each call
        if not engine.has_room(device):
            graph.close()
            raise ValueError("with its graph too little of the GPU's memory would be free")
        self.graph, self._addresses = graph, addresses
        self.prepare_seconds = time.perf_counter() - began

    def _compare(self, graph: PreparedGraph, module: _Module, call: Call, device: torch.device) -> Any:
        """Runs a call both ways. The caller gets what the run without the graph returns or raises."""
        def by_graph() -> Any:
            return graph(call, False)

        def without() -> Any:
            return module(*call.args)

        with torch.no_grad():
            done = compare(by_graph, without, module, call, device, self._engine.backend, self._engine.clock)
        self.compared += 1
        self.graph_seconds = min(self.graph_seconds, done.graph_seconds)
        self.without_seconds = min(self.without_seconds, done.eager_seconds)
        if done.failure is not None:
            self.end(str(done.failure) or type(done.failure).__name__)
        elif done.difference is not None:
            self.end(f"its graph differs from a run without: {done.difference}")
        elif self.compared >= COMPARED and self.graph_seconds > self.without_seconds:
            self.end(f"it is as fast without: {self.without_seconds * 1e6:.0f} us, with its graph {self.graph_seconds * 1e6:.0f} us")
        else:
            self.is_trusted = self.compared >= COMPARED
        return done.result

    def end(self, why: str) -> None:
        """From now on calls run without a graph."""
        self.why_without = why
        try:
            self.let_go()
        except Exception:
            pass  # the GPU has failed; the program's own calls will report that
        self._engine.settings.inform(f"PyTorch: a function of torch.compile runs without a graph: {why}")

    def let_go(self) -> None:
        """Frees the graph."""
        graph, self.graph = self.graph, None
        self.is_trusted, self.compared = False, 0
        self.graph_seconds = self.without_seconds = math.inf
        if graph is not None:
            graph.close()

    def reports(self) -> List[GraphReport]:
        graph = self.graph
        return [] if graph is None else graph.reports()
