"""What a function of torch.compile does with its arguments, learned from one run: which tensors it writes to, and which outputs lie in
their memory. For arguments of the same shapes and strides it does the same each time: Dynamo's guards see to the rest. A graph works on
copies of arguments; returned() does to the caller's arguments what the function would. No state; any thread."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Tuple

import torch

from nimble.graphs.differences import same_bytes
from nimble.objects.memory import storage_address, version_of
from nimble.objects.plain import KINDS

_CLASSES = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))


class _View(NamedTuple):
    """An output in an argument's memory. offset: in elements, from the argument's own. requires_grad: as views of parameters do, unless
    they are detached."""

    argument: int
    size: Tuple[int, ...]
    strides: Tuple[int, ...]
    offset: int
    requires_grad: bool

    def of(self, arguments: Sequence[Any]) -> torch.Tensor:
        base = arguments[self.argument]
        if base.requires_grad and not self.requires_grad:
            base = base.detach()
        return torch.as_strided(base, self.size, self.strides, base.storage_offset() + self.offset)


class _Argument(NamedTuple):
    """An output that is an argument."""

    argument: int

    def of(self, arguments: Sequence[Any]) -> Any:
        return arguments[self.argument]


class ArgumentEffects:
    """written: the numbers of the tensors that it writes to. made: of the outputs that a run makes anew. copied: the numbers of
    arguments that a graph has copies of, so that returned() writes to them."""

    def __init__(self, written: FrozenSet[int], elsewhere: "Dict[int, _View | _Argument]", outputs: Any) -> None:
        self.written = written
        self.made = [number for number in range(len(outputs)) if number not in elsewhere]
        self._elsewhere = list(elsewhere.items())
        self._count, self._is_list = len(outputs), isinstance(outputs, list)

    def any(self) -> bool:
        return bool(self.written or self._elsewhere)

    def returned(self, made: Sequence[Any], arguments: Sequence[Any], copied: Iterable[int]) -> Any:
        """What the function returns. made: the outputs that a run has made, and after these the values of the arguments `copied`."""
        outputs: List[Any] = list(made[:len(self.made)])
        for number, value in zip(copied, made[len(self.made):]):
            arguments[number].copy_(value)
        if self._elsewhere:
            places, outputs = outputs, [None] * self._count
            for number, value in zip(self.made, places):
                outputs[number] = value
            for number, place in self._elsewhere:
                outputs[number] = place.of(arguments)
        return outputs if self._is_list else tuple(outputs)


class ObservedRun:
    """Made before a run, with its arguments. copied: the numbers of tensors whose values are compared, too: what is written to them in
    inference mode, or as statistics of a batch, has no version. own: tensors that the function holds itself."""

    def __init__(self, arguments: Sequence[Any], copied: Iterable[int], own: Iterable[torch.Tensor] = ()) -> None:
        self._tensors = [(number, each) for number, each in enumerate(arguments) if isinstance(each, torch.Tensor)]
        for _, each in self._tensors:
            if type(each) not in _CLASSES:
                raise ValueError(f"an argument is a {type(each).__name__}, and a graph would only see a tensor")
            if each.layout is not torch.strided:
                raise ValueError(f"an argument is a tensor with layout {each.layout}")
        self._own = [(each, version_of(each)) for each in own]
        self._versions = [version_of(each) for _, each in self._tensors]
        self._places = [_place(each) for _, each in self._tensors]
        self._values = {number: arguments[number].clone() for number in copied}

    def effects(self, outputs: Any, told: Iterable[int] = ()) -> ArgumentEffects:
        """Called after the run. told: the numbers of arguments that it is known to write to. Raises ValueError where a graph would not
        do what it has done."""
        if not isinstance(outputs, (tuple, list)):
            raise ValueError(f"it returns a {type(outputs).__name__}")
        if any(version_of(each) != version for each, version in self._own):
            raise ValueError("it writes to a tensor of its own")
        written = list(told)
        for (number, each), version, place in zip(self._tensors, self._versions, self._places):
            if _place(each) != place:
                raise ValueError("it changes the shape or the memory of an argument")
            value = self._values.get(number)
            if version_of(each) != version or value is not None and not same_bytes(each, value):
                written.append(number)
        return ArgumentEffects(frozenset(written), self._elsewhere(outputs), outputs)

    def _elsewhere(self, outputs: Sequence[Any]) -> "Dict[int, _View | _Argument]":
        numbers = {id(each): number for number, each in self._tensors}
        memory = {storage_address(each): number for number, each in reversed(self._tensors) if each.numel() > 0}
        found: "Dict[int, _View | _Argument]" = {}
        for number, each in enumerate(outputs):
            if not isinstance(each, torch.Tensor):
                if not isinstance(each, KINDS):
                    raise ValueError(f"an output is a {type(each).__name__}")
            elif id(each) in numbers:
                found[number] = _Argument(numbers[id(each)])
            elif type(each) not in _CLASSES or each.layout is not torch.strided:
                raise ValueError(f"an output is a {type(each).__name__} with layout {each.layout}")
            elif each.numel() > 0 and storage_address(each) in memory:
                found[number] = self._view(each, memory[storage_address(each)])
        return found

    def _view(self, output: torch.Tensor, argument: int) -> _View:
        base = next(each for number, each in self._tensors if number == argument)
        if output.dtype != base.dtype or output.is_conj() or output.is_neg() or base.is_conj() or base.is_neg():
            raise ValueError("an output is a view of an argument with another dtype")
        return _View(argument, tuple(output.shape), tuple(output.stride()), int(output.storage_offset() - base.storage_offset()),
                     output.requires_grad)


def _place(tensor: torch.Tensor) -> Tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def are_apart(arguments: Sequence[Any], copied: Iterable[int], static: FrozenSet[int]) -> bool:
    """Whether the arguments that a graph copies share memory neither with each other nor with that at `static`."""
    seen = set(static)
    for number in copied:
        if isinstance(arguments[number], torch.Tensor) and arguments[number].numel() > 0:
            where = storage_address(arguments[number])
            if where in seen:
                return False
            seen.add(where)
    return True
