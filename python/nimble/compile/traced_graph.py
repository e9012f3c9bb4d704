"""A graph that Dynamo has traced, or the forward or backward that AOTAutograd has made of it. Its calls launch CUDA graphs of ours.

Dynamo has checked each call beforehand: calls differ only in integers, shapes that follow from them, values of tensors, and
addresses. There is a CUDA graph for each set of integers, shapes, values of CPU scalars, addresses of static inputs (weights, caches),
and PyTorch's switches (graphed_call.py). Static inputs are read and written in place, others copied; arguments that the graph writes
to are written, and views of arguments are made, after it (argument_effects.py). The first call of a kind runs as traced. Once
there were more calls of it than there are kinds, the next is prepared; it and two more are compared with a run without the CUDA graph,
to the bit. If any of that fails, calls run as traced.

Any thread: CUDA graphs have their own locks, and a call made while another thread prepares or compares runs as traced."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from typing import AbstractSet, Any, Callable, Dict, FrozenSet, Hashable, Iterable, List, Optional, Sequence, Tuple

import torch

from nimble.compile.argument_effects import ArgumentEffects, ObservedRun, are_apart
from nimble.compile.compiled_function import why_not_now
from nimble.compile.graphed_call import MOST_GRAPHS, WITHOUT, Engine, GraphedCall
from nimble.graphs.graph_io import GraphReport
from nimble.graphs.prepared import CHANGED
from nimble.guards import switches
from nimble.nesting import unless_others_prepare
from nimble.objects.memory import storage_address
from nimble.objects.plain import SCALARS, plain_key

MOST_ADDRESSES = 64  # CUDA graphs of one traced graph, for different static inputs: the blocks of a model may share a traced graph
_STALE = 4 * MOST_ADDRESSES  # calls of others, after which the least recently used one makes room

Run = Callable[[List[Any]], Any]  # may empty the list
Static = Callable[[Sequence[Any]], AbstractSet[int]]  # the numbers of static inputs, for the arguments of a first call
# Takes a tenth of the time of a loop.
_are_at: "Optional[Callable[[List[Any], List[Optional[int]], List[int]], bool]]" = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", None)
_MOST_MOVES = 4
_BEFORE = "before it was prepared"
_MOVES = "its weights move again and again"


class _Inputs:
    """Which inputs are what, by their numbers. Dynamo's guards keep that the same for all calls.

    scalars: tensors on the CPU with one element, which kernels get as values. why: why no call can have a CUDA graph."""

    def __init__(self, arguments: Sequence[Any], static: AbstractSet[int], device_type: str) -> None:
        self.count = len(arguments)
        self.static: List[int] = []
        self.copied: List[int] = []
        self.scalars: List[int] = []
        self.plain: List[int] = []
        self.why: Optional[str] = None
        devices = set()
        for number, each in enumerate(arguments):
            if not isinstance(each, torch.Tensor):
                self.plain.append(number)
                if not isinstance(each, SCALARS):
                    self.why = f"an argument is a {type(each).__name__}"
            elif each.device.type == "cpu" and each.dim() == 0 and (device_type != "cpu" or _is_number(each)):
                self.scalars.append(number)
            else:
                devices.add(each.device)
                (self.static if number in static else self.copied).append(number)
        if not devices:
            self.why = self.why or "it reads no tensor"
        elif len(devices) > 1 or next(iter(devices)).type != device_type:
            self.why = self.why or f"it reads memory on {', '.join(sorted(map(str, devices)))}, not on one {device_type} device"

    def addresses(self, arguments: Sequence[Any]) -> List[int]:
        return [arguments[number].data_ptr() for number in self.static]

    def are_at(self, arguments: List[Any], addresses: List[Optional[int]]) -> bool:
        """Whether the static inputs have these addresses, by their numbers."""
        if _are_at is not None:
            return bool(_are_at(arguments, addresses, self.static))
        return all(arguments[number].data_ptr() == addresses[number] for number in self.static)

    def key(self, arguments: Sequence[Any]) -> Hashable:
        """Equal for calls that one CUDA graph may serve, if their static inputs have the same addresses."""
        parts: List[Hashable] = [switches.kernels()]
        for number in self.copied:
            each = arguments[number]
            parts.append((each.shape, each.stride(), each.dtype))
        for number in self.plain:
            parts.append(plain_key(arguments[number]))
        for number in self.scalars:
            parts.append((arguments[number].dtype, plain_key(arguments[number].item())))
        return tuple(parts)


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether the tensor may be a number of the program's, which Dynamo passes as such a tensor."""
    return tensor.dtype == torch.float64


