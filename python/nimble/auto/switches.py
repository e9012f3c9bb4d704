"""PyTorch's state outside of modules: what kernels are chosen by, and what keeps a call from being a graph's, memory among it.

State is that of the calling thread where PyTorch has it by thread. No state of our own; any thread.
"""

from __future__ import annotations

from typing import Any, Callable, Hashable, List, Optional, Tuple

import torch
from torch.autograd import forward_ad as _forward_ad

# Functions of torch._C without arguments. Each release has some of them; those that are not there have nothing to tell.
GETTERS = (
    "_get_blas_preferred_backend",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cublas_allow_fp16_accumulation",
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_cudnn_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_default_device",
    "_get_deterministic_algorithms_warn_only",
    "_get_deterministic_fill_uninitialized_memory",
    "_get_fa3_sdp_enabled",
    "_get_flash_sdp_enabled",
    "_get_linalg_preferred_backend",
    "_get_math_sdp_allow_fp16_bf16_reduction",
    "_get_math_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_overrideable_sdp_enabled",
    "_get_sdp_priority_order",
    "_get_sm_carveout_experimental",
)
# Newer releases have these by part of the library; the older functions raise there where the newer ones were used.
_PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
_OLD_PRECISIONS = ("_get_cublas_allow_tf32", "_get_cudnn_allow_tf32", "_get_float32_matmul_precision")

_C: Any = torch._C  # much of it is not in its stubs, or not in each release


def _getters() -> "List[Callable[[], Any]]":
    found = [getattr(_C, name) for name in GETTERS if hasattr(_C, name)]
    if not hasattr(_C, "_get_fp32_precision_getter"):
        return found + [getattr(_C, name) for name in _OLD_PRECISIONS if hasattr(_C, name)]

    def of_part(part: "Tuple[str, str]") -> "Callable[[], Any]":
        return lambda: _C._get_fp32_precision_getter(*part)

    return found + [of_part(part) for part in _PRECISIONS]


_GET = _getters()
_SAVES_ELSEWHERE: "Callable[[bool], Any]" = getattr(getattr(_C, "_autograd", None), "_top_saved_tensors_default_hooks", lambda _: True)
_PROFILES: "Callable[[], bool]" = getattr(getattr(_C, "_autograd", None), "_profiler_enabled", lambda: False)
_FUNCTORCH: "Callable[[], Any]" = getattr(getattr(_C, "_functorch", None), "peek_interpreter_stack", lambda: None)
try:
    import torch._C._dynamo.eval_frame as _eval_frame

    _DYNAMO: "Callable[[], Any]" = _eval_frame.get_eval_frame_callback
except (ImportError, AttributeError):
    _DYNAMO = lambda: None  # noqa: E731


def _default_device() -> "Tuple[bool, Optional[torch.device]]":
    """Whether what torch.set_default_device() makes is the only mode there is, or there is none; and its device."""
    count = _C._len_torch_function_stack()
    if count == 0:
        return _C._len_torch_dispatch_stack() == 0, None
    mode = _C._get_function_stack_at(0)
    if count > 1 or type(mode).__name__ != "DeviceContext" or _C._len_torch_dispatch_stack() > 0:
        return False, None
    return True, mode.device


def state() -> "Tuple[Hashable, ...]":
    """Equal where the same module and arguments lead to the same kernels, as far as PyTorch's switches go. Training mode,
    autocast, the default dtype and deterministic algorithms are in the call's signature already."""
    values = [get() for get in _GET]
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_cache_enabled(),
            _default_device()[1], *[tuple(value) if type(value) is list else value for value in values])


def why_eager() -> Optional[str]:
    """What is going on around the call that only an eager run can serve; None where nothing is."""
    if _C._get_tracing_state() is not None:
        return "traced by torch.jit"
    if not _default_device()[0]:
        return "under a torch function or dispatch mode"
    if _FUNCTORCH() is not None:
        return "within a transform of torch.func"
    if getattr(_forward_ad, "_current_level", -1) >= 0:
        return "within forward-mode differentiation"
    if _DYNAMO() is not None:
        return "within torch.compile"
    if _PROFILES():
        return "profiled"
    return None


def why_not_trained() -> Optional[str]:
    """The same of what only a backward meets."""
    if not hasattr(_C._autograd, "_get_current_graph_task_keep_graph"):
        return "training, of which this PyTorch does not tell enough"
    if _SAVES_ELSEWHERE(True) is not None:
        return "under hooks for what autograd saves"
    if torch.is_anomaly_enabled():
        return "within anomaly detection"
    return None


def has_other_ranks() -> bool:
    """Collectives of a call that runs once more than those of the other ranks would never end."""
    distributed: Any = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def has_room(device: torch.device, parts: int = 4) -> bool:
    """Whether there is memory for another graph: one part in so many of the GPU's is free."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + max(0, unused) >= total // parts


def is_capturing(device_type: str) -> bool:
    """Whether the current stream's work becomes a graph of the program's."""
    cuda: Any = torch.cuda
    return device_type == "cuda" and bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
