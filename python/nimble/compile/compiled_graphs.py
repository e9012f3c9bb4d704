"""Replaces the CUDA graphs that torch.compile makes itself (modes `reduce-overhead` and `max-autotune`), where PyTorch may
allocate in stream order: inference gets graphs of ours (compiled_function.py), training runs without.

PyTorch's own graphs need a feature of its native allocator (to restore the state of a pool), and would fail with an error
that the program does not have without Nimble. Functions compiled for training run as in torch.compile's default mode.

nimble.auto.hook calls install() after PyTorch's import. PyTorch loads the module that makes these graphs when it first needs it; its
functions are replaced then. Any thread."""

from __future__ import annotations

import inspect
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Set

from nimble import shim
from nimble import settings
from nimble.compile.live_functions import LiveFunctions
from nimble.errors import NimbleError

if TYPE_CHECKING:
    from nimble.compile.compiled_function import CompiledFunction

MAKER = "torch._inductor.cudagraph_trees"
_FUNCTION, _MANAGER = "cudagraphify_impl", "get_manager"
_IN_STREAM_ORDER = "cudaMallocAsync"
_ROOM = 16  # 1/16 of the GPU's memory must stay free; PyTorch's own graphs would take some, too


def install() -> None:
    """Replaces the functions, now or when their module is loaded. Does nothing the second time."""
    if MAKER in sys.modules:
        _look_at(sys.modules[MAKER])
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """An import finder that waits for the module, and removes itself when it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name != MAKER:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loading(spec.loader)  # type: ignore[assignment]
        return spec


class _Loading:
    """The module's loader, with the replacement after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        made: Optional[ModuleType] = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _look_at(module)


def _look_at(module: ModuleType) -> None:
    original = getattr(module, _FUNCTION, None)
    if original is None or hasattr(original, "is_of_nimble"):
        return
    setattr(module, _FUNCTION, _unless_in_stream_order(module, original))
    if hasattr(module, _MANAGER):
        setattr(module, _MANAGER, _or_none_that_answers(getattr(module, _MANAGER)))


class _NoGraphs:
    """Replaces the manager of a device's graphs: a backward that is compiled without graphs tells it that it begins."""

    def __bool__(self) -> bool:
        return False

    def set_to_running_backward(self) -> None:
        pass


def _or_none_that_answers(original: "Callable[..., Any]") -> "Callable[..., Any]":
    """get_manager(device_index, create_if_none_exists), which would return None where all graphs were left out."""

    def get_manager(*arguments: Any, **more: Any) -> Any:
        found = original(*arguments, **more)
        return found if found is not None or not _is_in_stream_order() else _NoGraphs()

    return get_manager


def _is_in_stream_order() -> bool:
    import torch

    return torch.cuda.get_allocator_backend() == _IN_STREAM_ORDER


def _unless_in_stream_order(module: Any, original: "Callable[..., Any]") -> "Callable[..., Any]":
    """cudagraphify_impl(model, inputs, ...), which returns what is called instead of the compiled model, with a list of inputs."""
    ours = _Ours()

    def cudagraphify_impl(model: "Callable[..., Any]", inputs: List[Any], static_input_idxs: Sequence[int] = (), *arguments: Any,
                          **more: Any) -> Any:
        if not _is_in_stream_order():
            return original(model, inputs, static_input_idxs, *arguments, **more)
        told = more.get("mutated_input_idxs")  # old releases do not tell
        written = set(told or ())
        made: "Optional[Callable[..., Any]]" = None

        def run(inputs: List[Any]) -> Any:
            nonlocal made
            if made is None:  # the inputs that it is compiled with may only be descriptions
                aligned = _aligned(module, model, inputs, static_input_idxs, written)
                made = ours.function(aligned, inputs, static_input_idxs, written if told is not None else None,
                                     bool(more.get("is_inference")))
            return made(inputs)

        return run

    cudagraphify_impl.is_of_nimble = True  # type: ignore[attr-defined]
    return cudagraphify_impl


def _aligned(module: Any, model: "Callable[..., Any]", inputs: List[Any], static: Sequence[int],
             written: Set[int]) -> "Callable[..., Any]":
    """The model, called with aligned inputs, as kernels may expect. PyTorch's graphs copy their arguments for that."""
    check = module.get_input_idxs_to_check(inputs, static)
    align: "Callable[..., Callable[..., Any]]" = module.align_inputs_from_check_idxs
    if "mutated_input_idxs" not in inspect.signature(align).parameters:
        return align(model, inputs_to_check=check)
    return align(model, inputs_to_check=check, mutated_input_idxs=written)


class _Ours:
    """Replaces PyTorch's graphs."""

    def __init__(self) -> None:
        self._settings = settings.read()
        self._functions: "LiveFunctions[CompiledFunction]" = LiveFunctions(self._settings, "torch.compile")
        self._has_warned = False

    def function(self, model: "Callable[..., Any]", inputs: List[Any], static: Sequence[int], written: "Optional[Set[int]]",
                 is_inference: bool) -> "Callable[..., Any]":
        """Returns what to call instead of the model. written: None where that is unknown."""
        if not is_inference:
            self._warn("those of training are left out")
            return model
        if written is None or settings.word("TORCH") == "off" or not self._rewrites():
            self._warn("they are left out")
            return model
        from nimble.compile.compiled_function import CompiledFunction
        from nimble.capture.cuda_capture import CudaCapture
        from nimble.objects.memory import has_room

        made = CompiledFunction(model, inputs, static, written, CudaCapture(), self._settings,
                                lambda device: has_room(device, _ROOM))
        self._functions.add(made)
        return made

    @staticmethod
    def _rewrites() -> bool:
        try:
            shim.check()
            return True
        except NimbleError:
            return False

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._settings.warn(f"torch.compile's own CUDA graphs (reduce-overhead, max-autotune): {text}, since PyTorch cannot make "
                                "them where memory is allocated in stream order, as Nimble needs it. PYTORCH_ALLOC_CONF=backend:native "
                                "restores them, and Nimble sees less")
