"""One observed module: which of its calls run eagerly and why, which are prepared, and which a graph serves.

There is an entry for each kind of call: its signature, and the state of PyTorch around it. An entry's first calls run eagerly:
the first as it is, since modules initialise lazily; the second traced (nimble.objects.python_trace); the third while the guard
(traced_guard.py) is checked against what the run changes. The next call is prepared and compared with an eager run
(nimble.graphs.compare), as are the next two, and then each tenth, hundredth, thousandth and so on. A difference ends the entry
for good. After a change that the guard sees the entry starts again, a few times.

A call that may be for training (settings.trains) has graphs of forward and backward. Its gradients are compared like its
outputs, and the program's own first backwards again; what the backwards of eager calls show may end the entry (gradients.py).

A graph that writes only to its own memory, and reads no tensors but the module's own, is launched before the guard is checked.

An AutoModule holds no module: each call passes its module. Calls may come from any thread, and those that a graph serves run
concurrently. Entries advance under a lock that is only tried, never waited for, and while no other thread runs the module: a
concurrent call runs eagerly, and findings made during one are discarded. None of our own errors reach the program."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple, Union

import torch

from nimble.graphs import argument_keys
from nimble.auto.entry_lifecycle import AWAITED, MAX_ENTRIES, SHARES, OTHER_THREAD, EntryLifecycle, Original, change_of
from nimble.auto.entries import Entry, Graph
from nimble.auto.threads import Threads
from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.graphs.prepared import CHANGED, PreparedGraph
from nimble.guards import switches
from nimble.guards.autocast_cache import AutocastCache, is_around
from nimble.guards.signatures import Call
from nimble.settings import Settings
from nimble.training.training import TrainingGraph

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_TRAINS = "training"
_WANTS = "with gradients enabled: use torch.no_grad() around the calls, or --torch training"
_CAST_BEFORE = "weights were written to within autocast, which keeps copies of them"


class AutoModule(EntryLifecycle):
    """The calls and graphs of one module; made for its first call."""

    def __init__(self, kind: type, backend: Backend, settings: Settings, room: "Callable[[torch.device], bool]",
                 clock: "Callable[[], float]", threads: Threads) -> None:
        super().__init__(kind, backend, settings, room, clock, threads)
        self.served = 0
        self._advancing = threading.Lock()
        self._autocast_cache = AutocastCache()

    def call(self, original: Original, module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """What original(module, *args, **kwargs) returns, or raises."""
        self._arrivals += 1
        began = self._clock()
        found = self._plan(module, args, kwargs)
        if isinstance(found, str):
            return self._run_eagerly(found, original, module, args, kwargs)
        entry, call = found
        ahead = self._ahead_of(entry)
        if ahead is not None:
            result = self._serve_ahead(ahead, entry, call, module)
            if result is not CHANGED:
                return result
        may_serve = self._may_serve(entry, module)
        self._looking = min(self._looking, self._clock() - began) if entry.graph is not None else self._looking
        if may_serve:
            return self._serve(entry, call, original, module)
        if not self._advancing.acquire(blocking=False):
            return self._run_eagerly(OTHER_THREAD, original, module, args, kwargs)
        try:
            if self._threads.others_in(threading.get_ident(), self):
                return self._run_eagerly(OTHER_THREAD, original, module, args, kwargs)
            return self._advance(entry, call, original, module)
        finally:
            self._advancing.release()

    # ---- which calls are observed ----

    def _plan(self, module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> "Union[str, Tuple[Entry, Call]]":
        """The entry for a call, or why it runs eagerly."""
        if self.why_eager is not None:
            return self.why_eager
        try:
            return self._entry_for(module, args, kwargs)
        except Exception as error:
            self.why_eager = f"{type(error).__name__}: {error}"
            self._warn(f"{self.name} runs eagerly: {self.why_eager}")
            return self.why_eager

    def _entry_for(self, module: torch.nn.Module, args: Tuple[Any, ...],
                   kwargs: Dict[str, Any]) -> "Union[str, Tuple[Entry, Call]]":
        why = self._why_eager(module, args)
        if why is not None:
            return why
        wants = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        if wants and not self._settings.trains:
            return _WANTS
        try:
            call = Call(args, kwargs, module.training, wants)
        except NimbleError as error:
            return str(error)
        if call.trains:
            why = switches.why_not_trained() if self._settings.trains else _WANTS
            if why is not None:
                return why
        why = self._why_not_these(call)
        if why is not None:
            return why
        try:
            more = argument_keys.key_of(call)
        except NimbleError as error:
            return str(error)
        entry = self._entry_at((call.signature, more, switches.state()))
        if is_around(any(call.signature.modes[:2])) and self._autocast_cache.may_be_stale(module, entry.graph is not None):
            return _CAST_BEFORE
        if entry.why_eager is not None:
            return entry.why_eager
        if entry.apart_from and argument_keys.shares_memory(call, entry.apart_from) and self._still_shares(entry, call, module):
            return SHARES
        return entry, call

    def _why_not_these(self, call: Call) -> Optional[str]:
        """Why calls with such tensors run eagerly; None where they may have a graph."""
        for number in call.tensors:
            tensor = call.leaves[number]
            if type(tensor) not in _TENSORS or tensor.is_conj() or tensor.is_neg():
                return "an argument is not a plain tensor"
            if tensor.device.type != self._backend.device_type:
                return f"an argument is not on {self._backend.device_type}"
        return None

    def _entry_at(self, key: "Tuple[Hashable, ...]") -> Entry:
        """The entry of a key, created where there is none."""
        with self._entries_lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry()
            self._entries.move_to_end(key)
        if len(self._entries) > MAX_ENTRIES:
            self._make_room()
        return entry

    @staticmethod
    def _still_shares(entry: Entry, call: Call, module: torch.nn.Module) -> bool:
        """Whether the memory is still the module's."""
        others = entry.guard.others() if entry.guard is not None else []
        return argument_keys.shares_memory(call, argument_keys.memory_of((*module.parameters(), *module.buffers(), *others)))

    def _why_eager(self, module: torch.nn.Module, args: Tuple[Any, ...]) -> Optional[str]:
        device = self._backend.device_type
        for argument in args:
            if isinstance(argument, torch.Tensor):
                if argument.device.type != device:
                    return f"an argument is not on {device}"
                break
        if getattr(module, "_compiled_call_impl", None) is not None:
            return "compiled by torch.compile"
        if module.training and not self._settings.trains:
            return _TRAINS
        if switches.is_capturing(device):
            return "within a CUDA graph's capture"
        return switches.why_eager()

    # ---- calls with a graph ----

    @staticmethod
    def _may_serve(entry: Entry, module: torch.nn.Module) -> bool:
        """Whether the entry's graph may serve the call without a comparison."""
        guard, graph = entry.guard, entry.graph
        if graph is None or guard is None or entry.broken is not None:
            return False
        if isinstance(graph, TrainingGraph) and graph.difference is not None:
            return False
        try:
            return change_of(guard, module) is None and entry.served < entry.next_compared
        except Exception:
            return False  # which _advance will meet again

    @staticmethod
    def _ahead_of(entry: Entry) -> Optional[PreparedGraph]:
        """The entry's graph, where it may be launched before the guard is checked."""
        graph = entry.graph
        if (isinstance(graph, PreparedGraph) and graph.runs_ahead and entry.guard is not None and entry.broken is None
                and entry.served < entry.next_compared):
            return graph
        return None

    def _serve_ahead(self, graph: PreparedGraph, entry: Entry, call: Call, module: torch.nn.Module) -> Any:
        """CHANGED where the module has changed; then the launch has had no visible effect."""
        def fits() -> bool:
            began = self._clock()
            try:
                return entry.guard is not None and change_of(entry.guard, module) is None
            except Exception:
                return False  # which _advance will meet again
            finally:
                self._looking = min(self._looking, self._clock() - began)

        try:
            result = graph(call, False, fits)
        except Exception as error:
            entry.broken = error
            return CHANGED
        if result is not CHANGED:
            entry.served += 1
            self.served += 1
        return result

    def _serve(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        has_effects, graph = entry.has_effects, entry.graph  # which another thread may end at any time
        if graph is None:
            return self._run_eagerly(OTHER_THREAD, original, module, call.args, call.kwargs)
        try:
            result = graph(call, False)
        except Exception as error:
            entry.broken = error
            if has_effects and not isinstance(error, NimbleError):
                raise  # it may have written what an eager run would write again
            return self._run_eagerly("its graph failed", original, module, call.args, call.kwargs)
        if result is NotImplemented:
            return self._run_eagerly(AWAITED, original, module, call.args, call.kwargs)
        entry.served += 1
        self.served += 1
        return result

    def close(self) -> None:
        """Frees all graphs."""
        for entry in list(self._entries.values()):
            self._let_go(entry)

    # ---- the final report ----

    def graphs(self) -> List[Graph]:
        return [entry.graph for entry in list(self._entries.values()) if entry.graph is not None]

    def reasons(self) -> "List[Tuple[str, int]]":
        """Why calls ran eagerly, the most frequent first."""
        return Counter(self.eager).most_common()
