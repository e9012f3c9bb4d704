"""A Nimble's call where torch.compile traces what is around it: it is left out of that. Imported from there alone, since it takes
torch._dynamo along."""

from __future__ import annotations

from typing import Any, Callable

import torch

_compiler: Any = torch.compiler


def _untraced(model: Any, args: Any, kwargs: Any) -> Any:
    return model(*args, **kwargs)


untraced: "Callable[[Any, Any, Any], Any]" = _compiler.disable(_untraced)
