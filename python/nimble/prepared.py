"""One prepared graph: a module's run for one signature, captured, with inputs and outputs in memory of its own.

prepare() makes it, and leaves the module as it was. A PreparedGraph may be called from any thread: a lock keeps a call's copies
and its replay together. Calls on different streams follow each other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils import _pytree

from nimble.capture import Backend, Captured
from nimble.errors import CaptureError, NimbleError
from nimble.nesting import inside
from nimble.signatures import Call, is_constant, place_of
from nimble.state import ModuleGuard, StateKeeper, is_same, plain_tensors


@dataclass(frozen=True)
class Options:
    """Of prepare(): the original's."""

    use_multi_stream: bool = True
    relaxed: bool = False


@dataclass(frozen=True)
class GraphReport:
    """What is known of a prepared graph. `state`: kept, trying, own or rewritten, as nimble_graph_state; `unknown` where
    libnimble.so does not know the graph. Times in microseconds are medians of a launch. `static_bytes`: inputs and outputs."""

    signature: str
    state: str
    nodes: int
    streams: int
    own_us: Optional[float]
    rewritten_us: Optional[float]
    prepare_seconds: float
    static_bytes: int
    why: str


class _Input:
    """A tensor argument's own memory, with the argument's strides."""

    def __init__(self, number: int, like: torch.Tensor) -> None:
        self.number = number
        self._single = [d for d, (size, stride) in enumerate(zip(like.shape, like.stride())) if stride == 0 and size > 1]
        source = self._without_repeats(like.detach())
        self._memory = torch.empty_strided(source.shape, source.stride(), dtype=like.dtype, device=like.device).copy_(source)
        self.tensor = self._memory.expand(like.shape) if self._single else self._memory

    def _without_repeats(self, tensor: torch.Tensor) -> torch.Tensor:
        for dimension in self._single:
            tensor = tensor.narrow(dimension, 0, 1)
        return tensor

    def take(self, tensor: torch.Tensor) -> None:
        if tensor is not self.tensor:
            self._memory.copy_(self._without_repeats(tensor), non_blocking=True)


