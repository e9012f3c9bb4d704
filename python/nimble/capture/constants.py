"""Follows tensors that are the same in each run, and answers the host's reads of them while a stream captures, where a read of the
device would fail.

Constant is what ops make from numbers alone, such as arange() and full(), and what exact ops make of constants: integers, and floats
that are only moved, filled in and compared. The host computes it too, beside the device. All else is unknown: inputs, parameters,
memory from before or without values, random numbers, and the results of other ops.

Kernels that PyTorch does not see (of extensions, Triton) may write to a constant, too. So the memory of each is set to be copied on
writing, which takes no copy as it has one owner: PyTorch ends that state where anyone, in any thread, asks for an address to write
to. Memory in another state is unknown for good.

Belongs to one captured run, and one thread."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence

import torch
from torch.utils import _python_dispatch, _pytree

from nimble.guards.op_watch import OpWatch, WeakStorage, tensors_in, written_by
from nimble.objects.memory import overlaps, storage_bytes, storage_of

_MOST_ELEMENTS = 1 << 20  # of a tensor that is followed
_MOST_KEPT = 256  # after which values are dropped whose tensors are gone
_INTEGERS = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}  # of the mantissa: larger integers are rounded
_UNKNOWN = object()
_C: Any = torch._C  # not all of it is in its stubs


def _ops(names: str) -> FrozenSet[Any]:
    """Those of these ops that this PyTorch has."""
    pairs = (name.split(".") for name in names.split())
    found = (getattr(getattr(torch.ops.aten, name, None), overload, None) for name, overload in pairs)
    return frozenset(each for each in found if each is not None)


# By the number that fills the result, or the name of the argument that has it.
_FILLED = {**dict.fromkeys(_ops("zeros.default zeros_like.default new_zeros.default"), 0),
           **dict.fromkeys(_ops("ones.default ones_like.default new_ones.default"), 1),
           **dict.fromkeys(_ops("full.default full_like.default new_full.default"), "fill_value"),
           **dict.fromkeys(_ops("scalar_tensor.default"), "s")}
_EMPTY = _ops("empty.memory_format empty_strided.default empty_like.default new_empty.default new_empty_strided.default")
_RANGES = _ops("arange.default arange.start arange.start_step eye.default eye.m")
_MAKERS = frozenset(_FILLED) | _EMPTY | _RANGES
# Ops that give the same on each device, for integers; and for floats, of which no result is rounded.
_OF_INTEGERS = _ops("add.Tensor sub.Tensor mul.Tensor rsub.Scalar neg.default minimum.default maximum.default amax.default amin.default "
                    "max.default min.default sum.default sum.dim_IntList cumsum.default bitwise_and.Tensor bitwise_and.Scalar "
                    "bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor bitwise_xor.Scalar bitwise_not.default logical_and.default "
                    "logical_or.default logical_xor.default logical_not.default any.default any.dim any.dims all.default all.dim "
                    "all.dims add_.Tensor sub_.Tensor mul_.Tensor bitwise_and_.Tensor bitwise_or_.Tensor logical_and_.default "
                    "logical_or_.default logical_not_.default")
_OF_FLOATS = _ops("clone.default cat.default stack.default where.self masked_fill.Scalar repeat.default flip.default roll.default tril.default "
                  "triu.default constant_pad_nd.default eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor "
                  "gt.Scalar gt.Tensor ge.Scalar ge.Tensor masked_fill_.Scalar")
_PADS = _ops("constant_pad_nd.default")  # whose number is a float for integers, too
_OVERWRITING = _ops("fill_.Scalar zero_.default copy_.default")
_TO_COPY, _ITEM, _EQUAL = (next(iter(_ops(name))) for name in ("_to_copy.default", "_local_scalar_dense.default", "equal.default"))
_FOLLOWED = _OF_INTEGERS | _OF_FLOATS | _OVERWRITING | {_TO_COPY}
# Others that are given indices, and only read them.
_READERS = _ops("embedding.default index.Tensor index_select.default gather.default")


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """While inside, no mode sees the ops of the host's own computation."""
    with _C.DisableTorchFunction(), _python_dispatch._disable_current_modes():
        yield


