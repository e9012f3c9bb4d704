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
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch
from torch.utils import _pytree

from nimble.auto import switches
from nimble.backend import EAGER_RUNS, Backend, Captured, Part
from nimble.capture import CudaCapture
from nimble.errors import CaptureError, NimbleError
from nimble.leaves import copy_all, mark_written, one_thread, versions
from nimble.parts import Ahead, InParts, alive_now, at_first_backward, can_be_kept, is_worth_it
from nimble.prepared import naming_the_place
from nimble.reach import Reached, find
from nimble.signatures import Call, GraphCache
from nimble.state import is_same
from nimble.static import GraphReport, Input, Options, Results, check_apart, check_outputs, device_of, report, with_inputs
from nimble.step_state import Grads, Look, StepState, check_unchanged

_SHORT_LIFE = 8  # calls, below which a graph was hardly worth its capture
_MOST_SHORT_LIVED = 3  # of these in a row
_MOST_VARIANTS = 4  # graphs for one kind of call, by what there are for gradients when it comes


class _Running(threading.local):
    """Whether this thread runs a step's function, to look at it or to capture it."""

    now = False


_running = _Running()


def is_running() -> bool:
    """Whether this thread is within a step, which has no room for other graphs."""
    return _running.now


class _Graph:
    """One captured step."""

    def __init__(self, call: Call, inputs: List[Input], kind: "_Kind", captured: Captured, grads: Grads, state: StepState,
                 seconds: float, ahead: Optional[Ahead]) -> None:
        self.calls = 0
        self.grads = grads
        self._ahead = ahead
        self._signature, self._seconds = str(call.signature), seconds
        self._inputs = inputs
        self._written = [i for i in inputs if i.number in kind.written]
        self._versions = kind.versions
        outputs, _, self._scalers = captured.outputs
        own = [*state.parameters, *state.buffers]
        self._results = Results(outputs, inputs, zip(own, own))
        self._captured = captured  # the last, and so is the last to go
        weakref.finalize(self, grads.leave)

    def take(self, call: Call) -> None:
        """The arguments, into its own memory. Nothing else is written."""
        self._captured.follow()
        with torch.no_grad():
            for each in self._inputs:
                each.take(call.leaves[each.number])

    def begin(self) -> None:
        """As much of a call as can be taken back, where the GPU would only wait. Behind take()."""
        if self._ahead is not None:
            self._ahead.begin()

    def take_back(self) -> None:
        """The call is not one for this graph. All is then as if it had not begun."""
        if self._ahead is not None:
            self._ahead.take_back()

    def __call__(self, call: Call) -> Any:
        """Of a call whose arguments it has taken, and which may have begun."""
        self.calls += 1
        if self._written:
            check_apart(call, self._inputs, self._written)
        with torch.no_grad():
            if self._ahead is not None and self._ahead.has_begun:
                self._ahead.finish()
            else:
                self._captured.replay()
            for each in self._written:
                call.leaves[each.number].copy_(each.tensor)
            made = [each.clone() for each in self._results.made]
        self.grads.put()
        for scaler, states in self._scalers:
            scaler._per_optimizer_states.clear()
            scaler._per_optimizer_states.update({key: dict(value) for key, value in states.items()})
        mark_written(self._versions)  # a backward of before would not find what it has saved
        return self._results.returned(made, call.leaves)

    def close(self) -> None:
        """It is dropped then. What has begun of it may still be taken back."""
        self._captured.close()
        if self._ahead is not None:
            self._ahead.close()

    def report(self) -> GraphReport:
        tensors = [*(i.tensor for i in self._inputs), *self._results.made]
        return report("step", self._signature, self._captured.status(), self._seconds, tensors)


class _Kind:
    """Calls of one signature."""

    def __init__(self, eager: int) -> None:
        self.eager = eager  # calls that are still to run eagerly
        self.has_run = False
        self.written: Set[int] = set()  # arguments that it writes to, by the number of the leaf
        self.buffers: List[torch.Tensor] = []  # those that it was seen to write to
        self.versions: List[torch.Tensor] = []  # what else it writes to in a way that autograd sees
        self.graphs: List[_Graph] = []  # the least recently used first
        self.why: Optional[NimbleError] = None  # there is no graph, and none is tried


