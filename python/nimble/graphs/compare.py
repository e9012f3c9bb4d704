"""Runs one call both by its graph and eagerly, and says what differs.

The eager run counts: it comes last, with buffers, arguments and random numbers as they were before the graph's run, and its result
is the program's. For one thread at a time; the caller ensures that."""

from __future__ import annotations

from operator import is_
from typing import Any, Callable, Dict, Hashable, List, Optional, Protocol, Sequence, Set, Tuple

import torch
from torch.utils import _pytree

from nimble.graphs.argument_keys import differing_objects, key_of
from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.graphs.differences import differences, first_of, output_leaves, same_bytes
from nimble.guards.signatures import Call, taken_apart
from nimble.guards.tensor_memory import attribute_tensors
from nimble.guards.write_detector import WriteDetector
from nimble.objects.memory import once, overlaps, repeats_of, storage_address, unique


class GradientComparison(Protocol):
    """One call's gradients, by the graph and eagerly. `difference`: None where they were the same; `repeats`: whether a second
    eager run has the same. The times are seconds until the device was done."""

    difference: Optional[str]
    repeats: bool
    graph_seconds: float
    eager_seconds: float


# Computes a call's gradients both ways, given a function that undoes a run's writes, and a clock that waits for the device.
CompareGradients = Callable[[Callable[[], None], Callable[[], float]], GradientComparison]


def differing_output(graphs: Any, eagers: Any) -> Optional[str]:
    """The difference between the outputs, as a phrase for a message; None where there is none."""
    (ours, structure), (theirs, other_structure) = output_leaves(graphs), output_leaves(eagers)
    if structure != other_structure or len(ours) != len(theirs):
        return "its outputs have another structure"
    difference = first_of(differences(ours, theirs))
    if difference is not None:
        return difference
    if _places([leaf.value for leaf in ours]) != _places([leaf.value for leaf in theirs]):
        return "an output shares memory with another in one of them"
    return differing_objects(graphs, eagers)


def _places(leaves: List[Any]) -> List[Tuple[int, int]]:
    """For each tensor the first one on the same storage, and its distance from that in bytes."""
    first: Dict[int, Tuple[int, int]] = {}
    found = []
    for number, tensor in enumerate(leaves):
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel() > 0:
            begin = tensor.data_ptr()
            same, place = first.setdefault(storage_address(tensor), (number, begin))
            found.append((same, begin - place))
    return found


def shared_output(outputs: Any, call: Call, module: torch.nn.Module, others: Sequence[torch.Tensor] = ()) -> Optional[str]:
    """Why copies cannot replace an eager run's outputs: a program that writes to one of them would also write to something
    else. An output that is itself an argument or a parameter is the same in a graph's results. others: tensors that the module
    finds elsewhere."""
    kept = [call.leaves[number] for number in call.tensors] + [*module.parameters(), *module.buffers()]
    itself = {id(t) for t in kept}
    more = [t for t in (*others, *[t for _, _, t, _ in attribute_tensors(module)]) if t.layout is torch.strided]
    taken = {storage_address(t) for t in (*kept, *more) if t.numel() > 0}
    if _containers((call.args, call.kwargs, [vars(each) for each in module.modules()])) & _containers(outputs):
        return "an output is a list or the like that is an argument's or the module's"
    leaves = {id(t): t for t in _pytree.tree_flatten(outputs)[0] if isinstance(t, torch.Tensor) and id(t) not in itself}
    for tensor in leaves.values():
        if vars(tensor):
            return "an output is a tensor with Python attributes"
        if tensor.layout is torch.strided and tensor.numel() > 0:
            where = storage_address(tensor)
            if where in taken:
                return "an output shares memory with an argument or with a tensor of the module"
    return None


def _containers(tree: Any) -> "Set[int]":
    """Ids of all mutable containers: lists, dictionaries, and whatever else torch.utils._pytree flattens."""
    found: Set[int] = set()
    node = _pytree.SUPPORTED_NODES.get(type(tree))
    if node is not None:
        if type(tree) is not tuple:
            found.add(id(tree))
        for child in node.flatten_fn(tree)[0]:
            found |= _containers(child)
    return found


def is_untouched(call: Call, key: Hashable) -> bool:
    """Whether the containers in a call's arguments still hold what they held when key_of() was `key`. A graph does not see them."""
    leaves, structure = taken_apart((call.args, call.kwargs))
    if len(leaves) != len(call.leaves) or not all(map(is_, leaves, call.leaves)) or structure != call.structure:
        return False
    try:
        return key_of(call) == key
    except NimbleError:
        return False


def _put_back(module: torch.nn.Module, call: Call) -> List[torch.Tensor]:
    return [*module.buffers(), *[t for _, _, t, _ in attribute_tensors(module)], *[call.leaves[number] for number in call.tensors]]