class _Memory:
    """A storage that the run has made. `values`: what the host has computed of it, if that is known; as large as the storage."""

    def __init__(self, like: torch.Tensor) -> None:
        self.storage, self.dtype, self.is_known = WeakStorage(like), like.dtype, False
        self.values = torch.empty(like.numel(), dtype=like.dtype)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The place of a tensor on this storage."""
        return self.values.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


class Constants(OpWatch):
    """Within on(), follows constants on one type of device. `reads`: how many reads of the host it has answered."""

    def __init__(self, device_type: str) -> None:
        self.reads = 0
        self._device_type = device_type
        self._made: Dict[int, _Memory] = {}  # by storage

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        try:
            with super().on():
                yield
        finally:
            for memory in self._made.values():
                _end_copying(memory.storage.storage())
            self._made.clear()

    def call(self, function: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        given = tensors_in((args, kwargs))
        ours = [tensor for tensor in given if _key(tensor) in self._made]
        if not ours and function not in _MAKERS:
            return function(*args, **kwargs)
        written = list(written_by(function, args, kwargs))
        with _apart():
            values = {id(tensor): self._values_of(tensor) for tensor in ours}
            answer = self._answer(function, args, kwargs, given, values)
            if answer is not _UNKNOWN:
                self.reads += 1
                return answer
            follows = function in _MAKERS or function in _FOLLOWED and all(
                values.get(id(tensor)) is not None or self._is_overwritten(function, args, tensor) for tensor in given)
            for tensor in () if follows else written if _only_reads(function) else ours:
                self._forget(tensor)
        result = function(*args, **kwargs)
        with _apart():
            if follows:
                try:
                    self._follow(function, args, kwargs, values, written, given, result)
                except Exception:  # the host cannot tell
                    for tensor in written:
                        self._forget(tensor)
            for tensor in ours:
                if _key(tensor) in self._made:
                    self._watch(tensor)
        return result

    def _answer(self, function: Any, args: Any, kwargs: Dict[str, Any], given: List[torch.Tensor],
                values: Dict[int, Optional[torch.Tensor]]) -> Any:
        """What a host's read of constants finds; _UNKNOWN for another op, or other tensors."""
        if function not in (_ITEM, _EQUAL, _TO_COPY):
            return _UNKNOWN
        found = [values.get(id(tensor)) for tensor in given]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return _UNKNOWN
        if function is _ITEM:
            return known[0].item()
        if function is _EQUAL:
            return torch.equal(*known)
        device = kwargs.get("device")
        if device is None or torch.device(device).type != "cpu" or self._device_type == "cpu" or kwargs.get("pin_memory"):
            return _UNKNOWN
        copied = _converted(known[0], kwargs.get("dtype") or known[0].dtype)
        return _UNKNOWN if copied is None else copied.clone(memory_format=kwargs.get("memory_format") or torch.preserve_format)

    def _follow(self, function: Any, args: Any, kwargs: Dict[str, Any], values: Dict[int, Optional[torch.Tensor]],
                written: List[torch.Tensor], given: List[torch.Tensor], result: Any) -> None:
        """Computes on the host what the device has computed. Raises an exception where it cannot."""
        if function in _OVERWRITING:
            memory = self._made[_key(args[0])]
            value = 0 if len(args) < 2 else args[1]
            if not isinstance(value, torch.Tensor):
                _fill(memory.of(args[0]), value)
            elif _key(value) == _key(args[0]):
                raise ValueError("it may read what it has written")
            else:
                memory.of(args[0]).copy_(_present(_converted(_present(values[id(value)]), args[0].dtype)))
            memory.is_known = True
        elif written:
            self._computed(function, args, kwargs, values, result.dtype)  # in place
        elif _key(result) not in set(map(_key, given)) and self._can_be_followed(result):
            memory = _Memory(result)
            if function in _FILLED:
                _fill(memory.values, _argument(function, args, kwargs, _FILLED[function]))
            elif function not in _EMPTY:
                memory.of(result).copy_(_same_kind(self._computed(function, args, kwargs, values, result.dtype), result))
            memory.is_known = function not in _EMPTY
            self._keep(result, memory)

    def _computed(self, function: Any, args: Any, kwargs: Dict[str, Any], values: Dict[int, Optional[torch.Tensor]],
                  dtype: torch.dtype) -> torch.Tensor:
        if function is _TO_COPY:
            return _present(_converted(_present(values[id(args[0])]), dtype))
        here = {name: value for name, value in kwargs.items() if name not in ("device", "layout", "pin_memory", "non_blocking")}
        args, here = _pytree.tree_map(lambda each: values[id(each)] if isinstance(each, torch.Tensor) else each, (args, here))
        tensors = tensors_in((args, here))
        numbers = [each for each in _pytree.tree_flatten((args, here))[0] if isinstance(each, (int, float, complex))]
        if not _is_exact(function, [tensor.dtype for tensor in tensors], numbers, dtype):
            raise ValueError("other devices may round it differently")
        made: torch.Tensor = function(*args, **here)
        return made

    def _is_overwritten(self, function: Any, args: Any, tensor: torch.Tensor) -> bool:
        """Whether the op writes to all of a storage that the run has made, so that it does not matter what was there."""
        memory = self._made.get(_key(tensor))
        return (function in _OVERWRITING and tensor is args[0] and memory is not None and type(tensor) is torch.Tensor
                and tensor.dtype is memory.dtype and _is_whole(tensor))

    def _values_of(self, tensor: torch.Tensor) -> Optional[torch.Tensor]:
        """A constant's values on the host; None for other tensors. Memory of Nimble's that someone may have written to is unknown from now
        on."""
        if not _is_watched(tensor):
            self._forget(tensor)
        memory = self._made.get(_key(tensor))
        if (memory is None or not memory.is_known or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.dtype is not memory.dtype
                or tensor.is_conj() or tensor.is_neg()):
            return None
        values = memory.of(tensor)
        return values if tensor.dtype in _INTEGERS or _is_plain(values) else None

    def _can_be_followed(self, tensor: Any) -> bool:
        return (type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == self._device_type
                and (tensor.dtype in _INTEGERS or tensor.dtype in _DIGITS) and tensor.numel() <= _MOST_ELEMENTS and _is_whole(tensor))

    def _keep(self, tensor: torch.Tensor, memory: _Memory) -> None:
        if len(self._made) >= _MOST_KEPT:
            self._made = {key: each for key, each in self._made.items() if each.storage.storage() is not None}
        self._made[_key(tensor)] = memory
        self._watch(tensor)

    def _watch(self, tensor: torch.Tensor) -> None:
        """From now on the memory tells whether someone may have written to it."""
        try:
            torch._lazy_clone(tensor)
        except RuntimeError:  # none of PyTorch's allocators has it
            self._forget(tensor)

    def _forget(self, tensor: torch.Tensor) -> None:
        if self._made.pop(_key(tensor), None) is not None:
            _end_copying(storage_of(tensor))


