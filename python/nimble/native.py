"""nimble_native, the package's C++ part (python/native), which lies beside libnimble.so. Where it cannot be loaded, Python does the
same, and takes longer. No PyTorch here; any thread."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

from nimble.launcher import libraries

_INTERFACE = 2  # that of python/native/module.cpp


def _loaded() -> Any:
    """None where there is none that this Python can load, or it is of another version of the package."""
    named = os.environ.get("NIMBLE_LIBRARY", "")
    for library in libraries(Path(__file__).absolute().parent, named):
        path = str(library.with_name("nimble_native.abi3.so"))
        if os.path.isfile(path):
            try:
                spec = spec_from_file_location("nimble_native", path, loader=ExtensionFileLoader("nimble_native", path))
                module = module_from_spec(spec)  # type: ignore[arg-type]
            except ImportError:
                continue
            if module.INTERFACE == _INTERFACE:
                return module
    return None


module: Any = _loaded()


def watched(blocks: Sequence[Tuple[int, int, Tuple[int, ...]]], objects: Sequence[Any], numbers: Sequence[int],
            themselves: bool = True) -> "Optional[Callable[[Sequence[Any]], bool]]":
    """A function that says whether objects, a tuple or a list, are the same ones at these numbers, and lead to the same words in
    memory: python/native/chained_words.h. themselves: else others do, too, that lead to equal words except for pointers. It holds no
    object. None without nimble_native."""
    if module is None:
        return None
    made = module.Watched(blocks, objects, numbers)
    return made.are_same if themselves else made.are_alike  # type: ignore[no-any-return]


def _all_equal(functions: "List[Callable[[], Any]]", values: List[Any]) -> bool:
    return [function() for function in functions] == values


all_equal: "Callable[[List[Callable[[], Any]], List[Any]], bool]" = module.all_equal if module is not None else _all_equal
"""Whether the functions return these values."""
