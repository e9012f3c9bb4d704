"""Watches the ops of a run one by one: which memory they are about to write, and which memory of others they read. Kernels launched
past PyTorch's dispatcher go unseen.

A watch belongs to one thread, and to one run at a time."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Set, Tuple, Type

import torch
from torch.utils import _python_dispatch, _pytree

from nimble.errors import NimbleError
from nimble.objects.memory import storage_of, version_of
from nimble.objects.plain import KINDS


def _memory_of(tensor: torch.Tensor) -> int:
    """Where its memory begins; 0 where that is unknown."""
    try:
        return int(storage_of(tensor).data_ptr()) if tensor.layout is torch.strided else 0
    except Exception:  # wrapper classes, and tensors being traced
        return 0


def tensors_in(value: Any) -> List[torch.Tensor]:
    """All tensors in what an op takes or returns, in order. Only what is no plain value, list, tuple or dictionary is left to
    PyTorch's pytrees, which take ten times as long."""
    found: List[torch.Tensor] = []
    _add_tensors(value, found)
    return found


def _add_tensors(value: Any, found: List[torch.Tensor]) -> None:
    kind = type(value)
    if kind is torch.Tensor or isinstance(value, torch.Tensor):
        found.append(value)
    elif kind is tuple or kind is list:
        for each in value:
            _add_tensors(each, found)
    elif kind is dict:
        for each in value.values():
            _add_tensors(each, found)
    elif not isinstance(value, KINDS):
        found += [leaf for leaf in _pytree.tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


# Ops with two formulas in autograd: one that waits for the values, and one, used under modes that observe ops, that rounds
# differently.
_TWO_FORMULAS = frozenset(map(id, (getattr(torch.ops.aten, name) for name in ("prod", "cumprod", "cumprod_"))))


class _Mode(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, watch: "OpWatch") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    # Without it torch.compile would never compile functions that are first called meanwhile.
    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._watch.is_off:
            return function(*args, **(kwargs or {}))
        if id(getattr(function, "overloadpacket", None)) in _TWO_FORMULAS and torch.is_grad_enabled():
            raise NotImplementedError(f"the gradients of {function} differ where ops are watched")
        return self._watch.call(function, args, kwargs or {})


def _mode_of(watch: "OpWatch") -> _Mode:
    """The mode. Releases without infra modes would let torch.compile, where it is in use, compile what the mode does."""
    if not hasattr(_python_dispatch.TorchDispatchMode, "is_infra_mode") and "torch._dynamo" in sys.modules:
        return _left_alone()(watch)
    return _Mode(watch)


@functools.lru_cache(maxsize=1)
def _left_alone() -> "Type[_Mode]":
    disable: Any = sys.modules["torch._dynamo"].disable

    class Mode(_Mode):  # type: ignore[no-untyped-call]
        __torch_dispatch__ = disable(_Mode.__torch_dispatch__)

    return Mode


class OpWatch:
    is_off = False

    def call(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """Runs an op."""
        self.before(function, args, kwargs)
        result = function(*args, **kwargs)
        self.after(result)
        return result

    def before(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        raise NotImplementedError

    def after(self, result: Any) -> None:
        pass

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """While inside, it watches. Not through PyTorch's own `with`, with which several threads may leave torch.compile switched
        off: one variable says whether any thread is in a mode, and each thread restores the value that it found."""
        mode = _mode_of(self)
        push, pop = getattr(_python_dispatch, "_push_mode", None), getattr(_python_dispatch, "_pop_mode", None)
        if push is None or pop is None:
            with mode:
                yield
            return
        push(mode)
        try:
            yield
        finally:
            pop()

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Within on(): while inside, ops do not belong to the run."""
        self.is_off = True
        try:
            yield
        finally:
            self.is_off = False


# The backward that this thread is in, or -1. Old releases do not tell.
_backward: "Callable[[], int]" = getattr(torch._C, "_current_graph_task_id", lambda: 0)


def written_by(function: Any, args: Any, kwargs: Dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that an op writes to in place, by its schema."""
    for number, name in _written_arguments(function):
        value = args[number] if number < len(args) else kwargs.get(name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor


@functools.lru_cache(maxsize=4096)
def _written_arguments(function: Any) -> Tuple[Tuple[int, str], ...]:
    schema = getattr(function, "_schema", None)
    return tuple((number, argument.name) for number, argument in enumerate(() if schema is None else schema.arguments)
                 if argument.alias_info is not None and argument.alias_info.is_write)


@functools.lru_cache(maxsize=4096)
def _copies(function: Any) -> bool:
    return "copy" in str(function)


class OpWrites(OpWatch):
    """Copies tensors before an op writes to their memory: `kept` has each with its copy. Of the tensors in `noted` it only
    records which an op writes to: `written`. has_backward: whether the run may have contained a backward, besides being one
    itself (is_backward_of())."""

    def __init__(self, tensors: Iterable[torch.Tensor], noted: Iterable[torch.Tensor] = ()) -> None:
        self.kept: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self.written: List[torch.Tensor] = []
        self.has_backward = False
        self._run = -1
        self._tensors: Dict[int, List[torch.Tensor]] = {}
        for tensor in tensors:
            where = _memory_of(tensor)
            if where != 0 and not tensor.is_inference():
                self._tensors.setdefault(where, []).append(tensor.detach())
        self._noted: Dict[int, List[torch.Tensor]] = {}
        for tensor in noted:
            self._noted.setdefault(_memory_of(tensor), []).append(tensor)
        self._noted.pop(0, None)

    def before(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        self.has_backward = self.has_backward or _backward() not in (-1, self._run)
        for tensor in written_by(function, args, kwargs) if self._tensors or self._noted else ():
            where = _memory_of(tensor)
            self.kept += [(each, each.clone()) for each in self._tensors.pop(where, [])]
            self.written += self._noted.pop(where, [])

    def is_backward_of(self, outputs: Iterable[torch.Tensor]) -> None:
        """The next run is a backward of these outputs; the first hook that runs tells which."""
        def comes(_: torch.Tensor) -> None:
            self._run = _backward() if self._run == -1 else self._run

        for output in outputs:
            output.register_hook(comes)  # type: ignore[no-untyped-call]


class OpReads(OpWatch):
    """Finds the memory on one type of device that the run reads, besides that of `known` and its own; and all memory of
    other devices, such as the host, that it copies from, even its own: a graph will read it there again."""

    def __init__(self, known: Iterable[torch.Tensor], device_type: str) -> None:
        self._known: Set[int] = {_memory_of(tensor) for tensor in known} | {0}
        self._device_type = device_type
        # Weakly: compiled code allocates past the dispatcher, and must be able to reuse the memory.
        self._found: "Dict[int, WeakStorage]" = {}
        self._others: List[torch.Tensor] = []  # on other devices, of the running op
        self._is_ours = False  # whether it has any on this one
        self._copied: Dict[int, Any] = {}  # storages of those from which something came to ours
        self._sources: List[Tuple[torch.Tensor, int]] = []  # tensors on these, and their versions then

    def before(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> None:
        self._others, self._is_ours = [], False
        copies = _copies(function)  # else a host scalar is passed by value, immediately
        for leaf in tensors_in((args, kwargs)):
            if leaf.device.type == self._device_type:
                self._is_ours = True
                where = _memory_of(leaf)
                if where not in self._known and where not in self._found:
                    self._found[where] = WeakStorage(leaf)
            elif copies or leaf.dim() > 0:
                self._others.append(leaf)

    def after(self, result: Any) -> None:
        made = tensors_in(result)
        if self._others and (self._is_ours or any(leaf.device.type == self._device_type for leaf in made)):
            there = [leaf for leaf in self._others if _memory_of(leaf) != 0]
            self._copied.update((_memory_of(leaf), storage_of(leaf)) for leaf in there)
            self._sources += [(leaf, version_of(leaf)) for leaf in there]  # below autograd a detached tensor would have its own version
        self._others = []
        for leaf in made:
            where = _memory_of(leaf)
            if where not in self._found:
                self._known.add(where)

    def still_there(self, but: Iterable[torch.Tensor]) -> "Dict[int, Any]":
        """By address, the storages that were read and are still held after the run, and all that were copied from other
        devices, except those of the tensors in `but`. Raises NimbleError where a copy's source was written to since."""
        if any(version_of(tensor) != version for tensor, version in self._sources):
            raise NimbleError("it changes on the host what it has copied to the GPU, and a graph would copy the last values: have it work "
                              "on a copy")
        apart = set(map(_memory_of, but))
        found = {where: weak.storage() for where, weak in self._found.items() if where not in apart}
        return {**self._copied, **{where: memory for where, memory in found.items() if memory is not None}}


class WeakStorage:
    """A weak reference to a tensor's storage, where this release of PyTorch supports that; else it holds the storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = storage_of(tensor)
        self._held: Any = None
        try:
            kind: Any = torch.UntypedStorage
            self._new, self._free = kind._new_with_weak_ptr, kind._free_weak_ref
            self._weak = storage._weak_ref()
        except AttributeError:
            self._held = storage

    def storage(self) -> Any:
        return self._held if self._held is not None else self._new(self._weak)

    def __del__(self) -> None:
        if self._held is None:
            self._free(self._weak)
