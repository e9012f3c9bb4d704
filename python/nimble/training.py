"""A prepared module that trains: its forward and its backward as graphs, between which autograd sees one function.

The backward is captured from the autograd graph that the forward's capture has made, and reads what replays of the forward leave
in its memory. So there is one forward at a time: until its backward has run, or nobody can ask for it any more, calls are not
served (and run eagerly). What a backward returns is in memory of its own. Gradients of some of the outputs alone take another
path through that autograd graph: the first time eagerly, over the same memory, and by a graph of their own from the next call
on.

A TrainingGraph may be used by any thread, as autograd's are: a lock keeps the replays apart.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
from torch.utils import _pytree

from nimble.auto import switches
from nimble.backend import Backend, Captured, Watch
from nimble.errors import NimbleError
from nimble.gradients import Copies
from nimble.leaves import copy_all, gradients, one_thread, versions
from nimble.nesting import preparing
from nimble.prepared import CHANGED, PreparedGraph, is_same_state, naming_the_place, prepare
from nimble.signatures import Call
from nimble.state import ModuleGuard, StateKeeper
from nimble.static import GraphReport, Options, Results, check_apart, check_attributes, device_of, report, same_bytes
from nimble.training_work import BackwardWork, ForwardWork

_MOST_BACKWARDS = 4  # graphs, each for other outputs that gradients come for

Pattern = Tuple[bool, ...]  # for which of the outputs a gradient comes


class _Run:
    """A forward by replay whose backward may come. Lives as long as autograd's node of it."""

    __slots__ = ("number", "is_over", "versions", "made", "call", "call_versions", "__weakref__")

    def __init__(self) -> None:
        self.call: Optional[Call] = None  # where it may have to run again
        self.call_versions: List[int] = []
        self.number = 0
        self.is_over = False  # its backward has run, and cannot run again
        self.versions: List[int] = []
        self.made: List[torch.Tensor] = []