class _State:
    """The state that a run may write: the module's buffers, its tensors in plain attributes, the call's arguments, random
    numbers."""

    def __init__(self, module: torch.nn.Module, call: Call, device: torch.device, backend: Backend) -> None:
        self._device, self._backend = device, backend
        self._tensors = [t for t in unique(_put_back(module, call)) if t.layout is torch.strided]
        if any(overlaps(once(t, repeats_of(t))) for t in self._tensors):
            raise NimbleError("elements of an argument, a buffer or an attribute overlap, and cannot be restored")
        with torch.no_grad():
            self._values = [t.detach().clone() for t in self._tensors]
        self._random = self._random_now()

    def _random_now(self) -> "Tuple[Any, torch.Tensor]":
        return self._backend.random_state(self._device), torch.get_rng_state()

    def writes_since(self) -> "Tuple[List[Tuple[int, torch.Tensor]], bool]":
        """The tensors that were written to, with their values now, and whether random numbers were drawn."""
        written = [(number, t.detach().clone()) for number, (t, value) in enumerate(zip(self._tensors, self._values))
                   if not same_bytes(t, value)]
        return written, not _same_random(self._random, self._random_now())

    def random_now(self) -> "Tuple[Any, torch.Tensor]":
        return self._random_now()

    def restore(self, written: "List[Tuple[int, torch.Tensor]]") -> None:
        with torch.no_grad():
            for number, _ in written:
                tensor = self._tensors[number]
                # For autograd what it has saved of this is unchanged in the end.
                each = tensor if tensor.is_inference() else tensor.data
                repeats = repeats_of(each)
                once(each, repeats).copy_(once(self._values[number], repeats))
        self._backend.set_random_state(self._device, self._random[0])
        torch.set_rng_state(self._random[1])

    def differing_write(self, written: "List[Tuple[int, torch.Tensor]]") -> bool:
        """Whether the tensors differ from those that a run with these writes left."""
        by_number = dict(written)
        return any(not same_bytes(t, by_number.get(number, self._values[number])) for number, t in enumerate(self._tensors))


def _same_random(one: "Tuple[Any, torch.Tensor]", other: "Tuple[Any, torch.Tensor]") -> bool:
    device = torch.equal(one[0], other[0]) if isinstance(one[0], torch.Tensor) else bool(one[0] == other[0])
    return device and torch.equal(one[1], other[1])


class CallEffects:
    """Whether a run has done anything that a _State would restore. Made before the run, queried after it."""

    def __init__(self, module: torch.nn.Module, call: Call, backend: Backend) -> None:
        self._backend = backend
        self._device = call.leaves[call.tensors[0]].device if call.tensors else None
        self._written = WriteDetector(_put_back(module, call))
        self._random = self._random_now()

    def any(self) -> bool:
        return self._written.any() or not _same_random(self._random, self._random_now())

    def _random_now(self) -> "Tuple[Any, torch.Tensor]":
        return self._backend.random_state(self._device) if self._device is not None else 0, torch.get_rng_state()


class Comparison:
    """result: what the eager run returned. difference: None where both behaved the same. has_effects: the graph wrote to
    buffers or arguments, or drew random numbers, so that it cannot simply run again. The times are seconds until the GPU was
    done. Where Nimble itself failed, `failure` says why, and the rest is unknown."""

    def __init__(self) -> None:
        self.result: Any = None
        self.difference: Optional[str] = None
        self.has_effects = False
        self.failure: Optional[Exception] = None
        self.graph_seconds = self.eager_seconds = 0.0


def compare(graph: "Callable[[], Any]", eager: "Callable[[], Any]", module: torch.nn.Module, call: Call, device: torch.device,
            backend: Backend, clock: "Callable[[], float]", gradients: "Optional[CompareGradients]" = None,
            others: Sequence[torch.Tensor] = ()) -> Comparison:
    """Runs both. Only the eager run's errors pass through. gradients: compares the gradients of a call that trains, and gives
    the times. others: tensors that the module finds elsewhere."""

    def finished() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock()

    done = Comparison()
    state: Optional[_State] = None
    written: List[Tuple[int, torch.Tensor]] = []
    ours, drawn, random, began = None, False, None, 0.0
    key: Hashable = None
    try:
        key = key_of(call)
        backend.wait(device)  # unordered streams may still use the memory being restored
        state = _State(module, call, device, backend)
        began = finished()
        ours = graph()
        done.graph_seconds = finished() - began
        written, drawn = state.writes_since()
        random = state.random_now()
        done.has_effects = bool(written) or drawn
    except Exception as error:
        done.failure = error
    if state is not None:
        try:
            # Even if the graph's run has failed: it may have written.
            state.restore(written if done.failure is None else state.writes_since()[0])
            if gradients is not None and done.failure is None:
                _compare_gradients(done, gradients, state, finished)
        except Exception as error:
            done.failure = error
        began = finished()
    done.result = eager()
    if state is None or random is None or done.failure is not None:
        return done
    try:
        if gradients is None:
            done.eager_seconds = finished() - began
        done.difference = (done.difference or differing_output(ours, done.result) or shared_output(done.result, call, module, others)
                           or _differing_effect(state, written, random, is_untouched(call, key)))
    except Exception as error:
        done.failure = error
    return done


def _differing_effect(state: _State, written: "List[Tuple[int, torch.Tensor]]", random: "Tuple[Any, torch.Tensor]",
                      is_untouched: bool) -> Optional[str]:
    """How the eager run's effects differ from the graph's, given the graph's writes and random numbers."""
    if not is_untouched:
        return "it puts something else into its arguments"
    if state.differing_write(written):
        return "it writes other values to its buffers or arguments"
    return None if _same_random(random, state.random_now()) else "it draws a different number of random numbers"


def _compare_gradients(done: Comparison, gradients: CompareGradients, state: _State, finished: "Callable[[], float]") -> None:
    def put_back() -> None:
        state.restore(state.writes_since()[0])

    try:
        both = gradients(put_back, finished)
        done.graph_seconds, done.eager_seconds = both.graph_seconds, both.eager_seconds
        if both.difference is not None and both.repeats:
            done.difference = both.difference
        elif both.difference is not None:
            done.failure = NimbleError("its gradients are not the same each time")
    except Exception as error:
        done.failure = error
    finally:
        put_back()
