"""One inference function of torch.compile, compiled in a mode that asks for CUDA graphs (compiled_graphs.py). Its calls launch our graphs.

Dynamo has checked each call beforehand: calls differ only in integers, shapes that follow from them, values of tensors, and
addresses. There is a graph for each set of integers and shapes. Its inputs are copies, except those declared static
(weights, caches), which it reads and writes in place; their addresses are checked at each call. The first call runs as it
is; the next is prepared; it and two more are compared with a run without the graph, to the bit (nimble.graphs.compare).
If any of that fails, calls run as compiled.

Any thread: graphs have their own locks, and a call made while another thread prepares or compares runs as compiled."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from nimble.graphs.compare import compare
from nimble.graphs.cudnn_dropout import DROPOUT, may_have_cudnn_dropout
from nimble.graphs.backend import Backend
from nimble.graphs.graph_io import GraphReport, Options
from nimble.graphs.prepared import CHANGED, PreparedGraph, prepare
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.nesting import nesting
from nimble.settings import Settings
from nimble.steps.steps import is_running

_MAX_GRAPHS = 16  # of one function; calls with still other shapes run as compiled
_COMPARED = 3
_MOST_MOVES = 4  # times that its weights have moved
_OPTIONS = Options(use_multi_stream=True, relaxed=True)  # other threads keep running meanwhile

Model = Callable[[List[Any]], Any]  # empties the list
_BEFORE = "before it was prepared"


class _WithInputs(torch.nn.Module):
    """The function as a module. Static inputs are parameters, or buffers where the function writes to them."""

    def __init__(self, model: Model, inputs: Sequence[Any], static: Iterable[int], written: Iterable[int]) -> None:
        super().__init__()
        self.eval()
        self._model = (model,)
        self._static = tuple(static)
        for number in self._static:
            (self._buffers if number in written else self._parameters)[str(number)] = inputs[number]

    def forward(self, *others: Any) -> Any:
        inputs = list(others)
        for number in self._static:
            key = str(number)
            inputs.insert(number, self._buffers.get(key, self._parameters.get(key)))
        return self._model[0](inputs)


class _Entry:
    """Calls with the same integers and shapes."""

    def __init__(self) -> None:
        self.calls = self.compared = self.moves = 0
        self.graph: Optional[PreparedGraph] = None
        self.addresses: List[int] = []  # of each static input
        self.is_trusted = False
        self.graph_seconds = self.compiled_seconds = math.inf  # per call, the fastest compared
        self.why_compiled: Optional[str] = None  # why there is no graph, and none will be tried

    def let_go(self) -> None:
        graph, self.graph = self.graph, None
        self.is_trusted, self.compared = False, 0
        self.graph_seconds = self.compiled_seconds = math.inf
        if graph is not None:
            graph.close()


class CompiledFunction:
    """The calls and graphs of one compiled function; made for its first call.

    model: called where there is no graph. static: the indices of static inputs; written: of those that the function writes
    to. has_room: whether a device has memory left for another graph."""

    def __init__(self, model: Model, inputs: Sequence[Any], static: Iterable[int], written: Iterable[int], backend: Backend,
                 settings: Settings, has_room: "Callable[[torch.device], bool]",
                 clock: "Callable[[], float]" = time.perf_counter) -> None:
        self.served = self.compared = 0
        self.as_compiled: "Counter[str]" = Counter()  # calls, by reason; threads count roughly
        self._model, self._backend, self._settings, self._has_room, self._clock = model, backend, settings, has_room, clock
        self._static = sorted(number for number in set(static) if isinstance(inputs[number], torch.Tensor))
        self._others = [number for number in range(len(inputs)) if number not in set(self._static)]
        self._written = frozenset(written)
        self._entries: Dict[Tuple[Any, ...], _Entry] = {}
        self._advancing = threading.Lock()
        self._process = os.getpid()
        self._why_compiled = self._why_not(inputs)

    def __call__(self, inputs: List[Any]) -> Any:
        """What the function returns, or raises, for a list of inputs. The list is empty after that."""
        why = self._why_compiled if self._why_compiled is not None else self._why_not_now()
        if why is not None:
            return self._run_as_compiled(why, inputs)
        others = [inputs[number] for number in self._others]
        key = tuple([(each.shape, each.stride()) if isinstance(each, torch.Tensor) else each for each in others])
        entry = self._entries.get(key)
        if entry is not None and entry.is_trusted:
            graph = entry.graph
            if graph is not None and self._are_there(entry, inputs):
                outputs = graph.run(others, False)
                if outputs is not CHANGED:
                    self.served += 1
                    inputs.clear()
                    return outputs
        if not self._advancing.acquire(blocking=False):
            return self._run_as_compiled("while another thread prepared it", inputs)
        try:
            return self._advance(key, others, inputs)
        finally:
            self._advancing.release()

    def reports(self) -> List[GraphReport]:
        """Reports of its graphs."""
        return [report for entry in list(self._entries.values()) if entry.graph is not None for report in entry.graph.reports()]

    def close(self) -> None:
        """Frees its graphs. From now on calls run as compiled."""
        self._why_compiled = "the process ends"
        for entry in list(self._entries.values()):
            entry.let_go()

    def _run_as_compiled(self, why: str, inputs: List[Any]) -> Any:
        self.as_compiled[why] += 1
        return self._model(inputs)

    def _why_not(self, inputs: Sequence[Any]) -> Optional[str]:
        """Why no call can ever have a graph; None where calls can."""
        if not self._written.issubset(self._static):
            return "it writes to its arguments"
        if not any(isinstance(inputs[number], torch.Tensor) for number in self._others):
            return "none of its arguments is a tensor"
        device = self._backend.device_type
        if any(inputs[number].device.type != device for number in self._static):
            return f"it reads memory that is not on {device}"
        if any(not isinstance(inputs[number], (torch.Tensor, int, type(None))) for number in self._others):
            return "its arguments are more than tensors and integers"
        return None

    def _why_not_now(self) -> Optional[str]:
        if nesting.preparing or is_running() or self._backend.is_capturing():
            return "as a part of another graph"
        if os.getpid() != self._process:
            return "in a forked child"
        return None

    def _are_there(self, entry: _Entry, inputs: List[Any]) -> bool:
        """Whether the static inputs have the graph's addresses."""
        return self._addresses_of(inputs) == entry.addresses

    def _addresses_of(self, inputs: List[Any]) -> List[int]:
        return list(map(torch.Tensor.data_ptr, [inputs[number] for number in self._static]))

    def _advance(self, key: Tuple[Any, ...], others: List[Any], inputs: List[Any]) -> Any:
        """Runs a call that no trusted graph serves. One thread at a time."""
        entry = self._entry_for(key)
        if isinstance(entry, str):
            return self._run_as_compiled(entry, inputs)
        entry.calls += 1
        module = call = None
        try:
            if entry.why_compiled is None and entry.calls > 1:
                module = _WithInputs(self._model, inputs, self._static, self._written)
                with torch.no_grad():
                    call = Call(tuple(others), {}, False)
                self._prepare(entry, module, call, inputs)
        except Exception as error:
            self._end(entry, str(error) or type(error).__name__)
        graph = entry.graph
        if entry.why_compiled is not None or graph is None or module is None or call is None:
            return self._run_as_compiled(entry.why_compiled or _BEFORE, inputs)
        inputs.clear()
        return self._compare(entry, graph, module, call)

    def _entry_for(self, key: Tuple[Any, ...]) -> "_Entry | str":
        """The entry for a key, or why there is none."""
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= _MAX_GRAPHS:
                return f"its shapes are of more than {_MAX_GRAPHS} kinds"
            entry = self._entries[key] = _Entry()
        return entry

    def _prepare(self, entry: _Entry, module: _WithInputs, call: Call, inputs: List[Any]) -> None:
        """Prepares a graph where none fits. Raises where there cannot be one, or it could not be compared."""
        if may_have_cudnn_dropout(self._backend.device_type):
            raise ValueError(DROPOUT)
        if entry.graph is not None:
            if self._are_there(entry, inputs):
                return
            entry.let_go()
            entry.moves += 1
            if entry.moves > _MOST_MOVES:
                raise ValueError("its weights move again and again")
        device = call.leaves[call.tensors[0]].device
        if len(call.tensors) < sum(isinstance(leaf, torch.Tensor) for leaf in call.leaves):
            raise ValueError("two of its arguments are one tensor")  # they may differ the next time
        if switches.has_other_ranks():
            raise ValueError("other ranks may be waiting for what it sends, which preparing would send more often")
        if not self._has_room(device):
            raise ValueError("too little of the GPU's memory is free")
        addresses = self._addresses_of(inputs)
        with torch.no_grad():
            graph = prepare(module, call, self._backend, _OPTIONS, is_compared=False)
        graph.forget_module()  # the inputs are checked at each call
        if not self._has_room(device):
            graph.close()
            raise ValueError("with its graph too little of the GPU's memory would be free")
        entry.graph, entry.addresses = graph, addresses

    def _compare(self, entry: _Entry, graph: PreparedGraph, module: _WithInputs, call: Call) -> Any:
        """Runs a call both ways. The caller gets what the run without the graph returns or raises."""
        def by_graph() -> Any:
            return graph(call, False)

        def as_compiled() -> Any:
            return module(*call.args)

        with torch.no_grad():
            done = compare(by_graph, as_compiled, module, call, call.leaves[call.tensors[0]].device, self._backend, self._clock)
        self.compared += 1
        entry.compared += 1
        entry.graph_seconds = min(entry.graph_seconds, done.graph_seconds)
        entry.compiled_seconds = min(entry.compiled_seconds, done.eager_seconds)
        if done.failure is not None:
            self._end(entry, str(done.failure) or type(done.failure).__name__)
        elif done.difference is not None:
            self._end(entry, f"its graph differs from a run without: {done.difference}")
        elif entry.compared >= _COMPARED and entry.graph_seconds > entry.compiled_seconds:
            self._end(entry, f"it is as fast without: {entry.compiled_seconds * 1e6:.0f} us, with its graph "
                             f"{entry.graph_seconds * 1e6:.0f} us")
        else:
            entry.is_trusted = entry.compared >= _COMPARED
        return done.result

    def _end(self, entry: _Entry, why: str) -> None:
        entry.why_compiled = why
        try:
            entry.let_go()
        except Exception:
            pass  # the GPU has failed; the program's own calls will report that
        self._settings.inform(f"PyTorch: a function of torch.compile runs without a graph: {why}")


def lines_of(functions: Iterable[CompiledFunction]) -> List[str]:
    """A line for the user about all functions; none where there are none."""
    known = list(functions)
    if not known:
        return []
    served, compared = sum(each.served for each in known), sum(each.compared for each in known)
    reasons: "Counter[str]" = sum((each.as_compiled for each in known), Counter())
    text = f"PyTorch: torch.compile: {len(known)} function{'s' if len(known) > 1 else ''}, {served} calls served by graphs"
    if compared:
        text += f", {compared} compared"
    if reasons:
        shown = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        text += f", {sum(reasons.values())} as compiled ({shown}{'; ...' if len(reasons) > 4 else ''})"
    states = Counter(report.state for each in known for report in each.reports())
    if states:
        text += "; graphs: " + ", ".join(f"{count} {state}" for state, count in states.most_common())
    return [text]
