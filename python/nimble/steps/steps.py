"""nimble.step: a whole training step (forward, loss, backward, optimizer, as much of it as a function does) as one graph.

The first calls run the function eagerly, and are looked at: real steps, like all others. Then it is captured, which runs nothing,
and from then on a call copies its arguments, launches one graph, and returns copies of what the function returned.

Calls may come from any thread, one at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree

from nimble.errors import CaptureError, GoesPastError, NimbleError
from nimble.graphs.autograd_leaves import one_thread
from nimble.graphs.backend import EAGER_RUNS, Backend, Captured
from nimble.graphs.capture import CudaCapture
from nimble.graphs.graph_io import GraphReport, Input, Options, check_outputs, device_of, with_inputs
from nimble.graphs.module_work import check_caches
from nimble.graphs.unsupported import check_step
from nimble.guards import switches
from nimble.guards.casts import is_around
from nimble.guards.registered import where_of
from nimble.guards.signatures import Call, GraphCache
from nimble.guards.state import is_same, parts_of
from nimble.nesting import nesting
from nimble.objects.memory import unique, version_of, versions
from nimble.objects.module_contents import tensors_of
from nimble.shim import Rehearsed
from nimble.steps import step_casts
from nimble.steps.closure_inputs import Reached, find
from nimble.steps.split_step import Ahead, InParts, at_first_backward, can_be_kept, is_worth_it
from nimble.steps.step_errors import OfTheFunction, check_arguments, check_leaves, explaining, is_of_captures
from nimble.steps.step_grads import Grads, check_layouts
from nimble.steps.step_graph import Graph, Kind, Work
from nimble.steps.step_iterators import Iterators
from nimble.steps.step_places import have_moved
from nimble.steps.step_reads import cannot_be_looked_at, is_unchanged, tensors_on
from nimble.steps.step_state import Look, StepState, check_unchanged, is_as_left
from nimble.steps.step_stores import Stores

_SHORT_LIFE = 8  # calls, below which a graph was hardly worth its capture
_MOST_SHORT_LIVED = 3  # of these in a row
_MOST_DISTURBED = 2  # eager runs more than a kind of call would need, in a row
_MOST_VARIANTS = 4  # graphs for one kind of call, by what there are for gradients when it comes


class _Running(threading.local):
    """Whether this thread runs a step's function, to look at it or to capture it."""

    now = False


_running = _Running()


def _is_looked_at() -> bool:
    """Whether something is on that looks at each op of the call, or at what autograd keeps of it: of a replay it would see none."""
    return switches.why_not_replayed() is not None or switches.saves_elsewhere() or torch.is_anomaly_enabled()


def is_running() -> bool:
    """Whether this thread is within a step, which has no room for other graphs."""
    return _running.now