class _Work:
    """nimble.backend.RecordedWork of a step. `buffers`: those that its first part may write to, and copies before."""

    def __init__(self, run: Callable[[], Any], state: StepState, buffers: List[torch.Tensor], device_type: str) -> None:
        self._run, self._state, self._device_type = run, state, device_type
        self.put_back = state.keep()
        self.keeps = [(buffer, torch.empty_like(buffer)) for buffer in buffers]

    def run(self, part: Optional[Part]) -> Any:
        if part is None:
            return self._run()

        grads = [p.grad for p in self._state.parameters]

        def switch() -> None:
            # Gradients of its own would lie where somebody may still look at those of the step before.
            has_own = any(p.grad is not None and p.grad is not grad for p, grad in zip(self._state.parameters, grads))
            alive = None if has_own else alive_now(self._device_type)
            if alive is not None:
                part(alive)

        copy_all([copy for _, copy in self.keeps], [buffer for buffer, _ in self.keeps])
        with at_first_backward(switch):
            return self._run()

    def may_write(self) -> List[torch.Tensor]:
        return [tensor for pair in self.keeps for tensor in pair]

    def tensors(self) -> List[torch.Tensor]:
        return [*self._state.tensors(), *(copy for _, copy in self.keeps)]


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
        self._kinds: "GraphCache[_Kind]" = GraphCache(max_graphs)
        self._state: Optional[StepState] = None  # that all graphs were captured with
        self._seen: Look = ()
        self._short_lived = 0
        self._stream: Any = None
        self._warned = {"eager": False, "held": False}
        self._lock = threading.RLock()
        self._backend.check()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, without a history of gradients."""
        with self._lock:
            try:
                call = Call(args, kwargs, False, torch.is_grad_enabled())
                if call.signature.grad:
                    raise NimbleError("an argument requires gradients, which a step would not give to it")
                kind = self._kind_of(call)
                taken = kind.graphs[-1] if kind.graphs else None
                if taken is not None:  # most likely it is the one: the GPU is at work while the host looks
                    taken.take(call)
                    taken.begin()
                graph, is_held = self._fitting(kind, taken)
                if graph is not taken:
                    taken = None  # and its memory goes before other memory is needed
                if graph is None and kind.eager > 0:
                    return self._run(call, kind)
                if graph is None:
                    graph = self._capture(call, kind)
                    is_held = graph.grads.are_held()
            except NimbleError as error:
                if not self._fallback:
                    raise
                self._warn("eager", f"the step runs eagerly: {error}")
                return _without_history(self.function(*args, **kwargs))
            kind.graphs.append(kind.graphs.pop(kind.graphs.index(graph)))
            if graph is not taken:
                graph.take(call)
            if is_held:
                self._warn("held", "a step runs eagerly, since somebody holds on to the gradients (p.grad) of an earlier one, "
                           "which lie in the graph's memory: keep copies instead")
                return self._on_stream(call, False, StepState(self._reached(), self._backend.device_type))
            return graph(call)

    def report(self) -> List[GraphReport]:
        """What is known of each graph, those of the least recently used kind of call first."""
        with self._lock:
            return [graph.report() for kind in self._kinds for graph in kind.graphs]

    def _kind_of(self, call: Call) -> _Kind:
        kind = self._kinds.get(call.signature)
        if kind is None:
            kind = _Kind(1 + EAGER_RUNS if self._options.use_multi_stream else 2)
            gone = self._kinds.put(call.signature, kind)
            for graph in gone.graphs if gone is not None else []:
                graph.close()
        return kind

    def _fitting(self, kind: _Kind, taken: Optional[_Graph]) -> Tuple[Optional[_Graph], bool]:
        """The graph that fits what there is now, and whether somebody holds its gradients. What has begun of another, or of one that
        cannot go on, is taken back."""
        graph, is_held = None, False
        try:
            self._drop_what_is_stale()
            if kind.why is not None:
                raise kind.why
            graph = next((each for each in reversed(kind.graphs) if each.grads.fit()), None)
            is_held = graph is not None and graph.grads.are_held()
            return graph, is_held
        finally:
            if taken is not None and (graph is not taken or is_held):
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
            kind.eager = 1 if self._options.use_multi_stream and kind.has_run else kind.eager
            if self._short_lived > _MOST_SHORT_LIVED and kind.why is None:
                kind.why = NimbleError(f"what the step works on changes again and again: {why}")

    def _run(self, call: Call, kind: _Kind) -> Any:
        """Eagerly, as a real step that is learned from. Notes what it writes to."""
        kind.eager -= 1
        learns = kind.has_run and self._options.use_multi_stream
        kind.has_run = True
        state = StepState(self._reached(), self._backend.device_type)
        known = [t for t in (*state.parameters, *state.buffers) if not t.is_inference()]
        before = versions(known), [_version(call.leaves[number]) for number in call.tensors]
        buffers = [(buffer, buffer.detach().clone()) for buffer in state.buffers if buffer.device.type == self._backend.device_type]
        result = self._on_stream(call, learns, state)
        seen = set(map(id, kind.buffers))
        kind.buffers += [buffer for buffer, value in buffers if id(buffer) not in seen and not is_same(buffer, value)]
        kind.versions = [t for t, version in zip(known, before[0]) if t._version != version]
        kind.written |= {number for number, version in zip(call.tensors, before[1]) if _version(call.leaves[number]) != version}
        return result

    def _on_stream(self, call: Call, learns: bool, state: StepState) -> Any:
        """Eagerly, on the stream of the captures, so that what autograd keeps for the parameters belongs to that."""
        if self._stream is None:
            self._stream = self._backend.stream(device_of([*state.parameters, *state.buffers], call, self._backend))
        there = state.tensors()
        with one_thread():
            result = self._backend.run(lambda: self._outputs(call.args, call.kwargs), self._stream, learns)
        known = {id(t) for t in (*there, *call.leaves)}
        found = [*(p.grad for p in state.parameters), *_pytree.tree_flatten(result)[0]]
        self._backend.hand_over([t for t in found if isinstance(t, torch.Tensor) and t.device.type == self._backend.device_type
                                 and id(t) not in known])
        return result

    def _outputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        before, _running.now = _running.now, True
        try:
            return _without_history(self.function(*args, **kwargs))
        finally:
            _running.now = before

    def _reached(self) -> Reached:
        reached = find(self.function, *self._given)
        if not reached.modules and not reached.optimizers:
            raise NimbleError("neither a module nor an optimizer is found in what the step refers to: pass modules=[...] and "
                              "optimizers=[...]")
        return reached

    def _capture(self, call: Call, kind: _Kind) -> _Graph:
        """Where it fails, all is as before."""
        began = time.perf_counter()
        if len(kind.graphs) >= _MOST_VARIANTS:
            self._make_room(kind)
        state = self._state if self._state is not None else StepState(self._reached(), self._backend.device_type)
        device = device_of([*state.parameters, *state.buffers], call, self._backend)
        inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        args, kwargs = call.rebuilt(with_inputs(call, inputs))

        def run() -> Any:
            torch.clear_autocast_cache()  # which a graph may not use, and may not leave anything in
            try:
                outputs = self._outputs(args, kwargs)
            finally:
                torch.clear_autocast_cache()
            return outputs, [p.grad for p in state.parameters], state.scaling()

        before, random_before = state.look(), state.host_random()
        uses = [(graph, graph.grads.uses()) for each in self._kinds for graph in each.graphs]
        grads_before = [p.grad for p in state.parameters]
        own = [buffer for buffer in state.buffers if any(buffer is each for each in kind.buffers)]
        in_parts = (self._options.use_multi_stream and is_worth_it(state.parameters) and not kind.written and can_be_kept(own)
                    and not switches.has_other_ranks())
        work = _Work(run, state, own if in_parts else [], self._backend.device_type)
        try:
            with torch.inference_mode(False), one_thread(), _explaining(state):
                graphs = self._backend.record(work, self._stream, self._options.use_multi_stream, self._options.relaxed, in_parts)
            captured = InParts(*graphs) if len(graphs) > 1 else graphs[0]
            check_unchanged(state, before, None if self._backend.draws_on_host else random_before)
            check_outputs(captured.outputs[0], self._backend.device_type)
        except BaseException as error:
            work.put_back()
            if isinstance(error, NimbleError):
                kind.why = error
            raise
        for parameter, grad in zip(state.parameters, grads_before):
            parameter.grad = grad
        grads = Grads(state.parameters, grads_before, captured.outputs[1])
        for each, count in uses:
            each.grads.count_again(count)
        ahead = Ahead(captured, work.keeps, state.memory(), self._backend, device) if isinstance(captured, InParts) else None
        graph = _Graph(call, inputs, kind, captured, grads, state, time.perf_counter() - began, ahead)
        kind.graphs.append(graph)
        self._state, self._seen = state, before
        return graph

    def _make_room(self, kind: _Kind) -> None:
        """For a graph with other gradients to begin with."""
        gone = kind.graphs.pop(0)
        gone.close()
        self._short_lived = self._short_lived + 1 if gone.calls < _SHORT_LIFE else 0
        if self._short_lived > _MOST_SHORT_LIVED:
            kind.why = NimbleError("each call comes with other tensors for gradients (p.grad): clear them by zero_grad(), or "
                                   "keep them where they are")
            raise kind.why

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


@contextlib.contextmanager
def _explaining(state: StepState) -> Iterator[None]:
    """Errors of a capture say where, and what to do about optimizers that keep count on the host."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_naming_the_optimizer(state))
        for module in state.modules:
            stack.enter_context(naming_the_place(module))
        yield


@contextlib.contextmanager
def _naming_the_optimizer(state: StepState) -> Iterator[None]:
    try:
        yield
    except CaptureError as error:
        names = sorted({type(o).__name__ for o in state.optimizers if any(g.get("capturable") is False for g in o.param_groups)})
        if "capturable" in error.reason and names:
            raise NimbleError(f"{', '.join(names)} counts its steps on the host, which a graph would not do: make it with "
                              "capturable=True") from error
        if "legacy stream" in error.reason:
            raise NimbleError(f"{error}. Something still holds on to autograd's graph of an earlier run, an old loss perhaps: "
                              "let go of it before the step runs for the first time") from error
        raise


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _without_history(outputs: Any) -> Any:
    return _pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None else leaf,
                            outputs)
