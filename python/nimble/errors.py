"""What this package raises. No PyTorch here."""

from __future__ import annotations


class NimbleError(RuntimeError):
    """Nimble cannot do what was asked; the text says why, where, and what to do about it."""

    def again(self) -> "NimbleError":
        """The same, to be kept, and raised by other calls: one that was raised holds the frames that it has come through, with all that
        these had, and more of them each time that it is raised."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        return other


class NotLoadedError(NimbleError):
    """libnimble.so is not in this process, or does not rewrite graphs here."""


class CaptureError(NimbleError):
    """A CUDA graph of the module could not be captured. `reason` is PyTorch's, `place` the path of the module that was running
    ("" is the outermost one), or None where it is not known."""

    def __init__(self, reason: str, place: "str | None" = None) -> None:
        where = "" if place is None else f" in module {place!r}" if place else " in the module itself"
        super().__init__(f"cannot be captured as a CUDA graph{where}: {reason}")
        self.reason = reason
        self.place = place


class GoesPastError(CaptureError):
    """Of so many kernels and copies that are submitted while something is captured, and done at once; or would be."""

    def __init__(self, strays: int) -> None:
        super().__init__(f"{strays} of the kernels and copies that it launches go to streams which wait for nothing that is on the current "
                         "one, or to another device: they are no part of the graph, and no replay would do them again. Have such a stream "
                         "wait for the current one first, and the current one for it")
