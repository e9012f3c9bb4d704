"""nimble.step: objects of Python's own library that a step refers to: its reads there are compared; its writes, and objects that
are opaque, raise; irrelevant ones do not."""

import argparse
import array
import collections
import concurrent.futures
import configparser
import contextlib
import contextvars
import csv
import ctypes
import datetime
import enum
import functools
import io
import logging
import multiprocessing
import operator
import os
import pathlib
import queue
import random
import re
import stat
import threading
import types
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble import NimbleError, log  # noqa: E402
from nimble.step_state.closure_search import find  # noqa: E402
from nimble.step_state.library_objects import Positions  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


class Mode(enum.Enum):
    PLAIN = 1


class Key:
    scale = 1.0


class OfThePrograms(collections.UserDict):
    pass


key = Key()


def put(kept, value):
    kept["s"] = value


def put_first(kept, value):
    kept[0] = value


def weakly():
    kept = weakref.WeakKeyDictionary()
    kept[key] = 1.0
    return kept


def variable():
    kept = contextvars.ContextVar("scale")
    kept.set(1.0)
    return kept


def event(kind):
    return (lambda kept: 0.5 if kept.is_set() else 1.0), (lambda kept, value: kept.set() if value != 1.0 else kept.clear())


def configured():
    kept = configparser.ConfigParser()
    kept["a"] = {"s": "1"}
    return kept


@functools.lru_cache(maxsize=None)
def settings():
    return types.SimpleNamespace(scale=1.0)


@functools.lru_cache(maxsize=4)
def few_settings():
    return types.SimpleNamespace(scale=1.0)


@functools.lru_cache(maxsize=None)
def settings_by_name():
    return {"s": 1.0}


@functools.lru_cache(maxsize=4)
def few_settings_by_name():
    return {"s": 1.0}


def of_the_process():
    os.environ["NIMBLE_TEST_SCALE"] = "1"


def set_scale(kept, value):
    kept.scale = value


