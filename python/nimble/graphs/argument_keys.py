"""Keys for what torch.utils._pytree leaves out of arguments and outputs, but a module's code may read.

No state; any thread."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from operator import attrgetter, is_
from typing import Any, Callable, FrozenSet, Hashable, Iterable, List, Optional, Tuple

from torch.utils import _pytree

from nimble.errors import NimbleError
from nimble.guards.signatures import Call
from nimble.guards.write_detector import memory_start
from nimble.objects.memory import storage_address
from nimble.objects.parts import attributes_of
from nimble.objects.plain import is_plain, plain_key

_BUILT_IN = (tuple, list, dict, OrderedDict, defaultdict, deque)
_attributes = attrgetter("__dict__")
_children: "Callable[[Any], List[Any]]" = (_pytree.TreeSpec.children if callable(getattr(_pytree.TreeSpec, "children", None))
                                           else attrgetter("children_specs"))


def key_of(call: Call) -> Hashable:
    """A key that is equal where a call's arguments agree in what its signature leaves out. Raises NimbleError where that is
    unknown."""
    tensors = [call.leaves[number] for number in call.tensors]
    if any(map(_attributes, tensors)):
        raise NimbleError("an argument is a tensor with Python attributes")
    if not call.kwargs and len(call.leaves) == len(call.args) and all(map(is_, call.leaves, call.args)):
        return None
    more: List[Hashable] = []
    if _add_contexts(call.structure, more):
        more += _attributes_within((call.args, call.kwargs), call.leaves)
    return tuple(more)


def _add_contexts(structure: Any, keys: List[Hashable]) -> bool:
    """Adds keys for the contexts of a structure's nodes. Returns whether objects of the program's classes are among them."""
    kind, has_objects = structure.type, False
    if kind is dict:
        if not all([type(key) is str for key in structure.context]):
            keys.append(_context_key(structure.context))
    elif kind is not tuple and kind is not list and kind is not None:
        keys.append(_context_key(structure.context))
        has_objects = kind not in _BUILT_IN and not _is_of_tuples(kind)
    for child in _children(structure):
        if child.type is not None:
            has_objects = _add_contexts(child, keys) or has_objects
    return has_objects


def _context_key(context: Any) -> Hashable:
    if is_plain(context):
        return plain_key(context)
    if type(context) in (list, tuple):
        return (type(context), *map(_context_key, context))
    if isinstance(context, type):
        return context
    raise NimbleError(f"torch.utils._pytree describes an argument by a {type(context).__name__}, and its content may change")


def _is_of_tuples(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)


def _objects_in(tree: Any) -> "List[Tuple[Any, List[Any], Any]]":
    """Objects of the program's classes, each with its children and its context."""
    node = _pytree.SUPPORTED_NODES.get(type(tree))
    if node is None:
        return [each for child in tree for each in _objects_in(child)] if _is_of_tuples(type(tree)) else []
    children, context = node.flatten_fn(tree)
    children = list(children)
    return [*([(tree, children, context)] if type(tree) not in _BUILT_IN and not _is_of_tuples(type(tree)) else []),
            *[each for child in children for each in _objects_in(child)]]


def _attributes_within(tree: Any, leaves: Iterable[Any]) -> List[Hashable]:
    """Keys of the attributes of objects, without their leaves."""
    known = set(map(id, leaves))
    keys: List[Hashable] = []
    for each, children, _ in _objects_in(tree):
        known.update(map(id, children))
        for name, value in attributes_of(each):
            if id(value) in known and not is_plain(value):
                keys.append(name)
            elif is_plain(value):
                keys.append((name, plain_key(value)))
            else:
                kind = type(each).__name__
                raise NimbleError(f"an argument or output is a {kind} with more than torch.utils._pytree finds in it")
    return keys


def differing_objects(ours: Any, theirs: Any) -> Optional[str]:
    """What differs in the objects among outputs that have the same structure and leaves; None where nothing does."""
    objects = _objects_in(theirs)
    for each, _, context in objects:
        again = _pytree.SUPPORTED_NODES[type(each)].flatten_fn(each)[1]
        if again is context and not is_plain(context) and not isinstance(context, type):
            return f"an output is a {type(each).__name__}, and its description by torch.utils._pytree may change"
    if not objects:
        return None
    try:
        one, other = (_attributes_within(each, _pytree.tree_flatten(each)[0]) for each in (ours, theirs))
    except NimbleError as error:
        return str(error)
    return None if one == other else "an object among its outputs has other attributes"


def memory_of(tensors: Iterable[Any]) -> FrozenSet[int]:
    """The addresses where the memory of these tensors begins."""
    return frozenset(map(memory_start, tensors)) - {0}


def shares_memory(call: Call, taken: FrozenSet[int]) -> bool:
    return any(storage_address(call.leaves[number]) in taken for number in call.tensors)
