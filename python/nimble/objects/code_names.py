"""The names that code objects have: which ones the code reads, and which methods it may call implicitly. No state; any thread."""

from __future__ import annotations

import dis
import functools
import sys
import types
from typing import AbstractSet, Any, FrozenSet, Iterator, Set, Tuple

# Special methods that no syntax calls on an existing object: they make it, or describe it for people or pickle.
_NOT_CALLED = {f"__{name}__" for name in (
    "init", "new", "init_subclass", "class_getitem", "set_name", "post_init", "del", "repr", "str", "format", "dir", "sizeof", "reduce",
    "reduce_ex", "getstate", "setstate", "getnewargs", "getnewargs_ex", "copy", "deepcopy", "replace")}
_WALKS = frozenset(("modules", "named_modules", "children", "named_children", "apply", "get_submodule", "_modules"))
_OF_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_NAME", "IMPORT_FROM"))
_TAKES_ALL = frozenset(("vars", "__dict__", "asdict", "astuple"))
_MADE = ("<string>", "<attrs ")  # the files of methods that dataclasses and the like generate


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from codes_of(each)


@functools.lru_cache(maxsize=4096)
def _named_by(code: types.CodeType) -> Tuple[dis.Instruction, ...]:
    """The instructions of the code, without those of code within it, that have a name."""
    return tuple(i for i in dis.get_instructions(code) if i.opcode in dis.hasname) if code.co_names else ()


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> FrozenSet[str]:
    return frozenset(name for each in codes_of(code) for name in (*each.co_names, *each.co_freevars))


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> FrozenSet[str]:
    """The names that the code may look up among globals: not those that it only has for attributes and modules."""
    return frozenset(i.argval for each in codes_of(code) for i in _named_by(each) if i.opname not in _OF_ATTRIBUTES)


def stored_by(code: types.CodeType, instructions: AbstractSet[str]) -> Set[str]:
    """The names that the code has in instructions of these kinds."""
    return {i.argval for each in codes_of(code) for i in _named_by(each) if i.opname in instructions}


@functools.lru_cache(maxsize=4096)
def read_by(code: types.CodeType) -> FrozenSet[str]:
    """The names that the code has, except those that it only calls as methods."""
    read: Set[str] = set()
    for each in codes_of(code):
        named = _named_by(each)
        called = {i.argval for i in named if _loads_a_method(i)}
        others = {i.argval for i in named if not _loads_a_method(i)}
        read.update(set(each.co_names) - (called - others), each.co_freevars)
    return frozenset(read)


def _loads_a_method(instruction: dis.Instruction) -> bool:
    """Whether the instruction loads a method only to call it: from 3.12 on that is in its argument."""
    if sys.version_info >= (3, 12):
        return instruction.opname == "LOAD_ATTR" and bool((instruction.arg or 0) & 1)
    return instruction.opname == "LOAD_METHOD"


def walks(names: AbstractSet[str]) -> bool:
    """Whether code with these names may reach submodules without naming each one."""
    return not names.isdisjoint(_WALKS)


def takes_all(names: AbstractSet[str]) -> bool:
    """Whether code with these names may read attributes without naming each one."""
    return not names.isdisjoint(_TAKES_ALL)


def is_called(name: str, value: Any) -> bool:
    """Whether syntax, or a built-in function, may call this attribute of a class of the program's. Methods that dataclasses and the
    like generate are excluded: they read every attribute."""
    if not (name.startswith("__") and name.endswith("__")) or name in _NOT_CALLED:
        return False
    function = getattr(value, "__func__", value)
    return isinstance(function, types.FunctionType) and not function.__code__.co_filename.startswith(_MADE)
