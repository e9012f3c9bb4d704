"""The C API of libnimble.so (include/nimble/nimble.h) in this process, by ctypes.

Needs no PyTorch. All functions may be called from any thread; learning() belongs to the thread that enters it. They raise
NotLoadedError where libnimble.so is not preloaded, or NIMBLE_GRAPHS is not `rewrite`, and NimbleError for other results.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import functools
import os
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Tuple

from nimble.errors import NimbleError, NotLoadedError

HOW_TO_RUN = "run it as: python -m nimble run script.py, or: python -m nimble run -- program"


class Result(enum.IntEnum):
    """nimble_result."""

    SUCCESS = 0
    NOT_LOADED = 1
    INVALID_ARGUMENT = 2
    OUT_OF_MEMORY = 3
    FAILED = 4
    WRONG_MODE = 5
    REFUSED = 6
    STALE = 7
    DRIVER_ERROR = 8


class GraphState(enum.IntEnum):
    """nimble_graph_state."""

    KEPT = 0
    TRYING = 1
    OWN = 2
    REWRITTEN = 3


class CGraphStatus(ctypes.Structure):
    """nimble_graph_status."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("exec", ctypes.c_void_p),
        ("state", ctypes.c_int),
        ("nodes", ctypes.c_uint32),
        ("streams", ctypes.c_uint32),
        ("own_us", ctypes.c_double),
        ("rewritten_us", ctypes.c_double),
        ("text", ctypes.c_char * 256),
        ("strays", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class GraphStatus:
    """libnimble.so's status of an executable graph: `nodes` and `streams` are the rewritten one's, `own_us` and `rewritten_us`
    medians of a launch in microseconds, None where none was timed; `text` says why it is kept. `strays`: work items that its
    capturing threads submitted outside the capture meanwhile."""

    exec: int
    state: GraphState
    nodes: int
    streams: int
    own_us: Optional[float]
    rewritten_us: Optional[float]
    text: str
    strays: int = 0


@functools.lru_cache(maxsize=None)
def _function(name: str) -> Any:
    process = ctypes.CDLL(None)
    try:
        function = getattr(process, name)
    except AttributeError:
        why = f"the libnimble.so in this process is older, and has no {name}" if hasattr(process, "nimble_version") else \
            "libnimble.so is not in this process"
        raise NotLoadedError(f"{why}: {HOW_TO_RUN}") from None
    function.restype = ctypes.c_int
    function.argtypes = {
        "nimble_version": [ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_char_p)],
        "nimble_get_graph": [ctypes.c_void_p, ctypes.POINTER(CGraphStatus)],
        "nimble_keep_graph": [ctypes.c_void_p],
        "nimble_graph_writes_only": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64),
                                     ctypes.c_size_t],
        "nimble_watch_memory": [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)],
        "nimble_rehearse_begin": [ctypes.c_void_p],
        "nimble_rehearse_end": [ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)],
        "nimble_count_captures": [ctypes.POINTER(ctypes.c_uint64)],
        "nimble_stream_is_idle": [ctypes.c_void_p],
        "nimble_unwatch_memory": [ctypes.c_void_p],
        "nimble_launch_graph": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    }.get(name, [])
    return function


def _call(name: str, *arguments: Any) -> Result:
    result = Result(_function(name)(*arguments))
    if result == Result.WRONG_MODE:
        found = ", ".join(f"{variable} is {os.environ.get(variable) or 'not set'}" for variable in ("NIMBLE_MODE", "NIMBLE_GRAPHS"))
        raise NotLoadedError(f"libnimble.so is in this process, but rewrites no graphs: {found} (`nimble run` records if told "
                             f"no mode). Set neither, and {HOW_TO_RUN}")
    return result


def _checked(name: str, *arguments: Any) -> None:
    result = _call(name, *arguments)
    if result != Result.SUCCESS:
        raise NimbleError(f"{name}: {result.name.lower().replace('_', ' ')}; the log of libnimble.so may say more")


def is_loaded() -> bool:
    """Whether a libnimble.so that rewrites graphs when told to is in this process."""
    try:
        _function("nimble_get_graph")
    except NotLoadedError:
        return False
    return True


def version() -> "tuple[int, str]":
    """The library's API version, and its own."""
    api, text = ctypes.c_int(), ctypes.c_char_p()
    _checked("nimble_version", ctypes.byref(api), ctypes.byref(text))
    return api.value, (text.value or b"").decode()


def check() -> None:
    """Raises NotLoadedError where libnimble.so does not rewrite graphs in this process."""
    _call("nimble_get_graph", None, ctypes.byref(CGraphStatus(size=ctypes.sizeof(CGraphStatus))))


@contextlib.contextmanager
def learning() -> Iterator[None]:
    """While inside, libnimble.so learns from the thread's captures, and inspects what its kernels write if NIMBLE_TRUST believes that
    (each launch then waits for the GPU). Not to be nested."""
    _checked("nimble_learn_begin")
    try:
        yield
    finally:
        _checked("nimble_learn_end")


class Rehearsed(NamedTuple):
    """How a capture would have seen a run."""

    strays: int = 0  # kernels and copies that would have run outside of it
    after_split: int = 0  # those after rehearse_part() that would have run outside of a second capture begun there


