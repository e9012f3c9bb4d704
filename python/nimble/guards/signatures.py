"""A call's signature, which decides which graph serves it, and a bounded cache of graphs.

A signature is the structure of the arguments (torch.utils._pytree); shape, strides, dtype and device of each tensor; type and value of
each other leaf; which leaves are the same tensor, which tensors require gradients; and the state of PyTorch that kernels are chosen by
and that programs change between calls. The rest of that state goes into the call's key.

Signatures are constant, and any thread may use them. GraphCache has no lock; its owner has."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from operator import attrgetter
from typing import Any, Callable, Dict, Generic, Hashable, Iterable, Iterator, List, Optional, Tuple, TypeVar

import torch
from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.guards import switches
from nimble.objects.plain import is_atom, plain_key

_STRIDED = torch.strided
_MARKS = frozenset(("_is_buffer", "persistent"))  # of torch.nn.Buffer
_attributes = attrgetter("__dict__")  # written as .__dict__, torch.compile could not trace it


_arguments = inspect.signature(_pytree.tree_flatten).parameters
keeps_no_sizes = "is_leaf" not in _arguments and torch.Size in _pytree.SUPPORTED_NODES  # 2.1


def taken_apart(arguments: Any) -> "Tuple[List[Any], _pytree.TreeSpec]":
    """The leaves and the structure of a call's arguments. A torch.Size is a leaf where this release allows that, else a tuple."""
    return _pytree.tree_flatten(arguments, is_leaf=_is_size) if "is_leaf" in _arguments else _pytree.tree_flatten(arguments)


def flattened(outputs: Any) -> "Tuple[List[Any], _pytree.TreeSpec]":
    """The leaves and the structure of a module's outputs. A torch.Size is a leaf. Raises NimbleError where the release makes it a tuple."""
    if "is_leaf" in _arguments:
        return taken_apart(outputs)
    leaves, structure = _pytree.tree_flatten(outputs)
    if keeps_no_sizes and "TreeSpec(Size" in repr(structure):
        raise NimbleError("a torch.Size is returned, and this release of PyTorch makes a tuple of it: return tuple(x.shape)")
    return leaves, structure


def _is_size(value: Any) -> bool:
    return type(value) is torch.Size


def place_of(tree: Any, number: int, name: str) -> str:
    """The place of a leaf in `tree`, for messages: `name[0]['mask']`."""
    if isinstance(tree, dict):
        children: List[Tuple[str, Any]] = [(f"{name}[{key!r}]", value) for key, value in tree.items()]
    elif isinstance(tree, (tuple, list)):
        children = [(f"{name}[{i}]", value) for i, value in enumerate(tree)]
    else:
        return name  # a leaf, or a node that only its owner can look into
    for where, child in children:
        count = len(_pytree.tree_flatten(child)[0] if keeps_no_sizes else flattened(child)[0])
        if number < count:
            return place_of(child, number, where)
        number -= count
    return name


def argument_place(args: Tuple[Any, ...], kwargs: Dict[str, Any], number: int) -> str:
    """The place of a leaf of a call, for messages. Positional arguments come first."""
    count = len(taken_apart(args)[0])
    return place_of(args, number, "args") if number < count else place_of(kwargs, number - count, "kwargs")


def _value_key(value: Any) -> Any:
    """A key that is equal only for values that a module cannot distinguish. Raises TypeError where there is none: the value's own
    __eq__ may leave out what a module reads, and the key would hold the value."""
    kind = type(value)
    if is_atom(value) or kind is torch.Size:
        return plain_key(value)
    if kind.__module__ == "numpy" and hasattr(value, "tobytes") and kind.__hash__ is not None and not value.dtype.hasobject:
        return kind, str(value.dtype), value.tobytes()  # a NumPy scalar
    raise TypeError(f"is a {kind.__name__}, and its content may change")


# Tensors with names of dimensions are gone from newer releases.
_has_names: "Callable[[torch.Tensor], bool]" = getattr(torch.Tensor, "has_names", lambda _: False)


