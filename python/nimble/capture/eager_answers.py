"""Captures again, with eager's answer, what asks whether a stream captures and then does something else than in eager runs.

torch.cuda.is_current_stream_capturing() then says False to code that asks within the captured run, and reads of constants are
answered (constants.py). PyTorch and this package get the truth, and so does an optimizer: it would freeze its number of steps. The
graph is compared with an eager run like any other, and is used if nothing differs.

Answers belong to one preparation. The function that answers is in place while any thread has a captured run; other threads get the
truth."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType
from typing import Any, Callable, Iterator, Optional, TypeVar

import torch
import torch.cuda.graphs

from nimble import settings
from nimble.errors import DiffersError
from nimble.capture.constants import Constants, can_follow

_ASKED = "_cuda_isCurrentStreamCapturing"  # of torch.cuda.graphs: what is_current_stream_capturing() calls, wherever it was imported to
_space = vars(torch.cuda.graphs)
_question = torch.cuda.graphs.is_current_stream_capturing.__code__

Prepared = TypeVar("Prepared")


class Answers:
    """What captured runs are told. as_eager: what eager runs are. `was_asked`: whether the answer could have mattered. `answers_reads`:
    whether the host has read constants."""

    def __init__(self, device_type: str, as_eager: bool = False) -> None:
        self.as_eager, self.was_asked, self.answers_reads = as_eager, False, False
        self._device_type = device_type

    @contextlib.contextmanager
    def given(self, sees_ops: bool) -> Iterator[None]:
        """While inside, a captured run of this thread gets these answers. sees_ops: its ops can be watched."""
        before, _current.answers = _current.answers, self
        constants = Constants(self._device_type) if self.as_eager and sees_ops and can_follow() else None
        try:
            with _in_place(), constants.on() if constants is not None else contextlib.nullcontext():
                yield
        finally:
            _current.answers = before
            self.answers_reads |= constants is not None and constants.reads > 0


def with_eager_answers_if_needed(prepare: "Callable[[Answers], Prepared]", device_type: str, name: str) -> Prepared:
    """prepare() with the true answers; and, where its graph differs from eager runs and something has asked, with eager's. Raises the
    first DiffersError where that does not help."""
    answers = Answers(device_type)
    try:
        return prepare(answers)
    except DiffersError as error:
        if not answers.was_asked:
            raise
        first, difference = error.again(), error.difference  # without the frames, which hold the graph
    answers = Answers(device_type, as_eager=True)
    try:
        prepared = prepare(answers)
    except Exception as error:
        settings.read().inform(f"{name}: capturing it as if no stream captured does not help: {error}")
    else:
        reads = ", with the host's reads of constants answered" if answers.answers_reads else ""
        settings.read().inform(f"{name} was captured as if no stream captured{reads}. It asks, and does something else while one does: "
                               f"{difference}. Now its graph computes what an eager run computes")
        return prepared
    raise first


class _Current(threading.local):
    answers: Optional[Answers] = None


_current = _Current()
_lock = threading.Lock()
_users = 0
_real: "Callable[[], bool]" = _space[_ASKED]


@contextlib.contextmanager
def _in_place() -> Iterator[None]:
    """While inside, answers are ours."""
    global _users, _real
    with _lock:
        _users += 1
        if _users == 1:
            _real = _space[_ASKED]
            _space[_ASKED] = _answer
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _space[_ASKED] is _answer:
                _space[_ASKED] = _real


def _answer() -> bool:
    is_capturing, answers = bool(_real()), _current.answers
    if answers is None or not is_capturing or _needs_truth(sys._getframe(1)):
        return is_capturing
    answers.was_asked = True
    return not answers.as_eager


def _needs_truth(frame: Optional[FrameType]) -> bool:
    """Whether PyTorch asks, or this package, or an optimizer, in whatever it calls."""
    while frame is not None and frame.f_code is _question:
        frame = frame.f_back
    if frame is None or _is_of("torch", frame) or _is_of("nimble", frame):
        return True
    while frame is not None and not _is_of("nimble", frame):
        if isinstance(_owner(frame), torch.optim.Optimizer):
            return True
        frame = frame.f_back
    return False


def _is_of(package: str, frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == package or name.startswith(f"{package}.")


def _owner(frame: FrameType) -> Any:
    """The first argument of a running function."""
    names = frame.f_code.co_varnames[:frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None