class PreparedGraph:
    """Made by prepare()."""

    def __init__(self, call: Call, inputs: List[_Input], captured: Captured, guard: ModuleGuard, options: Options, seconds: float,
                 written: List[_Input], own: List[torch.Tensor]) -> None:
        self.options = options
        self.guard = guard
        self.calls = 0
        self.short_lived = 0  # graphs before it for the same signature that few calls used, in a row
        self.static_arguments = call.rebuilt(_with(call, inputs))
        """(args, kwargs): a call with these copies nothing."""
        self._signature = str(call.signature)
        self._inputs = inputs
        self._written = written  # by the module, in place
        self._captured = captured
        self._seconds = seconds
        self._lock = threading.Lock()
        self._leaves, self._structure = _pytree.tree_flatten(captured.outputs)
        statics = {id(i.tensor): i.number for i in inputs}
        as_they_are = {id(t) for t in own}
        # Of each output: the argument that it is, or itself where it never changes, or what is to be copied.
        self._plan = [(statics.get(id(leaf)), not isinstance(leaf, torch.Tensor) or id(leaf) in as_they_are)
                      for leaf in self._leaves]

    def __call__(self, call: Call, static_outputs: bool) -> Any:
        """Runs the graph with the arguments of a call of its signature. The outputs are the caller's, unless they are to be the
        graph's own, which the next call overwrites."""
        leaves = call.leaves
        with self._lock:
            self.calls += 1
            self._captured.follow()
            if self._written:
                self._check_apart(call)
            for each in self._inputs:
                each.take(leaves[each.number])
            self._captured.replay()
            for each in self._written:
                if leaves[each.number] is not each.tensor:
                    leaves[each.number].copy_(each.tensor)
            outputs: List[Any] = []
            copies: Dict[int, torch.Tensor] = {}
            for leaf, (argument, is_kept) in zip(self._leaves, self._plan):
                if argument is not None:
                    leaf = leaves[argument]
                elif not is_kept and not static_outputs:
                    copy = copies.get(id(leaf))
                    if copy is None:
                        copy = copies[id(leaf)] = leaf.clone()
                    leaf = copy
                outputs.append(leaf)
        return _pytree.tree_unflatten(outputs, self._structure)

    def _check_apart(self, call: Call) -> None:
        """The graph's inputs share no memory: where the module writes to one, the call's may not, either."""
        storages = [storage_of(call.leaves[i.number]) for i in self._inputs]
        for each in self._written:
            if storages.count(storage_of(call.leaves[each.number])) > 1:
                raise NimbleError(f"the module writes to {call.place(each.number)}, which shares memory with another argument")

    def close(self) -> None:
        """Waits until the GPU has done with it, so that its memory may go."""
        with self._lock:
            self._captured.close()

    def report(self) -> GraphReport:
        status = self._captured.status()
        tensors = [i.tensor for i in self._inputs] + [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
        memory = {storage_of(t): _storage_bytes(t) for t in tensors}
        if status is None:
            return GraphReport(self._signature, "unknown", 0, 0, None, None, self._seconds, sum(memory.values()), "")
        return GraphReport(self._signature, status.state.name.lower(), status.nodes, status.streams, status.own_us,
                           status.rewritten_us, self._seconds, sum(memory.values()), status.text)


class _ModuleWork:
    """A run of the module with arguments of the graph's own, as nimble.capture.Work."""

    def __init__(self, module: torch.nn.Module, call: Call, keeper: StateKeeper) -> None:
        self._module, self._call, self._keeper = module, call, keeper
        self.inputs = [_Input(number, call.leaves[number]) for number in call.tensors]
        self.written: List[_Input] = []
        self.attributes: Dict[str, torch.Tensor] = {}  # as they are before the last capture
        self._args, self._kwargs = call.rebuilt(_with(call, self.inputs))
        self._versions = [i.tensor._version for i in self.inputs]
        self._compared = False

    def run(self) -> Any:
        return self._module(*self._args, **self._kwargs)

    def reset(self) -> None:
        self._keeper.restore_buffers()
        if not self._compared:  # with what was written to in place
            self._compared = True
            self.written = [i for i, version in zip(self.inputs, self._versions)
                            if i.tensor._version != version or not is_same(i.tensor, self._call.leaves[i.number])]
        for each in self.written:
            each.take(self._call.leaves[each.number])

    def before_capture(self) -> None:
        self.attributes = _attributes(self._module)


def prepare(module: torch.nn.Module, call: Call, backend: Backend, options: Options) -> PreparedGraph:
    """Captures the module's run for a call. Runs it a few times, with copies of the arguments, and leaves the module, random
    numbers and PyTorch's modes as they were. NimbleError says why it cannot be, and where; what the module itself raises when it
    runs passes through."""
    began = time.perf_counter()
    if call.signature.training or call.signature.grad:
        raise NimbleError("only inference can be prepared: call eval() on the module" if call.signature.training else
                          "only inference can be prepared, and an argument requires gradients: use torch.no_grad(), or detach it")
    device = _device_of(module, call, backend)
    keeper = StateKeeper(module)
    device_random = backend.random_state(device)
    try:
        with inside(), _inference():
            work = _ModuleWork(module, call, keeper)
            captured = _capture(module, work, backend, device, options)
        keeper.check_module()
        if not backend.draws_on_host:
            keeper.check_random()
        _check_attributes(work.attributes, module)
        _check_outputs(captured.outputs, backend.device_type)
    finally:
        keeper.restore()
        backend.set_random_state(device, device_random)
    guard = ModuleGuard(module, backend.device_type)
    return PreparedGraph(call, work.inputs, captured, guard, options, time.perf_counter() - began, work.written,
                         [*module.parameters(), *module.buffers()])


def _with(call: Call, inputs: List[_Input]) -> List[Any]:
    """The call's leaves with the graph's own tensors in the place of each argument's."""
    own = {id(call.leaves[i.number]): i.tensor for i in inputs}
    return [own.get(id(leaf), leaf) for leaf in call.leaves]


@contextlib.contextmanager
def _inference() -> Iterator[None]:
    """No gradients; tensors that are made here can be written anywhere; and no copies of weights that autocast has made before,
    which the graph would use without their being looked at."""
    cached = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _capture(module: torch.nn.Module, work: _ModuleWork, backend: Backend, device: torch.device, options: Options) -> Captured:
    try:
        return backend.capture(work, device, options.use_multi_stream, options.relaxed)
    except CaptureError as error:
        if error.place is None and error.__cause__ is not None:
            raise CaptureError(error.reason, _module_at(module, error.__cause__)) from error.__cause__
        raise


def _module_at(module: torch.nn.Module, error: BaseException) -> Optional[str]:
    """The path of the innermost module whose method was running when the first of a chain of errors was raised."""
    while error.__context__ is not None:
        error = error.__context__
    names = {id(child): name for name, child in module.named_modules()}
    place: Optional[str] = None
    trace: Optional[TracebackType] = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        place = names.get(id(owner), place)
        trace = trace.tb_next
    return place


def _device_of(module: torch.nn.Module, call: Call, backend: Backend) -> torch.device:
    """The one device of the arguments, or of the module where no argument is a tensor."""
    device: Optional[torch.device] = None
    for number in call.tensors:
        here = call.leaves[number].device
        if here.type != backend.device_type:
            raise NimbleError(f"{call.place(number)} is on {here}, not on {backend.device_type}: a graph cannot read it there")
        if device is not None and here != device:
            raise NimbleError(f"{call.place(number)} is on {here}, another argument on {device}")
        device = here
    if device is None:
        device = next((t.device for t in (*module.parameters(), *module.buffers()) if t.device.type == backend.device_type), None)
    if device is None:
        raise NimbleError(f"neither an argument nor the module is on {backend.device_type}")
    return device


def _attributes(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    return {path: tensor for _, _, tensor, path in plain_tensors(module)}


def _check_attributes(before: Dict[str, torch.Tensor], module: torch.nn.Module) -> None:
    """What a module makes once, and keeps, is fine. What it assigns at each run would never be assigned by a graph."""
    for path, tensor in _attributes(module).items():
        if before.get(path) is not tensor:
            raise NimbleError(f"the module assigns a tensor to its attribute {path!r} at each run, which a graph would not do")


def _check_outputs(outputs: Any, device_type: str) -> None:
    for number, leaf in enumerate(_pytree.tree_flatten(outputs)[0]):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type != device_type:
                raise NimbleError(f"{place_of(outputs, number, 'output')} is on {leaf.device}, where a graph does not write")
        elif not is_constant(leaf):
            raise NimbleError(f"{place_of(outputs, number, 'output')} is a {type(leaf).__name__}, in which tensors may be "
                              "hidden: register it with torch.utils._pytree")


def storage_of(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage") else tensor.storage().data_ptr()


def _storage_bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() if hasattr(tensor, "untyped_storage") else tensor.storage().nbytes()
