"""Which gradients a module's forward has: the outputs from which they start, and where they go."""

from __future__ import annotations

from typing import FrozenSet, List, Optional

import torch

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import AutogradGraph, StandIns
from nimble.graphs.graph_io import Input, Results
from nimble.training.pending_backwards import PendingBackwards
from nimble.training.training_outputs import Aliases, find_aliases


class GradientPaths:
    """Empty until find() has been called, once."""

    def __init__(self) -> None:
        self.towards: List[torch.Tensor] = []  # static inputs and stand-ins that gradients go to
        self.argument_numbers: List[int] = []  # the former's leaves in the call
        self.parameters: List[torch.Tensor] = []  # the latter's originals in the module
        self.watched: List[torch.Tensor] = []  # tensors that backwards need and others can write to, each with its own version
        self.pending = PendingBackwards()
        self.why_unsure: Optional[str] = None  # see AutogradGraph.why_unsure()
        self.given: List[torch.Tensor] = []
        """The gradients of the outputs that backward() starts from."""
        self.reachable: List[FrozenSet[int]] = []
        """For each output with a gradient, which of `towards` it leads to."""
        self.aliases: Aliases = {}

    def find(self, results: Results, wanted: List[torch.Tensor], inputs: List[Input], stand_ins: StandIns) -> AutogradGraph:
        """wanted: the outputs that require gradients. Returns autograd's graph of them all. Raises NimbleError where gradients would
        go to something else than arguments and parameters."""
        if any(output.retains_grad for output in wanted):
            raise NimbleError("the module calls retain_grad() on what it returns, which would get no gradient that comes by another "
                              "output: run the module eagerly for that")
        graph, graphs = AutogradGraph(wanted), [AutogradGraph([output]) for output in wanted]
        self._find_leaves(graph, wanted, inputs, stand_ins)
        self._find_needed(graphs, inputs, stand_ins)
        numbers = {id(tensor): number for number, tensor in enumerate(self.towards)}
        self.reachable = [frozenset(numbers[id(leaf)] for leaf in each.leaves) for each in graphs]
        self.why_unsure = next((why for why in (each.why_unsure() for each in graphs) if why is not None), None)
        self.aliases = find_aliases(results.made)
        self.given = [noise(output) for output in wanted]
        return graph

    def _find_leaves(self, graph: AutogradGraph, wanted: List[torch.Tensor], inputs: List[Input], stand_ins: StandIns) -> None:
        found = {id(leaf) for leaf in graph.leaves}
        trained = [i for i in inputs if id(i.tensor) in found]
        pairs = [(mine, given) for mine, given in stand_ins.parameters if id(mine) in found]
        strange = found - {id(i.tensor) for i in trained} - {id(mine) for mine, _ in pairs}
        strange |= {id(t) for t in wanted if t.grad_fn is None}
        if strange:
            shapes = ", ".join(str(list(leaf.shape)) for leaf in graph.leaves if id(leaf) in strange)
            raise NimbleError("an output depends on tensors that require gradients, and are neither arguments nor parameters "
                              f"that the module has as such: of shape {shapes or 'that of the output'}")
        self.towards = [i.tensor for i in trained] + [mine for mine, _ in pairs]
        self.argument_numbers = [i.number for i in trained]
        self.parameters = [given for _, given in pairs]

    def _find_needed(self, graphs: List[AutogradGraph], inputs: List[Input], stand_ins: StandIns) -> None:
        """Finds what the backward of each output needs and others can write to; with static_inputs() also the graph's own inputs."""
        pairs = [*stand_ins.pairs, *((each.tensor, each.tensor) for each in inputs)]
        needed = [graph.needs(mine for mine, _ in pairs) for graph in graphs]
        self.watched = [given for number, (_, given) in enumerate(pairs) if any(each[number] for each in needed)]
        self.pending = PendingBackwards(graphs, [frozenset(id(given) for (_, given), is_needed in zip(pairs, each) if is_needed)
                                                 for each in needed])

    def leave_out(self, tensors: "List[torch.Tensor]") -> None:
        """Backwards no longer need these from the module."""
        apart = set(map(id, tensors))
        self.watched = [given for given in self.watched if id(given) not in apart]


def noise(like: torch.Tensor) -> torch.Tensor:
    """Random values, all different, so that a kernel's stores of values computed from them show."""
    generator = torch.Generator(like.device).manual_seed(1)
    return torch.empty_like(like).detach().normal_(generator=generator)