class _Kind:
    """Calls of one kind, after the first.

    calls: those that no trusted CUDA graph served; served: the others. addresses: of static inputs, by their numbers. began, used: the
    numbers of its first and its last call among those of the traced graph."""

    def __init__(self, began: int, key: Hashable, inputs: _Inputs, arguments: Sequence[Any], run: Run, engine: Engine,
                 effects: ArgumentEffects) -> None:
        self.calls, self.served = 1, 0
        self.began = self.used = began
        self.key = key
        self.addresses = [each.data_ptr() if number in inputs.static else None for number, each in enumerate(arguments)]
        self.effects = effects
        self.copied = [number for number in inputs.copied if number in effects.written]
        self._inputs = inputs
        self.static_memory: FrozenSet[int] = frozenset(storage_address(arguments[number]) for number in inputs.static) - {0}
        # Statistics of a batch are written without a sign of it, but not to parameters.
        written = frozenset(place for place, number in enumerate(inputs.static)
                            if number in effects.written or not isinstance(arguments[number], torch.nn.Parameter))
        scalars = [(number, arguments[number].clone()) for number in inputs.scalars]
        plain = [(number, arguments[number]) for number in inputs.plain]
        self.call = GraphedCall(engine, _without_effects(inputs, run, effects.made, self.copied, [*scalars, *plain]), written)

    def static(self, arguments: Sequence[Any]) -> List[Any]:
        return [arguments[number] for number in self._inputs.static]

    def others(self, arguments: Sequence[Any]) -> List[Any]:
        return [arguments[number] for number in self._inputs.copied]

    def seconds_saved(self) -> float:
        """By its CUDA graph, in all, less what preparing it has taken."""
        if self.call.graph is None:
            return 0.0
        return (self.served * (self.call.without_seconds - self.call.graph_seconds) if self.served else 0.0) - self.call.prepare_seconds

    def is_apart(self, arguments: Sequence[Any]) -> bool:
        """Whether no argument that a CUDA graph copies shares memory with others, where that matters."""
        graph = self.call.graph
        if not self.effects.any() and (graph is None or not graph.writes):
            return True
        return are_apart(arguments, self._inputs.copied, self.static_memory)

    def returned(self, made: Any, arguments: Sequence[Any]) -> Any:
        return self.effects.returned(made, arguments, self.copied)


def _without_effects(inputs: _Inputs, run: Run, made: Sequence[int], copied: Sequence[int],
                     constants: "Sequence[Tuple[int, Any]]") -> "Callable[[List[Any], List[Any]], List[Any]]":
    """The function without effects on what a CUDA graph copies: it returns new values of arguments that it would write to, after the
    outputs that it makes."""

    def model(static: List[Any], others: List[Any]) -> List[Any]:
        arguments: List[Any] = [None] * inputs.count
        for numbers, values in ((inputs.static, static), (inputs.copied, others)):
            for number, value in zip(numbers, values):
                arguments[number] = value
        for number, value in constants:
            arguments[number] = value
        for number in copied:
            arguments[number] = _copy_of(arguments[number])
        written = [arguments[number] for number in copied]
        outputs = run(arguments)
        return [*(outputs[number] for number in made), *written]

    return model


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


