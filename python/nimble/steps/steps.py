"""nimble.step: a whole training step (forward, loss, backward, optimizer, or whatever part of it a function contains) as one graph.

The first calls run the function eagerly, as real steps, and learn from them (step_learning.py). Then the step is captured, which runs
nothing (step_capture.py). From then on a call copies its arguments, launches one graph, and returns copies of what the function
returned.

Calls may come from any thread, one at a time."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import one_thread
from nimble.capture.backend import EAGER_RUNS, Backend
from nimble.capture.cuda_capture import CudaCapture
from nimble.graphs.graph_io import GraphReport, Options, device_of
from nimble.graphs.unsupported_modules import check_step
from nimble.guards import switches
from nimble.guards.autocast_cache import is_around
from nimble.guards.signatures import Call, GraphCache
from nimble.guards.tensor_memory import strided_parts
from nimble.nesting import nesting
from nimble.shim import Rehearsed
from nimble.steps import step_autocast
from nimble.step_state.closure_inputs import ClosureInputs, Names
from nimble.step_state.closure_search import find
from nimble.steps.split_step import at_first_backward
from nimble.steps.step_capture import StepCapture
from nimble.steps.step_errors import OfTheFunction
from nimble.steps.step_graph import Kind, StepGraph
from nimble.steps.step_learning import EagerRun
from nimble.step_state.step_state import StepGuard, StepState

_SHORT_LIFE = 8  # calls; a graph that serves fewer was not worth its capture
_MOST_SHORT_LIVED = 3  # of these in a row
_MOST_DISTURBED = 2  # extra eager runs of a kind of call, in a row
_MOST_VARIANTS = 4  # graphs for one kind of call, by the gradients that exist when it is made


class _Running(threading.local):
    """Whether this thread runs a step's function, to observe or capture it."""

    now = False


_running = _Running()


def _is_looked_at() -> bool:
    """Whether something observes each op of the call, or the tensors that autograd saves: it would see nothing of a replay."""
    return switches.why_not_replayed() is not None or switches.saves_elsewhere() or torch.is_anomaly_enabled()


def is_running() -> bool:
    """Whether this thread runs a step, where other graphs are not used."""
    return _running.now


