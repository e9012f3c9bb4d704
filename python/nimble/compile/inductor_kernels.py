"""Inductor's kernels for a graph that Dynamo has traced, with CUDA graphs of ours around them.

Its buffers are not reused, which would order kernels that are independent. No state; any thread."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Callable, List, Sequence

import torch

from nimble.compile.traced_ops import fixed_inputs

# Called with a compiled function, which empties the list of its inputs, and the numbers of static and of written ones.
Add = Callable[[Callable[[List[Any]], Any], Sequence[int], Sequence[int]], Callable[[Sequence[Any]], Any]]
_PATCHES = {"triton.cudagraphs": False, "allow_buffer_reuse": False, "inplace_buffers": False}


def compile_by_inductor(traced: torch.fx.GraphModule, inputs: Sequence[Any], add: Add) -> "Callable[..., Any]":
    """torch.compile's default, except for `add` around what it has compiled without gradients."""
    # A graph from its cache would come without `inner`. Inductor's own cache stays in use.
    functorch: Any = importlib.import_module("torch._functorch.config")
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")

    def inner(graph: Any, examples: Sequence[Any], **given: Any) -> Any:
        fixed = fixed_inputs(graph)
        made = compile_fx.compile_fx_inner(graph, examples, **given)
        if given.get("is_inference") and hasattr(made, "current_callable") and hasattr(made, "mutated_input_idxs"):
            run = made.current_callable
            function = add(run, sorted(fixed.intersection(given.get("static_input_idxs") or ())), tuple(made.mutated_input_idxs))

            def replacement(arguments: List[Any]) -> Any:
                outputs = function(arguments)
                arguments.clear()
                return outputs

            made.current_callable = replacement  # where PyTorch puts its own CUDA graphs
        return made

    with functorch.patch({"enable_autograd_cache": False}) if hasattr(functorch, "enable_autograd_cache") else contextlib.nullcontext():
        return compile_fx.compile_fx(traced, inputs, inner_compile=inner, config_patches=_PATCHES)
