"""A prepared module that trains: its forward and its backward as graphs, between which autograd sees one function.

The backward is captured from the autograd graph that the forward's capture has made, and reads what replays of the forward leave
in its memory. So there is one forward at a time: until its backward has run, or nobody can ask for it any more, calls are not
served (and run eagerly). What a backward returns is in memory of its own. Gradients of some of the outputs alone, or with other
strides, take another path through that autograd graph: the first time eagerly, over the same memory, and by a graph of their own
from the next call on.

A TrainingGraph may be used by any thread, as autograd's are: a lock keeps the replays apart.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple, Union

import torch
from torch.utils import _pytree

from nimble.errors import CaptureError, NimbleError
from nimble.graphs.autograd_leaves import CopiesAll, gradients, mark_written, one_thread
from nimble.graphs.backend import Backend, Captured, Watch
from nimble.graphs.graph_io import GraphReport, Options, Results, Taking, check_apart, check_attributes, device_of, report, same_bytes
from nimble.graphs.prepared import CHANGED, PreparedGraph, is_same_state, naming_the_place, prepare
from nimble.graphs.restore import left_as_it_was
from nimble.guards import switches
from nimble.guards.signatures import Call
from nimble.guards.state import ModuleGuard
from nimble.nesting import one_at_a_time, preparing
from nimble.objects.memory import storage, versions
from nimble.training.backward_ways import Pattern, Way, are_batched, pattern_of
from nimble.training.gradients import Copies
from nimble.training.training_nodes import Gradients, Paths, Run, this_backward
from nimble.training.training_outputs import TrainingOutputs
from nimble.training.training_work import BackwardWork, ForwardWork

_MOST_BACKWARDS = 4  # graphs, each for other outputs that gradients come for, or other strides of these
_MOST_WAYS = 64  # that are remembered
_MANY = 8  # buffers whose copies are worth a graph of their own: PyTorch's launch of one is up to three (seed and offset, to 2.4)


class TrainingGraph:
    """Made by prepare_training(). `ahead`: the forward writes to nothing but its own memory, so a call launches it first, as with a
    PreparedGraph. Buffers that the module writes to are written when it is known that the graph fits. `draws_on`: the device of whose
    random numbers it draws some."""

    def __init__(self, call: Call, work: ForwardWork, forward: Captured, backward: Captured, copies: CopiesAll,
                 copies_back: Optional[Captured], guard: ModuleGuard, options: Options, seconds: float, backend: Backend,
                 ahead: Optional[Watch], draws_on: Optional[torch.device], own_written: FrozenSet[int]) -> None:
        self.options = options
        self.guard = guard
        self._ahead = ahead
        self._draws_on = draws_on
        self._read = guard.memory() if ahead is not None else []
        # To the module's buffers; by one launch, if that can be. The former also keeps the memory on both sides.
        self._to_buffers, self._to_buffers_at_once = copies, copies_back
        self.calls = 0
        self.short_lived = 0
        self.static_arguments = call.rebuilt(work.leaves_of_call)
        self._signature = str(call.signature)
        self._backend, self._seconds = backend, seconds
        self._inputs, self._written = work.inputs, work.written
        self._take = Taking(work.inputs)
        self._own_written = own_written  # where the memory of buffers begins that the module writes to
        self._results = Results(forward.outputs, work.inputs, work.own)
        self._wanted = [t.requires_grad for t in self._results.made]
        self._copies = TrainingOutputs(self._results.made, self._wanted, work.aliases)
        self._paths = Paths(work.reach)
        self._towards = work.towards  # the stand-ins and static inputs; and, of each call, what is in their places:
        self._arguments, self._parameters = work.argument_numbers, work.parameters
        self._watched = work.watched  # what must not be written to between forward and backward
        self._ways, self._has_effects = work.ways, work.has_effects
        self._raised, self._raised_behind = work.raised, work.raised_behind  # versions that eager runs raise
        self._reads, self._also_read = work.reads, work.found_elsewhere  # memory that the module finds outside of itself
        self._forward = forward
        self._backwards: Dict[Pattern, Way] = {pattern_of(work.given): Way(work.given, backward)}
        self._number = 0  # of the last forward
        self._last: "Optional[weakref.ref[Run]]" = None
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
            run = Run()
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
                run.versions = versions(self._watched)
                made = self._copies.made()
            self.calls += 1
            towards = [*(leaves[number] for number in self._arguments), *self._parameters]
            made = self._paths.connect(self, run, made, towards)
            self._last = weakref.ref(run)
            outputs = self._copies.with_others(made)
        return self._results.returned(outputs, leaves)

    def is_awaited(self) -> bool:
        """Whether a backward may still come: calls are not served."""
        with self._lock:
            return self._is_awaited()

    def _is_awaited(self) -> bool:
        last = self._last() if self._last is not None else None
        return last is not None and not last.is_over

    def _begin(self, call: Call, run: Run) -> None:
        """Launches the forward."""
        self._number += 1
        run.number = self._number
        self._forward.follow()
        if self._written or self._own_written:
            check_apart(call, self._inputs, self._written, own_written=self._own_written)
        self._take(call.leaves)
        self._forward.replay()
        for each in self._written:
            if call.leaves[each.number] is not each.tensor:
                call.leaves[each.number].copy_(each.tensor)

    def _publish(self) -> None:
        """Behind _begin(), where the module fits: its buffers become what the forward has made of them."""
        if self._to_buffers_at_once is not None:
            self._to_buffers_at_once.replay()
        else:
            self._to_buffers()
        if self._raised:
            mark_written(self._raised)

    def gradients(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        """Of autograd's nodes."""
        if torch.is_grad_enabled() or (self._again is not None and are_batched(grads)):
            return self._run_again(run, grads)
        return self._replayed(run, grads)

    def _replayed(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        pattern = pattern_of(grads)
        if not any(strides is not None for strides in pattern):
            return [None] * len(self._towards)
        with self._lock:
            if run.number != self._number:
                raise NimbleError("the graph of this forward has run another one since, so that what this backward needs is "
                                  "gone: run all backwards of a forward before the next forward")
            came = [number for number, strides in enumerate(pattern) if strides is not None]
            now = versions(self._watched)
            if run.versions != now and self._ways.has_changed(came, self._watched, run.versions, now):
                raise NimbleError("a parameter, a buffer or one of static_inputs() that this backward needs was written to since its "
                                  "forward")
            task = this_backward()
            if _tells_kept and self._ways.is_second(came, run.ran, task):
                raise NimbleError("a backward comes a second time for an output, whose graph was not kept: give the first one "
                                  "retain_graph=True")
            result = self._backward(pattern, grads)
            if not graph_is_kept():
                run.ran.update(dict.fromkeys(came, task))
                run.is_over = self._ways.is_over(run.ran)
        return result

    def _backward(self, pattern: Pattern, grads: Gradients, is_compared: bool = False) -> "List[Optional[torch.Tensor]]":
        """Of the last forward."""
        made = self._made_backward(pattern, grads, is_compared)
        if self._raised_behind:
            mark_written(self._raised_behind)
        return made

    def _made_backward(self, pattern: Pattern, grads: Gradients, is_compared: bool) -> "List[Optional[torch.Tensor]]":
        self._forward.follow()
        way = self._backwards.get(pattern) or Way()
        if len(self._backwards) < _MOST_WAYS:
            self._backwards[pattern] = way
        if way.captured is None:
            way.meet(grads)
            return self._eager_backward(way, grads)
        way.take(grads)
        way.captured.replay()
        result = self._copied(way, way.captured.outputs)
        if way.compared < self._compare_first and not is_compared:
            way.compared += 1
            eager = self._eager_backward(way, grads)
            self.difference = self.difference or differing_gradient(result, eager)
            if self.difference is not None:
                way.captured = None
            return eager
        return result

    def _eager_backward(self, way: Way, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        with self._forward.beside():
            made = self._run_backward(grads)
        result = self._copied(way, made)
        with self._forward.beside():  # their memory goes on that stream, behind the copies
            del made
        return result

    def run_by_itself(self, call: Call, given: "List[torch.Tensor]") -> "List[Optional[torch.Tensor]]":
        """A forward, and the gradients that come of these, one for each output that wants some: for nobody's autograd. Not while
        a backward is to come."""
        with self._lock, torch.no_grad():
            self._begin(call, Run())
            self._publish()
            return self._backward(pattern_of(given), given, is_compared=True)

    def _run_again(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        """The gradients, with a history where one is kept, or of several backwards at once: the module runs again, eagerly, for that."""
        call = run.call
        if self._again is None or call is None:
            raise NimbleError("a graph's backward cannot be differentiated itself (create_graph=True): run the module eagerly "
                              "for that")
        tensors = [call.leaves[number] for number in call.tensors]
        if run.versions != versions(self._watched) or run.call_versions != versions(tensors):
            raise NimbleError("an argument, a parameter or a buffer was written to since the forward that has to run again for gradients "
                              "with a history, or several at once")
        known = {id(t) for t in (*tensors, *self._parameters)}
        keeps = torch.is_grad_enabled()
        with torch.enable_grad():
            made = self._again(call)
        outputs = {id(t): t for t in _pytree.tree_flatten(made)[0]
                   if isinstance(t, torch.Tensor) and t.requires_grad and id(t) not in known}
        before = [t for t, is_wanted in zip(self._results.made, self._wanted) if is_wanted]
        if (run.number != self._number or len(outputs) != len(before)
                or not all(same_bytes(one, other) for one, other in zip(outputs.values(), before))):
            raise NimbleError("a forward cannot be run again as it was, for gradients with a history, or several at once")
        used = [(output, grad) for output, grad in zip(outputs.values(), grads) if grad is not None]
        return list(torch.autograd.grad([output for output, _ in used],
                                        [*(call.leaves[number] for number in self._arguments), *self._parameters],
                                        [grad for _, grad in used], create_graph=keeps, allow_unused=True))

    def _run_backward(self, grads: Gradients) -> "List[Optional[torch.Tensor]]":
        wanted = [t for t, is_wanted in zip(self._results.made, self._wanted) if is_wanted]
        return gradients(wanted, self._towards, list(grads))

    def _copied(self, way: Way, made: "List[Optional[torch.Tensor]]") -> "List[Optional[torch.Tensor]]":
        if way.copies is None:
            way.copies = Copies(made, [*(None for _ in self._arguments), *self._parameters])
        return way.copies(made)

    def _capture_what_came(self) -> None:
        """A graph for each way of gradients that a backward has gone without one. Without the lock: who captures may wait for
        this graph, and a backward writes to nothing that anybody reads."""
        if all(way.is_final for way in list(self._backwards.values())):
            return
        for way in list(self._backwards.values()):
            if way.is_final or not way.given:
                continue
            # To capture one takes runs, and of what these do beside gradients nothing would be put back.
            if self._has_effects or sum(each.captured is not None for each in list(self._backwards.values())) >= _MOST_BACKWARDS:
                way.forget()
                continue
            way.is_final = True
            memory = way.memory()
            work = BackwardWork(functools.partial(self._run_backward, way.given), memory, self._reads)
            try:
                with preparing(), torch.no_grad(), one_thread():
                    way.captured = self._backend.capture(work, memory[0].device, self.options.use_multi_stream,
                                                         self.options.relaxed, self._forward)
                self._also_read += work.found_elsewhere
            except Exception as error:  # eagerly, then
                if self._again is None and not isinstance(error, NimbleError):
                    warnings.warn(f"nimble: a backward stays without a graph: {type(error).__name__}: {error}", stacklevel=2)

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
                if self._to_buffers_at_once is not None:
                    self._to_buffers_at_once.close()

    def _graphs(self) -> List[Captured]:
        return [self._forward, *(each.captured for each in self._backwards.values() if each.captured is not None)]

    def reports(self) -> List[GraphReport]:
        with self._lock:
            tensors = [*(i.tensor for i in self._inputs), *self._results.made, *self._results.kept]
            return [report("forward", self._signature, self._forward.status(), self._seconds, tensors, self.runs_ahead),
                    *(report("backward", self._signature, way.captured.status(), self._seconds,
                             [*way.memory(), *way.captured.outputs])
                      for way in self._backwards.values() if way.captured is not None)]


@one_at_a_time
def prepare_training(module: torch.nn.Module, call: Call, backend: Backend, options: Options,
                     accept: "Callable[[ForwardWork], None]" = lambda _: None) -> "Union[TrainingGraph, PreparedGraph]":
    """As nimble.graphs.prepared.prepare, with the backward. A graph without gradients where none can be asked for. accept() is told what
    is about to be captured, and may raise."""
    began = time.perf_counter()
    device = device_of([*module.parameters(), *module.buffers()], call, backend)
    with left_as_it_was(module, backend, device) as keeper:
        device_random = backend.random_state(device)
        with preparing(), torch.inference_mode(False), torch.enable_grad(), one_thread():
            work = ForwardWork(module, call, keeper, backend.device_type, lambda: backend.random_state(device))
            has_gradients = work.look()
            if has_gradients:
                accept(work)

                def begin_again() -> None:
                    keeper.restore()
                    backend.set_random_state(device, device_random)

                begin_again()
                if keeper.has_flags():
                    work.look_again()
                work.check_stand_ins(begin_again)
                begin_again()
                work.set_apart()
                with naming_the_place(module):
                    forward, backward = backend.capture_training(work, device, options.use_multi_stream, options.relaxed)
                keeper.check_module()
                work.check()
                keeper.check_random(but_torch=backend.draws_on_host)
                keeper.check_elsewhere(backend.device_type)
                check_attributes(work.attributes, module, work.inputs)
                draws = keeper.has_drawn() or not is_same_state(backend.random_state(device), device_random)
                own_written = frozenset(map(storage, (*(given for _, given in work.apart), *keeper.may_write())))
                runs_ahead = work.writes_nothing_else() and not switches.has_other_ranks()
                # As tensors of their own, since batch norm raises no version of what it writes to.
                copies = CopiesAll([given.data for _, given in work.apart], [mine.data for mine, _ in work.apart])
                copies_back = None
                if len(work.apart) >= _MANY:
                    with contextlib.suppress(CaptureError):  # as where another thread does what spoils a capture
                        copies_back = backend.capture_copies(copies, device, options.relaxed, forward)
    if not has_gradients:
        return prepare(module, call, backend, options)
    guard = ModuleGuard(module, backend.device_type, trains=True)
    ahead = backend.watch(guard.memory()) if runs_ahead else None
    return TrainingGraph(call, work, forward, backward, copies, copies_back, guard, options, time.perf_counter() - began, backend, ahead,
                         device if draws else None, own_written)


def differing_gradient(ours: "List[Optional[torch.Tensor]]", theirs: "List[Optional[torch.Tensor]]") -> Optional[str]:
    """Which is another one, to the bit, or is there in one of them alone; None where none is."""
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if (one is None) != (other is None) or one is not None and other is not None and not same_bytes(one, other):
            return f"gradient {number} differs"
    return None


def graph_is_kept() -> bool:
    """Whether the backward that runs was asked to leave autograd's graph as it is, so that it may run again. Not known in old
    releases, where a backward that comes too late raises."""
    return bool(_ask_kept()) if _tells_kept else False


_ask_kept: Any = getattr(getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None)
_tells_kept = _ask_kept is not None
