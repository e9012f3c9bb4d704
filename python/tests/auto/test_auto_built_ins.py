"""nimble.auto: built-in names, Python's own modules, the environment and loggers that a module's code reads. Where they
change, calls return the same as without Nimble."""

import builtins
import functools
import logging
import math
import os
import sys
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from auto_tools import both_ways, calls_of, module_with  # noqa: E402
from test_auto_hidden import KEPT, Settings, seen  # noqa: E402


def test_built_in_names(monkeypatch):
    monkeypatch.setattr(builtins, "a_scale", 2.0, raising=False)
    seen(lambda: module_with(lambda self, x: x * a_scale), lambda m: setattr(builtins, "a_scale", 3.0),  # noqa: F821
         undo=lambda: setattr(builtins, "a_scale", 2.0))


@pytest.mark.parametrize("value, other", [
    (2.0, 3.0), ([2.0], [3.0]), ([[2.0]], [[3.0]]), ({0: 2.0}, {0: 3.0}), (Settings(2.0), Settings(3.0)),
    (types.SimpleNamespace(scale=2.0), types.SimpleNamespace(scale=3.0)), (functools.partial(float, 2.0), functools.partial(float, 3.0)),
    (torch.full((1,), 2.0), torch.full((1,), 3.0))])
def test_what_a_program_puts_into_pythons_modules(monkeypatch, value, other):
    monkeypatch.setattr(sys, "a_scale", value, raising=False)

    def forward(self, x):
        scale = sys.a_scale
        while isinstance(scale, (list, dict)):
            scale = scale[0]
        return x * (scale() if callable(scale) else getattr(scale, "scale", scale))

    seen(lambda: module_with(forward), lambda m: setattr(sys, "a_scale", other), undo=lambda: setattr(sys, "a_scale", value))


def test_a_function_of_pythons_that_is_replaced(monkeypatch):
    monkeypatch.setattr(math, "floor", lambda x: 2)
    seen(lambda: module_with(lambda self, x: x * math.floor(2.5)), lambda m: setattr(math, "floor", lambda x: 3),
         undo=lambda: setattr(math, "floor", lambda x: 2))


def test_a_built_in_function_that_is_replaced(monkeypatch):
    seen(lambda: module_with(lambda self, x: x * math.sqrt(4.0)), lambda m: monkeypatch.setattr(math, "sqrt", lambda x: 3.0),
         undo=lambda: monkeypatch.undo())


def test_the_environment_in_bytes(monkeypatch):
    monkeypatch.setenv("A_SCALE", "2")
    seen(lambda: module_with(lambda self, x: x * float(os.environb[b"A_SCALE"])), lambda m: os.environ.update(A_SCALE="3"),
         undo=lambda: os.environ.update(A_SCALE="2"))


# ---- what is logged ----

def test_an_adapter_of_a_logger():
    """It has a method of that name, too, but is not a logger."""
    log = logging.LoggerAdapter(logging.getLogger("nimble_tests.adapter"), {})

    def forward(self, x):
        log.debug("seen")
        return x * 2

    said, replays = both_ways(lambda: calls_of(module_with(forward), lambda: None))
    assert replays > 4, said


def test_a_logger_between():
    log = logging.getLogger("nimble_tests.between.inner")
    seen(lambda: module_with(lambda self, x: x * (3.0 if log.getEffectiveLevel() <= logging.INFO else 2.0)),
         lambda m: logging.getLogger("nimble_tests.between").setLevel(logging.INFO),
         undo=lambda: logging.getLogger("nimble_tests.between").setLevel(logging.NOTSET))



class Kept(logging.Handler):
    def emit(self, record):
        KEPT.append(record.getMessage())


@pytest.mark.parametrize("change", [lambda log: log.setLevel(logging.INFO), lambda log: log.parent.setLevel(logging.INFO),
                                    lambda log: logging.disable(logging.NOTSET)], ids=["own", "parent's", "all"])
def test_levels_of_loggers(request, change):
    log, handler = logging.getLogger("nimble_tests.inner"), Kept()

    def forward(self, x):
        log.info("seen")
        return x * 2

    def make():
        KEPT.clear()
        log.parent.addHandler(handler)
        for each, level in ((log, logging.NOTSET), (log.parent, logging.ERROR)):
            each.setLevel(level)
        logging.disable(logging.NOTSET)
        if request.node.callspec.id == "all":
            log.parent.setLevel(logging.INFO)
            logging.disable(logging.CRITICAL)
        return module_with(forward)

    def program():
        module = make()
        try:
            return [*calls_of(module, lambda: change(log)), list(KEPT)]
        finally:
            log.parent.removeHandler(handler)
            log.setLevel(logging.NOTSET)
            log.parent.setLevel(logging.NOTSET)
            logging.disable(logging.NOTSET)

    said, replays = both_ways(program)
    assert replays > 4, said
