"""A module that trains as work to capture (nimble.graphs.backend): a forward with autograd's graph, and its backward.

It belongs to one preparation, and one thread. look() runs the module once and finds out which gradients there are."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import AutogradGraph, StandIns, gradients, own_autocast_cache
from nimble.graphs.differences import same_bytes
from nimble.graphs.eager_answers import Answers
from nimble.graphs.effects import Effects, VersionRises
from nimble.graphs.first_replay import COMPARED_RUN, ComparedRun, RunResult
from nimble.graphs.graph_io import Input, Results, attributes_of, check_outputs, with_inputs
from nimble.graphs.module_work import check_caches, written_by
from nimble.graphs.prepared import is_same_state
from nimble.guards.op_watch import OpReads, OpWrites, tensors_in
from nimble.guards.signatures import Call, taken_apart
from nimble.guards.state_keeper import StateKeeper
from nimble.guards.tensor_memory import has_memory
from nimble.objects.memory import storage_address
from nimble.training.training_outputs import Aliases, find_aliases
from nimble.training.pending_backwards import PendingBackwards


class ForwardWork:
    """The forward and backward of a module for one call (nimble.graphs.backend.TrainingWork)."""

    def __init__(self, module: torch.nn.Module, call: Call, keeper: StateKeeper, device_type: str,
                 random_state: Callable[[], Any], is_compared: bool, answers: Answers) -> None:
        self._module, self._call, self._keeper, self._device_type = module, call, keeper, device_type
        self._random_state, self._is_compared = random_state, is_compared
        self.answers = answers
        self._random: Any = None  # before the last forward, while runs are counted
        self._runs: Optional[int] = None  # of forward and backward, since set_apart()
        self.eager: Optional[ComparedRun] = None
        """The run to compare the graphs with, if they are compared."""
        self._stand_ins = StandIns(module)
        self.inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        self.leaves_of_call = with_inputs(call, self.inputs)
        self.own: List[Tuple[torch.Tensor, torch.Tensor]] = self._stand_ins.pairs
        self.written: List[Input] = []
        self.attributes: Dict[str, torch.Tensor] = {}
        self.towards: List[torch.Tensor] = []  # static inputs and stand-ins that gradients go to
        self.argument_numbers: List[int] = []  # the former's leaves in the call
        self.parameters: List[torch.Tensor] = []  # the latter's originals in the module
        self.watched: List[torch.Tensor] = []  # tensors that backwards need and others can write to, each with its own version
        self.pending = PendingBackwards()
        self.has_effects = False
        """Whether the backward was seen to do more than compute gradients: it writes to something, or draws random numbers."""
        self.raised: List[torch.Tensor] = []  # versions that others see: raised by each forward, and by each backward
        self.raised_by_backwards: List[torch.Tensor] = []
        self.why_unsure: Optional[str] = None  # see AutogradGraph.why_unsure()
        self.given: List[torch.Tensor] = []
        """The gradients of the outputs that backward() starts from."""
        self.reachable: List[FrozenSet[int]] = []
        """For each output with a gradient, which of `towards` it leads to."""
        self.aliases: Aliases = {}
        self.reads: Optional[OpReads] = None
        """The reads of the last captured forward and its backwards; None where ops cannot be watched."""
        self.found_elsewhere: List[Any] = []
        """Storages that these read, and that belong neither to the module nor to them."""
        self._first: List[torch.Tensor] = []  # the outputs of look()
        self._written_by_backwards: Set[int] = set()  # where the memory begins that backwards may write to
        self._writes: Optional[OpWrites] = None
        self._versions = [i.tensor._version for i in self.inputs]
        self._captures, self._sees_ops = False, True

    def look(self) -> bool:
        """Runs the module once. Returns False where there are no gradients."""
        try:
            outputs = self._watched_forward()
        except RuntimeError as error:
            if "leaf Variable that requires grad" in str(error):
                raise NimbleError("the module writes to an argument that requires gradients, or to a parameter, in place: "
                                  f"{error}") from error
            raise
        check_outputs(outputs, self._device_type, [*(mine for mine, _ in self.own), *(each.tensor for each in self.inputs)])
        self.check()
        self._check_inputs()
        self.written = written_by(self.inputs, self._versions, self._call)
        wanted = self._wanted(outputs)
        if any(output.retains_grad for output in wanted):
            raise NimbleError("the module calls retain_grad() on what it returns, which would get no gradient that comes by another "
                              "output: run the module eagerly for that")
        graph, graphs = AutogradGraph(wanted), [AutogradGraph([output]) for output in wanted]
        self._find_leaves(graph, outputs)
        self._find_needed(graphs)
        numbers = {id(tensor): number for number, tensor in enumerate(self.towards)}
        self.reachable = [frozenset(numbers[id(leaf)] for leaf in each.leaves) for each in graphs]
        self.why_unsure = next((why for why in (each.why_unsure() for each in graphs) if why is not None), None)
        self.aliases = find_aliases(Results(outputs, self.inputs, self.own).made)
        self.given = [noise(output) for output in wanted]
        self._first = self._left_by(outputs)
        if wanted:
            self._look_at_backward(wanted, graph)
        del outputs, graph, graphs, wanted  # else this stream's accumulators would be used on others
        self.reset()
        return bool(self.given)

    def _watched_forward(self) -> Any:
        writes = self._writes = self._keeper.watch_writes()
        try:
            with writes.on():
                return self.forward()
        except NotImplementedError:  # from ops that take functions, which hide what these do
            self._sees_ops, writes.has_backward = False, True  # to be safe
        self._keeper.restore()
        for each in self.inputs:
            each.take(self._call.leaves[each.number])
        return self.forward()

    def _look_at_backward(self, wanted: List[torch.Tensor], graph: AutogradGraph) -> None:
        effects, rises = Effects(self._keeper.kept()), VersionRises(self._standing())
        random = self._random_state()
        for grad in self._gradients(wanted):
            if grad is not None and grad.layout is not torch.strided:
                raise NimbleError(f"a gradient has layout {grad.layout}, and a graph cannot tell its size")
        self.check()
        self._check_inputs()
        written = [*effects.written(), *rises.found()]
        self.has_effects = bool(written) or not is_same_state(self._random_state(), random)
        if self.has_effects:
            self.why_unsure = self.why_unsure or "its backward writes to buffers or the like, or draws random numbers"
        written += [t for t in graph.kept_by_functions() if t.layout is torch.strided and has_memory(t)]
        self._written_by_backwards = set(map(storage_address, written))

    def _gradients(self, wanted: List[torch.Tensor]) -> "List[Optional[torch.Tensor]]":
        writes = self._writes
        try:
            torch.clear_autocast_cache()
            if writes is None or not self._sees_ops:
                return gradients(wanted, self.towards, list(self.given))
            writes.is_backward_of(wanted)
            with writes.on():
                return gradients(wanted, self.towards, list(self.given))
        except NimbleError:
            raise
        except NotImplementedError:  # as for forwards
            assert writes is not None
            self._sees_ops, writes.has_backward = False, True
            return self._gradients(wanted)
        except RuntimeError as error:  # a backward that only Tensor.backward() can run
            raise NimbleError(f"torch.autograd.grad cannot compute the gradients: {error}") from error
        finally:
            torch.clear_autocast_cache()

    def look_again(self) -> None:
        """Called after look() where that has changed plain values of attributes, with random numbers as before it: the keeper then sees
        what later runs write to buffers."""
        self.forward()
        self.reset()

    def check_stand_ins(self, begin_again: "Callable[[], None]") -> None:
        """Called after look(). Raises NimbleError where the module treats its own parameters differently from their stand-ins,
        for example because it finds something by their identity. begin_again: restores random numbers and buffers as before
        look()."""
        def left(by_itself: bool) -> List[torch.Tensor]:
            begin_again()
            found = self._left_by(self._forward_with_own_parameters() if by_itself else self.forward())
            self.reset()
            return found

        own, mine = left(True), left(False)
        # If a repetition differs, its kernels are not deterministic.
        if not _are_same(own, mine) and _are_same(own, left(True)) and _are_same(mine, left(False)):
            raise NimbleError("the module behaves differently with tensors that stand in for its parameters while its gradients are "
                              "prepared; perhaps it keeps something by their identity (a dictionary that has them, or their ids, as "
                              "keys; `is`): have it keep names, and compare these")

    def _forward_with_own_parameters(self) -> Any:
        args, kwargs = self._call.rebuilt(self.leaves_of_call)
        with own_autocast_cache(), self._stand_ins.in_place(of_parameters=False):
            return self._module(*args, **kwargs)

    def set_apart(self) -> None:
        """Called after look(), with random numbers as before it. Makes the forward write to its own memory instead of buffers,
        where a run shows that this makes no difference: code may read a buffer in unknown ways."""
        written = self._keeper.written()
        if written and not self.written and self._written_by_backwards.isdisjoint(map(storage_address, written)):
            self._stand_ins.set_apart(written)
        if self.apart:
            if not _are_same(self._left_by(self.forward()), self._first):
                self._stand_ins.put_together()
            self.reset()
        self._first = []
        self._runs = 0
        apart = {id(given) for _, given in self.apart}
        self.watched = [given for given in self.watched if id(given) not in apart]

    def _left_by(self, outputs: Any) -> List[torch.Tensor]:
        """Copies of a forward's results: outputs, and the buffers, which gradients may read."""
        leaves = [leaf for leaf in _pytree.tree_flatten(outputs)[0] if isinstance(leaf, torch.Tensor)]
        return [each.detach().clone() for each in (*leaves, *(mine for mine, _ in self._standing()))]

    @property
    def apart(self) -> "List[Tuple[torch.Tensor, torch.Tensor]]":
        """Memory of the graph that the forward writes to instead of buffers, each with its buffer."""
        return self._stand_ins.apart

    def writes_nothing_else(self) -> bool:
        """Whether no run has written to anything that others see. Called before the keeper restores anything."""
        given = [given for _, given in self.apart]
        return not (self.written or self._stand_ins.has_written() or self._keeper.has_written(but=given))

    def _wanted(self, outputs: Any) -> List[torch.Tensor]:
        return [t for t in Results(outputs, self.inputs, self.own).made if t.requires_grad]

    def _check_inputs(self) -> None:
        for each in self.inputs:
            if each.tensor.grad_fn is not None:
                raise NimbleError(f"the module writes what requires gradients to {self._call.place(each.number)}")
            if each.tensor.grad is not None:
                raise NimbleError(f"the module runs a backward that leaves a gradient at {self._call.place(each.number)} when it "
                                  "runs, which a graph would not do")
        for mine, _ in self.own:
            if mine.grad_fn is not None:
                raise NimbleError("the module writes what requires gradients to a buffer, which then has a history that a graph "
                                  "would not give it")

    def _find_leaves(self, graph: AutogradGraph, outputs: Any) -> None:
        found = {id(leaf) for leaf in graph.leaves}
        inputs = [i for i in self.inputs if id(i.tensor) in found]
        pairs = [(mine, given) for mine, given in self._stand_ins.parameters if id(mine) in found]
        strange = found - {id(i.tensor) for i in inputs} - {id(mine) for mine, _ in pairs}
        strange |= {id(t) for t in self._wanted(outputs) if t.grad_fn is None}
        if strange:
            shapes = ", ".join(str(list(leaf.shape)) for leaf in graph.leaves if id(leaf) in strange)
            raise NimbleError("an output depends on tensors that require gradients, and are neither arguments nor parameters "
                              f"that the module has as such: of shape {shapes or 'that of the output'}")
        self.towards = [i.tensor for i in inputs] + [mine for mine, _ in pairs]
        self.argument_numbers = [i.number for i in inputs]
        self.parameters = [given for _, given in pairs]

    def _find_needed(self, graphs: List[AutogradGraph]) -> None:
        """Finds what the backward of each output needs and others can write to; with static_inputs() also the graph's own inputs."""
        pairs = [*self.own, *((each.tensor, each.tensor) for each in self.inputs)]
        needed = [graph.needs(mine for mine, _ in pairs) for graph in graphs]
        self.watched = [given for number, (_, given) in enumerate(pairs) if any(each[number] for each in needed)]
        self.pending = PendingBackwards(graphs, [frozenset(id(given) for (_, given), is_needed in zip(pairs, each) if is_needed)
                                                 for each in needed])

    def check(self) -> None:
        """Called after look(), and after the capture. Raises NimbleError where a run did what a graph would not."""
        self._captures = False
        self._stand_ins.check()
        check_caches(self.found_elsewhere)

    def forward(self) -> Any:
        args, kwargs = self._call.rebuilt(self.leaves_of_call)  # with lists and dictionaries of their own
        leaves, structure = taken_apart((args, kwargs))
        rises = self._rises()
        self._random = self._random_state() if self._is_compared and not self._captures else None
        with own_autocast_cache(), self._stand_ins.in_place(), self._looking(again=True):
            outputs = self._module(*args, **kwargs)
        if self._captures:
            self.raised = rises.found()
        left, structure_left = taken_apart((args, kwargs))
        if structure != structure_left or any(one is not other for one, other in zip(leaves, left)):
            raise NimbleError("the module puts something else into a list or a dictionary that is its argument, which a graph would "
                              "not do")
        self._hold(outputs)
        return outputs

    def backward(self, outputs: Any) -> "List[Optional[torch.Tensor]]":
        rises = self._rises()
        with own_autocast_cache(), self._looking():
            made = gradients(self._wanted(outputs), self.towards, list(self.given))
        if self._captures:
            self.raised_by_backwards = rises.found()
        self._hold((made, outputs))
        if self._runs is not None and not self._captures:
            self._runs += 1
            if self._is_compared and self._runs == COMPARED_RUN:
                self.eager = ComparedRun(self._random, self.left_by(outputs, made).keep())
        return made

    def left_by(self, outputs: Any, made: "Sequence[Optional[torch.Tensor]]") -> RunResult:
        """What a forward with these outputs has left, and its backward with these gradients. Called before reset()."""
        results = Results(outputs, self.inputs, self.own)
        written = set(map(id, self._keeper.written()))
        left: "List[Tuple[Callable[[], str], Optional[torch.Tensor]]]" = [
            (functools.partial(self._keeper.name_of, given), mine) for mine, given in self._standing() if id(given) in written]
        left += [(functools.partial(self._call.place, each.number), each.tensor) for each in self.written]
        names = [*(functools.partial(self._call.place, number) for number in self.argument_numbers),
                 *(functools.partial(self._keeper.name_of, given) for given in self.parameters)]
        left += [(functools.partial(_gradient_of, name), gradient) for name, gradient in zip(names, made)]
        return RunResult(results.returned(results.copied(), self._call.leaves), left)

    def _standing(self) -> "List[Tuple[torch.Tensor, torch.Tensor]]":
        return [(mine, given) for mine, given in self.own if not isinstance(given, torch.nn.Parameter)]

    def _rises(self) -> VersionRises:
        """The versions to note, in captured runs only: the first run may have written to something only once."""
        return VersionRises([*self._standing(), *((t, t) for t in self._keeper.kept())] if self._captures else ())

    def _looking(self, again: bool = False) -> ContextManager[None]:
        """Watches reads if the run is captured, and gives it the answers. again: for a new forward."""
        if not self._captures:
            return contextlib.nullcontext()
        if not self._sees_ops:
            return self.answers.given(sees_ops=False)
        if again or self.reads is None:
            self.found_elsewhere = []
            known = (*self.data(), *(mine for mine, _ in self.own), *self._keeper.tensors())
            self.reads = OpReads(known, self._device_type)
        return _both(self.reads.on(), self.answers.given(sees_ops=True))

    def _hold(self, made: Any) -> None:
        if self._captures and self.reads is not None:
            self.found_elsewhere += self.reads.still_there(but=tensors_in(made)).values()

    def reset(self) -> None:
        self._keeper.restore_buffers()
        for each in self.written:
            each.take(self._call.leaves[each.number])

    def before_capture(self) -> None:
        self.attributes = attributes_of(self._module)
        self._captures = True

    def data(self) -> List[torch.Tensor]:
        return [*(each.memory for each in self.inputs), *self.given]


