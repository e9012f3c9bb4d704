"""The life of an entry: how a kind of call gets its graph, and loses it. Advances at calls that no graph serves;
auto_module.py says in which order.

One thread at a time; the AutoModule ensures that."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections import Counter, OrderedDict
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple

import torch

from nimble.graphs import argument_keys
from nimble.graphs.compare import CallEffects, compare, is_untouched
from nimble.auto.entries import RunsEagerly, Changed, Differs, Disturbed, Entry, Graph, Shares
from nimble.auto.gradients import BothWays, again, check
from nimble.auto.traced_guard import TracedModuleGuard
from nimble.auto.skipped_modules import why_skipped
from nimble.capture.cudnn_dropout import DROPOUT, may_have_cudnn_dropout
from nimble.auto.threads import Threads
from nimble.errors import NimbleError
from nimble.capture.backend import Backend
from nimble.graphs.prepared import Options, PreparedGraph, prepare
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.guards.tensor_memory import attribute_tensors
from nimble.guards.write_detector import WriteDetector
from nimble.objects.python_trace import PythonTrace
from nimble.settings import Settings
from nimble.training.training import TrainingGraph, prepare_training

MAX_GRAPHS = 8
MAX_ENTRIES = 64  # kinds of call that are remembered
_MAX_PREPARED = 32  # graphs in total; a module that needs more has calls of too many kinds
_SHORT_LIFE = 8  # calls; a graph that serves fewer was not worth it
_MOST_SHORT_LIVED = 3  # in a row
_MOST_GUARDED_RUNS = 4  # until a run changes nothing of the module
_MOST_DISTURBED = 16  # calls that another thread disturbed
_COMPARED_AT_FIRST = 3
_GAIN = 0.95  # of the time of an eager run: a graph that takes longer is not worth it
# Other threads keep running meanwhile: they must not invalidate our capture, nor our capture their calls.
_OPTIONS = Options(use_multi_stream=True, relaxed=True)
_BEFORE = "before it was prepared"
SHARES = "an argument shares memory with the module"
OTHER_THREAD = "while another thread ran it"
AWAITED = "while the previous call's backward was outstanding"
Original = Callable[..., Any]


class EntryLifecycle:
    """The entries of one module, and what advances them."""

    def __init__(self, kind: type, backend: Backend, settings: Settings, room: "Callable[[torch.device], bool]",
                 clock: "Callable[[], float]", threads: Threads) -> None:
        self.name = kind.__name__
        self.why_eager: Optional[str] = None  # why its calls are no longer observed
        self.compared = 0
        self.prepared = 0
        self.eager: "Counter[str]" = Counter()  # calls, by reason; threads count roughly
        self._backend, self._settings, self._room, self._clock = backend, settings, room, clock
        self._looking = math.inf  # seconds to find a call's entry and check that its graph is valid
        self._entries: "OrderedDict[Tuple[Hashable, ...], Entry]" = OrderedDict()
        self._entries_lock = threading.Lock()  # held for look-ups alone
        self._threads = threads
        self._arrivals = 0
        self._warned = False

    def _run_eagerly(self, why: str, original: Original, module: torch.nn.Module, args: Tuple[Any, ...],
                     kwargs: Dict[str, Any]) -> Any:
        self.eager[why] += 1
        return original(module, *args, **kwargs)

    def _advance(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        if entry.guard is None or not entry.may_write:
            return self._step(entry, call, original, module)
        with self._threads.exclusive(threading.get_ident()) as alone:
            if alone.is_given:
                result = self._step(entry, call, original, module)
                if not alone.was_kept:
                    self._end(entry, Disturbed())
                return result
        self._end(entry, Disturbed())
        return self._run_eagerly(OTHER_THREAD, original, module, call.args, call.kwargs)

    def _step(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        shares = False
        try:
            self._look_at(entry, call, original, module)
        except Shares:
            shares = True
        except Exception as error:
            self._end(entry, error)
        graph = entry.graph
        if graph is not None:
            return self._compare(entry, graph, call, original, module)
        if shares:
            return self._run_eagerly(SHARES, original, module, call.args, call.kwargs)
        self.eager[entry.why_eager or _BEFORE] += 1
        entry.calls += 1
        if entry.why_eager is not None or entry.calls == 1:
            return original(module, *call.args, **call.kwargs)
        look = self._trace if entry.traced is None else self._look_for_changes
        result = look(entry, call, original, module)
        if call.trains:
            try:
                entry.backwards.look_at(result, call)
            except Exception as error:
                self._end(entry, error)
        return result

    def _look_at(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> None:
        """Prepares the entry when that is due. Raises what ends it."""
        if entry.broken is not None:
            raise entry.broken
        if isinstance(entry.graph, TrainingGraph) and entry.graph.difference is not None:
            raise Differs(entry.graph.difference)
        if entry.guard is None:
            return
        if entry.backwards.why_not is not None:
            raise RunsEagerly(entry.backwards.why_not)
        change = change_of(entry.guard, module)
        if change is not None:
            raise Changed(change)
        if entry.graph is None:
            entry.graph = self._prepared(entry, entry.guard, call, original, module)
            self._make_room()

    def _trace(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        if not PythonTrace.is_possible():
            return original(module, *call.args, **call.kwargs)
        trace = PythonTrace(module)
        result = trace.run(original, module, *call.args, **call.kwargs)
        try:
            traced = trace.result()
            if traced.effect is not None:
                raise RunsEagerly(traced.effect)
            entry.traced = traced
        except Exception as error:
            self._end(entry, error)
        return result

    def _look_for_changes(self, entry: Entry, call: Call, original: Original, module: torch.nn.Module) -> Any:
        guard: Optional[TracedModuleGuard] = None
        written: Optional[WriteDetector] = None
        effects: Optional[CallEffects] = None
        entry.guarded_runs += 1
        try:
            assert entry.traced is not None
            guard = TracedModuleGuard(module, self._backend.device_type, entry.traced, call.trains)
            written = WriteDetector([*module.parameters(), *self._not_put_back(guard, call, module)])
            effects = CallEffects(module, call, self._backend)
            key = argument_keys.key_of(call)
        except Exception as error:
            self._end(entry, error)
        result = original(module, *call.args, **call.kwargs)
        if guard is None or written is None or effects is None or entry.why_eager is not None:
            return result
        try:
            change = change_of(guard, module)
            if not is_untouched(call, key):
                raise RunsEagerly("it puts something else into its arguments")
            if change is None and written.any():
                raise RunsEagerly("it writes to a tensor that is neither a buffer, nor an attribute, nor an argument")
            if change is None:
                entry.guard, entry.may_write = guard, effects.any()
            elif entry.guarded_runs >= _MOST_GUARDED_RUNS:
                raise RunsEagerly(f"{change} whenever it runs")
        except Exception as error:
            self._end(entry, error)
        return result

    @staticmethod
    def _not_put_back(guard: TracedModuleGuard, call: Call, module: torch.nn.Module) -> List[torch.Tensor]:
        """Tensors that the module finds elsewhere, and that are not restored after our runs."""
        put_back = {id(t) for _, _, t, _ in attribute_tensors(module)} | {id(call.leaves[number]) for number in call.tensors}
        return [t for t in guard.others() if id(t) not in put_back]

    def _prepared(self, entry: Entry, guard: TracedModuleGuard, call: Call, original: Original, module: torch.nn.Module) -> Graph:
        if not call.tensors:
            raise RunsEagerly("none of its arguments is a tensor")
        device = call.leaves[call.tensors[0]].device
        if self.prepared >= _MAX_PREPARED:
            raise RunsEagerly("its calls are of more kinds than graphs are made for")
        skipped = why_skipped(module, self._settings)  # its submodules may have changed since
        if skipped is not None:
            raise RunsEagerly(skipped)
        if any(t.device != device for t in (*module.parameters(), *module.buffers())):
            raise RunsEagerly("it lies on several devices")
        if switches.has_other_ranks():
            raise RunsEagerly("other ranks may be waiting for what it sends, which preparing would send more often")
        if may_have_cudnn_dropout(device.type):
            raise RunsEagerly(DROPOUT)
        if not self._room(device):
            raise RunsEagerly("less than a quarter of the GPU's memory is free")
        others = guard.others()
        taken = argument_keys.memory_of((*module.parameters(), *module.buffers(), *others))
        if argument_keys.shares_memory(call, taken):
            raise Shares()
        self.prepared += 1
        arrivals = self._arrivals
        graph: Graph
        if call.trains:
            graph = prepare_training(module, call, self._backend, _OPTIONS, check, is_compared=False)
        else:
            graph = prepare(module, call, self._backend, _OPTIONS, is_compared=False)
        entry.may_write = entry.may_write or not graph.runs_ahead
        # A graph that writes reads its copies of arguments, where an eager run would read what it has written.
        entry.apart_from = taken if isinstance(graph, TrainingGraph) or not graph.runs_ahead else frozenset()
        # Our guard does not hold the module, so the graph must not either.
        if isinstance(graph, PreparedGraph):
            graph.forget_module(guard.reads_own_memory_alone)
        else:
            graph.forget_module()
        if isinstance(graph, TrainingGraph):
            graph.distrust(_COMPARED_AT_FIRST,
                           functools.partial(again, weakref.ref(module), original, self._backend, device))
        try:
            change = change_of(guard, module)
            if change is not None:
                raise Changed(change)
            if self._arrivals != arrivals:
                raise Disturbed()
            if not self._room(device):
                raise RunsEagerly("with its graph less than a quarter of the GPU's memory would be free")
        except Exception:
            graph.close()
            raise
        return graph

    def _compare(self, entry: Entry, graph: Graph, call: Call, original: Original, module: torch.nn.Module) -> Any:
        if isinstance(graph, TrainingGraph) and graph.is_awaited():
            return self._run_eagerly(AWAITED, original, module, call.args, call.kwargs)
        if switches.has_other_ranks():  # since then
            self.eager["other ranks"] += 1
            self._end(entry, RunsEagerly("other ranks may be waiting for what it sends"))
            return original(module, *call.args, **call.kwargs)
        if may_have_cudnn_dropout(self._backend.device_type):
            self.eager[DROPOUT] += 1
            self._end(entry, RunsEagerly(DROPOUT))
            return original(module, *call.args, **call.kwargs)
        self.compared += 1
        arrivals = self._arrivals
        done = compare(lambda: graph(call, False), lambda: original(module, *call.args, **call.kwargs), module, call,
                       call.leaves[call.tensors[0]].device, self._backend, self._clock,
                       functools.partial(BothWays, graph, module, call) if isinstance(graph, TrainingGraph) else None,
                       entry.guard.others() if entry.guard is not None else ())
        if self._arrivals != arrivals:
            self._end(entry, Disturbed())
        elif done.failure is not None:
            self._end(entry, done.failure)
        elif done.difference is not None:
            self._end(entry, Differs(done.difference))
        else:
            entry.served += 1
            entry.has_effects = done.has_effects
            entry.may_write = entry.may_write or done.has_effects
            entry.graph_seconds = min(entry.graph_seconds, done.graph_seconds)
            entry.eager_seconds = min(entry.eager_seconds, done.eager_seconds)
            if entry.served == _COMPARED_AT_FIRST and not self._is_worth_it(entry):
                self._end(entry, RunsEagerly(f"eager runs are as fast: {entry.eager_seconds * 1e6:.0f} us, with its graph "
                                        f"{(entry.graph_seconds + self._looking) * 1e6:.0f} us"))
            entry.next_compared = entry.served if entry.served < _COMPARED_AT_FIRST else _next_power_of_ten(entry.served)
        return done.result

    def _is_worth_it(self, entry: Entry) -> bool:
        """Whether the graph is faster. Small modules gain nothing."""
        looking = self._looking if self._looking < math.inf else 0.0
        return entry.graph_seconds + looking <= _GAIN * entry.eager_seconds

    # ---- endings ----

    def _end(self, entry: Entry, error: Exception) -> None:
        """Frees the entry's graph. The entry starts again, a few times, where only the module has changed; else calls of its kind run
        eagerly from now on."""
        short_lived = entry.served < _SHORT_LIFE
        self._let_go(entry)
        entry.begin_anew()
        if isinstance(error, Disturbed):
            entry.disturbed += 1
            if entry.disturbed <= _MOST_DISTURBED:
                return
            error = RunsEagerly("other threads run it all the time")
        if isinstance(error, Changed):
            entry.short_lived = entry.short_lived + 1 if short_lived else 0
            if entry.short_lived <= _MOST_SHORT_LIVED:
                return
            error = RunsEagerly(f"it changes again and again: {error}")
        if isinstance(error, Differs):
            entry.why_eager = f"its graph differs from an eager run: {error}"
        else:
            entry.why_eager = str(error) if isinstance(error, (NimbleError, RunsEagerly)) else f"{type(error).__name__}: {error}"
        if not isinstance(error, (NimbleError, RunsEagerly)):
            self._warn(f"{self.name} runs eagerly: {entry.why_eager}")

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
                pass  # the GPU has failed; the program's own calls will report that

    def _make_room(self) -> None:
        """Drops the oldest entries where there are too many, or too many with graphs."""
        gone = []
        with self._entries_lock:
            graphs = sum(entry.graph is not None for entry in self._entries.values())
            for key, entry in list(self._entries.items()):
                has_graph = entry.graph is not None
                if len(self._entries) > MAX_ENTRIES or (graphs > MAX_GRAPHS and has_graph):
                    graphs -= has_graph
                    gone.append(self._entries.pop(key))
        for entry in gone:
            self._let_go(entry)


def change_of(guard: TracedModuleGuard, module: torch.nn.Module) -> Optional[str]:
    """What has changed of a module since it was guarded, as a phrase for a message; None where nothing has changed."""
    return guard.difference() if guard.is_of(module) else "it is another module"


def _next_power_of_ten(count: int) -> int:
    """The next call to compare after this many: the tenth, the hundredth, and so on."""
    power = 10
    while power - 1 < count:
        power *= 10
    return power - 1
