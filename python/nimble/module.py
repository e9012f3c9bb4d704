"""nimble.Nimble: a module whose calls launch one CUDA graph each.

Calls may come from any thread. Preparing is under one lock for each Nimble; a graph's own lock keeps its calls apart.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any, Dict, List, Optional, Tuple, Union

import torch

from nimble.capture import Backend, CudaCapture
from nimble.errors import NimbleError
from nimble.prepared import GraphReport, Options, PreparedGraph, prepare
from nimble.signatures import Call, GraphCache


# A graph that the module's changes end before so many calls was hardly worth it; so many of them in a row, and there are no more.
_SHORT_LIFE = 8
_MOST_SHORT_LIVED = 3


class _Eager:
    """In the place of a graph: calls of its signature run eagerly."""


class Nimble:
    """A module for inference, each of whose calls copies its arguments, launches one graph, and returns the outputs.

    The module is used as it is, and not changed. A call computes what the module computes under torch.no_grad().

    fallback: what cannot be prepared runs eagerly from then on, and a warning says so once. Otherwise it raises NimbleError.
    max_graphs: how many graphs, of different shapes and the like, are kept; the least recently used one makes room.
    static_outputs: calls return the graph's own memory, which the next call of the same graph overwrites, instead of copies.

    Raises NotLoadedError where libnimble.so does not rewrite graphs in this process.
    """

    def __init__(self, module: torch.nn.Module, fallback: bool = False, max_graphs: int = 8, static_outputs: bool = False, *,
                 backend: Optional[Backend] = None) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"a torch.nn.Module is needed, not a {type(module).__name__}")
        self.module = module
        self._fallback = fallback
        self._static_outputs = static_outputs
        self._backend: Backend = backend if backend is not None else CudaCapture()
        self._options = Options()
        self._graphs: "GraphCache[Union[PreparedGraph, _Eager]]" = GraphCache(max_graphs)
        self._lock = threading.RLock()
        self._warned = {"eager": False, "full": False}
        self._backend.check()

    def prepare(self, *dummy_args: Any, training: bool = False, use_multi_stream: bool = True, relaxed: bool = False,
                **dummy_kwargs: Any) -> "Nimble":
        """Makes the graph for calls with arguments like these: tensors on the GPU, or what torch.utils._pytree can take apart.
        One tuple or list alone is the arguments, as the original has it; `prepare((pair,))` is for a module that takes a pair.

        use_multi_stream: what does not depend on each other may run side by side. relaxed: PyTorch captures in mode `relaxed`, in
        which other threads may use the GPU freely meanwhile. Both also hold for graphs that later calls make by themselves.
        Returns itself. NimbleError says what cannot be captured, unless `fallback` was given; training is not there yet.
        """
        if training:
            raise NimbleError("only inference can be prepared so far: training=True is not supported")
        if len(dummy_args) == 1 and type(dummy_args[0]) in (tuple, list) and not dummy_kwargs:
            dummy_args = tuple(dummy_args[0])
        with self._lock:
            self._options = Options(use_multi_stream, relaxed)
            try:
                self._prepare(self._call_of(dummy_args, dummy_kwargs))
            except NimbleError as error:
                self._fall_back(error, depth=3)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns for these arguments. Prepares at once what has no graph yet, or has one that does not fit the
        module any more."""
        try:
            call = self._call_of(args, kwargs)
        except NimbleError as error:
            self._fall_back(error, depth=3)
            return self.module(*args, **kwargs)
        return self.serve(call)

    def serve(self, call: Call) -> Any:
        """The same for a call that has been taken apart."""
        try:
            graph = self._graph_for(call)
            if graph is not None:
                return graph(call, self._static_outputs)
        except NimbleError as error:
            self._fall_back(error)
        return self.module(*call.args, **call.kwargs)

    def static_inputs(self, *args: Any, **kwargs: Any) -> "Tuple[Tuple[Any, ...], Dict[str, Any]]":
        """(args, kwargs) of the graph for a call like this, in the graph's own memory: a call with these copies nothing. The
        graph is prepared where it is not there. NimbleError where it cannot be, whatever `fallback` says."""
        graph = self._graph_for(self._call_of(args, kwargs))
        if graph is None:
            raise NimbleError("calls like this run eagerly: there is no graph")
        return graph.static_arguments

    def report(self) -> List[GraphReport]:
        """What is known of each prepared graph, the least recently used first."""
        with self._lock:
            return [entry.report() for entry in self._graphs if isinstance(entry, PreparedGraph)]

    def is_prepared(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a call like this has a graph that fits the module."""
        with self._lock:
            entry = self._graphs.get(self._call_of(args, kwargs).signature)
            return isinstance(entry, PreparedGraph) and entry.guard.difference() is None

    def _call_of(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Call:
        return Call(args, kwargs, self.module.training)

    def _graph_for(self, call: Call) -> Optional[PreparedGraph]:
        """None where calls like this run eagerly. Prepares, and raises where that fails."""
        with self._lock:
            entry = self._graphs.get(call.signature)
            if isinstance(entry, _Eager):
                return None
            if entry is None or entry.guard.difference() is not None:
                entry = self._prepare(call, entry)
            return entry

    def _prepare(self, call: Call, before: Optional[PreparedGraph] = None) -> PreparedGraph:
        """Puts a new graph, or that there is none, into the cache. `before` is the one that it comes for, if any."""
        options, short_lived = self._options, 0
        if before is not None:
            options = before.options
            short_lived = before.short_lived + 1 if before.calls < _SHORT_LIFE else 0
            why = before.guard.difference()
        self._let_go(self._graphs.get(call.signature))
        self._graphs.drop(call.signature)
        try:
            if short_lived > _MOST_SHORT_LIVED:
                raise NimbleError(f"the module changes again and again: {why}")
            graph = prepare(self.module, call, self._backend, options)
        except NimbleError as error:
            if self._fallback:
                self._put(call, _Eager())
            raise
        graph.short_lived = short_lived
        self._put(call, graph)
        return graph

    def _put(self, call: Call, entry: "Union[PreparedGraph, _Eager]") -> None:
        gone = self._graphs.put(call.signature, entry)
        if isinstance(gone, PreparedGraph):
            self._let_go(gone)
            if not self._warned["full"]:
                self._warned["full"] = True
                warnings.warn(f"nimble: calls come with more kinds of arguments than the {self._graphs.most} graphs that are "
                              "kept: each that is not kept is prepared anew; see max_graphs", stacklevel=5)

    @staticmethod
    def _let_go(entry: "Optional[Union[PreparedGraph, _Eager]]") -> None:
        if isinstance(entry, PreparedGraph):
            entry.close()

    def _fall_back(self, error: NimbleError, depth: int = 4) -> None:
        """Raises it, or warns once that a call runs eagerly, naming the line so many calls up."""
        if not self._fallback:
            raise error
        if not self._warned["eager"]:
            self._warned["eager"] = True
            warnings.warn(f"nimble: running eagerly: {error}", stacklevel=depth)