@contextlib.contextmanager
def _both(outer: ContextManager[None], inner: ContextManager[None]) -> Iterator[None]:
    with outer, inner:
        yield


def _gradient_of(name: Callable[[], str]) -> str:
    return f"the gradient of {name()}"


def _are_same(one: List[torch.Tensor], other: List[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(same_bytes, one, other))


class BackwardWork:
    """A backward alone as work to capture. It writes only to its own memory."""

    def __init__(self, run: "Callable[[], List[Optional[torch.Tensor]]]", given: List[torch.Tensor], reads: Optional[OpReads],
                 is_compared: bool, answers: Answers) -> None:
        self.found_elsewhere: List[Any] = []  # as in the ForwardWork with the `reads`
        self.eager: Optional[ComparedRun] = None  # likewise
        self._run, self._given, self._reads, self._is_compared, self._runs = run, given, reads, is_compared, 0
        self._answers, self._captures = answers, False

    def run(self) -> "List[Optional[torch.Tensor]]":
        made = self._looked_at()
        self._runs += 1
        if self._is_compared and self._runs == COMPARED_RUN:
            self.eager = ComparedRun(None, self.left_by(made).keep())
        return made

    def left_by(self, made: "Sequence[Optional[torch.Tensor]]") -> RunResult:
        """What a run with these gradients has left."""
        return RunResult(None, [(functools.partial("gradient {}".format, number), each) for number, each in enumerate(made)])

    def _looked_at(self) -> "List[Optional[torch.Tensor]]":
        with contextlib.ExitStack() as stack:
            stack.enter_context(own_autocast_cache())
            if self._reads is not None:
                stack.enter_context(self._reads.on())
            if self._captures:
                stack.enter_context(self._answers.given(self._reads is not None))
            made = self._run()
        if self._reads is None:
            return made
        self.found_elsewhere = [*self._reads.still_there(but=[*tensors_in(made), *self._given]).values()]
        return made

    def reset(self) -> None:
        pass

    def before_capture(self) -> None:
        self._captures = True

    def check(self) -> None:
        """Called after the capture."""
        self._captures = False

    def data(self) -> List[torch.Tensor]:
        return self._given


def noise(like: torch.Tensor) -> torch.Tensor:
    """Random values, all different, so that a kernel's stores of values computed from them show."""
    generator = torch.Generator(like.device).manual_seed(1)
    return torch.empty_like(like).detach().normal_(generator=generator)
