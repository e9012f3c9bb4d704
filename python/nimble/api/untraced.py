"""Keeps torch.compile from tracing into a Nimble's call. Imported only where torch.compile traces, since it imports torch._dynamo."""

from __future__ import annotations

from typing import Any, Callable

import torch

_compiler: Any = torch.compiler


def _untraced(model: Any, args: Any, kwargs: Any) -> Any:
    return model(*args, **kwargs)


untraced: "Callable[[Any, Any, Any], Any]" = _compiler.disable(_untraced)
