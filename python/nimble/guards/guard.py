"""The one question that a graph's owner asks before a replay, and that each guard answers."""

from __future__ import annotations

from typing import Optional


class Guard:
    """What a graph was captured with: a module (ModuleGuard), a module that the user has not prepared (nimble.auto's TracedModuleGuard), or
    the state of a step (StepGuard). A guard only reads; its class says whether several threads may ask at once."""

    def difference(self) -> Optional[str]:
        """What has changed since the capture, as a phrase for a message. None while the graph still fits."""
        raise NotImplementedError
