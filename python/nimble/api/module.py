"""nimble.Nimble: a module that launches one CUDA graph for each call.

Calls may come from any thread. Each Nimble prepares under one lock; each graph's own lock serializes its calls. """

from __future__ import annotations

import threading
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from nimble.api.error_origin import has_no_memory_yet, raises_without_nimble
from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.capture.cuda_capture import CudaCapture
from nimble.graphs.graph_io import GraphReport, Options, eager_report
from nimble.graphs.prepared import CHANGED, PreparedGraph, prepare
from nimble.graphs.unsupported_modules import check_kind
from nimble.guards import switches
from nimble.guards.signatures import Call, GraphCache, Repeated
from nimble.nesting import nesting
from nimble.steps.steps import is_running
from nimble.training.training import TrainingGraph, prepare_training

_compiler = getattr(torch, "compiler", None)

# A graph that served fewer calls before the module changed was not worth its capture. After this many of them in a row no more
# are made.
_SHORT_LIFE = 8
_MOST_SHORT_LIVED = 3

# True while Dynamo traces a call. The second, of older releases, takes longer to return False.
_is_traced: "Callable[[], bool]" = getattr(_compiler, "is_dynamo_compiling", getattr(_compiler, "is_compiling", lambda: False))


class _Eager:
    """The cache entry of a signature that cannot have a graph: its calls run eagerly."""

    def __init__(self, call: Call, why: str) -> None:
        self._report = eager_report("forward" if call.trains else "inference", str(call.signature), why)

    def reports(self) -> List[GraphReport]:
        return [self._report]


_Graph = Union[PreparedGraph, TrainingGraph]
_Entry = Union[PreparedGraph, TrainingGraph, _Eager]


