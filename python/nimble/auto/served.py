"""One module whose calls are looked at: which of them run eagerly and why, which are prepared, which are served by a graph.

There is an entry for each kind of call: its signature, and the state of PyTorch around it. An entry's first calls run eagerly:
the first as it is, since modules make things once; the second watched (watch.py); the third with the guard (guard.py) held
against what it changes. The next one is prepared, and compared with an eager run (compare.py), as are the next two, and then each
tenth, hundredth, thousandth and so on. A difference ends the entry for good. A change that the guard sees has the entry begin
anew, some times.

A call that may be for training (settings.trains) has graphs of forward and backward. Its gradients are compared as its outputs
are, and the program's own first backwards once more; what is seen of the backwards of eager calls may end the entry (gradients.py).

A graph that writes to nothing but its own memory, and reads no tensors but the module's own, is launched before the guard is asked.

A Served holds no module: it is told the one that it stands for at each call. Calls may come from any thread: those that a graph
serves go side by side; entries advance under a lock that nobody waits for, while no other thread runs the module: who comes
meanwhile runs eagerly, and what was found with another thread about is not believed. Nothing of our own is raised to the program.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections import Counter, OrderedDict
from typing import Any, Callable, Dict, Hashable, List, Optional, Set, Tuple, Union

import torch

from nimble.auto import switches
from nimble.auto.compare import compare, is_untouched
from nimble.auto.entries import Aside, Changed, Differs, Disturbed, Entry, Graph
from nimble.auto.gradients import BothWays, again, check
from nimble.auto.guard import Guard
from nimble.auto.kinds import why_left_alone
from nimble.auto.settings import Settings
from nimble.auto.watch import Watch
from nimble.backend import Backend
from nimble.errors import NimbleError
from nimble.prepared import CHANGED, Options, PreparedGraph, prepare
from nimble.signatures import Call
from nimble.training import TrainingGraph, prepare_training

MAX_GRAPHS = 8
_MAX_ENTRIES = 64  # kinds of call that are remembered
_MAX_PREPARED = 32  # graphs that are made in all; a module that needs more has calls of too many kinds
_SHORT_LIFE = 8  # calls; a graph that serves fewer was hardly worth it
_MOST_SHORT_LIVED = 3  # in a row
_MOST_WATCHES = 4  # until a run changes nothing of the module
_MOST_DISTURBED = 16  # times that another thread came
_COMPARED_AT_FIRST = 3
_GAIN = 0.95  # of the time of an eager run; who takes longer by its graph is better off without
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
# Other threads go on meanwhile, and must not end our capture, nor be ended by it.
_OPTIONS = Options(use_multi_stream=True, relaxed=True)

Original = Callable[..., Any]


_TRAINS = "training, or gradients are wanted"
_BEFORE = "before it was prepared"
_AWAITED = "while the backward of the call before was still to come"
_THREADS = "while another thread ran it"


class Served:
    """Made for the first call of a module."""

    def __init__(self, kind: type, backend: Backend, settings: Settings, room: "Callable[[torch.device], bool]",
                 clock: "Callable[[], float]") -> None:
        self.name = kind.__name__
        self.aside: Optional[str] = None  # why none of its calls is looked at any more
        self.served = 0
        self.compared = 0
        self.prepared = 0
        self.eager: "Counter[str]" = Counter()  # calls, by reason; threads count roughly
        self._backend, self._settings, self._room, self._clock = backend, settings, room, clock
        self._looking = math.inf  # seconds that it takes to find a call's entry and to see that its graph still fits
        self._entries: "OrderedDict[Tuple[Hashable, ...], Entry]" = OrderedDict()
        self._entries_lock = threading.Lock()  # held for look-ups alone
        self._advancing = threading.Lock()
        self._threads: "Set[int]" = set()  # that are in a call now
        self._arrivals = 0
        self._warned = False

    def call(self, original: Original, module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """What original(module, *args, **kwargs) returns, or raises."""
        thread = threading.get_ident()
        self._threads.add(thread)
        self._arrivals += 1
        try:
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
                return self._run_eagerly(_THREADS, original, module, args, kwargs)
            try:
                if self._threads != {thread}:
                    return self._run_eagerly(_THREADS, original, module, args, kwargs)
                return self._advance(entry, call, original, module)
            finally:
                self._advancing.release()
        finally:
            self._threads.discard(thread)

    def _run_eagerly(self, why: str, original: Original, module: torch.nn.Module, args: Tuple[Any, ...],
                     kwargs: Dict[str, Any]) -> Any:
        self.eager[why] += 1
        return original(module, *args, **kwargs)

    # ---- which calls are looked at ----

    def _plan(self, module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> "Union[str, Tuple[Entry, Call]]":
        """The entry for a call, or why it runs eagerly."""
        if self.aside is not None:
            return self.aside
        try:
            return self._entry_for(module, args, kwargs)
        except Exception as error:
            self.aside = f"{type(error).__name__}: {error}"
            self._warn(f"{self.name} runs eagerly: {self.aside}")
            return self.aside

    def _entry_for(self, module: torch.nn.Module, args: Tuple[Any, ...],
                   kwargs: Dict[str, Any]) -> "Union[str, Tuple[Entry, Call]]":
        why = self._why_eager(module, args)
        if why is not None:
            return why
        wants = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        if wants and not self._settings.trains:
            return _TRAINS
        try:
            call = Call(args, kwargs, module.training, wants)
        except NimbleError as error:
            return str(error)
        if call.trains:
            why = switches.why_not_trained() if self._settings.trains else _TRAINS
            if why is not None:
                return why
        for number in call.tensors:
            tensor = call.leaves[number]
            if type(tensor) not in _PLAIN_TENSORS or tensor.is_conj() or tensor.is_neg():
                return "an argument is not a plain tensor"
            if tensor.device.type != self._backend.device_type:
                return f"an argument is not on {self._backend.device_type}"
        key = (call.signature, switches.state())
        with self._entries_lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry()
            self._entries.move_to_end(key)
        if len(self._entries) > _MAX_ENTRIES:
            self._make_room()
        if entry.aside is not None:
            return entry.aside
        return entry, call

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

    def _make_room(self) -> None:
        """Of too many entries the oldest go, and of those with graphs as well."""
        gone = []
        with self._entries_lock:
            graphs = sum(entry.graph is not None for entry in self._entries.values())
            for key, entry in list(self._entries.items()):
                has_graph = entry.graph is not None
                if len(self._entries) > _MAX_ENTRIES or (graphs > MAX_GRAPHS and has_graph):
                    graphs -= has_graph
                    gone.append(self._entries.pop(key))
        for entry in gone:
            self._let_go(entry)

    # ---- calls with a graph ----

    @staticmethod
    def _may_serve(entry: Entry, module: torch.nn.Module) -> bool:
        """Whether the entry's graph may have the call for itself."""
        guard, graph = entry.guard, entry.graph
        if graph is None or guard is None or entry.broken is not None:
            return False
        if isinstance(graph, TrainingGraph) and graph.difference is not None:
            return False
        try:
            return guard.difference(module) is None and entry.served < entry.next_compared
        except Exception:
            return False  # which _advance will meet again

    @staticmethod
    def _ahead_of(entry: Entry) -> Optional[PreparedGraph]:
        """The entry's graph, where it may be launched before it is known whether the call is one for it."""
        graph = entry.graph
        if (isinstance(graph, PreparedGraph) and graph.runs_ahead and entry.guard is not None and entry.broken is None
                and entry.served < entry.next_compared):
            return graph
        return None

    def _serve_ahead(self, graph: PreparedGraph, entry: Entry, call: Call, module: torch.nn.Module) -> Any:
        """CHANGED where the call is another's; what its launch has done nobody sees then."""
        def fits() -> bool:
            began = self._clock()
            try:
                return entry.guard is not None and entry.guard.difference(module) is None
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
            return self._run_eagerly(_THREADS, original, module, call.args, call.kwargs)
        try:
            result = graph(call, False)
        except Exception as error:
            entry.broken = error
            if has_effects and not isinstance(error, NimbleError):
                raise  # it may have written what an eager run would write once more
            return self._run_eagerly("its graph failed", original, module, call.args, call.kwargs)
        if result is NotImplemented:
            return self._run_eagerly(_AWAITED, original, module, call.args, call.kwargs)
        entry.served += 1
        self.served += 1
        return result

    # ---- calls that have an entry advance, one at a time ----

    def _advance(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        try:
            self._look_at(entry, call, original, module)
        except Exception as error:
            self._end(entry, error)
        graph = entry.graph
        if graph is not None:
            return self._compare(entry, graph, call, original, module)
        self.eager[entry.aside or _BEFORE] += 1
        entry.calls += 1
        if entry.aside is not None or entry.calls == 1:
            return original(module, *call.args, **call.kwargs)
        look = self._watch if entry.watched is None else self._look_for_changes
        result = look(entry, call, original, module)
        if call.trains:
            try:
                entry.backwards.look_at(result, call)
            except Exception as error:
                self._end(entry, error)
        return result

    def _look_at(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> None:
        """Prepares the entry where it is due. Raises what ends it."""
        if entry.broken is not None:
            raise entry.broken
        if isinstance(entry.graph, TrainingGraph) and entry.graph.difference is not None:
            raise Differs(entry.graph.difference)
        if entry.guard is None:
            return
        if entry.backwards.why_not is not None:
            raise Aside(entry.backwards.why_not)
        change = entry.guard.difference(module)
        if change is not None:
            raise Changed(change)
        if entry.graph is None:
            entry.graph = self._prepared(entry.guard, call, original, module)
            self._make_room()

    def _watch(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        if not Watch.is_possible():
            return original(module, *call.args, **call.kwargs)
        watch = Watch()
        result = watch.run(original, module, *call.args, **call.kwargs)
        try:
            watched = watch.result()
            if watched.effect is not None:
                raise Aside(watched.effect)
            entry.watched = watched
        except Exception as error:
            self._end(entry, error)
        return result

    def _look_for_changes(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        guard: Optional[Guard] = None
        entry.watches += 1
        try:
            assert entry.watched is not None
            guard = Guard(module, self._backend.device_type, entry.watched, call.trains)
        except Exception as error:
            self._end(entry, error)
        result = original(module, *call.args, **call.kwargs)
        if guard is None:
            return result
        try:
            change = guard.difference(module)
            if not is_untouched(call):
                raise Aside("it puts something else into its arguments")
            if change is None:
                entry.guard = guard
            elif entry.watches >= _MOST_WATCHES:
                raise Aside(f"{change} whenever it runs")
        except Exception as error:
            self._end(entry, error)
        return result

    def _prepared(self, guard: Guard, call: Call, original: Original, module: torch.nn.Module) -> Graph:
        if not call.tensors:
            raise Aside("none of its arguments is a tensor")
        device = call.leaves[call.tensors[0]].device
        if self.prepared >= _MAX_PREPARED:
            raise Aside("its calls are of more kinds than graphs are made for")
        left_alone = why_left_alone(module, self._settings)  # which its submodules may have become since
        if left_alone is not None:
            raise Aside(left_alone)
        if any(t.device != device for t in (*module.parameters(), *module.buffers())):
            raise Aside("it lies on several devices")
        if switches.has_other_ranks():
            raise Aside("other ranks may be waiting for what it sends, which preparing would send more often")
        if not self._room(device):
            raise Aside("less than a quarter of the GPU's memory is free")
        self.prepared += 1
        arrivals = self._arrivals
        graph: Graph
        if call.trains:
            graph = prepare_training(module, call, self._backend, _OPTIONS, check)
        else:
            graph = prepare(module, call, self._backend, _OPTIONS)
        # Our guard does not hold it.
        if isinstance(graph, PreparedGraph):
            graph.forget_module(guard.reads_own_memory_alone)
        else:
            graph.forget_module()
        if isinstance(graph, TrainingGraph):
            graph.distrust(_COMPARED_AT_FIRST,
                           functools.partial(again, weakref.ref(module), original, self._backend, device))
        try:
            change = guard.difference(module)
            if change is not None:
                raise Changed(change)
            if self._arrivals != arrivals:
                raise Disturbed()
            if not self._room(device):
                raise Aside("with its graph less than a quarter of the GPU's memory would be free")
        except Exception:
            graph.close()
            raise
        return graph

    def _compare(self, entry: Entry, graph: Graph, call: Call, original: Original, module: torch.nn.Module) -> Any:
        if isinstance(graph, TrainingGraph) and graph.is_awaited():
            return self._run_eagerly(_AWAITED, original, module, call.args, call.kwargs)
        if switches.has_other_ranks():  # since then
            self.eager["other ranks"] += 1
            self._end(entry, Aside("other ranks may be waiting for what it sends"))
            return original(module, *call.args, **call.kwargs)
        self.compared += 1
        arrivals = self._arrivals
        done = compare(lambda: graph(call, False), lambda: original(module, *call.args, **call.kwargs), module, call,
                       call.leaves[call.tensors[0]].device, self._backend, self._clock,
                       functools.partial(BothWays, graph, module, call) if isinstance(graph, TrainingGraph) else None)
        if self._arrivals != arrivals:
            self._end(entry, Disturbed())
        elif done.failure is not None:
            self._end(entry, done.failure)
        elif done.difference is not None:
            self._end(entry, Differs(done.difference))
        else:
            entry.served += 1
            entry.has_effects = done.has_effects
            entry.graph_seconds = min(entry.graph_seconds, done.graph_seconds)
            entry.eager_seconds = min(entry.eager_seconds, done.eager_seconds)
            if entry.served == _COMPARED_AT_FIRST and not self._is_worth_it(entry):
                self._end(entry, Aside(f"eager runs are as fast: {entry.eager_seconds * 1e6:.0f} us, by its graph "
                                        f"{(entry.graph_seconds + self._looking) * 1e6:.0f} us"))
            entry.next_compared = entry.served if entry.served < _COMPARED_AT_FIRST else _next_power_of_ten(entry.served)
        return done.result

    def _is_worth_it(self, entry: Entry) -> bool:
        """Small modules are as fast without."""
        looking = self._looking if self._looking < math.inf else 0.0
        return entry.graph_seconds + looking <= _GAIN * entry.eager_seconds

    # ---- endings ----

    def _end(self, entry: Entry, error: Exception) -> None:
        """The entry's graph goes. It begins anew where only the module has changed, some times; else calls of its kind run
        eagerly from now on."""
        short_lived = entry.served < _SHORT_LIFE
        self._let_go(entry)
        entry.begin_anew()
        if isinstance(error, Disturbed):
            entry.disturbed += 1
            if entry.disturbed <= _MOST_DISTURBED:
                return
            error = Aside("other threads run it all the time")
        if isinstance(error, Changed):
            entry.short_lived = entry.short_lived + 1 if short_lived else 0
            if entry.short_lived <= _MOST_SHORT_LIVED:
                return
            error = Aside(f"it changes again and again: {error}")
        if isinstance(error, Differs):
            entry.aside = f"a graph of it does not do the same: {error}"
        else:
            entry.aside = str(error) if isinstance(error, (NimbleError, Aside)) else f"{type(error).__name__}: {error}"
        if not isinstance(error, (NimbleError, Aside)):
            self._warn(f"{self.name} runs eagerly: {entry.aside}")

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._settings.warn(text)

    @staticmethod
    def _let_go(entry: Entry) -> None:
        graph, entry.graph = entry.graph, None
        if graph is not None:
            try:
                graph.close()
            except Exception:
                pass  # the GPU has failed, which the program will be told by its own calls

    def close(self) -> None:
        """Lets go of all graphs."""
        for entry in list(self._entries.values()):
            self._let_go(entry)

    # ---- what is said in the end ----

    def graphs(self) -> List[Graph]:
        return [entry.graph for entry in list(self._entries.values()) if entry.graph is not None]

    def reasons(self) -> "List[Tuple[str, int]]":
        """Why calls ran eagerly, the most frequent first."""
        return Counter(self.eager).most_common()


def _next_power_of_ten(count: int) -> int:
    """The call behind so many that is compared: the tenth, the hundredth, and so on."""
    power = 10
    while power - 1 < count:
        power *= 10
    return power - 1
