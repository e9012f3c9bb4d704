"""A graph's inputs and outputs: its own memory for arguments, what calls return, and the checks of both.

Input is an argument's memory. Results is what a call returns for the graph's outputs. The rest are functions without state. Not to
be used by two threads at once; the owner of the graph has a lock."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import AbstractSet, Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.graphs.outputs import OutputCopies
from nimble.guards.signatures import Call, flattened, has_attributes, place_of
from nimble.guards.tensor_memory import has_memory
from nimble.objects.memory import extent, once, repeats_of, storage_address, storage_bytes, take_grad_dtype
from nimble.objects.module_contents import tensors_of
from nimble.objects.plain import KINDS
from nimble.shim import GraphStatus


@dataclass(frozen=True)
class Options:
    """The options of prepare(), as in the original Nimble."""

    use_multi_stream: bool = True
    relaxed: bool = False


@dataclass(frozen=True)
class GraphReport:
    """The report of a prepared graph. `state`: kept, trying, own or rewritten, as in nimble_graph_state; `unknown` where libnimble.so
    does not have the graph; `eager` where there is none, and `why` says why calls run eagerly. Times in microseconds are medians of a
    launch. `static_bytes`: of inputs and outputs. `kind`: inference, forward, backward or step. `runs_ahead`: whether the graph, or a
    step's first part, is launched before its guard is checked; else a call on an idle GPU waits for the guard. None where there is no
    guard, as for a backward, or no graph. `as_eager`: whether it was captured as if no stream captured (eager_answers.py)."""

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
    runs_ahead: Optional[bool] = None
    as_eager: bool = False


def eager_report(kind: str, signature: str, why: str) -> GraphReport:
    """The report of a kind of call that has no graph."""
    return GraphReport(signature, "eager", 0, 0, None, None, 0.0, 0, why, kind)


def report(kind: str, signature: str, status: Optional[GraphStatus], seconds: float, tensors: Iterable[Any],
           runs_ahead: Optional[bool] = None, as_eager: bool = False) -> GraphReport:
    """The report of a graph. `tensors`: its static memory; values other than tensors do not count."""
    memory = {storage_address(t): storage_bytes(t) for t in tensors if isinstance(t, torch.Tensor)}
    if status is None:
        return GraphReport(signature, "unknown", 0, 0, None, None, seconds, sum(memory.values()), "", kind, runs_ahead, as_eager)
    return GraphReport(signature, status.state.name.lower(), status.nodes, status.streams, status.own_us, status.rewritten_us,
                       seconds, sum(memory.values()), status.text, kind, runs_ahead, as_eager)


class Input:
    """The graph's own memory for a tensor argument, with the argument's strides. The graph's function receives `tensor`.

    `tensor` requires gradients where the argument does, and is a parameter where the argument is. trains: it has its own version,
    which copying an argument in does not raise: tensors that autograd saved from it stay valid as long as the memory does."""

    def __init__(self, number: int, like: torch.Tensor, trains: bool = False) -> None:
        self.number = number
        self._repeats = repeats_of(like)
        source = once(like.detach(), self._repeats)
        self.memory = torch.empty_strided(source.shape, source.stride(), dtype=like.dtype, device=like.device).copy_(source)
        self.tensor = self.memory.expand(like.shape) if self._repeats else self.memory
        if trains or like.requires_grad:
            self.tensor = self.tensor.data.requires_grad_(like.requires_grad)
        if type(like) is torch.nn.Parameter:
            self.tensor = torch.nn.Parameter(self.tensor.detach(), like.requires_grad)
        if like.requires_grad:
            take_grad_dtype(like, self.tensor)

    def take(self, tensor: torch.Tensor) -> None:
        if tensor is not self.tensor:
            self.memory.copy_(once(tensor.detach(), self._repeats), non_blocking=True)


class InputCopier:
    """Copies a call's arguments into a graph's inputs. Arguments that lie in that memory themselves, such as swapped inputs, are read
    before any is written."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._places = [(each, each.number, each.tensor) for each in inputs]
        ranges = sorted((i.memory.data_ptr(), i.memory.data_ptr() + extent(i.memory)) for i in inputs if i.memory.numel() > 0)
        self._begins, self._ends = [begin for begin, _ in ranges], [end for _, end in ranges]
        self._first, self._end = (ranges[0][0], ranges[-1][1]) if len(ranges) > 1 else (0, 0)  # alone, it can only be all of it

    def __call__(self, leaves: Sequence[Any]) -> None:
        first, end = self._first, self._end
        for _, number, mine in self._places if end else ():
            given = leaves[number]
            if given is not mine and first <= given.data_ptr() < end:
                leaves = [self._apart(leaf) for leaf in leaves]
                break
        for each, number, _ in self._places:
            each.take(leaves[number])

    def _apart(self, leaf: Any) -> Any:
        """A copy, where the leaf lies in the inputs' memory."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        where = leaf.data_ptr()
        place = bisect_right(self._begins, where) - 1
        return leaf.detach().clone() if place >= 0 and where < self._ends[place] else leaf


class Results:
    """A call's return value: the structure of the graph's outputs, with the caller's arguments, values that never change (`kept`),
    and a replacement for each tensor that every run makes (`made`, each once).

    own: tensors that never change, each with the value returned for it."""

    def __init__(self, outputs: Any, inputs: List[Input], own: "Iterable[Tuple[torch.Tensor, torch.Tensor]]") -> None:
        leaves, self._structure = flattened(outputs)
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
        """Copies of `made` with their current values."""
        if self._copies is None:
            self._copies = OutputCopies(self.made)
        return self._copies()

    def returned(self, made: "List[torch.Tensor]", arguments: Sequence[Any]) -> Any:
        """The result of a call, with these in place of `made`."""
        leaves = [kept if argument is None and place is None else made[place] if place is not None else arguments[argument or 0]
                  for argument, place, kept in self._plan]
        return _pytree.tree_unflatten(leaves, self._structure)


def with_inputs(call: Call, inputs: List[Input]) -> List[Any]:
    """The call's leaves, with the graph's inputs in place of its tensors."""
    own = {id(call.leaves[i.number]): i.tensor for i in inputs}
    return [own.get(id(leaf), leaf) for leaf in call.leaves]


def check_apart(call: Call, inputs: List[Input], written: List[Input], own: "AbstractSet[int]" = frozenset(),
                own_written: "AbstractSet[int]" = frozenset()) -> None:
    """Raises NimbleError where arguments share memory that is written: the graph's inputs share none. own: addresses of the module's
    tensors, which no written argument may share; own_written: addresses of those that the module writes to."""
    storages = [storage_address(call.leaves[i.number]) for i in inputs]
    for each in written:
        where = storage_address(call.leaves[each.number])
        if where and (storages.count(where) > 1 or where in own):  # empty tensors have no memory to share
            raise NimbleError(f"the module writes to {call.place(each.number)}, which shares memory with "
                              f"{'a tensor of the module' if where in own else 'another argument'}: pass a copy")
    for number, where in zip([i.number for i in inputs], storages):
        if where and where in own_written:
            raise NimbleError(f"{call.place(number)} shares memory with a buffer that the module writes to: pass a copy")


def device_of(tensors: Iterable[torch.Tensor], call: Call, backend: Backend) -> torch.device:
    """The one device of the arguments, and of the tensors that are on a device of this type. Raises NimbleError where they are on
    several: work on one is captured only where it waits for the other."""
    device: Optional[torch.device] = None
    for number in call.tensors:
        here = call.leaves[number].device
        if here.type != backend.device_type:
            raise NimbleError(f"{call.place(number)} is on {here}, not on {backend.device_type}, and a graph cannot read it there: "
                              f"move it, as by .to('{backend.device_type}')")
        if device is not None and here != device:
            raise NimbleError(f"{call.place(number)} is on {here}, another argument on {device}")
        device = here
    for tensor in tensors:
        if tensor.device.type == backend.device_type:
            device = device or tensor.device
            if tensor.device != device:
                raise NimbleError(f"it works on tensors on {tensor.device} and on {device}, and a graph has one device: prepare the parts "
                                  "that lie on one device each")
    if device is None:
        raise NimbleError(f"neither an argument nor the module is on {backend.device_type}: move both, as by .to('{backend.device_type}')")
    return device


def attributes_of(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The tensors that the module holds in attributes, and in containers there, by path."""
    return tensors_of(module)