def _tensor_key(tensor: torch.Tensor) -> Any:
    if tensor.layout is not _STRIDED:
        raise TypeError(f"is a tensor with layout {tensor.layout}, not {_STRIDED}")
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        raise TypeError(f"is a {kind.__name__}, and a graph would only see a tensor (pass x.as_subclass(torch.Tensor))")
    if has_attributes(tensor):
        names = ", ".join(map(repr, _attributes(tensor)))
        raise TypeError(f"has Python attributes ({names}), which a graph would not see (pass x.detach())")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError("is conjugated or negated where it is read, and not in memory (pass x.resolve_conj().resolve_neg())")
    if _has_names(tensor):
        raise TypeError("has names of dimensions, which a graph would not see (pass x.rename(None))")
    return kind, tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def has_attributes(tensor: torch.Tensor) -> bool:
    """Whether the tensor has Python attributes that a module may read. PyTorch's own marks do not count."""
    attributes = _attributes(tensor)
    return bool(attributes) and not all(name in _MARKS or name.startswith("_dynamo") for name in attributes)


_CONTAINERS = (dict, tuple, list)


def _key_types(values: Iterable[Any]) -> Any:
    """The types of dictionary keys among the values and in them, except str: 1 and True are equal, but not the same. None where
    there are none."""
    found: List[Any] = []
    for number, value in enumerate(values):
        if isinstance(value, _CONTAINERS):
            if isinstance(value, dict):
                found += [(number, type(key)) for key in value if type(key) is not str]
                value = value.values()
            inner = _key_types(value)
            if inner is not None:
                found.append((number, inner))
    return tuple(found) or None


def _modes() -> Tuple[Any, ...]:
    """The modes of PyTorch that kernels are chosen by: the dtypes of autocast on GPUs and on the CPU where it is enabled, two
    switches, and autocast's default dtypes, which matter where a module enables it itself."""
    on_gpus, on_cpu, gpu_dtype, cpu_dtype = switches.autocast()
    return (gpu_dtype if on_gpus else None, cpu_dtype if on_cpu else None, torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(), gpu_dtype, cpu_dtype)


class Signature:
    """Compares equal for calls that one graph can serve. `grad`: gradients are enabled, and an input requires them. `wanted`: which
    tensors require gradients; None where none does and the call does not train."""

    __slots__ = ("structure", "leaves", "training", "grad", "wanted", "modes", "_hash")

    def __init__(self, structure: _pytree.TreeSpec, leaves: Tuple[Any, ...], training: bool, grad: bool,
                 wanted: Optional[Tuple[bool, ...]] = None) -> None:
        self.structure = structure
        self.leaves = leaves
        self.training = training
        self.grad = grad
        self.wanted = wanted
        self.modes = _modes()
        # The structure can be compared, but some releases of PyTorch cannot hash it.
        self._hash = hash((leaves, training, grad, wanted, self.modes))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Signature) and self._hash == other._hash and self.leaves == other.leaves
                and self.training == other.training and self.grad == other.grad and self.wanted == other.wanted
                and self.modes == other.modes and bool(self.structure == other.structure))

    def __str__(self) -> str:
        """For messages: the tensors alone."""
        tensors = [f"{str(leaf[3]).replace('torch.', '')}{list(leaf[1])}" for leaf in self.leaves if len(leaf) == 5]
        return ", ".join(tensors) or "no tensors"


@functools.lru_cache(maxsize=64)
def _structure_of(tensors: int) -> _pytree.TreeSpec:
    """The structure of a call with so many positional tensors."""
    return _pytree.tree_flatten(((0,) * tensors, {}))[1]