class TracedGraph:
    """The calls and CUDA graphs of one traced graph.

    run: called where there is no CUDA graph. static: which inputs are static. written: the numbers of inputs that are known to be
    written to. own: tensors that it holds. follows: the forward of a backward. why: why no call can have a CUDA graph. name: for
    reports."""

    def __init__(self, run: Run, static: Static, engine: Engine, name: str, why: Optional[str] = None, written: Iterable[int] = (),
                 own: Iterable[torch.Tensor] = (), follows: "Optional[TracedGraph]" = None) -> None:
        self.name = name
        self.served = self.compared = 0
        self.as_compiled: "Counter[str]" = Counter()  # calls, by reason; threads count roughly
        self._run, self._static, self._engine = run, static, engine
        self._written, self._own = frozenset(written), list(own)
        self._inputs: Optional[_Inputs] = None
        self._kinds: Dict[Hashable, Dict[Tuple[int, ...], "_Kind | str"]] = {}  # by key and addresses; or why there is none
        self._calls = self._moves = 0  # moves: times that static inputs have moved before a CUDA graph had paid for itself
        self._follows, self._was_part = follows, False
        self._last: Optional[_Kind] = None  # which the next call may repeat
        self._advancing = threading.Lock()
        self._process = os.getpid()
        self._why = why
        weakref.finalize(self, _let_go_all, self._kinds).atexit = False

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """What the graph returns, or raises, for these arguments."""
        why = self._why if self._why is not None else self._why_not_now()
        if why is not None:
            return self._run_as_traced(why, arguments)
        self._calls += 1
        inputs = self._inputs
        if inputs is None:
            inputs = self._inputs = _Inputs(arguments, self._static(arguments), self._engine.backend.device_type)
        if inputs.why is not None:
            return self._run_as_traced(inputs.why, arguments)
        arguments = list(arguments)
        key, kind = inputs.key(arguments), self._last
        if kind is None or kind.key != key or not inputs.are_at(arguments, kind.addresses):
            kind = self._kinds.get(key, {}).get(tuple(inputs.addresses(arguments)))
        if isinstance(kind, str):
            return self._run_as_traced(kind, arguments)
        if kind is not None:
            if not kind.is_apart(arguments):
                return self._run_as_traced("its arguments share memory", arguments)
            graph = kind.call.graph
            if graph is not None and kind.call.is_trusted:
                made = graph.run(kind.others(arguments), False)
                if made is not CHANGED:
                    self.served += 1
                    kind.served += 1
                    kind.used = self._calls
                    self._last = kind
                    return kind.returned(made, arguments)
        if not self._advancing.acquire(blocking=False):
            return self._run_as_traced("while another thread prepared it", arguments)
        try:
            with unless_others_prepare() as is_alone:  # autograd's threads must not wait for one that waits for them
                if not is_alone:
                    return self._run_as_traced("while another thread prepared something", arguments)
                return self._advance(kind, arguments) if kind is not None else self._begin(inputs, key, arguments)
        finally:
            self._advancing.release()

    def static_memory(self) -> "FrozenSet[int]":
        """The addresses of the storages of static inputs, of calls so far."""
        return frozenset().union(*(kind.static_memory for kind in _all(self._kinds)))

    def _why_not_now(self) -> Optional[str]:
        why = why_not_now(self._engine.backend, self._process)
        self._was_part = self._was_part or why is not None
        if self._follows is not None and self._follows._was_part:
            # Autograd's threads do not know what the forward's thread is doing, which may hold locks and wait for them.
            return "as a part of another graph"
        if self._follows is not None and not self._follows._kinds:
            why = why or _BEFORE  # what the forward has saved of its static inputs is not known yet
        return why or switches.why_not_replayed()

    def reports(self) -> List[GraphReport]:
        """Reports of its CUDA graphs."""
        return [report for kind in _all(self._kinds) for report in kind.call.reports()]

    def close(self) -> None:
        """Frees its CUDA graphs. From now on calls run as traced."""
        self._why = "the process ends"
        _let_go_all(self._kinds)

    def _run_as_traced(self, why: str, arguments: Sequence[Any]) -> Any:
        self.as_compiled[why] += 1
        return self._run(list(arguments))

    def _begin(self, inputs: _Inputs, key: Hashable, arguments: Sequence[Any]) -> Any:
        """Runs the first call of a kind, and learns from it. One thread at a time."""
        why = self._why_no_more(key)
        if why is not None:
            return self._run_as_traced(why, arguments)
        kind: "_Kind | str"
        try:
            observed = ObservedRun(arguments, inputs.copied, self._own)
        except ValueError as error:
            observed, kind = None, str(error)
        outputs = self._run_as_traced(_BEFORE, arguments)
        try:
            if observed is not None:
                effects = observed.effects(outputs, self._written)
                if effects.written.intersection(inputs.scalars):
                    raise ValueError("it writes to a tensor on the CPU")
                kind = _Kind(self._calls, key, inputs, arguments, self._run, self._engine, effects)
                if not kind.is_apart(arguments):
                    return outputs  # another call tells what lies in the memory of which argument
        except Exception as error:
            kind = str(error) or type(error).__name__
        self._kinds.setdefault(key, {})[tuple(inputs.addresses(arguments))] = kind
        return outputs

    def _advance(self, kind: _Kind, arguments: Sequence[Any]) -> Any:
        """Runs a call that no trusted CUDA graph serves. One thread at a time."""
        kind.calls += 1
        kind.used = self._calls
        if kind.calls <= len(self._kinds):
            return self._run_as_traced(_BEFORE, arguments)  # sizes may grow from call to call, and begin again
        if kind.call.graph is None and kind.call.why_without is None:
            self._let_go_before(kind)
            if self._moves > _MOST_MOVES:
                kind.call.end(_MOVES)
        # Python attributes of tensors are for the program, and Dynamo: no op sees them.
        others = [each.detach() if isinstance(each, torch.Tensor) and vars(each) else each for each in kind.others(arguments)]
        made = kind.call.advance(kind.static(arguments), others)
        if made is WITHOUT:
            return self._run_as_traced(kind.call.why_without or _BEFORE, arguments)
        self.compared += 1
        return kind.returned(made, arguments)

    def _let_go_before(self, kind: _Kind) -> None:
        """Frees CUDA graphs for static inputs that have moved: those that have served no call since this kind of call began."""
        gone = [each for each in _all(self._kinds) if each.key == kind.key and each.used < kind.began and each.call.graph is not None]
        if gone and sum(each.seconds_saved() for each in gone) < 0:
            self._moves += 1
        for each in gone:
            self._remove(each)

    def _remove(self, kind: _Kind) -> None:
        if self._last is kind:
            self._last = None
        kind.call.let_go()
        kinds = self._kinds[kind.key]
        for addresses in [addresses for addresses, each in kinds.items() if each is kind]:
            del kinds[addresses]

    def _why_no_more(self, key: Hashable) -> Optional[str]:
        """Why no other kind of call is begun; None where one may be. May let go of a stale one."""
        if key not in self._kinds and len(self._kinds) >= MOST_GRAPHS:
            return f"its shapes are of more than {MOST_GRAPHS} kinds"
        if self._moves > _MOST_MOVES:
            return _MOVES
        if sum(map(len, self._kinds.values())) < MOST_ADDRESSES:
            return None
        oldest = min(_all(self._kinds), key=lambda each: each.used, default=None)
        if oldest is None or self._calls - oldest.used < _STALE:
            return f"its weights are in more than {MOST_ADDRESSES} places"
        self._remove(oldest)
        return None


def _all(kinds: Dict[Hashable, Dict[Tuple[int, ...], "_Kind | str"]]) -> List[_Kind]:
    return [kind for each in list(kinds.values()) for kind in list(each.values()) if isinstance(kind, _Kind)]


def _let_go_all(kinds: Dict[Hashable, Dict[Tuple[int, ...], "_Kind | str"]]) -> None:
    for kind in _all(kinds):
        kind.call.let_go()