class Step:
    """Made by step()."""

    def __init__(self, function: Callable[..., Any], modules: Iterable[torch.nn.Module],
                 optimizers: Iterable[torch.optim.Optimizer], options: Options, fallback: bool, max_graphs: int,
                 backend: Optional[Backend]) -> None:
        if not callable(function):
            raise TypeError(f"a function is needed, not a {type(function).__name__}")
        self.function = function
        self._given = tuple(modules), tuple(optimizers)
        self._options, self._fallback = options, fallback
        self._backend: Backend = backend if backend is not None else CudaCapture()
        self._kinds: "GraphCache[Kind]" = GraphCache(max_graphs)
        self._state: Optional[StepState] = None  # that all graphs were captured with
        self._seen: Look = ()
        self._short_lived = 0
        self._stream: Any = None
        self._within_autocast = step_casts.CallsWithin()
        self._warned = {"eager": False, "held": False, "autocast": False}
        self._has_begun = False  # the function has, in this call, and not to be captured
        self._lock = threading.RLock()
        self._backend.check()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, without a history of gradients. Within another step, or while a Nimble is prepared, it is a part
        of that."""
        if is_running() or nesting.preparing:
            return _without_history(self.function(*args, **kwargs))
        with self._lock:
            if _is_looked_at():
                return self._outputs(args, kwargs)
            begun: Optional[Graph] = None
            self._has_begun = False
            is_within_autocast = is_around(any(switches.autocast()[:2]))
            try:
                if is_within_autocast and self._is_eager_within_autocast():
                    self._warn("autocast", self._within_autocast.why)
                    return self._outputs(args, kwargs)
                call = Call(args, kwargs, False, torch.is_grad_enabled())
                if call.signature.grad:
                    raise NimbleError("an argument requires gradients, which a step would not give to it")
                kind = self._kind_of(call)
                taken = kind.graphs[-1] if kind.graphs else None
                if taken is not None:  # most likely it is the one: the GPU is at work while the host looks
                    begun = taken
                    taken.begin(call)
                graph, is_held = self._fitting(kind, call, taken)
                if graph is not taken:
                    taken = begun = None  # and its memory goes before other memory is needed
                if graph is None and (kind.eager > 0 or self._is_disturbed(kind)):
                    return self._run(call, kind)
                if graph is None:
                    try:
                        graph = self._capture(call, kind)
                    except OfTheFunction as error:
                        return self._run_instead(call, kind, error)
                    graph.check(call)
                    is_held = graph.grads.are_held()
                state = StepState(self._reached(), self._backend.device_type) if is_held else None
                kind.graphs.append(kind.graphs.pop(kind.graphs.index(graph)))
                if graph is not taken:
                    graph.take(call)
                if is_within_autocast:
                    self._within_autocast.ends(is_replayed=state is None)
                if state is None:
                    return graph(call)
            except NimbleError as error:
                if not self._fallback or self._has_begun:  # then it is the function's own, or comes behind it
                    raise
                if begun is not None:  # before it runs once more
                    begun.take_back()
                self._warn("eager", f"the step runs eagerly: {error}")
                return _without_history(self.function(*args, **kwargs))
            finally:
                if begun is not None:  # and has not come to its end
                    begun.take_back()
            self._warn("held", "a step runs eagerly, since somebody holds on to the gradients (p.grad) of an earlier one, which lie "
                       "in the graph's memory: keep copies instead")
            return self._on_stream(call, False, state)[0]

    def report(self) -> List[GraphReport]:
        """What is known of each graph, and of kinds of calls that run eagerly since there is none; the least recently used kind first."""
        with self._lock:
            return [report for kind in self._kinds for report in kind.reports()]

    def __getstate__(self) -> Dict[str, Any]:
        """Of what copies and pickles are made: they have no graphs."""
        return {"given": (self.function, *self._given, self._options, self._fallback, self._kinds.most, self._backend)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(*state["given"])  # type: ignore[misc]

    def _is_eager_within_autocast(self) -> bool:
        if not self._within_autocast.are_eager:
            state = self._state if self._state is not None else StepState(self._reached(), self._backend.device_type)
            self._within_autocast.comes(state.parameters)
        self._within_autocast.ends(is_replayed=False)
        return self._within_autocast.are_eager

    def _kind_of(self, call: Call) -> Kind:
        kind = self._kinds.get(call.key)
        if kind is None:
            kind = Kind(str(call.signature), 1 + EAGER_RUNS if self._options.use_multi_stream else 2)
            gone = self._kinds.put(call.key, kind)
            for graph in gone.graphs if gone is not None else []:
                graph.close()
        return kind

    def _fitting(self, kind: Kind, call: Call, taken: Optional[Graph]) -> Tuple[Optional[Graph], bool]:
        """The graph that fits what there is now, and whether somebody holds its gradients. What has begun of another, or of one that
        cannot go on, is taken back."""
        graph, is_held, can_go_on = None, False, False
        try:
            self._drop_what_is_stale()
            kind.check()
            graph = next((each for each in reversed(kind.graphs) if each.grads.fit()), None)
            if graph is not None:
                graph.check(call)
                is_held = graph.grads.are_held()
            can_go_on = graph is taken and not is_held
            return graph, is_held
        finally:
            if taken is not None and not can_go_on:
                taken.take_back()

    def _drop_what_is_stale(self) -> None:
        """Where what the graphs were captured with is not as it was."""
        if self._state is None:
            return
        why = self._state.difference(self._seen, self._state.look())
        if why is None:
            return
        self._state = None
        graphs = [graph for kind in self._kinds for graph in kind.graphs]
        self._short_lived = self._short_lived + 1 if sum(graph.calls for graph in graphs) < _SHORT_LIFE else 0
        for kind in self._kinds:
            for graph in kind.graphs:
                graph.close()
            kind.graphs = []
            kind.eager = 1 if kind.has_run else kind.eager
            if self._short_lived > _MOST_SHORT_LIVED and not kind.is_refused:
                kind.refuse(NimbleError(f"what the step works on changes again and again: {why}"))

    def _is_disturbed(self, kind: Kind) -> bool:
        """Whether its last eager run tells nothing of the capture that is to come, since what the step works on was changed behind it: then
        there has to be another one. Where that is so again and again there is none, and the graph will soon be seen not to fit."""
        left, kind.left = kind.left, None
        if left is None or is_as_left(*left):
            kind.disturbed = 0
            return False
        kind.disturbed += 1
        kind.eager = 1 if kind.disturbed <= _MOST_DISTURBED else 0
        return kind.eager > 0

    def _run(self, call: Call, kind: Kind) -> Any:
        """Eagerly, as a real step that is learned from. Notes what it writes to. One that raises does not count."""
        learns = kind.has_run and self._options.use_multi_stream
        reached = self._reached()
        if any(is_lazy(t) for m in reached.modules for t in (*m.parameters(), *m.buffers())):  # nothing is known until it has memory
            return self._outputs(call.args, call.kwargs)
        state = StepState(reached, self._backend.device_type)
        held = (t for m in state.modules for t in tensors_of(m).values())
        known = [t for t in unique((*state.parameters, *state.buffers, *state.found, *held)) if not t.is_inference()]
        watched = state.parameters if is_worth_it(state.parameters) else []
        before = versions(known), versions(watched)
        buffers = [(buffer, buffer.detach().clone()) for buffer in state.buffers if buffer.device.type == self._backend.device_type]
        arguments = [(number, version_of(call.leaves[number]), call.leaves[number].detach().clone()) for number in call.tensors]
        values = [p.detach().clone() for p in watched]
        early: List[Tuple[List[int], List[torch.Tensor]]] = []

        def look() -> None:
            self._backend.rehearse_part()
            early.append((versions(watched), [p.detach().clone() for p in watched]))

        iterators, were = Iterators(state.modules), switches.kernels_and_modes()
        result, rehearsed = self._on_stream(call, learns, state, look, rehearses=True)
        kind.takes = kind.takes or iterators.have_moved()
        kind.switches = kind.switches or were != switches.kernels_and_modes()
        kind.eager -= 1
        kind.has_run = True
        had_strays, kind.rehearsed = kind.rehearsed.strays > 0, rehearsed
        if kind.eager == 0 and rehearsed.strays > 0 and not had_strays:
            kind.eager = 1  # which may have been for once
        seen = set(map(id, kind.buffers))
        kind.versions = [t for t, version in zip(known, before[0]) if t._version != version]
        raised = set(map(id, kind.versions))  # also of those that hold the same values again, which they need not in other calls
        kind.buffers += [buffer for buffer, value in buffers
                         if id(buffer) not in seen and (id(buffer) in raised or not is_same(buffer, value))]
        kind.writes_early = kind.writes_early or any(
            numbers != before[1] or not all(map(is_unchanged, now, values)) for numbers, now in early)
        for number, version, value in arguments:
            argument = call.leaves[number]
            if version_of(argument) != version or not is_unchanged(argument, value):
                kind.written.add(number)
        if kind.eager == 0:
            with contextlib.suppress(Exception):  # the step has run: what cannot be looked at raises at the next call, before it does
                behind = StepState(self._reached(), self._backend.device_type)
                kind.left = behind, behind.look(True)
        return result

    def _run_instead(self, call: Call, kind: Kind, error: NimbleError) -> Any:
        """Where the function has raised within a capture: most likely it does so anyway. Else there is no graph."""
        kind.eager = 1
        result = self._run(call, kind)
        kind.refuse(error)
        return result

    def _on_stream(self, call: Call, learns: bool, state: StepState, before_backward: Callable[[], None] = lambda: None,
                   rehearses: bool = False) -> Tuple[Any, Rehearsed]:
        """Eagerly, on the stream of the captures, so that what autograd keeps for the parameters belongs to that. With what a capture
        would have had of it, if it rehearses."""
        def run() -> Any:
            with at_first_backward(before_backward):
                return self._outputs(call.args, call.kwargs)

        if self._stream is None:
            self._stream = self._backend.stream(device_of([*state.parameters, *state.buffers], call, self._backend))
        there = state.tensors()
        with one_thread():
            result, rehearsed = self._backend.run(run, self._stream, learns, rehearses)
        known = {id(t) for t in (*there, *call.leaves)}
        found = [*(p.grad for p in state.parameters), *_pytree.tree_flatten(result)[0]]
        self._backend.hand_over([part for t in found if isinstance(t, torch.Tensor) and t.device.type == self._backend.device_type
                                 and id(t) not in known for part in parts_of(t)])
        return result, rehearsed

    def _outputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        before, _running.now = _running.now, True
        self._has_begun = True
        try:
            return _without_history(self.function(*args, **kwargs))
        finally:
            _running.now = before

    def _reached(self) -> Reached:
        reached = find(self.function, *self._given)
        if not reached.modules and not reached.optimizers:
            raise NimbleError("neither a module nor an optimizer is found in what the step refers to: pass modules=[...] and "
                              "optimizers=[...]")
        check_step(reached.modules)
        return reached

    def _capture(self, call: Call, kind: Kind) -> Graph:
        """Where it fails, all is as before."""
        began = time.perf_counter()
        if kind.takes:
            kind.refuse(NimbleError("a module of the step takes from an iterator that it holds, from which a graph would take nothing"))
        if kind.switches:
            kind.refuse(NimbleError(f"the step {switches.LEAVES}"))
        if kind.rehearsed.strays > 0:
            kind.refuse(GoesPastError(kind.rehearsed.strays))  # which a capture would do once more
        kind.check()
        if len(kind.graphs) >= _MOST_VARIANTS:
            self._make_room(kind)
        state = self._state if self._state is not None else StepState(self._reached(), self._backend.device_type)
        check_layouts(state.parameters)
        device = device_of([*state.parameters, *state.buffers], call, self._backend)
        with torch.inference_mode(False):  # calls may come without
            inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        leaves = with_inputs(call, inputs)
        args, kwargs = call.rebuilt(leaves)
        own_errors: List[BaseException] = []

        def run() -> Any:
            found = [p.grad for p in state.parameters]
            own_errors.clear()
            step_casts.forget()  # which a graph may not use, and may not leave anything in
            try:
                outputs = self._outputs(args, kwargs)
            except Exception as error:
                own_errors.extend([] if is_of_captures(error) else [error])
                raise
            finally:
                self._has_begun = False  # nothing has run
                step_casts.forget()
            own = [p.grad for p, grad in zip(state.parameters, found) if p.grad is not None and p.grad is not grad]
            return outputs, own, state.scaling()

        before, random_before, positions = state.look(True), state.host_random(), state.positions()
        grads_before = [p.grad for p in state.parameters]
        grad_versions = [0 if grad is None else version_of(grad) for grad in grads_before]
        grad_places = [None if grad is None else where_of(grad) for grad in grads_before]
        own = [buffer for buffer in state.buffers if any(buffer is each for each in kind.buffers)]
        # A stream that waits for something in the first part alone is no part of the second, and what it gets then would go past that.
        in_parts = (self._options.use_multi_stream and is_worth_it(state.parameters) and not kind.written and not kind.writes_early
                    and can_be_kept(own) and not switches.has_other_ranks() and kind.rehearsed.behind == 0)
        stores = Stores(state.modules)
        with torch.inference_mode(False):
            work = Work(run, state, stores, inputs, own if in_parts else [], self._backend.device_type)
        try:
            with torch.inference_mode(False), torch.set_grad_enabled(call.trains), one_thread(), explaining(state):
                graphs = self._recorded(work, in_parts)
            captured = InParts(*graphs) if len(graphs) > 1 else graphs[0]
            check_caches(work.found_elsewhere)
            check_unchanged(state, before, random_before, positions, self._backend.draws_on_host)
            if have_moved(grads_before, grad_places):
                raise NimbleError("the step gives a gradient other memory (p.grad.data = ...), which a graph would not do: write to it "
                                  "in place")
            stores.check(inputs)
            check_layouts(state.parameters)
            check_outputs(captured.outputs[0], self._backend.device_type, [*state.parameters, *state.buffers, *(i.tensor for i in inputs)])
            check_leaves(captured.outputs[0], state)
            check_arguments(call, inputs, leaves, args, kwargs)
        except BaseException as error:
            self._backend.let_go(work.put_back)
            are_own = bool(own_errors)
            own_errors.clear()  # which hold this frame
            if are_own and isinstance(error, CaptureError):
                raise OfTheFunction(error.reason, error.place) from error
            if isinstance(error, NimbleError):
                kind.refuse(error)
            raise
        grads_behind = [p.grad for p in state.parameters]
        for parameter, grad in zip(state.parameters, grads_before):
            parameter.grad = grad
        grads = Grads(state.parameters, grads_before, grads_behind, work.touched(grads_before, grads_behind),
                      grad_versions)
        work.end()
        ahead = None
        if isinstance(captured, InParts) and not work.is_bound:  # of which nobody keeps the memory
            reads = [*state.memory(), *tensors_on(work.found_elsewhere)]
            ahead = Ahead(captured, work.keeps, reads, self._backend, device)
        graph = Graph(call, inputs, kind, captured, grads, state, time.perf_counter() - began, ahead, work.found_elsewhere)
        kind.graphs.append(graph)
        self._state, self._seen = state, before
        return graph

    def _recorded(self, work: Work, in_parts: bool) -> List[Captured]:
        try:
            return self._backend.record(work, self._stream, self._options.use_multi_stream, self._options.relaxed, in_parts)
        except CaptureError as error:
            if not (work.looks and cannot_be_looked_at(error)):
                raise
        self._backend.let_go(work.put_back)
        work.looks = False
        return self._backend.record(work, self._stream, self._options.use_multi_stream, self._options.relaxed, in_parts)

    def _make_room(self, kind: Kind) -> None:
        """For a graph with other gradients to begin with."""
        gone = kind.graphs.pop(0)
        gone.close()
        self._short_lived = self._short_lived + 1 if gone.calls < _SHORT_LIFE else 0
        if self._short_lived > _MOST_SHORT_LIVED:
            kind.refuse(NimbleError("each call comes with other tensors for gradients (p.grad): clear them by zero_grad(), or "
                                    "keep them where they are"))
            kind.check()

    def _warn(self, what: str, text: str) -> None:
        if not self._warned[what]:
            self._warned[what] = True
            warnings.warn(f"nimble: {text}", stacklevel=3)


def step(function: Callable[..., Any], modules: Iterable[torch.nn.Module] = (),
         optimizers: Iterable[torch.optim.Optimizer] = (), *, use_multi_stream: bool = True, relaxed: bool = False,
         fallback: bool = False, max_graphs: int = 8, backend: Optional[Backend] = None) -> Step:
    """The function, which runs as one graph once it has run a few times: a training step, or a part of one, as in

        def train(images, labels):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        train = nimble.step(train, modules=[model], optimizers=[optimizer])

    Its arguments are as for Nimble. What it returns has no history of gradients. p.grad is afterwards what the function leaves
    there, in memory that the next call writes to.

    modules, optimizers: those that it works with, besides those that are found in its closure, in globals that it names, and in
    attributes of its object. Where one of them changes, or a value that is found so, it runs eagerly once and is captured anew.
    fallback: what cannot be captured runs eagerly, and a warning says so once; else it raises NimbleError, with all as before.
    use_multi_stream, relaxed: as for Nimble.prepare. max_graphs: how many kinds of arguments there are graphs for.

    Raises NotLoadedError where libnimble.so does not rewrite graphs in this process."""
    return Step(function, modules, optimizers, Options(use_multi_stream, relaxed), fallback, max_graphs, backend)


def _without_history(outputs: Any) -> Any:
    return _pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None else leaf,
                            outputs)
