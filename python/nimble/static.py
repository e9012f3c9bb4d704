"""What belongs to a graph, whatever it is of: memory of its own for arguments, what calls give back, and checks of both.

Input is an argument's memory. Results is what a call returns for the graph's outputs. The rest are functions without state.
None of it may be used by two threads at once; the owner of the graph has a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch
from torch.utils import _pytree

from nimble.backend import Backend
from nimble.errors import NimbleError
from nimble.outputs import OutputCopies
from nimble.shim import GraphStatus
from nimble.signatures import Call, is_constant, place_of
from nimble.state import plain_tensors


@dataclass(frozen=True)
class Options:
    """Of prepare(): the original's."""

    use_multi_stream: bool = True
    relaxed: bool = False


@dataclass(frozen=True)
class GraphReport:
    """What is known of a prepared graph. `state`: kept, trying, own or rewritten, as nimble_graph_state; `unknown` where
    libnimble.so does not know the graph. Times in microseconds are medians of a launch. `static_bytes`: inputs and outputs.
    `kind`: inference, forward, backward or step."""

    signature: str
    state: str
    nodes: int
    streams: int
    own_us: Optional[float]
    rewritten_us: Optional[float]
    prepare_seconds: float
    static_bytes: int
    why: str
    kind: str = "inference"


def report(kind: str, signature: str, status: Optional[GraphStatus], seconds: float, tensors: Iterable[Any]) -> GraphReport:
    """`tensors`: those whose memory is told; what is none among them does not count."""
    memory = {storage(t): storage_bytes(t) for t in tensors if isinstance(t, torch.Tensor)}
    if status is None:
        return GraphReport(signature, "unknown", 0, 0, None, None, seconds, sum(memory.values()), "", kind)
    return GraphReport(signature, status.state.name.lower(), status.nodes, status.streams, status.own_us, status.rewritten_us,
                       seconds, sum(memory.values()), status.text, kind)


class Input:
    """A tensor argument's own memory, with the argument's strides. `tensor` is what the graph's function is given.

    trains: it wants gradients where the argument does, and has a version of its own, which arguments that are copied in do not
    raise: what autograd has saved of it stays as valid as the memory is."""

    def __init__(self, number: int, like: torch.Tensor, trains: bool = False) -> None:
        self.number = number
        self._single = [d for d, (size, stride) in enumerate(zip(like.shape, like.stride())) if stride == 0 and size > 1]
        source = self._without_repeats(like.detach())
        self.memory = torch.empty_strided(source.shape, source.stride(), dtype=like.dtype, device=like.device).copy_(source)
        self.tensor = self.memory.expand(like.shape) if self._single else self.memory
        if trains:
            self.tensor = self.tensor.data.requires_grad_(like.requires_grad)

    def _without_repeats(self, tensor: torch.Tensor) -> torch.Tensor:
        for dimension in self._single:
            tensor = tensor.narrow(dimension, 0, 1)
        return tensor

    def take(self, tensor: torch.Tensor) -> None:
        if tensor is not self.tensor:
            self.memory.copy_(self._without_repeats(tensor.detach()), non_blocking=True)


