"""Outermost calls of PyTorch modules, and the AutoModule that each goes to.

install() replaces torch.nn.Module.__call__. Nested calls cost one look at a thread-local number. The AutoModule of an
outermost call is found by the module's id. When the module is freed, the callback of a weak reference removes it with
its graphs, so that Nimble neither keeps the module alive nor writes into it.

Any thread. In a forked child of the process all calls run as they are."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from nimble.auto.skipped_modules import why_skipped
from nimble.auto.auto_module import AutoModule
from nimble.auto.threads import Threads
from nimble.capture.backend import Backend
from nimble.capture.cuda_capture import CudaCapture
from nimble.guards import autocast_cache, switches
from nimble.nesting import nesting
from nimble.objects.memory import has_room
from nimble.settings import Settings

_MOST_LINES = 40

_is_compiling: "Callable[[], bool]" = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


class Auto:
    """The AutoModules of a process."""

    def __init__(self, backend: Backend, settings: Settings, clock: "Callable[[], float]") -> None:
        self.settings = settings
        self.enabled = True
        self.undo: "Callable[[], None]" = lambda: None  # undoes the rest of install()
        self._backend, self._clock = backend, clock
        self.threads = Threads()
        self._modules: "Dict[int, Tuple[weakref.ref[torch.nn.Module], AutoModule]]" = {}
        self._late: List[AutoModule] = []  # their modules were freed when no graph could be
        self._lines: List[str] = []  # of modules that were freed

    def auto_module_for(self, module: torch.nn.Module) -> AutoModule:
        found = self._modules.get(id(module))
        if found is not None:
            return found[1]
        made = AutoModule(type(module), self._backend, self.settings, has_room, self._clock, self.threads)
        try:
            made.why_eager = why_skipped(module, self.settings)
        except Exception as error:
            made.why_eager = f"it cannot be observed: {type(error).__name__}: {error}"
        number = id(module)
        self._modules[number] = weakref.ref(module, lambda _: self._forget(number)), made
        return made

    def call(self, original: "Callable[..., Any]", module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """An outermost call."""
        try:
            if self._late and not switches.is_capturing(self._backend.device_type):
                self._close_late()
            auto_module: Optional[AutoModule] = self.auto_module_for(module)
        except Exception as error:  # whatever keeps a module from being observed
            self.settings.inform(f"{type(module).__name__} is left alone: {type(error).__name__}: {error}")
            auto_module = None
        thread = threading.get_ident()
        try:
            self.threads.enter(thread, auto_module)
            if auto_module is None or auto_module.why_eager is not None:
                return original(module, *args, **kwargs)
            return auto_module.call(original, module, args, kwargs)
        finally:
            self.threads.leave(thread)

    def _forget(self, number: int) -> None:
        """Called when a module was freed, at any point of any thread."""
        found = self._modules.pop(number, None)
        if found is None:
            return
        if not self.enabled:
            self._late.append(found[1])  # in a forked child the graphs are the parent's
            return
        self._lines += lines_of(found[1])
        del self._lines[_MOST_LINES:]
        try:
            if switches.is_capturing(self._backend.device_type):
                self._late.append(found[1])
            else:
                found[1].close()
        except Exception:
            self._late.append(found[1])

    def _close_late(self) -> None:
        while self._late and self.enabled:
            self._late.pop().close()

    def close(self) -> None:
        """Frees all graphs. From now on all calls run as they are."""
        self.enabled = False
        for _, auto_module in list(self._modules.values()):
            auto_module.close()
        for auto_module in self._late:
            auto_module.close()

    def report(self) -> List[str]:
        """A line for each observed module, in the order of their first calls; freed modules first."""
        return self._lines + [line for _, auto_module in list(self._modules.values()) for line in lines_of(auto_module)]


def lines_of(auto_module: AutoModule) -> List[str]:
    """The user's lines about a module; none where it could never have had a graph."""
    reasons = auto_module.reasons()
    if not auto_module.prepared and all(reason.startswith(("an argument is not on", "training")) for reason, _ in reasons):
        return []
    text = f"PyTorch: {auto_module.name}: {auto_module.served} calls served by graphs"
    if auto_module.compared:
        text += f", {auto_module.compared} compared with eager runs"
    if reasons:
        text += f", {sum(count for _, count in reasons)} run eagerly ("
        text += "; ".join(f"{count} {reason}" for reason, count in reasons[:4]) + (")" if len(reasons) <= 4 else "; ...)")
    for graph in auto_module.graphs():
        for report in graph.reports():
            kind = "" if report.kind == "inference" else f" ({report.kind})"
            text += f"; a graph for {report.signature}{kind}, {report.state}"
            if report.own_us is not None and report.rewritten_us is not None:
                text += f" ({report.rewritten_us:.1f} us rewritten, {report.own_us:.1f} us as PyTorch makes it)"
            elif report.why:
                text += f" ({report.why})"
    return [text]


def wrapped(auto: Auto, original: "Callable[..., Any]") -> "Callable[..., Any]":
    """The function that replaces `original`, which is torch.nn.Module.__call__."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if nesting.depth or _is_compiling() or not auto.enabled:
            # What the original does, without another frame.
            compiled = self._compiled_call_impl
            return self._call_impl(*args, **kwargs) if compiled is None else compiled(*args, **kwargs)
        nesting.depth = 1
        try:
            return auto.call(original, self, args, kwargs)
        finally:
            nesting.depth = 0

    def around_original(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if nesting.depth or _is_compiling() or not auto.enabled:
            return original(self, *args, **kwargs)
        nesting.depth = 1
        try:
            return auto.call(original, self, args, kwargs)
        finally:
            nesting.depth = 0

    known = getattr(torch.nn.Module, "_wrapped_call_impl", None)
    made = __call__ if known is original and hasattr(torch.nn.Module, "_compiled_call_impl") else around_original
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(original, name))
    return made


def install(settings: Settings, backend: Optional[Backend] = None, clock: "Callable[[], float]" = time.perf_counter) -> Auto:
    """Observes all calls until uninstall()."""
    auto = Auto(backend if backend is not None else CudaCapture(), settings, clock)
    auto_of_process.append((auto, torch.nn.Module.__call__))
    auto.undo = autocast_cache.install()
    torch.nn.Module.__call__ = wrapped(auto, torch.nn.Module.__call__)  # type: ignore[method-assign]
    os.register_at_fork(after_in_child=lambda: _in_child(auto))
    atexit.register(_at_exit, auto, os.getpid())
    return auto


def uninstall() -> None:
    """Undoes the last install()."""
    auto, original = auto_of_process.pop()
    auto.enabled = False
    auto.undo()
    torch.nn.Module.__call__ = original  # type: ignore[method-assign]


auto_of_process: "List[Tuple[Auto, Callable[..., Any]]]" = []


def _in_child(auto: Auto) -> None:
    auto.enabled = False
    auto.threads.forked()
    nesting.depth = 0


def _at_exit(auto: Auto, process: int) -> None:
    if os.getpid() != process or not auto.enabled:
        return
    try:
        lines = auto.report()
    except Exception as error:
        lines = [f"PyTorch: {type(error).__name__}: {error}"]
    for line in lines[:_MOST_LINES]:
        auto.settings.inform(line)
    if len(lines) > _MOST_LINES:
        auto.settings.inform(f"PyTorch: {len(lines) - _MOST_LINES} more modules")
    try:
        auto.close()  # while all that they need is still there
    except Exception:
        pass