class Call:
    """A call's flattened arguments: `leaves` of (args, kwargs), `structure`, `tensors` (which leaves are tensors, each tensor
    once), `signature`, and `trains`: gradients may be requested, as always where gradients are enabled and an argument requires
    them. Raises NimbleError, which names the argument, where one cannot be compared."""

    __slots__ = ("args", "kwargs", "leaves", "structure", "tensors", "trains", "signature", "_key")

    def __init__(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], training: bool, trains: bool = False) -> None:
        self.args, self.kwargs = args, kwargs
        if not kwargs and all([type(argument) is torch.Tensor for argument in args]):
            self.leaves, self.structure, types = list(args), _structure_of(len(args)), None
        else:
            self.leaves, self.structure = taken_apart((args, kwargs))
            types = _key_types((*args, *kwargs.values()))
        self.tensors: List[int] = []
        first: Dict[int, int] = {}  # where each tensor comes first
        keys: List[Any] = []
        needs_grad = False
        for number, leaf in enumerate(self.leaves):
            try:
                if not isinstance(leaf, torch.Tensor):
                    keys.append(_value_key(leaf))
                elif id(leaf) in first:
                    keys.append(("same as", first[id(leaf)]))
                else:
                    first[id(leaf)] = number
                    self.tensors.append(number)
                    needs_grad = needs_grad or leaf.requires_grad
                    keys.append(_tensor_key(leaf))
            except TypeError as error:
                raise NimbleError(f"{argument_place(args, kwargs, number)} {error}: no graph can be found for the call by "
                                  "that") from None
        if types is not None:
            keys.append(("types of keys", types))
        grad = needs_grad and torch.is_grad_enabled()
        self.trains = trains or grad
        wanted = tuple(self.leaves[number].requires_grad for number in self.tensors) if needs_grad or self.trains else None
        self.signature = Signature(self.structure, tuple(keys), training, grad, wanted)
        self._key: Optional[Tuple[Signature, switches.Kernels]] = None

    @property
    def key(self) -> Tuple[Signature, switches.Kernels]:
        """The signature, and PyTorch's switches (TF32, cuDNN, attention; nimble.guards.switches) at the time of the first use, which takes
        3 us. Calls with one key have one graph, unless the owner compares switches itself."""
        if self._key is None:
            self._key = self.signature, switches.kernels()
        return self._key

    def rebuilt(self, leaves: List[Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """Arguments of the same structure with other leaves."""
        args, kwargs = _pytree.tree_unflatten(leaves, self.structure)
        return args, kwargs

    def place(self, number: int) -> str:
        return argument_place(self.args, self.kwargs, number)


class Repeated:
    """Recognizes, in a microsecond or two, calls with the signature of an earlier one. Only for calls of positional tensors
    without gradients."""

    __slots__ = ("_keys", "_modes", "_training")

    def __init__(self, call: Call) -> None:
        self._keys = call.signature.leaves
        self._modes = call.signature.modes
        self._training = call.signature.training

    @staticmethod
    def is_possible(call: Call) -> bool:
        return not (call.kwargs or call.trains or call.signature.wanted is not None or len(call.tensors) != len(call.args)
                    or any(type(argument) is not torch.Tensor for argument in call.args))

    def fits(self, args: Tuple[Any, ...], training: bool) -> bool:
        """Whether a call of these positional arguments, which does not train, has the signature."""
        if len(args) != len(self._keys) or training != self._training:
            return False
        for tensor, (kind, shape, stride, dtype, device) in zip(args, self._keys):
            if (type(tensor) is not kind or tensor.requires_grad or tensor.layout is not _STRIDED or tensor.shape != shape
                    or tensor.stride() != stride or tensor.dtype is not dtype or tensor.device != device
                    or tensor.is_neg() or tensor.is_conj() or _has_names(tensor) or _attributes(tensor) and has_attributes(tensor)):
                return False
        return self._modes == _modes() and (len(args) == 1 or len(set(map(id, args))) == len(args))


Entry = TypeVar("Entry")


class GraphCache(Generic[Entry]):
    """A bounded number of entries by signature or key. Evicts the least recently used."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"max_graphs is {most}, and must be 1 or more")
        self.most = most
        self._entries: "OrderedDict[Hashable, Entry]" = OrderedDict()

    def get(self, signature: Hashable) -> Optional[Entry]:
        """The entry, which becomes the most recently used one."""
        entry = self._entries.get(signature)
        if entry is not None:
            self._entries.move_to_end(signature)
        return entry

    def put(self, signature: Hashable, entry: Entry) -> Optional[Entry]:
        """Adds an entry. Returns the entry evicted for it, if any, but not one that it replaces."""
        self._entries[signature] = entry
        self._entries.move_to_end(signature)
        return self._entries.popitem(last=False)[1] if len(self._entries) > self.most else None

    def drop(self, signature: Hashable) -> None:
        self._entries.pop(signature, None)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Entries, the least recently used first."""
        return iter(list(self._entries.values()))