class Results:
    """What calls return: the structure of the graph's outputs, with the caller's arguments, what never changes (`kept`), and
    something in the place of each tensor that every run makes anew (`made`, each once).

    own: tensors that never change, each with what is returned for it."""

    def __init__(self, outputs: Any, inputs: List[Input], own: "Iterable[Tuple[torch.Tensor, torch.Tensor]]") -> None:
        leaves, self._structure = _pytree.tree_flatten(outputs)
        arguments = {id(i.tensor): i.number for i in inputs}
        kept = {id(mine): given for mine, given in own}
        places: Dict[int, int] = {}
        self.made: List[torch.Tensor] = []
        self.kept: List[Any] = []
        self._plan: List[Tuple[Optional[int], Optional[int], Any]] = []  # argument, or number in `made`, or itself
        self._copies: Optional[OutputCopies] = None
        for leaf in leaves:
            if id(leaf) in arguments:
                self._plan.append((arguments[id(leaf)], None, None))
            elif not isinstance(leaf, torch.Tensor) or id(leaf) in kept:
                self.kept.append(kept.get(id(leaf), leaf))
                self._plan.append((None, None, self.kept[-1]))
            else:
                if id(leaf) not in places:
                    places[id(leaf)] = len(self.made)
                    self.made.append(leaf)
                self._plan.append((None, places[id(leaf)], None))

    def copied(self) -> List[torch.Tensor]:
        """Copies of `made`, as they are now."""
        if self._copies is None:
            self._copies = OutputCopies(self.made)
        return self._copies()

    def returned(self, made: "List[torch.Tensor]", arguments: Sequence[Any]) -> Any:
        """With these in the place of `made`."""
        leaves = [kept if argument is None and place is None else made[place] if place is not None else arguments[argument or 0]
                  for argument, place, kept in self._plan]
        return _pytree.tree_unflatten(leaves, self._structure)


def with_inputs(call: Call, inputs: List[Input]) -> List[Any]:
    """The call's leaves with the graph's own tensors in the place of each argument's."""
    own = {id(call.leaves[i.number]): i.tensor for i in inputs}
    return [own.get(id(leaf), leaf) for leaf in call.leaves]


def check_apart(call: Call, inputs: List[Input], written: List[Input]) -> None:
    """The graph's inputs share no memory: where its function writes to one, the call's may not, either."""
    storages = [storage(call.leaves[i.number]) for i in inputs]
    for each in written:
        if storages.count(storage(call.leaves[each.number])) > 1:
            raise NimbleError(f"the module writes to {call.place(each.number)}, which shares memory with another argument")


def device_of(tensors: Iterable[torch.Tensor], call: Call, backend: Backend) -> torch.device:
    """The one device of the arguments, or of the first of the tensors that is on such a device where no argument is one."""
    device: Optional[torch.device] = None
    for number in call.tensors:
        here = call.leaves[number].device
        if here.type != backend.device_type:
            raise NimbleError(f"{call.place(number)} is on {here}, not on {backend.device_type}: a graph cannot read it there")
        if device is not None and here != device:
            raise NimbleError(f"{call.place(number)} is on {here}, another argument on {device}")
        device = here
    if device is None:
        device = next((t.device for t in tensors if t.device.type == backend.device_type), None)
    if device is None:
        raise NimbleError(f"neither an argument nor the module is on {backend.device_type}")
    return device


def attributes_of(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    return {path: tensor for _, _, tensor, path in plain_tensors(module)}


def check_attributes(before: Dict[str, torch.Tensor], module: torch.nn.Module) -> None:
    """What a module makes once, and keeps, is fine. What it assigns at each run would never be assigned by a graph."""
    for path, tensor in attributes_of(module).items():
        if before.get(path) is not tensor:
            raise NimbleError(f"the module assigns a tensor to its attribute {path!r} at each run, which a graph would not do")


def check_outputs(outputs: Any, device_type: str) -> None:
    for number, leaf in enumerate(_pytree.tree_flatten(outputs)[0]):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type != device_type:
                raise NimbleError(f"{place_of(outputs, number, 'output')} is on {leaf.device}, where a graph does not write")
            if leaf.layout is not torch.strided:
                raise NimbleError(f"{place_of(outputs, number, 'output')} is a tensor with layout {leaf.layout}, of which a "
                                  "graph cannot tell the size")
        elif not is_constant(leaf):
            raise NimbleError(f"{place_of(outputs, number, 'output')} is a {type(leaf).__name__}, in which tensors may be "
                              "hidden: register it with torch.utils._pytree")


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both hold the same, to the bit. Of one type."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    with torch.no_grad():
        first, second = (t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for t in (one, other))
        return torch.equal(first, second)


def storage(tensor: torch.Tensor) -> int:
    """Where its memory begins."""
    return int(_storage_of(tensor).data_ptr())


def storage_bytes(tensor: torch.Tensor) -> int:
    return int(_storage_of(tensor).nbytes())


def _storage_of(tensor: Any) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