content = {"s": 1.0}
READ = {
    "UserDict": (lambda: collections.UserDict(s=1.0), lambda kept: kept["s"], put),
    "one of the program's": (lambda: OfThePrograms(s=1.0), lambda kept: kept["s"], put),
    "UserList": (lambda: collections.UserList([1.0]), lambda kept: kept[0], put_first),
    "ChainMap": (lambda: collections.ChainMap({}, {"s": 1.0}), lambda kept: kept["s"], put),
    "WeakKeyDictionary": (weakly, lambda kept: kept[key], lambda kept, value: kept.__setitem__(key, value)),
    "array": (lambda: array.array("d", [1.0]), lambda kept: kept[0], put_first),
    "memoryview": (lambda: memoryview(bytearray(b"1")), lambda kept: float(kept[0] - 48), lambda kept, value: put_first(kept, 51)),
    "ctypes": (lambda: ctypes.c_double(1.0), lambda kept: kept.value, lambda kept, value: setattr(kept, "value", value)),
    "Value": (lambda: multiprocessing.Value("d", 1.0), lambda kept: kept.value, lambda kept, value: setattr(kept, "value", value)),
    "Event": (threading.Event, *event(threading)),
    "Event of processes": (multiprocessing.Event, *event(multiprocessing)),
    "ContextVar": (variable, lambda kept: kept.get(), lambda kept, value: kept.set(value)),
    "environ": (of_the_process, lambda kept: float(os.environ["NIMBLE_TEST_SCALE"]),
                lambda kept, value: os.environ.__setitem__("NIMBLE_TEST_SCALE", str(value))),
    "getenv": (of_the_process, lambda kept: float(os.getenv("NIMBLE_TEST_SCALE")),
               lambda kept, value: os.environ.__setitem__("NIMBLE_TEST_SCALE", str(value))),
    "MappingProxyType": (lambda: types.MappingProxyType(content), lambda kept: kept["s"], lambda kept, value: put(content, value)),
    "values()": (lambda: content.values(), lambda kept: sum(kept), lambda kept, value: put(content, value)),
    "enum": (lambda: set_scale(Mode.PLAIN, 1.0) or Mode.PLAIN, lambda kept: kept.scale, set_scale),
    "lru_cache": (lambda: settings, lambda kept: kept().scale, lambda kept, value: set_scale(settings(), value)),
    "lru_cache of a size": (lambda: few_settings, lambda kept: kept().scale, lambda kept, value: set_scale(few_settings(), value)),
    "lru_cache of a dict": (lambda: settings_by_name, lambda kept: kept()["s"], lambda kept, value: put(kept(), value)),
    "lru_cache of a size, of a dict": (lambda: few_settings_by_name, lambda kept: kept()["s"], lambda kept, value: put(kept(), value)),
    "attrgetter": (lambda: (operator.attrgetter("scale"), Key()), lambda kept: kept[0](kept[1]),
                   lambda kept, value: set_scale(kept[1], value)),
    "configparser": (configured, lambda kept: kept.getfloat("a", "s"), lambda kept, value: kept.set("a", "s", str(value))),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read_there_is_compared(name):
    make, read, write = READ[name]

    def program(wrap):
        put(content, 1.0)
        for each in (settings, few_settings, settings_by_name, few_settings_by_name):
            each.cache_clear()
        net, kept = mlp(), make()
        optimizer = sgd(net)
        step = wrap(lambda x: update(net, optimizer, net(x).square().mean() * read(kept)))
        for i in range(9):
            if i == 6:
                write(kept, 0.5)
            yield step(torch.randn(2, 4)), net

    try:
        assert same(program) and same.backend.captures == 2
    finally:
        os.environ.pop("NIMBLE_TEST_SCALE", None)


WRITTEN = {
    "Queue": (queue.Queue, lambda kept: kept.put(1.0), lambda kept: kept.qsize()),
    "StringIO": (io.StringIO, lambda kept: kept.write("step"), lambda kept: kept.getvalue()),
    "array": (lambda: array.array("d"), lambda kept: kept.append(1.0), list),
    "bytearray": (bytearray, lambda kept: kept.append(1), list),
    "UserDict": (collections.UserDict, lambda kept: kept.__setitem__("n", kept.get("n", 0) + 1), dict),
    "Semaphore": (lambda: threading.Semaphore(0), lambda kept: kept.release(), lambda kept: kept._value),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_put_there_raises(name):
    make, write, told = WRITTEN[name]

    def program(wrap):
        net, kept = mlp(), make()
        optimizer = sgd(net)

        def train(x):
            write(kept)
            return update(net, optimizer, net(x).square().mean())

        step = wrap(train)
        for _ in range(7):
            yield step(torch.randn(2, 4)), told(kept)

    assert raises(program, "kept")


def test_lines_of_ours_are_no_writes_of_the_step(tmp_path, monkeypatch):
    """A handler of the step's may have the same stderr, redirected to a file."""
    with open(tmp_path / "log.txt", "w") as file, open(tmp_path / "other.txt", "w") as other:
        def moved(each):
            positions = Positions([("kept", each)])
            os.write(each.fileno(), b"nimble: info: a line\n")
            return positions

        with pytest.raises(NimbleError, match="writes to 'kept'"):
            moved(file).check()
        with monkeypatch.context() as stderr:
            facts = os.fstat(file.fileno())
            stderr.setattr(log, "start", (facts.st_dev, facts.st_ino, stat.S_IFMT(facts.st_mode)))
            moved(file).check()
            with pytest.raises(NimbleError, match="writes to 'kept'"):
                moved(other).check()
        monkeypatch.setenv("NIMBLE_LOG_FILE", str(tmp_path / "log.txt"))
        moved(file).check()
        with pytest.raises(NimbleError, match="writes to 'kept'"):
            moved(other).check()


@pytest.mark.parametrize("make", [queue.SimpleQueue, lambda: csv.writer(io.StringIO()), random.SystemRandom])
def test_the_unknowable_raises(make):
    net, kept = mlp(), make()
    with pytest.raises(NimbleError, match="'kept' is a .*, and it is unknown"):
        find(lambda x: (net(x), kept), [], [])


def test_what_does_not_matter():
    class Loader:
        pool = concurrent.futures.ThreadPoolExecutor(1)

    net = mlp()
    for kept in (logging.getLogger("nimble.test"), threading.Lock(), threading.RLock(), threading.local(), re.compile("a"),
                 pathlib.Path("."), datetime.datetime.now(), functools.partial(print, 1), contextlib.nullcontext(), range(3), slice(1),
                 object(), argparse.Namespace(a=1), types.SimpleNamespace(a=[1]), torch.autocast("cpu"), torch.no_grad(), Mode.PLAIN,
                 torch.distributions.Normal(torch.zeros(1), torch.ones(1)), torch.nn.functional.cross_entropy, Loader(), Loader.pool,
                 collections.namedtuple("Pair", "a b")(1, 2), torch.utils.data.DataLoader([1, 2])):
        assert find(lambda x: (net(x), kept.pool, kept), [], []).modules == [net]
