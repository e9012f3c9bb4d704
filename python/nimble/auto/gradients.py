"""Gradients of modules that the user has not prepared: what the backwards of eager calls show, one call's gradients both ways, and a call
run again for gradients that are to be differentiated.

Any thread may tell a Backwards of backwards; the functions have no state."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List, Optional

import torch
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.graphs.autograd_leaves import StandIns, gradients, one_thread
from nimble.capture.backend import Backend
from nimble.graphs.graph_io import Input, Results, with_inputs
from nimble.graphs.restore import restored_afterwards
from nimble.guards.signatures import Call
from nimble.nesting import inside
from nimble.training.backward_replays import differing_gradient
from nimble.training.training import TrainingGraph, graph_is_kept
from nimble.training.gradient_paths import noise
from nimble.training.training_work import ForwardWork


_forget_casts = torch.clear_autocast_cache  # PyTorch's own function, saved before install() replaces it


class Backwards:
    """Observes backwards of eager calls. `why_not`: why no graph could replace them."""

    def __init__(self) -> None:
        self.why_not: Optional[str] = None

    def look_at(self, outputs: Any, call: Call) -> None:
        """Watches the gradients that arrive at the outputs of a call."""
        known = {id(call.leaves[number]) for number in call.tensors}
        for leaf in _pytree.tree_flatten(outputs)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None and id(leaf) not in known:
                leaf.register_hook(self._listener())  # type: ignore[no-untyped-call]

    def _listener(self) -> "Callable[[torch.Tensor], None]":
        is_over = False

        def comes(_: torch.Tensor) -> None:
            nonlocal is_over
            if torch.is_grad_enabled():
                self.why_not = "its gradients are differentiated themselves"
            elif is_over:
                self.why_not = "its backward runs in parts"
            is_over = not graph_is_kept()

        return comes


def check(work: ForwardWork) -> None:
    """Raises NimbleError where the backward's effects cannot be told from outside."""
    if work.paths.why_unsure is not None:
        raise NimbleError(work.paths.why_unsure)


class BothWays:
    """A nimble.graphs.compare.GradientComparison of a module's call."""

    def __init__(self, graph: TrainingGraph, module: torch.nn.Module, call: Call, put_back: "Callable[[], None]",
                 finished: "Callable[[], float]") -> None:
        """put_back() undoes a run's writes. Gradients of the outputs are noise."""
        eager = _Eager(graph, module, call)
        began = finished()
        theirs = eager.run()
        self.eager_seconds = finished() - began
        put_back()
        began = finished()
        ours = graph.run_detached(call, eager.given)
        self.graph_seconds = finished() - began
        put_back()
        self.difference = differing_gradient(ours, theirs)
        self.repeats = True
        if self.difference is not None:
            self.repeats = differing_gradient(eager.run(), theirs) is None
            put_back()


class _Eager:
    """A call with leaves of its own, so that no hooks of the program run, and no gradients are accumulated."""

    def __init__(self, graph: TrainingGraph, module: torch.nn.Module, call: Call) -> None:
        self._module = module
        self._inputs = [Input(number, call.leaves[number], trains=True) for number in call.tensors]
        self._stand_ins = StandIns(module)
        self._args, self._kwargs = call.rebuilt(with_inputs(call, self._inputs))
        numbers, parameters = graph.towards
        inputs = {each.number: each.tensor for each in self._inputs}
        mine = {id(given): stand_in for stand_in, given in self._stand_ins.pairs}
        self._towards = [*(inputs[number] for number in numbers), *(mine[id(each)] for each in parameters)]
        self.given: List[torch.Tensor] = []

    def run(self) -> "List[Optional[torch.Tensor]]":
        with torch.enable_grad(), one_thread():
            _forget_casts()
            try:
                with self._stand_ins.in_place():
                    outputs = self._module(*self._args, **self._kwargs)
            finally:
                _forget_casts()
            wanted = [t for t in Results(outputs, self._inputs, self._stand_ins.pairs).made if t.requires_grad]
            self.given = self.given or [noise(output) for output in wanted]
            return gradients(wanted, self._towards, list(self.given))


def again(module: "Callable[[], Optional[torch.nn.Module]]", original: "Callable[..., Any]", backend: Backend,
          device: torch.device, call: Call) -> Any:
    """Runs a call eagerly, with gradients enabled, and restores buffers and random numbers. Raises NimbleError where the module is gone."""
    found = module()
    if found is None:
        raise NimbleError("gradients are to be differentiated, but their module was freed: keep it until then")
    with restored_afterwards(found, backend, device, is_checked=False), contextlib.ExitStack() as stack:
        stack.enter_context(inside())
        stack.enter_context(torch.enable_grad())
        enabled, dtypes = call.signature.modes[:2], call.signature.modes[-2:]
        for kind, on, dtype in zip(("cuda", "cpu"), enabled, dtypes):  # a backward's thread has modes of its own
            stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=on is not None))
        return original(found, *call.args, **call.kwargs)


