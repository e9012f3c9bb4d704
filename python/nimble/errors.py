"""The exceptions that this package raises. No PyTorch here."""

from __future__ import annotations


class NimbleError(RuntimeError):
    """Nimble cannot do what was asked; the text says why, where, and what to do about it."""

    def again(self) -> "NimbleError":
        """A copy to keep and raise later. A raised error holds the frames that it has passed through with all their locals, and more of
        them each time."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        return other


class NotLoadedError(NimbleError):
    """libnimble.so is not in this process, or does not rewrite graphs here."""


class CaptureError(NimbleError):
    """A CUDA graph of the module could not be captured. `reason` is PyTorch's; `place` is the path of the module that was running,
    "" for the outermost one, or None where it is not known."""

    def __init__(self, reason: str, place: "str | None" = None) -> None:
        where = "" if place is None else f" in module {place!r}" if place else " in the module itself"
        super().__init__(f"cannot be captured as a CUDA graph{where}: {reason}")
        self.reason = reason
        self.place = place


class GoesPastError(CaptureError):
    """Kernels and copies ran, or would run, immediately instead of being captured; `strays` is their number."""

    def __init__(self, strays: int) -> None:
        super().__init__(f"{strays} of the kernels and copies that it launches use streams that do not wait for the current one, or "
                         "another device: they are not part of the graph, and no replay would repeat them. Have such a stream wait for "
                         "the current one first, and the current one for it")


class DiffersError(NimbleError):
    """A graph does not compute what eager runs compute, which agree with each other to the bit. `difference` says what differs first."""

    def __init__(self, difference: str) -> None:
        super().__init__(f"its graph does not compute what an eager run computes: {difference}. Two eager runs agree there, so the "
                         "module does something else while a stream captures: it, or a library, asks "
                         "torch.cuda.is_current_stream_capturing() and takes other kernels, or it draws random numbers, or reads what an "
                         "earlier run has written, as no replay does. Have it do the same in both cases, or run it eagerly")
        self.difference = difference