class _Replay(torch.autograd.Function):
    """Autograd's node: of a TrainingGraph, a run that has begun, and the tensors that gradients go to."""

    @staticmethod
    def forward(ctx: Any, graph: "TrainingGraph", run: _Run, *_: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.graph, ctx.run = graph, run
        return graph.outputs_of(run)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> Any:
        if torch.is_grad_enabled():
            return (None, None, *ctx.graph.differentiable(ctx.run, grads))
        return (None, None, *ctx.graph.backward(ctx.run, grads))


class _Backward:
    """A way from some of the outputs to the gradients: by a graph, or eagerly where there is none."""

    def __init__(self, captured: Optional[Captured] = None, is_final: bool = False) -> None:
        self.captured = captured
        self.is_final = is_final  # no graph is tried any more
        self.copies: Optional[Copies] = None
        self.compared = 0


class TrainingGraph:
    """Made by prepare_training(). `ahead`: the forward writes to nothing but its own memory, so a call launches it first, as with a
    PreparedGraph. Buffers that the module writes to are written when it is known that the graph fits. `draws_on`: the device of whose
    random numbers it draws some."""

    def __init__(self, call: Call, work: ForwardWork, forward: Captured, backward: Captured, guard: ModuleGuard,
                 options: Options, seconds: float, backend: Backend, ahead: Optional[Watch],
                 draws_on: Optional[torch.device]) -> None:
        self.options = options
        self.guard = guard
        self._ahead = ahead
        self._draws_on = draws_on
        self._read = guard.memory() if ahead is not None else []
        # As tensors of their own, since batch norm raises no version of what it writes to.
        self._apart = [mine.data for mine, _ in work.apart], [given.data for _, given in work.apart]
        self.calls = 0
        self.short_lived = 0
        self.static_arguments = call.rebuilt(work.leaves_of_call)
        self._signature = str(call.signature)
        self._backend, self._seconds = backend, seconds
        self._inputs, self._written = work.inputs, work.written
        self._results = Results(forward.outputs, work.inputs, work.own)
        self._wanted = [t.requires_grad for t in self._results.made]
        self._given = work.given
        self._towards = work.towards  # the stand-ins and static inputs; and, of each call, what is in their places:
        self._arguments, self._parameters = work.argument_numbers, work.parameters
        self._watched = work.watched  # what must not be written to between forward and backward
        self._forward = forward
        self._backwards: Dict[Pattern, _Backward] = {tuple(True for _ in self._given): _Backward(backward, True)}
        self._number = 0  # of the last forward
        self._last: "Optional[weakref.ref[_Run]]" = None
        self._lock = threading.RLock()  # where a module's backward runs another's
        self._compare_first = 0
        self._again: "Optional[Callable[[Call], Any]]" = None
        self.difference: Optional[str] = None
        """What differed where a backward was compared; the graph of it is not used any more."""

    @property
    def runs_ahead(self) -> bool:
        return self._ahead is not None

    @property
    def towards(self) -> "Tuple[List[int], List[torch.Tensor]]":
        """What gradients go to: which of a call's leaves, and which parameters."""
        return self._arguments, self._parameters

    def distrust(self, times: int, again: "Callable[[Call], Any]") -> None:
        """For who has not asked for a graph. The first so many backwards of each kind run both ways, by the graph and by autograd
        over the same memory, whose result counts: see `difference`. again(call) runs the module eagerly, for gradients that are
        to be differentiated themselves."""
        self._compare_first, self._again = times, again

    def __call__(self, call: Call, _static_outputs: bool) -> Any:
        """Runs the forward, and returns the outputs, which have autograd's node of the backward. NotImplemented where the forward
        before it is still to have its backward. CHANGED where it runs ahead, and does not fit the module any more."""
        leaves = call.leaves
        self._capture_what_came()
        with self._lock:
            if self._is_awaited():
                return NotImplemented
            ahead = self._ahead
            looks_behind = bool(ahead)  # memory can also be taken from a tensor that is held
            if ahead is not None and not looks_behind and self.guard.difference() is not None:
                return CHANGED
            run = _Run()
            if self._again is not None:
                run.call, run.call_versions = call, versions([leaves[number] for number in call.tensors])
            draws_on = self._draws_on if looks_behind else None
            numbers = self._backend.random_state(draws_on) if draws_on is not None else None
            with torch.no_grad():
                self._begin(call, run)  # the GPU is at work while all else is looked at
                if looks_behind and self.guard.difference() is not None:
                    if draws_on is not None:
                        self._backend.set_random_state(draws_on, numbers)
                    return CHANGED
                self._publish()
            self.calls += 1
            towards = [*(leaves[number] for number in self._arguments), *self._parameters]
            made = list(_Replay.apply(self, run, *towards))  # type: ignore[no-untyped-call]
            self._last = weakref.ref(run)
            others, run.made = run.made, []
        mixed = [made.pop(0) if wanted else others.pop(0) for wanted in self._wanted]
        return self._results.returned(mixed, leaves)

    def is_awaited(self) -> bool:
        """Whether a backward may still come: calls are not served."""
        with self._lock:
            return self._is_awaited()

    def _is_awaited(self) -> bool:
        last = self._last() if self._last is not None else None
        return last is not None and not last.is_over

    def _begin(self, call: Call, run: _Run) -> None:
        """Launches the forward."""
        self._number += 1
        run.number = self._number
        self._forward.follow()
        if self._written:
            check_apart(call, self._inputs, self._written)
        for each in self._inputs:
            each.take(call.leaves[each.number])
        self._forward.replay()
        for each in self._written:
            if call.leaves[each.number] is not each.tensor:
                call.leaves[each.number].copy_(each.tensor)

    def _publish(self) -> None:
        """Behind _begin(), where the module fits: its buffers become what the forward has made of them."""
        if self._apart[0]:
            copy_all(self._apart[1], self._apart[0])

    def outputs_of(self, run: _Run) -> Tuple[torch.Tensor, ...]:
        """Of _Replay, behind _begin()."""
        run.versions = versions(self._watched)
        made = [each.detach().clone() for each in self._results.made]
        run.made = [each for each, wanted in zip(made, self._wanted) if not wanted]
        return tuple(each for each, wanted in zip(made, self._wanted) if wanted)

    def backward(self, run: _Run, grads: "Tuple[Optional[torch.Tensor], ...]") -> "List[Optional[torch.Tensor]]":
        """Of _Replay."""
        pattern = tuple(grad is not None for grad in grads)
        if not any(pattern):
            return [None] * len(self._towards)
        with self._lock:
            if run.number != self._number:
                raise NimbleError("the graph of this forward has run another one since, so that what this backward needs is "
                                  "gone: run all backwards of a forward before the next forward")
            if run.versions != versions(self._watched):
                raise NimbleError("a parameter or buffer that this backward needs was written to since its forward")
            result = self._backward(pattern, grads)
            run.is_over = not graph_is_kept()
        return result

    def _backward(self, pattern: Pattern, grads: "Tuple[Optional[torch.Tensor], ...]",
                  is_compared: bool = False) -> "List[Optional[torch.Tensor]]":
        """Of the last forward."""
        self._forward.follow()
        for static, grad in zip(self._given, grads):
            if grad is not None:
                static.copy_(grad)
        way = self._backwards.setdefault(pattern, _Backward())
        if way.captured is None:
            return self._eager_backward(way, pattern)
        way.captured.replay()
        result = self._copied(way, way.captured.outputs)
        if way.compared < self._compare_first and not is_compared:
            way.compared += 1
            eager = self._eager_backward(way, pattern)
            self.difference = self.difference or differing_gradient(result, eager)
            if self.difference is not None:
                way.captured = None
            return eager
        return result

    def _eager_backward(self, way: _Backward, pattern: Pattern) -> "List[Optional[torch.Tensor]]":
        with self._forward.beside():
            made = self._run_backward(pattern)
        result = self._copied(way, made)
        with self._forward.beside():  # their memory goes on that stream, behind the copies
            del made
        return result

    def run_by_itself(self, call: Call, given: "List[torch.Tensor]") -> "List[Optional[torch.Tensor]]":
        """A forward, and the gradients that come of these, one for each output that wants some: for nobody's autograd. Not while
        a backward is to come."""
        with self._lock, torch.no_grad():
            self._begin(call, _Run())
            self._publish()
            return self._backward(tuple(True for _ in given), tuple(given), is_compared=True)

    def differentiable(self, run: _Run, grads: "Tuple[Optional[torch.Tensor], ...]") -> "List[Optional[torch.Tensor]]":
        """The gradients, with a history: the module runs again, eagerly, for that."""
        call = run.call
        if self._again is None or call is None:
            raise NimbleError("a graph's backward cannot be differentiated itself (create_graph=True): run the module eagerly "
                              "for that")
        tensors = [call.leaves[number] for number in call.tensors]
        if run.versions != versions(self._watched) or run.call_versions != versions(tensors):
            raise NimbleError("an argument, a parameter or a buffer was written to since the forward whose gradients are to be "
                              "differentiated")
        known = {id(t) for t in (*tensors, *self._parameters)}
        outputs = {id(t): t for t in _pytree.tree_flatten(self._again(call))[0]
                   if isinstance(t, torch.Tensor) and t.requires_grad and id(t) not in known}
        before = [t for t, is_wanted in zip(self._results.made, self._wanted) if is_wanted]
        if (run.number != self._number or len(outputs) != len(before)
                or not all(same_bytes(one, other) for one, other in zip(outputs.values(), before))):
            raise NimbleError("gradients are to be differentiated of a forward that cannot be run again as it was")
        used = [(output, grad) for output, grad in zip(outputs.values(), grads) if grad is not None]
        return list(torch.autograd.grad([output for output, _ in used],
                                        [*(call.leaves[number] for number in self._arguments), *self._parameters],
                                        [grad for _, grad in used], create_graph=True, allow_unused=True))

    def _run_backward(self, pattern: Pattern) -> "List[Optional[torch.Tensor]]":
        wanted = [t for t, is_wanted in zip(self._results.made, self._wanted) if is_wanted]
        return gradients(wanted, self._towards, [grad if comes else None for grad, comes in zip(self._given, pattern)])

    def _copied(self, way: _Backward, made: "List[Optional[torch.Tensor]]") -> "List[Optional[torch.Tensor]]":
        if way.copies is None:
            way.copies = Copies(made, [*(None for _ in self._arguments), *self._parameters])
        return way.copies(made)

    def _capture_what_came(self) -> None:
        """A graph for each pattern of gradients that a backward has met without one. Without the lock: who captures may wait for
        this graph, and a backward writes to nothing that anybody reads."""
        if all(way.is_final for way in list(self._backwards.values())):
            return
        for pattern, way in list(self._backwards.items()):
            if way.is_final:
                continue
            way.is_final = True
            if sum(each.captured is not None for each in self._backwards.values()) >= _MOST_BACKWARDS:
                continue
            work = BackwardWork(functools.partial(self._run_backward, pattern), self._given)
            try:
                with torch.no_grad(), one_thread():
                    way.captured = self._backend.capture(work, self._given[0].device, self.options.use_multi_stream,
                                                         self.options.relaxed, self._forward)
            except Exception as error:
                if self._again is None and not isinstance(error, NimbleError):
                    raise  # else eagerly, then

    def forget_module(self) -> None:
        """From now on it holds of the module but its parameters and the buffers that it writes to, and its owner looks whether it
        fits before each call."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        self._read.clear()
        del self.guard

    def close(self) -> None:
        """Waits until the GPU has done with it. Its memory goes when nobody refers to it: a backward to come does."""
        with self._lock:
            if self._ahead is not None:
                self._ahead.close()
            if not self._is_awaited():
                for captured in self._graphs():
                    captured.close()

    def _graphs(self) -> List[Captured]:
        return [self._forward, *(each.captured for each in self._backwards.values() if each.captured is not None)]

    def reports(self) -> List[GraphReport]:
        with self._lock:
            tensors = [*(i.tensor for i in self._inputs), *self._results.made, *self._results.kept]
            forward, *backwards = self._graphs()
            return [report("forward", self._signature, forward.status(), self._seconds, tensors),
                    *(report("backward", self._signature, each.status(), self._seconds, [*self._given, *each.outputs])
                      for each in backwards)]


def prepare_training(module: torch.nn.Module, call: Call, backend: Backend, options: Options,
                     accept: "Callable[[ForwardWork], None]" = lambda _: None) -> "Union[TrainingGraph, PreparedGraph]":
    """As nimble.prepared.prepare, with the backward. A graph without gradients where none can be asked for. accept() is told what
    is about to be captured, and may raise."""
    began = time.perf_counter()
    device = device_of([*module.parameters(), *module.buffers()], call, backend)
    keeper = StateKeeper(module)
    device_random = backend.random_state(device)
    try:
        with preparing(), torch.inference_mode(False), torch.enable_grad(), one_thread():
            work = ForwardWork(module, call, keeper, backend.device_type)
            has_gradients = work.look()
            if has_gradients:
                accept(work)
                keeper.restore()
                backend.set_random_state(device, device_random)
                work.set_apart()
                with naming_the_place(module):
                    forward, backward = backend.capture_training(work, device, options.use_multi_stream, options.relaxed)
                keeper.check_module()
                work.check()
                keeper.check_random(but_torch=backend.draws_on_host)
                check_attributes(work.attributes, module)
                draws = keeper.has_drawn() or not is_same_state(backend.random_state(device), device_random)
                runs_ahead = work.writes_nothing_else() and not switches.has_other_ranks()
    except BaseException:
        keeper.restore_attributes()
        raise
    finally:
        keeper.restore()
        backend.set_random_state(device, device_random)
    if not has_gradients:
        return prepare(module, call, backend, options)
    guard = ModuleGuard(module, backend.device_type, trains=True)
    ahead = backend.watch(guard.memory()) if runs_ahead else None
    return TrainingGraph(call, work, forward, backward, guard, options, time.perf_counter() - began, backend, ahead,
                         device if draws else None)


def differing_gradient(ours: "List[Optional[torch.Tensor]]", theirs: "List[Optional[torch.Tensor]]") -> Optional[str]:
    """Which is another one, to the bit, or is there in one of them alone; None where none is."""
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if (one is None) != (other is None) or one is not None and other is not None and not same_bytes(one, other):
            return f"gradient {number} differs"
    return None


def graph_is_kept() -> bool:
    """Whether the backward that runs was asked to leave autograd's graph as it is, so that it may run again. Not known in old
    releases, where a backward that comes too late raises."""
    ask = getattr(getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None)
    return bool(ask()) if ask is not None else False