def rehearse(stream: int, function: "Callable[[], Any]") -> "Tuple[Any, Rehearsed]":
    """Calls the function. Returns its result, and how a capture on the stream of a handle would have seen it. Not to be nested."""
    strays, after_split = ctypes.c_uint64(), ctypes.c_uint64()
    _call("nimble_rehearse_end", None, None)  # ends an interrupted one
    try:
        _checked("nimble_rehearse_begin", stream)
        result = function()
    finally:
        _call("nimble_rehearse_end", ctypes.byref(strays), ctypes.byref(after_split))
    return result, Rehearsed(strays.value, after_split.value)


def rehearse_part() -> None:
    """Within rehearse(), in its thread: also tracks the run as if the capture ended here, and another began. Elsewhere it does
    nothing."""
    _call("nimble_rehearse_part")


def captures() -> int:
    """An upper bound of the captures in progress in this process."""
    count = ctypes.c_uint64()
    _checked("nimble_count_captures", ctypes.byref(count))
    return count.value


def capture_again() -> bool:
    """Gives this thread's next captures the best memory for the graphs that it has instantiated since it began to learn (or since
    the last call), in their order. False where no graph is known."""
    result = _call("nimble_capture_again")
    if result not in (Result.SUCCESS, Result.REFUSED):
        raise NimbleError(f"nimble_capture_again: {result.name.lower().replace('_', ' ')}")
    return result == Result.SUCCESS


def get_graph(handle: Optional[int] = None) -> Optional[GraphStatus]:
    """The status of a CUgraphExec, by default the last one that the calling thread has made. None where it is unknown."""
    raw = CGraphStatus(size=ctypes.sizeof(CGraphStatus))
    if _call("nimble_get_graph", handle, ctypes.byref(raw)) != Result.SUCCESS:
        return None

    def microseconds(value: float) -> Optional[float]:
        return None if value < 0 else value

    return GraphStatus(raw.exec or 0, GraphState(raw.state), raw.nodes, raw.streams, microseconds(raw.own_us),
                       microseconds(raw.rewritten_us), raw.text.decode(errors="replace"), raw.strays)


def keep_graph(handle: Optional[int] = None) -> bool:
    """From now on a CUgraphExec is launched unchanged; by default the last one that the calling thread has made. False where it is
    unknown."""
    return _call("nimble_keep_graph", handle) == Result.SUCCESS


def writes_only(handle: int, ranges: Iterable[Tuple[int, int]]) -> bool:
    """Whether a CUgraphExec writes only to memory of its own capture and to these ranges (address, bytes). False where that is
    unknown."""
    there = list(ranges)
    addresses, sizes = ((ctypes.c_uint64 * len(there))(*[each[part] for each in there]) for part in (0, 1))
    return _call("nimble_graph_writes_only", handle, addresses, sizes, len(there)) == Result.SUCCESS


def is_idle(stream: int) -> bool:
    """Whether the stream of a handle has no work left."""
    return _call("nimble_stream_is_idle", stream) == Result.SUCCESS


def settle() -> bool:
    """Creates and destroys another context, after which successive kernels may start sooner; returns whether it did."""
    return _call("nimble_settle") == Result.SUCCESS


def words_updater() -> "Optional[Callable[[int, int, int], int]]":
    """nimble_update_words, which returns 0 where nothing has changed. Called with the interpreter's lock held. None where there
    is none."""
    try:
        function = ctypes.PyDLL(None).nimble_update_words
    except AttributeError:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return function


def launcher(handle: int) -> "Callable[[int, Optional[int]], int]":
    """Launches a CUgraphExec on the stream of a handle, by a single driver call. It launches if nothing captures there, the
    graph was made in the current context, and all memory of the MemoryWatch with the given `word` still exists. Returns 0 where
    it has launched, else a Result."""
    return functools.partial(_function("nimble_launch_graph"), handle)


class MemoryWatch:
    """Whether the driver still has the allocations that contain these addresses: bool() of it costs no call. They count as
    gone where that is unknown. Its owner must close it."""

    def __init__(self, addresses: Iterable[int]) -> None:
        there = [address for address in addresses if address]
        word = ctypes.c_void_p()
        result = _call("nimble_watch_memory", (ctypes.c_uint64 * len(there))(*there), len(there), ctypes.byref(word))
        at = word.value if result == Result.SUCCESS else None
        self._reads(ctypes.c_uint32(1) if at is None else ctypes.c_uint32.from_address(at))
        self._end = weakref.finalize(self, _call, "nimble_unwatch_memory", at) if at is not None else None
        if self._end is not None:
            self._end.atexit = False

    def __bool__(self) -> bool:
        return self._gone.value == 0

    def _reads(self, gone: ctypes.c_uint32) -> None:
        self._gone = gone
        self.word = ctypes.addressof(gone)
        """The address of its flag, for launcher(), until close(). Any thread may read it, which costs no call."""

    def close(self) -> None:
        """The memory counts as gone from now on. Not while another thread reads the flag."""
        self._reads(ctypes.c_uint32(1))
        if self._end is not None:
            self._end()
