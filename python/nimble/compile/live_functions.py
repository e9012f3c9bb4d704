"""The functions of torch.compile that are alive in this process: what is said of them at exit, and that their graphs are freed then,
while everything they need still exists. Any thread."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Generic, List, TypeVar

from nimble.settings import Settings

if TYPE_CHECKING:
    from nimble.compile.compiled_function import CompiledFunction
    from nimble.compile.traced_graph import TracedGraph

Function = TypeVar("Function", "CompiledFunction", "TracedGraph")


class LiveFunctions(Generic[Function]):
    """what: how a line at exit names them."""

    def __init__(self, settings: Settings, what: str) -> None:
        self._functions: "weakref.WeakSet[Function]" = weakref.WeakSet()
        self._settings, self._what = settings, what
        self._is_registered = False
        self._process = os.getpid()

    def add(self, function: Function) -> None:
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._at_exit)
        self._functions.add(function)

    def all(self) -> List[Function]:
        return list(self._functions)

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        from nimble.compile.compiled_function import lines_of

        try:
            for line in lines_of(self.all(), self._what):
                self._settings.inform(line)
            for each in self.all():
                each.close()
        except Exception:
            pass  # the GPU has failed; the program's own calls have reported that
