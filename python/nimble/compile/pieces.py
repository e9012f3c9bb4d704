"""Cuts a graph that Dynamo has traced with symbolic sizes into pieces: runs of consecutive ops that see no symbolic size, such as all of
a language model but its growing cache, and attention over that. What lies between them stays as it is, in the graph's own order.

What PyTorch has noted about each value while it traced decides (node.meta["example_value"]), and PyTorch's split_module cuts. No state;
any thread."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import torch
from torch.fx.passes.split_module import split_module
from torch.utils import _pytree

from nimble.compile.traced_ops import attribute, is_fixed, is_scalar

LEAST_OPS = 8  # that launch something: fewer take the GPU as long by themselves as a CUDA graph, with copies of what goes in and out
LEAST_SHARE = 0.5  # of a graph's ops: with fewer in pieces, a CUDA graph of the whole for each set of sizes gains more
# What they return is no tensor, but they do nothing that a CUDA graph would miss.
_WITHOUT_VALUE = (operator.setitem, torch._C._log_api_usage_once)
_ELSEWHERE = frozenset(("as_strided", "as_strided_", "set_", "resize_", "untyped_storage", "storage", "storage_offset", "data_ptr"))
_OF_PYTORCH = ("torch", "_operator", "builtins", "math")  # modules with functions that keep nothing
_MODES = frozenset(("_enter_autocast", "_exit_autocast", "_set_grad_enabled"))
_HOST = frozenset(("tensor", "as_tensor", "asarray", "from_numpy"))  # they make tensors of what is on the host
_HigherOrder: Any = getattr(torch._ops, "HigherOrderOperator", ())


@dataclass(frozen=True)
class Piece:
    """`module`: its ops, which return a tuple. `name`: of the attribute of `CutGraph.module` that is called for it. `static`: the numbers
    of those of its inputs that are static inputs of the whole graph, or tensors that the graph holds. `sources`: of each input, the
    piece and the number of its output that it is, if it is one; `outputs`: how many it has; `returned`: the numbers of those that the
    whole graph returns. `returns_one`: its caller expects its output without a tuple."""

    name: str
    module: torch.fx.GraphModule
    static: FrozenSet[int]
    sources: "List[Optional[Tuple[str, int]]]"
    outputs: int
    returned: FrozenSet[int]
    returns_one: bool


@dataclass(frozen=True)
class CutGraph:
    """`module`: the whole graph, which calls its pieces and what is between them as submodules. `between`: the names of those.
    `may_have_buffers`: no op is known to keep what it is given."""

    module: torch.fx.GraphModule
    pieces: List[Piece]
    between: List[str]
    may_have_buffers: bool


def cut(traced: torch.fx.GraphModule, static: Set[int], device_type: str) -> Optional[CutGraph]:
    """None where the graph has no symbolic sizes, or too few ops without them. static: the numbers of its static inputs."""
    nodes = [node for node in traced.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    if not any(_is_symbolic(node) for node in traced.graph.nodes) or any(map(_is_unclear, nodes)):
        return None
    parts = _parts(nodes, device_type)
    chosen = {number for number in set(parts.values()) if number % 2 == 1}
    count = sum(map(_launches, nodes))
    if not chosen or sum(_launches(node) for node in nodes if parts[node] in chosen) < LEAST_SHARE * count:
        return None
    try:
        whole = split_module(traced, traced, parts.__getitem__, keep_original_order=True)  # else what is written would not be in order
    except Exception:  # there are symbols and modes that it does not understand
        return None
    called = [node for node in whole.graph.nodes if node.op == "call_module"]
    between = [node.target for node in called if _number(node) % 2 == 0]
    return CutGraph(whole, [_piece(whole, node, static) for node in called if _number(node) % 2 == 1], between,
                    not any(map(_may_keep, nodes)))


def _number(called: torch.fx.Node) -> int:
    return int(str(called.target).rsplit("_", 1)[1])


def _piece(whole: torch.fx.GraphModule, called: torch.fx.Node, static: Set[int]) -> Piece:
    module = getattr(whole, str(called.target))
    numbers = {node: number for number, node in enumerate(_placeholders(whole))}
    given: List[Any] = list(called.args)
    returns_one = _return_a_tuple(module)
    values = [called] if returns_one else [node for node in called.users if node.target is operator.getitem]
    returned = [_source(node) for node in values if any(user.op == "output" for user in node.users)]
    return Piece(str(called.target), module,
                 frozenset(place for place, node in enumerate(given) if node.op == "get_attr" or numbers.get(node) in static),
                 [_source(node) for node in given], len(_output(module)),
                 frozenset(source[1] for source in returned if source is not None), returns_one)


def _source(node: torch.fx.Node) -> "Optional[Tuple[str, int]]":
    """The piece and the number of its output that the value is, if it is one."""
    called, place = node.args if node.target is operator.getitem else (node, 0)
    if not isinstance(called, torch.fx.Node) or called.op != "call_module" or _number(called) % 2 == 0:
        return None
    return str(called.target), int(str(place))


def _placeholders(traced: torch.fx.GraphModule) -> List[torch.fx.Node]:
    return [node for node in traced.graph.nodes if node.op == "placeholder"]


def _output(module: torch.fx.GraphModule) -> Any:
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    return output.args[0]


def _return_a_tuple(module: torch.fx.GraphModule) -> bool:
    """Makes it return a tuple. Whether it did not."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    if isinstance(output.args[0], tuple):
        return False
    output.args = ((output.args[0],),)
    module.recompile()
    return True


