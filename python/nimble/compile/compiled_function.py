"""One inference function of torch.compile, compiled in a mode that asks for CUDA graphs (compiled_graphs.py). Its calls launch our graphs.

Dynamo has checked each call beforehand: calls differ only in integers, shapes that follow from them, values of tensors, and
addresses. There is a graph for each set of integers and shapes (graphed_call.py). Its inputs are copies, except those declared static
(weights, caches), which it reads and writes in place; their addresses are checked at each call. The first call runs as it
is; the next is prepared; it and two more are compared with a run without the graph, to the bit. If any of that fails, calls run as
compiled.

Any thread: graphs have their own locks, and a call made while another thread prepares or compares runs as compiled."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from nimble.compile.graphed_call import MOST_GRAPHS, WITHOUT, Engine, GraphedCall
from nimble.capture.backend import Backend
from nimble.graphs.graph_io import GraphReport
from nimble.graphs.prepared import CHANGED
from nimble.nesting import nesting
from nimble.settings import Settings
from nimble.steps.steps import is_running

_MOST_MOVES = 4  # times that its weights have moved

Model = Callable[[List[Any]], Any]  # empties the list
_BEFORE = "before it was prepared"


class CompiledFunction:
    """The calls and graphs of one compiled function; made for its first call.

    model: called where there is no graph. static: the indices of static inputs; written: of those that the function writes
    to. has_room: whether a device has memory left for another graph."""

    def __init__(self, model: Model, inputs: Sequence[Any], static: Iterable[int], written: Iterable[int], backend: Backend,
                 settings: Settings, has_room: "Callable[[torch.device], bool]",
                 clock: "Callable[[], float]" = time.perf_counter) -> None:
        self.served = self.compared = 0
        self.as_compiled: "Counter[str]" = Counter()  # calls, by reason; threads count roughly
        self._model, self._backend = model, backend
        self._engine = Engine(backend, settings, has_room, clock)
        self._static = sorted(number for number in set(static) if isinstance(inputs[number], torch.Tensor))
        self._others = [number for number in range(len(inputs)) if number not in set(self._static)]
        self._written = frozenset(written)
        self._entries: Dict[Tuple[Any, ...], GraphedCall] = {}
        self._advancing = threading.Lock()
        self._process = os.getpid()
        self._why_compiled = self._why_not(inputs)

    def __call__(self, inputs: List[Any]) -> Any:
        """What the function returns, or raises, for a list of inputs. The list is empty after that."""
        why = self._why_compiled if self._why_compiled is not None else why_not_now(self._backend, self._process)
        if why is not None:
            return self._run_as_compiled(why, inputs)
        others = [inputs[number] for number in self._others]
        key = tuple([(each.shape, each.stride()) if isinstance(each, torch.Tensor) else each for each in others])
        entry = self._entries.get(key)
        if entry is not None and entry.is_trusted:
            graph = entry.graph
            if graph is not None and entry.is_at([inputs[number] for number in self._static]):
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
        return [report for entry in list(self._entries.values()) for report in entry.reports()]

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

    def _advance(self, key: Tuple[Any, ...], others: List[Any], inputs: List[Any]) -> Any:
        """Runs a call that no trusted graph serves. One thread at a time."""
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= MOST_GRAPHS:
                return self._run_as_compiled(f"its shapes are of more than {MOST_GRAPHS} kinds", inputs)
            written = frozenset(place for place, number in enumerate(self._static) if number in self._written)
            self._entries[key] = GraphedCall(self._engine, self._run, written, _MOST_MOVES)
            return self._run_as_compiled(_BEFORE, inputs)
        outputs = entry.advance([inputs[number] for number in self._static], others)
        if outputs is WITHOUT:
            return self._run_as_compiled(entry.why_without or _BEFORE, inputs)
        inputs.clear()
        self.compared += 1
        return outputs

    def _run(self, static: List[Any], others: List[Any]) -> Any:
        """The function, for GraphedCall."""
        inputs: List[Any] = [None] * (len(static) + len(others))
        for numbers, values in ((self._static, static), (self._others, others)):
            for number, value in zip(numbers, values):
                inputs[number] = value
        return self._model(inputs)


def why_not_now(backend: Backend, process: int) -> Optional[str]:
    """Why no graph may serve a call in this moment; None where one may. process: where the graphs were made."""
    if nesting.preparing or is_running() or backend.is_capturing():
        return "as a part of another graph"
    if os.getpid() != process:
        return "in a forked child"
    return None


def lines_of(functions: "Iterable[Any]", what: str = "torch.compile") -> List[str]:
    """A line for the user about all functions, each like a CompiledFunction; none where there are none."""
    known = list(functions)
    if not known:
        return []
    served, compared = sum(each.served for each in known), sum(each.compared for each in known)
    reasons: "Counter[str]" = sum((each.as_compiled for each in known), Counter())
    text = f"PyTorch: {what}: {len(known)} function{'s' if len(known) > 1 else ''}, {served} calls served by graphs"
    if compared:
        text += f", {compared} compared"
    if reasons:
        shown = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        text += f", {sum(reasons.values())} as compiled ({shown}{'; ...' if len(reasons) > 4 else ''})"
    states = Counter(report.state for each in known for report in each.reports())
    if states:
        text += "; graphs: " + ", ".join(f"{count} {state}" for state, count in states.most_common())
    return [text]
