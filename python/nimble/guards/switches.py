"""PyTorch's state outside of modules: the switches that kernels are chosen by, and conditions that keep a graph from serving
a call.

Each thread sees its own state where PyTorch keeps it per thread. Any thread."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple

import torch
from torch.autograd import forward_ad as _forward_ad

# A switch is anything that torch._C can get and set by functions of one name, which includes switches of later releases. The
# setters for attention have different names, and two switches have no setter.
_ATTENTION = "_sdp_enabled"
_WITHOUT_SETTER = ("_get_default_device", "_get_deterministic_algorithms_warn_only")
# Switches that choose no kernel on NVIDIA GPUs, or are compared elsewhere.
_OTHERS = frozenset((
    "_get_autograd_fallback_mode",
    "_get_backcompat_broadcast_warn",
    "_get_backcompat_keepdim_warn",
    "_get_cpu_allow_fp16_reduced_precision_reduction",
    "_get_deterministic_algorithms",
    "_get_dispatch_mode",
    "_get_fake_constant",
    "_get_graph_exec_group",
    "_get_graph_executor_optimize",
    "_get_miopen_immediate",
    "_get_mkldnn_deterministic",
    "_get_mkldnn_enabled",
    "_get_nnpack_enabled",
    "_get_onednn_allow_tf32",
    "_get_qengine",
    "_get_rocm_fa_preferred_backend",
    "_get_tensor_metadata",
    "_get_thread_name",
    "_get_torch_function_state",
    "_get_tracing_state",
    "_get_value_trace",
    "_get_warnAlways",
))
# Newer releases have these per part of the library; there the older functions raise once the newer ones were used.
_PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
_OLD_PRECISIONS = ("_get_cublas_allow_tf32", "_get_cudnn_allow_tf32", "_get_float32_matmul_precision")

_NAMED = ("_cuda_tunableop_is_enabled", "_cuda_tunableop_tuning_is_enabled", "_cuda_get_cudnn_benchmark_limit")  # with names of other forms

_C: Any = torch._C  # much of it is not in its stubs, or not in each release


def _getters(of: Any) -> "List[Callable[[], Any]]":
    """The getters of torch._C, which is `of`."""
    names = [name for name in dir(of) if name.startswith("_get_") and name not in _OTHERS and name not in _OLD_PRECISIONS
             and (hasattr(of, "_set_" + name[len("_get_"):]) or name.endswith(_ATTENTION) or name in _WITHOUT_SETTER)]
    names += [name for name in _NAMED if hasattr(of, name)]
    if hasattr(of, "_get_fp32_precision_getter"):
        precisions = [functools.partial(of._get_fp32_precision_getter, *part) for part in _PRECISIONS]
    else:
        precisions = [getattr(of, name) for name in _OLD_PRECISIONS if hasattr(of, name)]
    return [*(getattr(of, name) for name in names if _tells(getattr(of, name))), *precisions]


def _tells(getter: "Callable[[], Any]") -> bool:
    """Whether the getter takes no arguments and its values can be compared."""
    try:
        value = getter()
        hash(tuple(value) if type(value) is list else value)
    except Exception:
        return False
    return True


_GET = [*_getters(_C), torch.is_autocast_cache_enabled, torch.get_default_dtype]
_SAVES_ELSEWHERE: "Optional[Callable[[bool], Any]]" = getattr(getattr(_C, "_autograd", None), "_top_saved_tensors_default_hooks",
                                                              None)


def _asked_for_hooks() -> "Callable[[], Any]":
    """This release's function bound to the arguments that it takes, if it has one."""
    for arguments in ((True,), ()):
        try:
            if _SAVES_ELSEWHERE is not None:
                _SAVES_ELSEWHERE(*arguments)
                return functools.partial(_SAVES_ELSEWHERE, *arguments)
        except TypeError:
            continue
    return lambda: None


_TOP_HOOKS = _asked_for_hooks()
_PROFILES: "Callable[[], bool]" = getattr(getattr(_C, "_autograd", None), "_profiler_enabled", lambda: False)
_FUNCTORCH: "Callable[[], Any]" = getattr(getattr(_C, "_functorch", None), "peek_interpreter_stack", lambda: None)
_FUNCTION_MODES: "Callable[[], int]" = _C._len_torch_function_stack
_DISPATCH_MODES: "Callable[[], int]" = _C._len_torch_dispatch_stack
_TRACED: "Callable[[], Any]" = _C._get_tracing_state
_DYNAMO: "Callable[[], Any]" = getattr(getattr(getattr(_C, "_dynamo", None), "eval_frame", None), "get_eval_frame_callback",
                                       lambda: None)