def check_attributes(before: Dict[str, torch.Tensor], module: torch.nn.Module, inputs: Iterable[Input] = ()) -> None:
    """Raises NimbleError where the module assigns a tensor to an attribute in each run, or keeps an argument: a graph would not. A
    tensor that it makes once and keeps is fine."""
    now = attributes_of(module)
    for path in (*now, *before):
        if before.get(path) is not now.get(path):
            raise NimbleError(f"the module assigns a tensor to its attribute {path!r} at each run, which a graph would not do: have "
                              "it write in place to a buffer, or return the tensor")
    for each in inputs:
        for path, tensor in now.items():
            if tensor is each.tensor or (tensor.layout is torch.strided and has_memory(tensor)
                                         and storage_address(tensor) == storage_address(each.memory) != 0):
                raise NimbleError(f"the module keeps an argument in its attribute {path!r}, which a graph would not do: have it "
                                  "write in place to a buffer")


def check_outputs(outputs: Any, device_type: str, own: Iterable[torch.Tensor]) -> None:
    """Raises NimbleError where a graph cannot return one of these outputs. own: tensors that are returned as they are."""
    known = set(map(id, own))
    for number, leaf in enumerate(flattened(outputs)[0]):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type != device_type:
                raise NimbleError(f"{place_of(outputs, number, 'output')} is on {leaf.device}, where a graph does not write")
            if leaf.layout is not torch.strided:
                raise NimbleError(f"{place_of(outputs, number, 'output')} is a tensor with layout {leaf.layout}, and a graph "
                                  "cannot tell its size")
            if id(leaf) not in known and has_attributes(leaf):
                names = ", ".join(map(repr, vars(leaf)))
                raise NimbleError(f"{place_of(outputs, number, 'output')} has Python attributes ({names}), which a graph's output "
                                  "would not have: return their values besides it")
        elif not isinstance(leaf, KINDS):  # these never change, so a graph may return them
            raise NimbleError(f"{place_of(outputs, number, 'output')} is a {type(leaf).__name__}, in which tensors may be "
                              "hidden: register it with torch.utils._pytree")


def check_no_gradients(outputs: Any, own: Iterable[torch.Tensor]) -> None:
    """Raises NimbleError where an output of a graph without a backward requires gradients. own: tensors that may, and views of those."""
    known = set(map(storage_address, own))
    for number, leaf in enumerate(flattened(outputs)[0]):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and (leaf.grad_fn is not None or storage_address(leaf) not in known):
            raise NimbleError(f"{place_of(outputs, number, 'output')} requires gradients although the call does not train, since "
                              "the module enables them itself: prepare it with training=True, or detach what it returns")
