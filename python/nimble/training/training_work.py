"""A module that trains as work to capture (nimble.capture.backend): a forward with autograd's graph, and its backward.

It belongs to one preparation, and one thread. look() runs the module once and finds out which gradients there are."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import AutogradGraph, StandIns, gradients, own_autocast_cache
from nimble.graphs.differences import same_bytes
from nimble.capture.eager_answers import Answers
from nimble.graphs.effects import Effects, VersionRises
from nimble.graphs.first_replay import COMPARED_RUN, ComparedRun, RunResult
from nimble.graphs.graph_io import Input, Results, attributes_of, check_outputs, with_inputs
from nimble.graphs.module_work import check_caches, written_by
from nimble.graphs.prepared import is_same_state
from nimble.guards.op_watch import OpReads, tensors_in
from nimble.guards.signatures import Call, taken_apart
from nimble.guards.state_keeper import StateKeeper
from nimble.guards.tensor_memory import has_memory
from nimble.objects.memory import storage_address
from nimble.training.gradient_paths import GradientPaths
from nimble.training.run_watch import RunWatch


class ComparedRuns:
    """Counts runs, and keeps what the run has left that graphs are compared with, if they are."""

    def __init__(self, is_compared: bool) -> None:
        self.eager: Optional[ComparedRun] = None
        self._is_compared = is_compared
        self._random: Any = None  # before the last run
        self._number: Optional[int] = None  # of the last run that counts

    def count(self) -> None:
        """From now on."""
        self._number = 0

    def begin(self, random_state: Callable[[], Any]) -> None:
        self._random = random_state() if self._is_compared else None

    def end(self, left: Callable[[], RunResult]) -> None:
        if self._number is None:
            return
        self._number += 1
        if self._is_compared and self._number == COMPARED_RUN:
            self.eager = ComparedRun(self._random, left().keep())


class ForwardWork:
    """The forward and backward of a module for one call (nimble.capture.backend.TrainingWork)."""

    def __init__(self, module: torch.nn.Module, call: Call, keeper: StateKeeper, device_type: str,
                 random_state: Callable[[], Any], is_compared: bool, answers: Answers) -> None:
        self._module, self._call, self._keeper, self._device_type = module, call, keeper, device_type
        self._random_state = random_state
        self._stand_ins = StandIns(module)
        self.inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        self.leaves_of_call = with_inputs(call, self.inputs)
        self.own: List[Tuple[torch.Tensor, torch.Tensor]] = self._stand_ins.pairs
        self.written: List[Input] = []
        self.attributes: Dict[str, torch.Tensor] = {}
        self.paths = GradientPaths()
        self.watch = RunWatch(keeper, device_type, answers)
        self.runs = ComparedRuns(is_compared)
        """Of forward and backward, since set_apart()."""
        self.has_effects = False
        """Whether the backward was seen to do more than compute gradients: it writes to something, or draws random numbers."""
        self._first: List[torch.Tensor] = []  # the outputs of look()
        self._written_by_backwards: Set[int] = set()  # where the memory begins that backwards may write to
        self._versions = [i.tensor._version for i in self.inputs]

    def look(self) -> bool:
        """Runs the module once. Returns False where there are no gradients."""
        try:
            outputs = self.watch.look(self.forward, self._begin_again)
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
        graph = self.paths.find(Results(outputs, self.inputs, self.own), wanted, self.inputs, self._stand_ins)
        self._first = self._left_by(outputs)
        if wanted:
            self._look_at_backward(wanted, graph)
        del outputs, graph, wanted  # else this stream's accumulators would be used on others
        self.reset()
        return bool(self.paths.given)

    def _begin_again(self) -> None:
        self._keeper.restore()
        for each in self.inputs:
            each.take(self._call.leaves[each.number])

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
            self.paths.why_unsure = self.paths.why_unsure or "its backward writes to buffers or the like, or draws random numbers"
        written += [t for t in graph.kept_by_functions() if t.layout is torch.strided and has_memory(t)]
        self._written_by_backwards = set(map(storage_address, written))

    def _gradients(self, wanted: List[torch.Tensor]) -> "List[Optional[torch.Tensor]]":
        def backward() -> "List[Optional[torch.Tensor]]":
            torch.clear_autocast_cache()
            return gradients(wanted, self.paths.towards, list(self.paths.given))

        try:
            return self.watch.look_at_backward(wanted, backward)
        except NimbleError:
            raise
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
        self.runs.count()
        self.paths.leave_out([given for _, given in self.apart])

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

    def check(self) -> None:
        """Called after look(), and after the capture. Raises NimbleError where a run did what a graph would not."""
        self.watch.captures = False
        self._stand_ins.check()
        check_caches(self.watch.found_elsewhere)

    def forward(self) -> Any:
        args, kwargs = self._call.rebuilt(self.leaves_of_call)  # with lists and dictionaries of their own
        leaves, structure = taken_apart((args, kwargs))
        rises = self.watch.rises(self._standing())
        if not self.watch.captures:
            self.runs.begin(self._random_state)
        with own_autocast_cache(), self._stand_ins.in_place(), self.watch.on(self._known, again=True):
            outputs = self._module(*args, **kwargs)
        if self.watch.captures:
            self.watch.raised = rises.found()
        left, structure_left = taken_apart((args, kwargs))
        if structure != structure_left or any(one is not other for one, other in zip(leaves, left)):
            raise NimbleError("the module puts something else into a list or a dictionary that is its argument, which a graph would "
                              "not do")
        self.watch.hold(outputs)
        return outputs

    def backward(self, outputs: Any) -> "List[Optional[torch.Tensor]]":
        rises = self.watch.rises(self._standing())
        with own_autocast_cache(), self.watch.on(self._known):
            made = gradients(self._wanted(outputs), self.paths.towards, list(self.paths.given))
        if self.watch.captures:
            self.watch.raised_by_backwards = rises.found()
        self.watch.hold((made, outputs))
        if not self.watch.captures:
            self.runs.end(lambda: self.left_by(outputs, made))
        return made

    def left_by(self, outputs: Any, made: "Sequence[Optional[torch.Tensor]]") -> RunResult:
        """What a forward with these outputs has left, and its backward with these gradients. Called before reset()."""
        results = Results(outputs, self.inputs, self.own)
        written = set(map(id, self._keeper.written()))
        left: "List[Tuple[Callable[[], str], Optional[torch.Tensor]]]" = [
            (functools.partial(self._keeper.name_of, given), mine) for mine, given in self._standing() if id(given) in written]
        left += [(functools.partial(self._call.place, each.number), each.tensor) for each in self.written]
        names = [*(functools.partial(self._call.place, number) for number in self.paths.argument_numbers),
                 *(functools.partial(self._keeper.name_of, given) for given in self.paths.parameters)]
        left += [(functools.partial(_gradient_of, name), gradient) for name, gradient in zip(names, made)]
        return RunResult(results.returned(results.copied(), self._call.leaves), left)

    def _standing(self) -> "List[Tuple[torch.Tensor, torch.Tensor]]":
        return [(mine, given) for mine, given in self.own if not isinstance(given, torch.nn.Parameter)]

    def _known(self) -> List[torch.Tensor]:
        return [*self.data(), *(mine for mine, _ in self.own)]

    def reset(self) -> None:
        self._keeper.restore_buffers()
        for each in self.written:
            each.take(self._call.leaves[each.number])

    def before_capture(self) -> None:
        self.attributes = attributes_of(self._module)
        self.watch.captures = True

    def data(self) -> List[torch.Tensor]:
        return [*(each.memory for each in self.inputs), *self.paths.given]


def _gradient_of(name: Callable[[], str]) -> str:
    return f"the gradient of {name()}"


def _are_same(one: List[torch.Tensor], other: List[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(same_bytes, one, other))


class BackwardWork:
    """A backward alone as work to capture. It writes only to its own memory."""

    def __init__(self, run: "Callable[[], List[Optional[torch.Tensor]]]", given: List[torch.Tensor], reads: Optional[OpReads],
                 is_compared: bool, answers: Answers) -> None:
        self.found_elsewhere: List[Any] = []  # as in the ForwardWork with the `reads`
        self.runs = ComparedRuns(is_compared)
        self.runs.count()
        self._run, self._given, self._reads = run, given, reads
        self._answers, self._captures = answers, False

    def run(self) -> "List[Optional[torch.Tensor]]":
        made = self._looked_at()
        self.runs.end(lambda: self.left_by(made))
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
