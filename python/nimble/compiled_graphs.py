"""CUDA graphs that torch.compile makes of its own accord (modes `reduce-overhead` and `max-autotune`), where PyTorch has been told
to take memory in stream order: they are left out.

They need what PyTorch's own allocator alone can do (to put the state of a pool back), and would end the program with an error that
it does not meet without Nimble. What is compiled runs without them, as in torch.compile's default mode.

install() is called behind PyTorch's import, by nimble.startup. PyTorch loads the module that makes these graphs when it first
needs it; what it is asked for is looked at then. Any thread.
"""

from __future__ import annotations

import inspect
import sys
from importlib import util
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, List, Optional, Sequence

from nimble.auto import settings

MAKER = "torch._inductor.cudagraph_trees"
_FUNCTION, _MANAGER = "cudagraphify_impl", "get_manager"
_IN_STREAM_ORDER = "cudaMallocAsync"


def install() -> None:
    """Once; again does nothing."""
    if MAKER in sys.modules:
        _look_at(sys.modules[MAKER])
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """A finder that waits for the module, and goes when it comes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name != MAKER:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loading(spec.loader)  # type: ignore[assignment]
        return spec


class _Loading:
    """The module's loader, and what is done behind it."""

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
    if original is None or hasattr(original, "nimble_leaves_out"):
        return
    setattr(module, _FUNCTION, _unless_in_stream_order(module, original))
    if hasattr(module, _MANAGER):
        setattr(module, _MANAGER, _or_none_that_answers(getattr(module, _MANAGER)))


class _NoGraphs:
    """In the place of who keeps a device's graphs: a backward that is compiled without one tells them that it begins."""

    def __bool__(self) -> bool:
        return False

    def set_to_running_backward(self) -> None:
        pass


def _or_none_that_answers(original: "Callable[..., Any]") -> "Callable[..., Any]":
    """get_manager(device_index, create_if_none_exists), which finds none where all graphs were left out."""

    def get_manager(*arguments: Any, **more: Any) -> Any:
        found = original(*arguments, **more)
        return found if found is not None or not _is_in_stream_order() else _NoGraphs()

    return get_manager


def _is_in_stream_order() -> bool:
    import torch

    return torch.cuda.get_allocator_backend() == _IN_STREAM_ORDER


def _unless_in_stream_order(module: Any, original: "Callable[..., Any]") -> "Callable[..., Any]":
    """cudagraphify_impl(model, inputs, ...): what is to be called instead of the compiled model, with a list of inputs."""
    has_warned = False

    def cudagraphify_impl(model: "Callable[..., Any]", inputs: List[Any], static_input_idxs: Sequence[int] = (), *arguments: Any,
                          **more: Any) -> Any:
        if not _is_in_stream_order():
            return original(model, inputs, static_input_idxs, *arguments, **more)
        nonlocal has_warned
        if not has_warned:
            has_warned = True
            settings.read().warn("torch.compile's own CUDA graphs (reduce-overhead, max-autotune) are left out: PyTorch cannot make "
                                 "them where memory comes in stream order, as Nimble has it. With PYTORCH_ALLOC_CONF=backend:native "
                                 "they are there, and Nimble sees less")
        # A graph has its arguments copied to where kernels may expect them; without one this is all that is left of that.
        check = module.get_input_idxs_to_check(inputs, static_input_idxs)
        align = module.align_inputs_from_check_idxs
        if "mutated_input_idxs" not in inspect.signature(align).parameters:
            return align(model, inputs_to_check=check)
        return align(model, inputs_to_check=check, mutated_input_idxs=set(more.get("mutated_input_idxs", ())))

    cudagraphify_impl.nimble_leaves_out = True  # type: ignore[attr-defined]
    return cudagraphify_impl