class Nimble:
    """A module that runs as CUDA graphs: a call copies its arguments, launches one graph and returns the outputs, and a backward
    launches another.

    The module is used as it is, and not changed. A call trains where gradients are enabled and the module is in training mode, an
    argument requires them, or prepare() was called with `training`: then it computes what the module computes, and its outputs
    have gradients as the module's have. Other calls compute what the module computes under torch.no_grad().

    A graph has one forward outstanding at a time: calls before its backward has run are eager, with one warning.

    fallback: what cannot be prepared runs eagerly from then on, with one warning. Otherwise it raises NimbleError. max_graphs:
    how many graphs are kept, for different shapes and the like; the least recently used one is evicted. static_outputs: calls
    that do not train return the graph's own memory, which the next call overwrites, instead of copies.

    Raises NotLoadedError where libnimble.so does not rewrite graphs in this process. Any thread may call it.
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
        self._trains = False  # calls train also in eval mode
        self._graphs: "GraphCache[_Entry]" = GraphCache(max_graphs)
        self._last: "Optional[Tuple[Repeated, PreparedGraph]]" = None  # which the next call may repeat
        self._lock = threading.RLock()
        self._warned = {"eager": False, "full": False, "awaited": False}
        self._backend.check()

    def prepare(self, *dummy_args: Any, training: bool = False, use_multi_stream: bool = True, relaxed: bool = False,
                **dummy_kwargs: Any) -> "Nimble":
        """Makes the graph for calls with arguments like these: tensors on the GPU, or what torch.utils._pytree can flatten.

        A single tuple or list holds the arguments, as in the original Nimble; `prepare((pair,))` is for a module that takes a pair. So
        does a single `dummy_inputs=`. Options are given by name: all positional arguments are the module's.

        training: calls like these train even in eval mode (for example to fine-tune with fixed statistics); from then on all
        calls train while gradients are enabled. use_multi_stream: independent work may run concurrently. relaxed: PyTorch
        captures in mode `relaxed`, in which other threads may use the GPU freely meanwhile. Both also apply to graphs that later
        calls make.

        Returns itself. Raises NimbleError where the call cannot be captured, and DiffersError where the graph does not compute, to the
        bit, what two eager runs compute; unless `fallback` was given.
        """
        if not dummy_args and list(dummy_kwargs) == ["dummy_inputs"]:  # the original's name for it
            dummy_args = (dummy_kwargs.pop("dummy_inputs"),)
        if len(dummy_args) == 1 and type(dummy_args[0]) in (tuple, list) and not dummy_kwargs:
            dummy_args = tuple(dummy_args[0])
        with self._lock:
            self._options = Options(use_multi_stream, relaxed)
            self._trains = self._trains or training
            try:
                with torch.set_grad_enabled(training):
                    call = self._call_of(dummy_args, dummy_kwargs)
                self._prepare(call)
            except NimbleError as error:
                if not self._fallback:
                    raise
                self._say_eagerly(error, depth=3)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns for these arguments. Prepares a graph first where there is none yet, or the module has changed
        since. The module itself runs where something observes its ops, and while another Nimble is prepared or the stream
        captures: it becomes a part of that capture."""
        if _is_traced():
            from nimble.api.untraced import untraced
            return untraced(self, args, kwargs)
        last = self._last
        if last is not None and not kwargs:
            repeated, graph = last
            # Where nothing has to be copied the launch precedes all checks: each would cost microseconds while the GPU idles.
            outputs = graph.run_own(args, self._static_outputs, self._is_again, repeated)
            if outputs is not CHANGED:
                return outputs
            if self._is_again(repeated, args) and not self._backend.is_capturing():
                outputs = graph.run(args, self._static_outputs)
                if outputs is not CHANGED:
                    return outputs
        return self._called(args, kwargs)

    def _called(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """__call__() for a call that does not repeat the last one."""
        why_eager = switches.why_not_replayed()
        if why_eager is not None and not is_running() or nesting.preparing or self._backend.is_capturing():
            return self.module(*args, **kwargs)
        try:
            call = self._call_of(args, kwargs)
        except NimbleError as error:
            if not self._fallback:
                raise
            self._say_eagerly(error)
            return self.module(*args, **kwargs)
        return self._serve(call)

    def _is_again(self, repeated: Repeated, args: Tuple[Any, ...]) -> bool:
        """Whether a call with these arguments repeats that call, and may be served by its graph."""
        if switches.why_not_replayed() is not None or nesting.preparing or is_running():
            return False
        training = self.module.training
        return not ((training or self._trains) and torch.is_grad_enabled()) and repeated.fits(args, training)

    def serve(self, call: Call) -> Any:
        """__call__() for a call whose arguments are flattened."""
        if (nesting.preparing or self._backend.is_capturing() or switches.why_not_replayed() is not None and not is_running()):
            return self.module(*call.args, **call.kwargs)
        return self._serve(call)

    def _serve(self, call: Call) -> Any:
        if is_running():
            with torch.set_grad_enabled(call.trains):
                return self.module(*call.args, **call.kwargs)
        if call.trains and switches.saves_elsewhere():
            return self.module(*call.args, **call.kwargs)
        try:
            graph = self._graph_for(call)
            while graph is not None:
                outputs = graph(call, self._static_outputs)
                if outputs is CHANGED:
                    graph = self._graph_instead_of(graph, call)
                    continue
                if outputs is not NotImplemented:
                    if isinstance(graph, PreparedGraph) and graph.runs_ahead and Repeated.is_possible(call):
                        self._last = Repeated(call), graph
                    return outputs
                self._warn("awaited", "a call runs eagerly, since the previous call's backward has not run yet, and would "
                           "no longer find what it needs", 5)
                break
        except NimbleError as error:
            if not self._fallback:
                raise
            self._say_eagerly(error, depth=5)
        return self.module(*call.args, **call.kwargs)

    def static_inputs(self, *args: Any, **kwargs: Any) -> "Tuple[Tuple[Any, ...], Dict[str, Any]]":
        """(args, kwargs) for a call like this in the graph's own memory: a call with these copies nothing. Prepares the graph where
        there is none. Raises NimbleError where it cannot, whatever `fallback` says."""
        graph = self._graph_for(self._call_of(args, kwargs))
        if graph is None:
            raise NimbleError("calls like this run eagerly: there is no graph")
        return graph.static_arguments

    def report(self) -> List[GraphReport]:
        """A report of each prepared graph, and of each kind of call that cannot be prepared; the least recently used first."""
        with self._lock:
            return [report for entry in self._graphs for report in entry.reports()]

    def is_prepared(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a call like this has a valid graph."""
        with self._lock:
            entry = self._graphs.get(self._call_of(args, kwargs).key)
            return entry is not None and not isinstance(entry, _Eager) and entry.guard.difference() is None

    def _call_of(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Call:
        try:
            return Call(args, kwargs, self.module.training, torch.is_grad_enabled() and (self._trains or self.module.training))
        except NimbleError:
            raise
        except Exception as error:
            raise NimbleError(f"the arguments cannot be compared: {type(error).__name__}: {error}") from error

    def _graph_for(self, call: Call) -> Optional[_Graph]:
        """The graph, prepared where there is none; None where calls like this run eagerly. Raises where preparing fails."""
        with self._lock:
            entry = self._graphs.get(call.key)
            if isinstance(entry, _Eager):
                return None
            if entry is None or not entry.runs_ahead and entry.guard.difference() is not None:
                entry = self._prepare(call, entry)
            return entry

    def _graph_instead_of(self, graph: _Graph, call: Call) -> Optional[_Graph]:
        """_graph_for(), where this graph has turned out stale."""
        with self._lock:
            if self._graphs.get(call.key) is graph:
                self._prepare(call, graph)
            return self._graph_for(call)

    def _prepare(self, call: Call, before: Optional[_Graph] = None) -> _Graph:
        """Puts a new graph into the cache, or a note that there is none. `before`: the graph that it replaces, if any. Errors
        that the module also raises when not prepared pass through; all others become NimbleErrors."""
        why_eager = switches.why_not_replayed()
        if why_eager is None and call.trains and switches.saves_elsewhere():
            why_eager = "under hooks for what autograd saves"
        if why_eager is not None and not nesting.preparing:
            raise NimbleError(f"nothing is prepared {why_eager}: prepare before that")
        options, short_lived = self._options, 0
        if before is not None:
            options = before.options
            short_lived = before.short_lived + 1 if before.calls < _SHORT_LIFE else 0
            why = before.guard.difference()
        self._last = None
        self._let_go(self._graphs.get(call.key))
        self._graphs.drop(call.key)
        try:
            if short_lived > _MOST_SHORT_LIVED:
                raise NimbleError(f"the module changes again and again: {why}")
            check_kind(self.module, call.trains)
            make = prepare_training if call.trains else prepare
            graph: _Graph = make(self.module, call, self._backend, options)
        except Exception as error:
            if not isinstance(error, NimbleError) and raises_without_nimble(self.module, call, self._backend):
                raise
            if self._fallback and not has_no_memory_yet(self.module):
                self._put(call, _Eager(call, str(error)))
            if isinstance(error, NimbleError):
                raise
            raise NimbleError(f"the module cannot be prepared: {type(error).__name__}: {error}") from error
        graph.short_lived = short_lived
        self._put(call, graph)
        return graph

    def _put(self, call: Call, entry: _Entry) -> None:
        gone = self._graphs.put(call.key, entry)
        self._last = None
        if gone is not None and not isinstance(gone, _Eager):
            self._let_go(gone)
            self._warn("full", f"calls come with more kinds of arguments than the {self._graphs.most} graphs that are kept: each "
                       "that is not kept is prepared again; see max_graphs", 8)

    def __getstate__(self) -> Dict[str, Any]:
        """For copies and pickles, which start without graphs."""
        return {"given": (self.module, self._fallback, self._graphs.most, self._static_outputs), "backend": self._backend,
                "options": self._options, "trains": self._trains}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(*state["given"], backend=state["backend"])  # type: ignore[misc]
        self._options, self._trains = state["options"], state["trains"]

    @staticmethod
    def _let_go(entry: Optional[_Entry]) -> None:
        if entry is not None and not isinstance(entry, _Eager):
            entry.close()

    def _say_eagerly(self, error: NimbleError, depth: int = 4) -> None:
        """Warns once that a call runs eagerly, and names the line `depth` calls up."""
        self._warn("eager", f"running eagerly: {error}", depth + 1)

    def _warn(self, what: str, text: str, depth: int) -> None:
        if not self._warned[what]:
            self._warned[what] = True
            warnings.warn(f"nimble: {text}", stacklevel=depth)