def _parts(nodes: Sequence[torch.fx.Node], device_type: str) -> Dict[torch.fx.Node, int]:
    """The number of the part that each op belongs to, in order: odd ones are pieces."""
    plain = {node for node in nodes if _is_plain(node, device_type)}
    moves = not any(_name(node) in _MODES for node in nodes)  # else split_module wants parts to come in order
    while True:
        parts = _numbers(nodes, plain, moves)
        members: Dict[int, List[torch.fx.Node]] = {}
        for node, number in parts.items():
            members.setdefault(number, []).append(node)
        again = {node for number, each in members.items() if number % 2 == 1 for node in _not_in_a_piece(each)}
        if not again:
            return parts
        plain |= again


def _numbers(nodes: Sequence[torch.fx.Node], plain: Set[torch.fx.Node], moves: bool) -> Dict[torch.fx.Node, int]:
    """Consecutive ops that are all plain, or none of which is, have one number. moves: what only computes sizes, from others than those
    of a piece around it, comes before that."""
    parts: Dict[torch.fx.Node, int] = {}
    last = 0
    for node in nodes:
        if moves and last % 2 == 1 and _is_size(node) and all(parts.get(each, 0) < last for each in node.all_input_nodes):
            parts[node] = last - 1
            continue
        if (last % 2 == 1) == (node in plain):
            last += 1
        parts[node] = last
    return parts


def _is_size(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(_value(node), torch.SymInt)


def _not_in_a_piece(members: Sequence[torch.fx.Node]) -> List[torch.fx.Node]:
    """Those of the ops that cannot be in this piece: all where they are too few, else those that pass on something else than a tensor."""
    if sum(map(_launches, members)) < LEAST_OPS:
        return list(members)
    inside = set(members)
    return [node for node in members if not isinstance(_value(node), torch.Tensor) and not inside.issuperset(node.users)]


def _is_plain(node: torch.fx.Node, device_type: str) -> bool:
    """Whether something about it is symbolic, or unknown, or not on the device."""
    if node.op not in ("call_function", "call_method") or isinstance(node.target, _HigherOrder):
        return True
    if _name(node) in _HOST and getattr(_value(node), "shape", None) != (0,):
        return True
    if node.target is operator.setitem and any(_is_mask(index) for index in _pytree.tree_flatten(node.args[1])[0]):
        return True  # it waits for how many there are
    given = [_value(each) for each in node.all_input_nodes]
    return not (all(_is_there(value, device_type) for value in given)
                and (node.target in _WITHOUT_VALUE or _is_there(_value(node), device_type)))


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.fx.Node) and getattr(_value(index), "dtype", None) in (torch.bool, torch.uint8)


def _is_symbolic(node: torch.fx.Node) -> bool:
    return any(isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) or _is_strided(leaf) and not is_fixed(leaf)
               for leaf in _pytree.tree_flatten(_value(node))[0])


def _is_there(value: Any, device_type: str) -> bool:
    """Whether it consists of tensors on the device with fixed sizes."""
    leaves = _pytree.tree_flatten(value)[0]
    return bool(leaves) and all(_is_strided(leaf) and leaf.device.type == device_type and not is_scalar(leaf, device_type)
                                and is_fixed(leaf) for leaf in leaves)


def _value(node: torch.fx.Node) -> Any:
    if node.op == "get_attr":
        return attribute(node)
    return node.meta.get("example_value")


def _launches(node: torch.fx.Node) -> bool:
    """Whether it seems to launch something: it writes, or what it returns is not a view."""
    name = _name(node)
    if node.target is operator.setitem or name.endswith("_") and not name.endswith("__"):
        return True
    made = _memory(_value(node))
    return bool(made) and not any(made <= _memory(_value(each)) for each in node.all_input_nodes)


def _memory(value: Any) -> Set[int]:
    return {leaf.untyped_storage()._cdata for leaf in _pytree.tree_flatten(value)[0] if _is_strided(leaf)}


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _is_unclear(node: torch.fx.Node) -> bool:
    """Whether it is known too little of what the op sees: of a transform of torch.func, in which tensors are not what they seem; or of
    memory around its tensors."""
    return "functorch" in str(getattr(node.target, "__module__", "")) or _name(node) in _ELSEWHERE


def _may_keep(node: torch.fx.Node) -> bool:
    """Whether the op may keep what it is given: one that is not PyTorch's own."""
    if node.op == "call_method":
        return False
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return not str(node.target).startswith(("aten.", "prims."))
    module = getattr(node.target, "__module__", None)
    return isinstance(node.target, _HigherOrder) or not isinstance(module, str) or module.split(".")[0] not in _OF_PYTORCH


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