def _default_device() -> "Tuple[bool, Optional[torch.device]]":
    """Whether there is no mode but the one of torch.set_default_device(); and its device."""
    count = _C._len_torch_function_stack()
    if count == 0:
        return _C._len_torch_dispatch_stack() == 0, None
    mode = _C._get_function_stack_at(0)
    if count > 1 or type(mode).__name__ != "DeviceContext" or _C._len_torch_dispatch_stack() > 0:
        return False, None
    return True, mode.device


def _of_python() -> "List[Callable[[], Any]]":
    """Switches that are variables in PyTorch's Python modules."""
    mha = vars(getattr(torch.backends, "mha", torch.backends))
    einsum = vars(getattr(getattr(torch.backends, "opt_einsum", None), "m", torch.backends))
    places = ((mha, "_is_fastpath_enabled"), (einsum, "enabled"), (einsum, "strategy"))
    return [functools.partial(space.get, name) for space, name in places if name in space]


_GET += _of_python()


def state() -> "Tuple[Hashable, ...]":
    """Equal where PyTorch's switches lead the same module and arguments to the same kernels. The call's signature already has
    training mode, autocast, the default dtype and deterministic algorithms."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), kernels()


class Kernels:
    """One object for each setting of the switches."""


_known: "Dict[Tuple[Hashable, ...], Kernels]" = {}
_last: "Tuple[List[Any], Kernels]" = [], Kernels()


def kernels() -> Kernels:
    """state() without the modes of gradients, which are in the signature where they matter."""
    global _last
    values = [get() for get in _GET]
    values.append(_default_device()[1])
    before, found = _last
    if values != before:
        found = _known.setdefault(tuple([tuple(value) if type(value) is list else value for value in values]), Kernels())
        _last = values, found
    return found


def autocast() -> "Tuple[bool, bool, torch.dtype, torch.dtype]":
    """Whether autocast is enabled on GPUs and on the CPU, and the dtypes there, which a nested autocast takes unless it names its own."""
    return (torch.is_autocast_enabled(), torch.is_autocast_cpu_enabled(), torch.get_autocast_gpu_dtype(), torch.get_autocast_cpu_dtype())


if hasattr(torch, "get_autocast_dtype"):  # where it exists, the per-device functions are deprecated
    def autocast() -> "Tuple[bool, bool, torch.dtype, torch.dtype]":  # noqa: F811
        return (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cuda"), torch.get_autocast_dtype("cpu"))


def kernels_and_modes() -> "Tuple[Hashable, ...]":
    """All switches that a function has to leave unchanged to be captured, with those of a call's signature."""
    return kernels(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), autocast()


# For messages: the effect of a function that does not restore the switches.
CHANGES_SWITCHES = ("changes a switch of PyTorch that kernels are chosen by (TF32, deterministic algorithms, the default dtype or device), "
                    "which a graph would not do: change it outside, or restore it within")


def why_not_replayed() -> Optional[str]:
    """What observes the ops of the call, since a replay has none; None where nothing does."""
    if (_FUNCTION_MODES() == 0 and _DISPATCH_MODES() == 0 and _FUNCTORCH() is None and _DYNAMO() is None and _TRACED() is None
            and _forward_ad._current_level < 0):
        return None  # the common case, in a third of a microsecond
    if _C._get_tracing_state() is not None:
        return "traced by torch.jit"
    if not _default_device()[0]:
        return "under a torch function or dispatch mode"
    if _FUNCTORCH() is not None:
        return "within a transform of torch.func"
    if _forward_ad._current_level >= 0:
        return "within forward-mode differentiation"
    if _DYNAMO() is not None:
        return "within torch.compile"
    return None


def why_eager() -> Optional[str]:
    """The context that requires an eager run of the call; None where nothing does."""
    return why_not_replayed() or ("profiled" if _PROFILES() else None)


def saves_elsewhere() -> bool:
    """Whether hooks for saved tensors are active, as far as this PyTorch tells."""
    return _TOP_HOOKS() is not None


def why_not_trained() -> Optional[str]:
    """The context that requires an eager run of a training call; None where nothing does."""
    if _SAVES_ELSEWHERE is None or not hasattr(_C._autograd, "_get_current_graph_task_keep_graph"):
        return "training, and this PyTorch is too old to observe it"  # up to 2.7
    if _SAVES_ELSEWHERE(True) is not None:
        return "under hooks for what autograd saves"
    if torch.is_anomaly_enabled():
        return "within anomaly detection"
    return None


def has_other_ranks() -> bool:
    """Whether there are other ranks. Collectives of a call that runs more often than theirs would never end."""
    distributed: Any = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def is_capturing(device_type: str) -> bool:
    """Whether the program is capturing a graph on the current stream."""
    cuda: Any = torch.cuda
    return device_type == "cuda" and bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
