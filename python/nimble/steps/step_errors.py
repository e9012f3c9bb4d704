"""Explains why a step's capture fails: errors of the function itself, work that cannot be captured, and effects that a graph would not
have. No state."""

from __future__ import annotations

import contextlib
from operator import is_
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from nimble.errors import CaptureError, NimbleError
from nimble.graphs.graph_io import Input
from nimble.graphs.prepared import with_place
from nimble.guards.signatures import Call, flattened, has_attributes, place_of, taken_apart
from nimble.step_state.step_state import StepState


class OfTheFunction(CaptureError):
    """An error that the function itself has raised within a capture."""


@contextlib.contextmanager
def explaining(state: StepState) -> Iterator[None]:
    """Makes errors of a capture say where they come from, and what to do about optimizers that count on the host. No frame holds the
    raised error (as those of an ExitStack do), so its memory is freed as soon as nothing refers to it."""
    try:
        yield
    except CaptureError as error:
        raise _explained(with_place(error, state.modules), state) from error.__cause__


def _explained(error: CaptureError, state: StepState) -> NimbleError:
    names = sorted({type(o).__name__ for o in state.optimizers if any(g.get("capturable") is False for g in o.param_groups)})
    if "capturable" in error.reason and names:
        return NimbleError(f"{', '.join(names)} counts its steps on the host, which a graph would not do: make it with capturable=True")
    if "legacy stream" in error.reason:
        return NimbleError(f"{error}. Something still refers to autograd's graph of an earlier run, an old loss perhaps: drop it before "
                           "the step runs for the first time")
    return error


def is_of_captures(error: BaseException) -> bool:
    """Whether the error is most likely about work that cannot be captured, and not one that the function would raise anyway."""
    text = str(error).lower()
    return isinstance(error, NimbleError) or any(word in text for word in ("cuda", "captur", "cudnn", "cublas", "nccl"))


def check_arguments(call: Call, inputs: List[Input], leaves: List[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Called after a capture with these leaves, `inputs` among them. Raises NimbleError where the step does more to its arguments than
    write values, the only effect that a graph repeats."""
    after, structure = taken_apart((args, kwargs))
    if structure != call.structure or len(after) != len(leaves) or not all(map(is_, after, leaves)):
        raise NimbleError("the step puts something into its arguments (a list or a dictionary), or takes something out of them, "
                          "which a graph would not do: return it instead")
    for each in inputs:
        what = _what_is_another(each, call.leaves[each.number])
        if what is not None:
            raise NimbleError(f"the step gives its argument {call.place(each.number)} {what}, which a graph would not do: have it work on "
                              "a copy, x.detach().clone(), or do so outside of the step")


def _what_is_another(mine: Input, given: torch.Tensor) -> Optional[str]:
    """What the run has changed of an argument besides its values, for a message; None where nothing has changed."""
    tensor = mine.tensor
    if not tensor.is_leaf or tensor.requires_grad != given.requires_grad:
        return "another requires_grad"
    if tensor.grad is not None:
        return "a gradient (its .grad)"
    if tensor.shape != given.shape or tensor.stride() != given.stride() or tensor.dtype != given.dtype:
        return "another shape, strides or dtype"
    if tensor.data_ptr() != mine.memory.data_ptr():
        return "other memory (its .data)"
    hooks = getattr(tensor, "_backward_hooks", None), getattr(tensor, "_post_accumulate_grad_hooks", None)
    return "attributes or hooks" if has_attributes(tensor) or any(hooks) else None


def check_leaves(outputs: Any, state: StepState) -> None:
    """Raises NimbleError where a call would return a tensor that requires gradients, unless the step is known to work with it."""
    known = set(map(id, state.parameters))
    for number, leaf in enumerate(flattened(outputs)[0]):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and id(leaf) not in known:
            raise NimbleError(f"{place_of(outputs, number, 'output')} requires gradients, and a graph would return a copy that does not: "
                              "return it detached, and also its gradient if needed")