def can_follow() -> bool:
    """Whether this PyTorch can tell who writes to memory."""
    return hasattr(torch, "_lazy_clone") and hasattr(_C, "_is_cow_tensor") and hasattr(_python_dispatch, "_disable_current_modes")


def _key(tensor: Any) -> int:
    """Of its storage; 0 where it has none."""
    try:
        return int(storage_of(tensor)._cdata)
    except Exception:  # wrapper classes, and tensors being traced
        return 0


def _end_copying(storage: Any) -> None:
    if storage is not None:
        storage.data_ptr()


def _is_watched(tensor: torch.Tensor) -> bool:
    return bool(_C._is_cow_tensor(tensor))


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether it has each byte of its storage, once."""
    return storage_bytes(tensor) == tensor.numel() * tensor.element_size() and tensor.storage_offset() == 0 and not overlaps(tensor)


def _is_plain(values: torch.Tensor) -> bool:
    """Whether no float is NaN, or so small that a device may take it for zero."""
    return bool(((values == 0) | (values.abs() >= torch.finfo(values.dtype).tiny)).all())


def _only_reads(function: Any) -> bool:
    """Whether the op does nothing to the memory of constants besides what its schema says: it is known here, or makes a view."""
    if function in _FOLLOWED or function in _READERS or function in _MAKERS:
        return True
    schema = function._schema
    return function.namespace == "aten" and not schema.is_mutable and any(each.alias_info is not None for each in schema.returns)


def _fill(values: torch.Tensor, number: Any) -> None:
    if _is_negative_zero(number) or values.dtype in _INTEGERS and values.dtype is not torch.bool and not _fits(number, values.dtype):
        raise ValueError("it may become another number")
    values.fill_(number)


def _argument(function: Any, args: Sequence[Any], kwargs: Dict[str, Any], name: Any) -> Any:
    """An argument by its name; a number stands for itself."""
    if not isinstance(name, str):
        return name
    number = [each.name for each in function._schema.arguments].index(name)
    return args[number] if number < len(args) else kwargs[name]


def _present(values: Optional[torch.Tensor]) -> torch.Tensor:
    if values is None:
        raise ValueError("unknown values")
    return values


def _same_kind(values: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    if values.shape != result.shape or values.dtype is not result.dtype:
        raise ValueError("the host has computed something else")
    return values


def _converted(values: torch.Tensor, dtype: torch.dtype) -> Optional[torch.Tensor]:
    """The values in another type, if it has all of them."""
    if dtype is torch.bool or dtype is values.dtype or values.numel() == 0:
        return values.to(dtype)
    if dtype not in _INTEGERS and dtype not in _DIGITS:
        return None
    if (values.dtype in _INTEGERS) != (dtype in _INTEGERS) and values.dtype is not torch.bool:
        most = 1 << min(_DIGITS.get(dtype, 53), _DIGITS.get(values.dtype, 53))
        if not bool(((values >= -most) & (values <= most)).all()):
            return None
    made = values.to(dtype)
    return made if torch.equal(made.to(values.dtype), values) else None


def _is_exact(function: Any, dtypes: List[torch.dtype], numbers: List[Any], dtype: torch.dtype) -> bool:
    """Whether each device computes the same from tensors of these types and these numbers, with a result of this type."""
    if function in _RANGES:
        is_eye = function.overloadpacket is torch.ops.aten.eye
        return all(type(number) is int for number in numbers) and (
            is_eye or dtype in _INTEGERS and all(_fits(number, dtype) for number in numbers))
    kinds = {each for each in dtypes if each is not torch.bool}
    if not all(_fits(number, kind) for number in numbers for kind in kinds or {torch.int64}):
        return False
    if kinds <= _INTEGERS and dtype in _INTEGERS:
        return function in _PADS or all(isinstance(number, int) for number in numbers)
    return function in _OF_FLOATS and len(kinds) == 1


def _is_negative_zero(number: Any) -> bool:
    return isinstance(number, float) and number == 0 and math.copysign(1, number) < 0


def _fits(number: Any, dtype: torch.dtype) -> bool:
    """Whether the type has this number."""
    if isinstance(number, complex) or _is_negative_zero(number):
        return False
    if dtype in _INTEGERS:
        return bool(math.isfinite(number) and number == int(number) and torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max)
    return bool(torch.tensor(number, dtype=torch.float64).to(dtype).item() == number)
