"""The leaves that gradients go to: stand-ins for parameters while graphs are made, and queries of autograd's graph.

StandIns puts other tensors on the same memory in the places of a module's parameters, buffers and tensor attributes. So autograd
meets leaves of our own: hooks of the parameters do not run while a backward is captured (they run when the gradients arrive, as
usual), no accumulator of an earlier run makes it wait for that run's stream, and each leaf has its own version, so that tensors
saved from it stay valid when the parameters are written to.

Not to be used by two threads at once: the module's own attributes change meanwhile, and another thread that runs it would give its
gradients to the stand-ins."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from itertools import chain
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch

from nimble.errors import NimbleError
from nimble.guards.tensor_memory import attribute_tensors
from nimble.objects.memory import extent, storage_address, take_grad_dtype, unique, versions
from nimble.objects.module_contents import known_by_identity


_standing: Set[int] = set()  # ids of all stand-ins that are in a module's places now


class StandIns:
    """A stand-in for each parameter, buffer and tensor attribute of a module. `pairs`: each stand-in, and its original."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._names = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        if not _standing.isdisjoint(self._names):
            raise NimbleError("the module is being prepared already, by its own forward or by another thread")
        for path, value in known_by_identity(module):
            name = self._names.get(value if type(value) is int else id(value))
            if name is not None:
                raise NimbleError(f"the module knows its parameter or buffer {name!r} by identity, in {path!r}, and would not find what "
                                  "stands in for it while its gradients are prepared: have it keep names there, or keep it elsewhere")
        plain = {id(t): (path, t) for _, _, t, path in attribute_tensors(module)}
        self._paths = {**{number: path for number, (path, _) in plain.items()}, **self._names}
        # Nothing can stand in for a tensor that may be compared by its class, or is looked up as a parameter.
        others = [*module.buffers(), *(t for number, (_, t) in plain.items() if number not in self._names and type(t) is torch.Tensor)]
        self.pairs: List[Tuple[torch.Tensor, torch.Tensor]] = [
            *((_stand_in(p, self._names[id(p)]), p) for p in module.parameters()),
            *((_of_same_memory(t), t) for t in others if not t.is_inference())]
        self.parameters = [pair for pair in self.pairs if isinstance(pair[1], torch.nn.Parameter)]
        self.apart: List[Tuple[torch.Tensor, torch.Tensor]] = []  # see set_apart()
        self._together: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self._users = Counter(storage_address(t) for t in unique((*(given for _, given in self.pairs), *(t for _, t in plain.values()))))
        self._versions = versions([mine for mine, _ in self.parameters])
        self._buffer_versions = {id(mine): mine._version for mine, given in self.pairs if not isinstance(given, torch.nn.Parameter)}
        self._replaced: Set[str] = set()

    def _places(self, others: Dict[int, torch.Tensor]) -> Iterator[Tuple[Any, Any, Any, Any]]:
        """Where tensors with these ids are, and what replaces them: registered, in attributes, or in lists that are attributes. Recurrent
        modules have such lists, and weak references to see whether their weights have been replaced."""
        for child in self._module.modules():
            lists = [each for each in child.__dict__.values() if isinstance(each, list)]
            places: "Iterable[Tuple[Any, Any, Any]]" = chain(
                ((where, key, value) for where in (child._parameters, child._buffers, child.__dict__)
                 for key, value in where.items()),
                ((where, i, value) for where in lists for i, value in enumerate(where)))
            for where, key, value in places:
                if id(value) in others:
                    yield where, key, value, others[id(value)]
                elif isinstance(value, weakref.ref) and id(value()) in others:
                    yield where, key, value, weakref.ref(others[id(value())])

    def set_apart(self, buffers: List[torch.Tensor]) -> None:
        """Gives the stand-ins of these buffers their own memory, which in_place() fills with the buffers' values. Does nothing
        where another tensor of the module shares memory with one of them: it would miss the writes."""
        mine = {id(given): stand_in for stand_in, given in self.pairs}
        if not all(id(buffer) in self._names and id(buffer) in mine and not buffer.requires_grad
                   and self._users[storage_address(buffer)] == 1 for buffer in buffers):
            return
        own = {id(buffer): buffer.detach().clone() for buffer in buffers}
        self._together = list(self.pairs)
        self.pairs[:] = [(own.get(id(given), stand_in), given) for stand_in, given in self.pairs]
        self.apart = [(stand_in, given) for stand_in, given in self.pairs if id(given) in own]

    def put_together(self) -> None:
        """Undoes set_apart(): the stand-ins use the buffers' memory again."""
        if self.apart:
            self.pairs[:] = self._together
            self.apart = []

    def has_written(self) -> bool:
        """Whether a buffer was written to that shares memory with its stand-in, as far as versions tell."""
        apart = {id(mine) for mine, _ in self.apart}
        return any(mine._version != self._buffer_versions[id(mine)] for mine, given in self.pairs
                   if id(mine) in self._buffer_versions and id(mine) not in apart)

    @contextlib.contextmanager
    def in_place(self, of_parameters: bool = True) -> Iterator[None]:
        """While inside, the module has the stand-ins. of_parameters: also those of parameters."""
        copy_all([mine.data for mine, _ in self.apart], [given for _, given in self.apart])
        pairs = [(mine, given) for mine, given in self.pairs if of_parameters or not isinstance(given, torch.nn.Parameter)]
        standing = {id(mine): given for mine, given in pairs}
        _standing.update(standing)
        places = list(self._places({id(given): mine for mine, given in pairs}))
        for where, key, _, stand_in in places:
            where[key] = stand_in
        try:
            yield
        finally:
            _standing.difference_update(standing)
            for where, key, given, stand_in in places:
                if _get(where, key) is not stand_in and isinstance(given, torch.Tensor):
                    if id(given) not in self._names:
                        continue  # what the module has put there stays, whether or not it does so again
                    self._replaced.add(self._names[id(given)])
                if isinstance(where, dict) or key < len(where):
                    where[key] = given
            for where, key, _, given in list(self._places(standing)):  # where the module has put some
                where[key] = given

    def check(self) -> None:
        """Raises NimbleError where the module has written to a parameter, or replaced a parameter or buffer."""
        for name in sorted(self._replaced):
            raise NimbleError(f"the module replaces its buffer or parameter {name!r} when it runs: it has to write in place")
        apart = {id(mine) for mine, _ in self.apart}
        for mine, given in self.pairs:
            if id(mine) not in apart and mine.data_ptr() != given.data_ptr():
                raise NimbleError(f"the module gives {self._paths[id(given)]!r} other memory when it runs")
        for (mine, given), version in zip(self.parameters, self._versions):
            if mine.grad is not None:
                raise NimbleError(f"the module runs a backward that leaves a gradient at its parameter {self._names[id(given)]!r} "
                                  "when it runs, which a graph would not do")
            if mine._version != version:
                raise NimbleError(f"the module writes to its parameter {self._names[id(given)]!r} when it runs, which is not put "
                                  "back")


