"""The forward and the backward of a graph that Dynamo has traced with gradients, by AOTAutograd, each with CUDA graphs of its own.

What the forward saves for the backward is copied from the forward's CUDA graph, and into the backward's: so several forwards may come
before their backwards, and a backward may come twice. Kernels and bits are those of torch.compile(backend="aot_eager"). No state; any
thread, and autograd's own."""

from __future__ import annotations

import importlib
from typing import Any, Callable, List, Optional, Sequence

import torch

from nimble.compile.traced_graph import Run, Static, TracedGraph
from nimble.compile.traced_ops import fixed_inputs
from nimble.objects.memory import storage_address

# Called with a function, which inputs are static, what it is, and the graph whose calls come before; makes a TracedGraph.
Add = Callable[[Run, Static, str, Optional[TracedGraph]], TracedGraph]


def compile_for_training(traced: torch.fx.GraphModule, inputs: Sequence[Any], add: Add) -> "Callable[..., Any]":
    common: Any = importlib.import_module("torch._dynamo.backends.common")
    debugging: Any = importlib.import_module("torch._dynamo.backends.debugging")
    partitioners: Any = importlib.import_module("torch._functorch.partitioners")
    forwards: List[TracedGraph] = []

    def forward(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> "Callable[..., Any]":
        tracing = torch._guards.TracingContext.try_get()
        metadata = tracing.fw_metadata if tracing is not None else None
        static = fixed_inputs(graph).intersection(getattr(metadata, "static_input_indices", None) or ())
        forwards.append(add(debugging.boxed_nop(graph, examples), lambda arguments: static, "forward", None))
        return _boxed(forwards[-1])

    def backward(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> "Callable[..., Any]":
        before, fixed = forwards[-1], fixed_inputs(graph)

        def static(arguments: Sequence[Any]) -> "set[int]":
            """What the forward has saved of its static inputs."""
            memory = before.static_memory()
            return {number for number in fixed
                    if isinstance(arguments[number], torch.Tensor) and arguments[number].layout is torch.strided
                    and storage_address(arguments[number]) in memory}

        return _boxed(add(debugging.boxed_nop(graph, examples), static, "backward", before))

    compiler = common.aot_autograd(fw_compiler=forward, bw_compiler=backward, keep_inference_input_mutations=True,
                                   partition_fn=partitioners.min_cut_rematerialization_partition)
    compiled: "Callable[..., Any]" = compiler(traced, inputs)
    return compiled


def _boxed(function: TracedGraph) -> "Callable[[List[Any]], Any]":
    def run(arguments: List[Any]) -> Any:
        outputs = function(arguments)
        arguments.clear()
        return outputs

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
