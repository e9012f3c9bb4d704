"""torch.compile(model, backend="nimble"): a backend of Dynamo, which PyTorch finds by the package's entry point.

A graph that Dynamo has traced without gradients runs its own ops, or Inductor's kernels, as CUDA graphs (traced_graph.py). One that
computes gradients runs as traced unless the user asks for graphs (training_graphs.py), and so does each call that no CUDA graph can
serve. Any thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from nimble import settings
from nimble.compile.graphed_call import Engine
from nimble.compile.inductor_kernels import compile_by_inductor
from nimble.compile.live_functions import LiveFunctions
from nimble.compile.traced_graph import Static, TracedGraph
from nimble.compile.traced_ops import GRADIENTS, name_of, own_tensors, static_inputs, why_not
from nimble.compile.training_graphs import compile_for_training
from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.capture.cuda_capture import CudaCapture
from nimble.graphs.graph_io import GraphReport, Options
from nimble.objects.memory import has_room

_ROOM = 16  # 1/16 of the GPU's memory must stay free
_OPTIONS: "Dict[str, Tuple[Any, ...]]" = {"kernels": ("eager", "inductor"), "multi_stream": (True, False), "training": (False, True)}
_MODES = (None, "reduce-overhead")  # what it does anyway; transformers' CompileConfig asks for it by default
_DEFAULTS = {name: values[0] for name, values in _OPTIONS.items()}


@dataclass(frozen=True)
class TracedReport:
    """The report of a graph that Dynamo has traced. `name`: Dynamo's number of it, and where its first op is; `served`: calls by CUDA
    graphs; `compared`: calls that ran with and without; `as_traced`: other calls, by reason; `graphs`: of its CUDA graphs."""

    name: str
    served: int
    compared: int
    as_traced: Dict[str, int]
    graphs: List[GraphReport]


class NimbleCompiler:
    """The backend, called with what Dynamo has traced. There is one in the process; tests make others, with fakes."""

    def __init__(self, backend: Optional[Backend] = None, **engine: Any) -> None:
        self._settings = settings.read()
        self._engine: Dict[str, Any] = {"backend": backend if backend is not None else CudaCapture(), "settings": self._settings,
                                        "has_room": lambda device: has_room(device, _ROOM), **engine}
        self._live: "LiveFunctions[TracedGraph]" = LiveFunctions(self._settings, "torch.compile by nimble")
        self._has_warned = False

    def __call__(self, traced: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Optional[Mapping[str, Any]] = None,
                 mode: Optional[str] = None) -> "Callable[..., Any]":
        """What Dynamo calls instead of the graph. Raises ValueError for unknown options."""
        _check_options(options or {}, mode)
        chosen = {**_DEFAULTS, "training": self._settings.trains, **(options or {})}
        engine = Engine(options=Options(chosen["multi_stream"], relaxed=True), **self._engine)
        name = name_of(traced)
        if chosen["kernels"] == "inductor":
            def add(run: "Callable[[List[Any]], Any]", static: Sequence[int], written: Sequence[int]) -> TracedGraph:
                numbers = frozenset(static)
                return self._add(TracedGraph(run, lambda arguments: numbers, engine, name, self._why_none(), written))

            compiled: "Callable[..., Any]" = compile_by_inductor(traced, inputs, add)
            return compiled
        if chosen["training"] and self._why_none() is None and why_not(traced, inputs) == GRADIENTS:
            def part(run: "Callable[[List[Any]], Any]", static: Static, what: str, follows: Optional[TracedGraph]) -> TracedGraph:
                return self._add(TracedGraph(run, static, engine, f"{name} {what}", follows=follows))

            return compile_for_training(traced, inputs, part)
        forward = traced.forward
        try:
            why = self._why_none() or why_not(traced, inputs)
            static = static_inputs(traced)
            function = TracedGraph(lambda arguments: forward(*arguments), lambda arguments: static, engine, name, why,
                                   own=own_tensors(traced) if why is None else ())
        except Exception as error:  # PyTorch's own may have changed
            self._settings.warn(f"PyTorch: {name} of torch.compile runs without a graph: {type(error).__name__}: {error}")
            return forward
        self._add(function)
        return lambda *arguments: function(arguments)

    def reports(self) -> List[TracedReport]:
        """Reports of the graphs that Dynamo has traced and still has, by name."""
        return sorted((TracedReport(each.name, each.served, each.compared, dict(each.as_compiled), each.reports())
                       for each in self._live.all()), key=lambda report: report.name)

    def _add(self, function: TracedGraph) -> TracedGraph:
        self._live.add(function)
        return function

    def _why_none(self) -> Optional[str]:
        """Why nothing can have a CUDA graph in this process; None where something can."""
        if settings.word("TORCH") == "off":
            return "NIMBLE_TORCH is off"
        try:
            self._engine["backend"].check()
            return None
        except NimbleError as error:
            if not self._has_warned:
                self._has_warned = True
                self._settings.warn(f'torch.compile(backend="nimble") runs without graphs: {error}')
            return str(error)


def _check_options(options: Mapping[str, Any], mode: Optional[str]) -> None:
    if mode not in _MODES:
        raise ValueError(f"the backend nimble has no mode {mode!r}: it has options, {_known()}")
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ValueError(f"the backend nimble has no option {name!r}: it has {_known()}")
        if value not in _OPTIONS[name]:
            raise ValueError(f"the option {name!r} of the backend nimble is {value!r}: it has {_known()}")
    if options.get("training") and options.get("kernels", "eager") != "eager":
        raise ValueError("the backend nimble has graphs for training with the kernels 'eager' only")


def _known() -> str:
    return ", ".join(f"{name} ({' or '.join(map(repr, values))})" for name, values in _OPTIONS.items())


_compiler: Optional[NimbleCompiler] = None
_making = threading.Lock()


def nimble(traced: torch.fx.GraphModule, inputs: Sequence[Any], **given: Any) -> "Callable[..., Any]":
    """The backend "nimble" of torch.compile, by the entry point of that name."""
    global _compiler
    with _making:
        if _compiler is None:
            _compiler = NimbleCompiler()
    return _compiler(traced, inputs, **given)


def report() -> List[TracedReport]:
    """nimble.report(): of each graph that torch.compile(backend="nimble") has in this process."""
    return _compiler.reports() if _compiler is not None else []
