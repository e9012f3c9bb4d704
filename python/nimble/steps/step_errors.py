"""What a step's capture fails by: the function's own errors, what cannot be captured, and what a graph would not do.

No state.
"""

from __future__ import annotations

import contextlib
from operator import is_
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from nimble.errors import CaptureError, NimbleError
from nimble.graphs.graph_io import Input
from nimble.graphs.prepared import with_place
from nimble.guards.signatures import Call, flattened, has_attributes, place_of, taken_apart
from nimble.steps.step_state import StepState


class OfTheFunction(CaptureError):
    """An error that the function itself has raised within a capture."""


@contextlib.contextmanager
def explaining(state: StepState) -> Iterator[None]:
    """Errors of a capture say where, and what to do about optimizers that keep count on the host. No frame holds what is raised (as those
    of an ExitStack do), and so it goes, with the memory of the capture, when nobody has it any more."""
    try:
        yield
    except CaptureError as error:
        raise _explained(with_place(error, state.modules), state) from error.__cause__


def _explained(error: CaptureError, state: StepState) -> NimbleError:
    names = sorted({type(o).__name__ for o in state.optimizers if any(g.get("capturable") is False for g in o.param_groups)})
    if "capturable" in error.reason and names:
        return NimbleError(f"{', '.join(names)} counts its steps on the host, which a graph would not do: make it with capturable=True")
    if "legacy stream" in error.reason:
        return NimbleError(f"{error}. Something still holds on to autograd's graph of an earlier run, an old loss perhaps: let go of it "
                           "before the step runs for the first time")
    return error


def is_of_captures(error: BaseException) -> bool:
    """Whether it is most likely about what cannot be captured, and not one that the function would raise anyway."""
    text = str(error).lower()
    return isinstance(error, NimbleError) or any(word in text for word in ("cuda", "captur", "cudnn", "cublas", "nccl"))


def check_arguments(call: Call, inputs: List[Input], leaves: List[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Behind a capture with these leaves, `inputs` among them. Of what a step does to its arguments a graph repeats what values they get,
    and nothing else."""
    behind, structure = taken_apart((args, kwargs))
    if structure != call.structure or len(behind) != len(leaves) or not all(map(is_, behind, leaves)):
        raise NimbleError("the step puts something into its arguments (a list or a dictionary), or takes something out of them, "
                          "which a graph would not do: return it instead")
    for each in inputs:
        what = _what_is_another(each, call.leaves[each.number])
        if what is not None:
            raise NimbleError(f"the step gives its argument {call.place(each.number)} {what}, which a graph would not do: have it work on "
                              "a copy, x.detach().clone(), or do so outside of the step")


def _what_is_another(mine: Input, given: torch.Tensor) -> Optional[str]:
    """Of an argument behind the run, which has had it as it was given."""
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
    """NimbleError where a call would return a tensor that requires gradients, and is none that the step was found to work with."""
    known = set(map(id, state.parameters))
    for number, leaf in enumerate(flattened(outputs)[0]):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and id(leaf) not in known:
            raise NimbleError(f"{place_of(outputs, number, 'output')} requires gradients, and a graph would return a copy that does not, "
                              "and has none: return it detached, and its gradient, where that is wanted, too")