class Step:
    """A function that runs as one graph; made by step()."""

    def __init__(self, function: Callable[..., Any], modules: Iterable[torch.nn.Module],
                 optimizers: Iterable[torch.optim.Optimizer], options: Options, fallback: bool, max_graphs: int,
                 backend: Optional[Backend]) -> None:
        if not callable(function):
            raise TypeError(f"expected a function, got {type(function).__name__}")
        self.function = function
        self._given = tuple(modules), tuple(optimizers)
        self._options, self._fallback = options, fallback
        self._backend: Backend = backend if backend is not None else CudaCapture()
        self._kinds: "GraphCache[Kind]" = GraphCache(max_graphs)
        self._guard: Optional[StepGuard] = None  # of the state that all graphs were captured with
        self._short_lived = 0
        self._names = Names()  # in the code of the function, when it was last searched
        self._stream: Any = None
        self._within_autocast = step_autocast.CallsWithin()
        self._warned = {"eager": False, "held": False, "autocast": False}
        self._has_begun = False  # whether the function has begun to run in this call (not for a capture)
        self._begun: Optional[StepGraph] = None  # the graph that this call has begun
        self._lock = threading.RLock()
        self._backend.check()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, without an autograd history. Within another step, or while a Nimble is prepared, it runs as a part
        of that."""
        if is_running() or nesting.preparing:
            return _without_history(self.function(*args, **kwargs))
        with self._lock:
            if _is_looked_at():
                return self._outputs(args, kwargs)
            self._has_begun = False
            try:
                return self._called(args, kwargs)
            except NimbleError as error:
                if not self._fallback or self._has_begun:  # then the error is the function's own, or follows its run
                    raise
                self._take_back()  # before the function runs again
                self._warn("eager", f"the step runs eagerly: {error}")
                return _without_history(self.function(*args, **kwargs))
            finally:
                self._take_back()

    def _called(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """By a graph where one fits, or can be captured."""
        is_within_autocast = is_around(any(switches.autocast()[:2]))
        if is_within_autocast and self._is_eager_within_autocast():
            self._warn("autocast", self._within_autocast.why, depth=4)
            return self._outputs(args, kwargs)
        call = Call(args, kwargs, False, torch.is_grad_enabled())
        if call.signature.grad:
            raise NimbleError("an argument requires gradients, which a step would not compute")
        kind = self._kind_of(call)
        begun = self._begun = kind.graphs[-1] if kind.graphs else None
        if begun is not None:  # most likely it is the right one: the GPU works while the host checks
            begun.begin(call)
        graph, is_held = self._fitting(kind, call, begun)
        if graph is not begun:
            begun = self._begun = None  # frees its memory before other memory is needed
        if graph is None and (kind.eager > 0 or self._is_disturbed(kind)):
            return self._run(call, kind)
        if graph is None:
            try:
                graph = self._capture(call, kind)
            except OfTheFunction as error:
                return self._run_instead(call, kind, error)
            graph.check(call)
            is_held = graph.grads.are_held()
        state = self._new_state() if is_held else None
        kind.graphs.append(kind.graphs.pop(kind.graphs.index(graph)))
        if graph is not begun:
            graph.take(call)
        if is_within_autocast:
            self._within_autocast.ends(is_replayed=state is None)
        if state is None:
            return graph(call)
        self._take_back()
        self._warn("held", "a step runs eagerly, since the gradients (p.grad) of an earlier one are still referenced, and lie in the "
                   "graph's memory: keep copies instead", depth=4)
        return self._on_stream(call, False, state)[0]

    def _take_back(self) -> None:
        """Undoes the begun part of an incomplete graph call."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.take_back()

    def report(self) -> List[GraphReport]:
        """A report of each graph, and of each kind of call that cannot have one; the least recently used kind first."""
        with self._lock:
            return [report for kind in self._kinds for report in kind.reports()]

    def __getstate__(self) -> Dict[str, Any]:
        """For copies and pickles, which have no graphs."""
        return {"given": (self.function, *self._given, self._options, self._fallback, self._kinds.most, self._backend)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(*state["given"])  # type: ignore[misc]

    def _is_eager_within_autocast(self) -> bool:
        if not self._within_autocast.are_eager:
            state = self._guard.state if self._guard is not None else self._new_state()
            self._within_autocast.comes(state.parameters)
        self._within_autocast.ends(is_replayed=False)
        return self._within_autocast.are_eager

    def _learns(self) -> bool:
        return self._options.use_multi_stream and self._backend.observes

    def _kind_of(self, call: Call) -> Kind:
        kind = self._kinds.get(call.key)
        if kind is None:
            kind = Kind(str(call.signature), 1 + EAGER_RUNS if self._learns() else 2)
            gone = self._kinds.put(call.key, kind)
            for graph in gone.graphs if gone is not None else []:
                graph.close()
        return kind

    def _fitting(self, kind: Kind, call: Call, taken: Optional[StepGraph]) -> Tuple[Optional[StepGraph], bool]:
        """The graph that fits the present state, and whether its gradients are still referenced. Undoes the begun part of another
        graph, or of one that cannot continue."""
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
        """Drops all graphs where the state has changed since their capture."""
        why = self._guard.difference() if self._guard is not None else None
        if why is None:
            return
        self._guard = None
        graphs = [graph for kind in self._kinds for graph in kind.graphs]
        self._short_lived = self._short_lived + 1 if sum(graph.calls for graph in graphs) < _SHORT_LIFE else 0
        for kind in self._kinds:
            for graph in kind.graphs:
                graph.close()
            kind.graphs = []
            kind.eager = 1 if kind.has_run else kind.eager
            if self._short_lived > _MOST_SHORT_LIVED and not kind.is_unsupported:
                kind.mark_unsupported(NimbleError(f"the step's state changes again and again: {why}"))

    def _is_disturbed(self, kind: Kind) -> bool:
        """Whether the state has changed since the last eager run, so that this run says nothing about the coming capture and
        another is needed. After several of them False: the graph will soon turn out stale."""
        left, kind.left = kind.left, None
        if left is None or left.difference_of_step() is None:
            kind.disturbed = 0
            return False
        kind.disturbed += 1
        kind.eager = 1 if kind.disturbed <= _MOST_DISTURBED else 0
        return kind.eager > 0

    def _run(self, call: Call, kind: Kind) -> Any:
        """Eagerly, as a real step to learn from. One that raises does not count."""
        learns = kind.has_run and self._learns()
        inputs = self._closure_inputs()
        if any(is_lazy(t) for m in inputs.modules for t in (*m.parameters(), *m.buffers())):  # unknown until it has memory
            return self._outputs(call.args, call.kwargs)
        state = StepState(inputs, self._backend.device_type)
        observed = EagerRun(call, state, self._backend)
        result, rehearsed = self._on_stream(call, learns, state, observed.before_backward, rehearses=True)
        observed.tell(call, kind, rehearsed)
        if kind.eager == 0:
            with contextlib.suppress(Exception):  # the step has run: state that cannot be inspected raises at the next call, before its run
                kind.left = StepGuard(self._new_state())
        return result

    def _run_instead(self, call: Call, kind: Kind, error: NimbleError) -> Any:
        """Called where the function has raised within a capture: most likely it raises eagerly, too. If not, there is no graph."""
        kind.eager = 1
        result = self._run(call, kind)
        kind.mark_unsupported(error)
        return result

    def _on_stream(self, call: Call, learns: bool, state: StepState, before_backward: Callable[[], None] = lambda: None,
                   rehearses: bool = False) -> Tuple[Any, Rehearsed]:
        """Runs eagerly on the stream of the captures, so that autograd's accumulators belong to that stream. Also returns what a capture
        would have seen, if it rehearses."""
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
                                 and id(t) not in known for part in strided_parts(t)])
        return result, rehearsed

    def _outputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        before, _running.now = _running.now, True
        self._has_begun = True
        try:
            return _without_history(self.function(*args, **kwargs))
        finally:
            _running.now = before

    def _new_state(self) -> StepState:
        return StepState(self._closure_inputs(), self._backend.device_type)

    def _closure_inputs(self) -> ClosureInputs:
        inputs = find(self.function, *self._given, known=self._names)
        self._names = inputs.names
        if not inputs.modules and not inputs.optimizers:
            raise NimbleError("no module or optimizer is found among the step's references: pass modules=[...] and "
                              "optimizers=[...]")
        check_step(inputs.modules)
        return inputs

    def _capture(self, call: Call, kind: Kind) -> StepGraph:
        """If it fails, it changes nothing."""
        kind.check_capturable()
        if len(kind.graphs) >= _MOST_VARIANTS:
            self._make_room(kind)
        state = self._guard.state if self._guard is not None else self._new_state()
        capture = StepCapture(call, kind, state, self._backend, self._options, self._outputs_of_capture)
        try:
            graph = capture.run(self._stream)
        except NimbleError as error:
            if not isinstance(error, OfTheFunction):
                kind.mark_unsupported(error)
            raise
        kind.graphs.append(graph)
        self._guard = capture.guard
        return graph

    def _outputs_of_capture(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        try:
            return self._outputs(args, kwargs)
        finally:
            self._has_begun = False  # nothing has run

    def _make_room(self, kind: Kind) -> None:
        """Drops the oldest graph, to make room for one that begins with other gradients."""
        gone = kind.graphs.pop(0)
        gone.close()
        self._short_lived = self._short_lived + 1 if gone.calls < _SHORT_LIFE else 0
        if self._short_lived > _MOST_SHORT_LIVED:
            kind.mark_unsupported(NimbleError("each call comes with other tensors for gradients (p.grad): clear them by zero_grad(), or "
                                    "keep them where they are"))
            kind.check()

    def _warn(self, what: str, text: str, depth: int = 3) -> None:
        """Once. depth: calls up to the program's line."""
        if not self._warned[what]:
            self._warned[what] = True
            warnings.warn(f"nimble: {text}", stacklevel=depth)


def step(function: Callable[..., Any], modules: Iterable[torch.nn.Module] = (),
         optimizers: Iterable[torch.optim.Optimizer] = (), *, use_multi_stream: bool = True, relaxed: bool = False,
         fallback: bool = False, max_graphs: int = 8, backend: Optional[Backend] = None) -> Step:
    """Returns the function as one that runs as one graph once it has run a few times: a training step, or a part of one, as in

        def train(images, labels):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        train = nimble.step(train, modules=[model], optimizers=[optimizer])

    Its arguments are as for Nimble. What it returns has no autograd history. p.grad is then the gradient that the function leaves,
    in memory that the next call overwrites.

    modules, optimizers: those that the step works with, besides those that are found in its closure, in globals that it names, and in
    attributes of its object. Where one of them changes, or a value found this way, it runs eagerly once and is captured again.
    fallback: what cannot be captured runs eagerly, with one warning; else it raises NimbleError, and nothing has changed.
    use_multi_stream, relaxed: as for Nimble.prepare. max_graphs: for how many kinds of arguments graphs are kept.

    Raises NotLoadedError where libnimble.so does not rewrite graphs in this process. Calls may come from any thread, one at a time."""
    return Step(function, modules, optimizers, Options(use_multi_stream, relaxed), fallback, max_graphs, backend)


def _without_history(outputs: Any) -> Any:
    return _pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None else leaf,
                            outputs)
