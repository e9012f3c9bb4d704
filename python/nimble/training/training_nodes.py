"""Autograd's nodes of a replayed forward, between its outputs and the tensors that get gradients.

One node is enough where all outputs lead to the same tensors. Else autograd has to see which output leads where: it runs the hooks of
all that a backward can reach, even where no gradient arrives. So there is a node for each set of outputs that lead to
the same tensors (_Outputs), which notes arriving gradients, and after these one for each set of tensors that the same
outputs lead to (_Towards). Autograd runs one of the latter when all nodes that lead to it have run, and the first that
runs replays the graph for all of them.

A Run belongs to one forward; autograd's number of each pass over it distinguishes the passes."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, Optional, Protocol, Sequence, Tuple

import torch

from nimble.guards.signatures import Call

Gradients = Sequence[Optional[torch.Tensor]]


class Run:
    """A replayed forward whose backward may be outstanding. Lives as long as its autograd nodes."""

    __slots__ = ("number", "is_over", "ran", "versions", "call", "call_versions", "outputs", "passes", "__weakref__")

    def __init__(self) -> None:
        self.call: Optional[Call] = None  # if it may have to run again
        self.call_versions: List[int] = []
        self.number = 0
        self.is_over = False  # its backwards have run, and cannot run again
        self.ran: "Dict[int, int]" = {}  # the backwards that have run
        self.versions: List[int] = []
        self.outputs = 0  # which gradients may arrive for
        self.passes: "Dict[int, _Pass]" = {}


class Differentiated(Protocol):
    """The interface for the nodes: takes gradients of all outputs, and returns those of all tensors."""

    def gradients(self, run: Run, grads: Gradients) -> "List[Optional[torch.Tensor]]": ...


class Paths:
    """The nodes of a graph. reachable: for each output the numbers of the tensors that it leads to."""

    def __init__(self, reachable: "List[FrozenSet[int]]") -> None:
        self.count = len(reachable)
        kinds = list(dict.fromkeys(reachable))
        leading: "Dict[FrozenSet[int], List[int]]" = {}
        for number in sorted(frozenset().union(*kinds)):
            leading.setdefault(frozenset(i for i, kind in enumerate(kinds) if number in kind), []).append(number)
        self.towards = list(leading.values())
        self.outputs = [([number for number, each in enumerate(reachable) if each == kind],
                         [place for place, which in enumerate(leading) if i in which]) for i, kind in enumerate(kinds)]
        """For each set its outputs, and which of `towards` they lead to."""

    def connect(self, graph: Differentiated, run: Run, made: "List[torch.Tensor]",
                towards: "List[torch.Tensor]") -> "List[torch.Tensor]":
        """The outputs `made`, with an autograd history."""
        run.outputs = self.count
        if len(self.outputs) == 1:
            return list(_apply(_Replay, graph, run, made, towards))
        device = made[0].device
        next_nodes = [_Towards.apply(graph, run, numbers, device, *(towards[each] for each in numbers))  # type: ignore[no-untyped-call]
                  for numbers in self.towards]
        connected: List[Any] = [None] * self.count
        for numbers, places in self.outputs:
            some = _Outputs.apply(run, numbers, [made[number] for number in numbers],  # type: ignore[no-untyped-call]
                                  *(next_nodes[place] for place in places))
            for number, output in zip(numbers, some):
                connected[number] = output
        return connected


def _apply(function: "type[torch.autograd.Function]", graph: Differentiated, run: Run, made: "List[torch.Tensor]",
           towards: "List[torch.Tensor]") -> Any:
    """function.apply() without its look at each argument in Python (3 us for ten, PyTorch 2.11)."""
    if _unwrap is None or torch._C._are_functorch_transforms_active():
        return function.apply(graph, run, made, *towards)  # type: ignore[no-untyped-call]
    own: Any = super(torch.autograd.Function, function)
    return own.apply(graph, run, made, *map(_unwrap, towards))


_unwrap: "Optional[Callable[[torch.Tensor], torch.Tensor]]" = (
    getattr(getattr(torch._C, "_functorch", None), "unwrap_if_dead", None)
    if hasattr(torch._C, "_are_functorch_transforms_active") else None)


class _Pass:
    """One backward over a run."""

    def __init__(self, outputs: int) -> None:
        self.given: "List[Optional[torch.Tensor]]" = [None] * outputs  # not used by any graph yet
        self.made: "List[Optional[torch.Tensor]]" = []

    def take(self, numbers: List[int], graph: Differentiated, run: Run) -> "List[Optional[torch.Tensor]]":
        if any(grad is not None for grad in self.given):
            given, self.given = self.given, [None] * len(self.given)
            made = graph.gradients(run, given)
            # A late gradient is added: autograd's order differs where other devices or threads take part.
            self.made = [_sum(one, other) for one, other in zip(self.made, made)] if self.made else made
        if not self.made:
            return [None] * len(numbers)
        taken = [self.made[number] for number in numbers]
        for number in numbers:
            self.made[number] = None  # autograd takes over a tensor without other references
        return taken


def _sum(one: Optional[torch.Tensor], other: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return other if one is None else one if other is None else one + other


# The backward that this thread is in. Releases before 2.0 do not show it: there a backward within another one of the
# same run looks like that one.
this_backward: "Callable[[], int]" = getattr(torch._C, "_current_graph_task_id", lambda: 0)


def _pass_over(run: Run) -> _Pass:
    number = this_backward()
    found = run.passes.get(number)
    if found is None:
        found = run.passes[number] = _Pass(run.outputs)
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: run.passes.pop(number, None))
    return found


class _Replay(torch.autograd.Function):
    """The node of all outputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiated, run: Run, made: "List[torch.Tensor]",
                *_: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.graph, ctx.run = graph, run
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> Any:
        return (None, None, None, *ctx.graph.gradients(ctx.run, grads))


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, numbers: List[int], made: "List[torch.Tensor]",
                *next_nodes: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.run, ctx.numbers, ctx.next_nodes = run, numbers, len(next_nodes)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[torch.Tensor]) -> Any:
        given = _pass_over(ctx.run).given
        for number, grad in zip(ctx.numbers, grads):
            given[number] = grad
        return (None,) * (3 + ctx.next_nodes)


class _Towards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Differentiated, run: Run, numbers: List[int], device: torch.device,
                *_: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.graph, ctx.run, ctx.numbers = graph, run, numbers
        return torch.empty(0, dtype=torch.float32, device=device)

    @staticmethod
    def backward(ctx: Any, _: Optional[torch.Tensor]) -> Any:
        return (None, None, None, None, *_pass_over(ctx.run).take(ctx.numbers, ctx.graph, ctx.run))
