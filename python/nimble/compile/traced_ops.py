"""What can be told from a graph that Dynamo has traced: which inputs are static, what it is called, and why CUDA graphs cannot serve its
calls. No state; any thread."""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Optional, Sequence, Set

import torch

# Higher-order ops that do what their function does. Others may do more than their schema says.
_TRANSPARENT = frozenset(("wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint", "wrap_activation_checkpoint",
                          "autograd_function_apply", "wrap", "invoke_subgraph"))
_HigherOrder: Any = getattr(torch._ops, "HigherOrderOperator", ())
GRADIENTS = "it computes gradients"
_PLACE = re.compile(r'File "([^"]*)", line (\d+), in (\S+)')


def static_inputs(traced: torch.fx.GraphModule) -> Set[int]:
    """The numbers of inputs that are the same tensor at most calls, and have one shape: parameters, buffers, tensors in attributes of
    modules, and what the program has marked as such."""
    placeholders = _placeholders(traced)
    return {number for number in fixed_inputs(traced)
            if (placeholders[number].meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")}


def fixed_inputs(traced: torch.fx.GraphModule) -> Set[int]:
    """The numbers of inputs that are tensors with one shape and one layout for all calls. Also of graphs from AOTAutograd."""
    return {number for number, node in enumerate(_placeholders(traced))
            if _is_fixed(node.meta.get("example_value", node.meta.get("val")))}


def _is_fixed(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and all(isinstance(size, int) for size in (*example.shape, *example.stride()))


def _placeholders(traced: torch.fx.GraphModule) -> List[torch.fx.Node]:
    return [node for node in traced.graph.nodes if node.op == "placeholder"]


def own_tensors(traced: torch.fx.GraphModule) -> List[torch.Tensor]:
    """Constants that the graph holds."""
    return [value for node in _nodes(traced) if node.op == "get_attr" and isinstance(value := _attribute(node), torch.Tensor)]


def _attribute(node: torch.fx.Node) -> Any:
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part, None)
    return value


def _nodes(traced: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    for module in traced.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def name_of(traced: torch.fx.GraphModule) -> str:
    """Dynamo's number of the graph, and the place of its first op in the program."""
    number = traced.meta.get("dynamo_compile_id") if isinstance(getattr(traced, "meta", None), dict) else None
    text = f"[{number if number is not None else '?'}]"
    for node in traced.graph.nodes:
        if node.op not in ("placeholder", "output"):
            place = _PLACE.search(node.stack_trace or "")
            if place is not None:
                return f"{text} {place[3]} ({place[1].rsplit('/', 1)[-1]}:{place[2]})"
            for _, kind in (node.meta.get("nn_module_stack") or {}).values():
                return f"{text} {getattr(kind, '__name__', kind)}"  # PyTorch's own code has no place
    return text


def why_not(traced: torch.fx.GraphModule, inputs: Sequence[Any]) -> Optional[str]:
    """Why no call of the graph can be served by a CUDA graph; None where calls may be."""
    nodes = list(_nodes(traced))
    if not any(node.op in ("call_function", "call_method", "call_module") for node in traced.graph.nodes):
        return "it has no ops"
    if any(isinstance(each, torch.nn.Parameter) for each in own_tensors(traced)) or any(True for _ in traced.buffers()):
        return "its parameters belong to the graph: torch._dynamo.config.inline_inbuilt_nn_modules is off"
    for node in nodes:
        if node.op == "call_module" and not isinstance(_attribute(node), torch.fx.GraphModule):
            return f"it calls the module {node.target}, which Dynamo has not traced"
        if isinstance(node.target, _HigherOrder) and node.target.__name__ not in _TRANSPARENT:
            return f"it has the op {node.target.__name__}, of which it is not known what it writes"
    if _computes_gradients(nodes, inputs):
        return GRADIENTS
    return None


def _computes_gradients(nodes: Sequence[torch.fx.Node], inputs: Sequence[Any]) -> bool:
    if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs):
        return False
    return torch.is_grad_enabled() or any(_enables_gradients(node) for node in nodes)


def _enables_gradients(node: torch.fx.Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return name in ("_set_grad_enabled", "wrap_with_set_grad_enabled", "_enter_inference_mode") and node.args[:1] != (False,)