class CopiesAll:
    """Copies each source to its target, with one kernel per dtype where PyTorch can do that."""

    def __init__(self, targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
        kinds: Dict[torch.dtype, Tuple[List[torch.Tensor], List[torch.Tensor]]] = {}
        for target, source in zip(targets, sources):
            some = kinds.setdefault(target.dtype, ([], []))
            some[0].append(target)
            some[1].append(source)
        self._kinds = list(kinds.values())

    def __call__(self) -> None:
        with torch.no_grad():
            for targets, sources in self._kinds:
                if hasattr(torch, "_foreach_copy_"):
                    torch._foreach_copy_(targets, sources)
                else:
                    for target, source in zip(targets, sources):
                        target.copy_(source)


def copy_all(targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
    CopiesAll(targets, sources)()


def _get(where: Any, key: Any) -> Any:
    return where.get(key) if isinstance(where, dict) else where[key] if key < len(where) else None


def _stand_in(parameter: torch.nn.Parameter, name: str) -> torch.Tensor:
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        raise NimbleError(f"the parameter {name!r} has no memory yet: run the module once before")
    tensor = torch.nn.Parameter(parameter.data, parameter.requires_grad)
    try:
        if type(tensor) is not type(parameter):
            tensor.__class__ = type(parameter)
    except TypeError:
        raise NimbleError(f"the parameter {name!r} is a {type(parameter).__name__}, which nothing can stand in for") from None
    tensor.__dict__.update(parameter.__dict__)
    take_grad_dtype(parameter, tensor)
    return tensor


def _of_same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf on the same memory that requires gradients where the tensor does, so that outputs that depend on it show."""
    found = tensor.data.requires_grad_(tensor.requires_grad)
    found.__dict__.update(tensor.__dict__)
    take_grad_dtype(tensor, found)
    return found


class AutogradGraph:
    """The autograd graph of these tensors: its `leaves`, and which memory it needs when it runs backward."""

    def __init__(self, roots: Iterable[torch.Tensor]) -> None:
        self.nodes: List[Any] = []
        self.leaves: List[torch.Tensor] = []
        self._saved: "Optional[Tuple[Optional[List[torch.Tensor]]]]" = None
        seen: Set[Any] = set()
        waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            self.nodes.append(node)
            if type(node).__name__ == "AccumulateGrad":
                self.leaves.append(getattr(node, "variable"))
            waiting += [before for before, _ in node.next_functions if before is not None]

    def saved(self) -> Optional[List[torch.Tensor]]:
        """The tensors that the graph has saved; None where a node does not tell."""
        if self._saved is None:
            self._saved = (self._found_saved(),)
        return self._saved[0]

    def _found_saved(self) -> Optional[List[torch.Tensor]]:
        found: List[torch.Tensor] = []
        for node in self.nodes:
            tensors = saved_by(node)
            if tensors is None:
                return None
            found += tensors
        return found

    def needs(self, tensors: Iterable[torch.Tensor]) -> List[bool]:
        """For each tensor whether its memory is saved; True also where the nodes do not tell."""
        saved = self.saved()
        if saved is None:
            return [True for _ in tensors]
        ranges: Dict[int, List[Tuple[int, int]]] = {}
        for t in saved:
            if t.layout is torch.strided and t.numel() > 0:
                ranges.setdefault(storage_address(t), []).append(_range_of(t))
        return [any(begin < _range_of(t)[1] and _range_of(t)[0] < end for begin, end in ranges.get(storage_address(t), []))
                for t in tensors]

    def kept_by_functions(self) -> List[torch.Tensor]:
        """Tensors that autograd functions in Python have as attributes, and may write to."""
        return [value for node in self.nodes if isinstance(node, torch.autograd.function.BackwardCFunction)
                for value in vars(node).values() if isinstance(value, torch.Tensor)]

    def runs_once(self) -> bool:
        """Whether the graph surely cannot run a second time unless it is retained: a node that all gradients pass through has
        saved something."""
        node = self.nodes[0] if self.nodes else None
        while node is not None:
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                return False  # it may run without
            if saved_by(node):
                return True
            before = [each for each, _ in node.next_functions if each is not None]
            node = before[0] if len(before) == 1 else None
        return False

    def run_once(self, known: "Dict[Any, bool]") -> "Set[Any]":
        """The nodes that surely cannot run twice. known: earlier findings by node, also of other graphs."""
        for node in self.nodes:
            if node not in known:
                known[node] = _needs_what_it_has_saved(node)
        return {node for node in self.nodes if known[node]}

    def why_unsure(self) -> Optional[str]:
        """Why a replay may behave differently from this graph's backward; None where it surely does not."""
        if any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in self.nodes):
            return "its backward runs Python code"
        saved = self.saved()
        if saved is None:
            return "what its backward needs is unknown"
        return None if saved else "its backward needs nothing of its forward"


def _range_of(tensor: torch.Tensor) -> Tuple[int, int]:
    """The addresses of the first byte and of the one past the last."""
    begin = tensor.data_ptr()
    return begin, begin + extent(tensor)


def _needs_what_it_has_saved(node: Any) -> bool:
    """Whether a node fails without what it has saved. Python functions may not, except those that torch.compile makes."""
    is_pythons = isinstance(node, torch.autograd.function.BackwardCFunction)
    made_by = str(getattr(getattr(type(node), "_forward_cls", None), "__module__", ""))
    return bool(saved_by(node)) and (not is_pythons or made_by.startswith("torch._functorch"))


def saved_by(node: Any) -> Optional[List[torch.Tensor]]:
    """The tensors that a node of autograd's graph has saved; None where it does not tell."""
    names = _names_of_saved(node)
    if names is None:
        return None
    try:
        values = [getattr(node, name) for name in names]
    except RuntimeError:  # it was written to since
        return None
    found = [t for value in values for t in (value if isinstance(value, (tuple, list)) else (value,))]
    return [t for t in found if isinstance(t, torch.Tensor)]


def _names_of_saved(node: Any) -> Optional[List[str]]:
    """None where the node does not show what it has saved."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return ["saved_tensors"]
    names = [name for name in dir(node) if name.startswith("_saved_")]
    return None if not names and type(node).__name__ == "CppFunction" else names


def held_by(tensors: Iterable[torch.Tensor]) -> Optional[List[torch.Tensor]]:
    """The tensors that these tensors' autograd graphs keep alive until they run. None where a node does not tell, or a tensor: views made
    without gradients do not, once their base was written to with gradients."""
    found: List[torch.Tensor] = []
    try:
        nodes = AutogradGraph(tensors).nodes
    except RuntimeError:
        return None
    for node in nodes:
        if _names_of_saved(node) is None:
            return None
        found += saved_by(node) or []
    return found


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """While inside, backwards run on this thread, where libnimble.so sees their launches, instead of on autograd's own."""
    switch = getattr(torch.autograd, "set_multithreading_enabled", None)
    with contextlib.nullcontext() if switch is None else switch(False):
        yield


@contextlib.contextmanager
def own_autocast_cache() -> Iterator[None]:
    """While inside, autocast's cache of cast weights is separate from the program's: a graph must not keep using earlier casts,
    and a capture's casts were never computed."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def gradients(outputs: List[torch.Tensor], towards: List[torch.Tensor], given: "List[Optional[torch.Tensor]]",
              ) -> "List[Optional[torch.Tensor]]":
    """Gradients of the outputs that have one given. What autograd has saved stays valid."""
    used = [(output, grad) for output, grad in zip(outputs, given) if grad is not None]
    with contextlib.ExitStack() as stack:
        for kind in ("cuda", "cpu"):  # a backward runs with the forward's settings
            if _autocast_is_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        return list(torch.autograd.grad([output for output, _ in used], towards, [grad for _, grad in used], retain_graph=True,
                                        allow_unused=True))


def _autocast_is_enabled(kind: str) -> bool:
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(kind)
    return torch.is_autocast_enabled() if kind == "cuda" else torch.is_autocast_cpu_enabled()


def _increment() -> "Callable[[List[torch.Tensor]], None]":
    increment: Any = getattr(torch.autograd.graph, "increment_version", None)

    def none(_: List[torch.Tensor]) -> None:
        pass

    def one_by_one(tensors: List[torch.Tensor]) -> None:
        for each in tensors:
            increment(each)

    if increment is None:  # before 2.1
        return none
    try:
        increment([torch.empty(0, device="cpu")])
    except RuntimeError:  # releases that take no lists
        return one_by_one
    return increment  # type: ignore[no-any-return]


# Raises the versions of tensors, so that autograd reports it where a backward has saved one.
mark_written: "Callable[[List[torch.Tensor]], None]" = _increment()
