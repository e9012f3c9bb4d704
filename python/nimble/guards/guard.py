"""The interface of guards: what a graph's owner checks before a replay."""

from __future__ import annotations

from typing import Optional


class Guard:
    """The state that a graph was captured with: a module (ModuleGuard), a module that the user has not prepared (nimble.auto's
    TracedModuleGuard), or the state of a step (StepGuard). A guard only reads; its class says whether several threads may call it at
    once."""

    def difference(self) -> Optional[str]:
        """What has changed since the capture, as a phrase for a message. None while the graph still fits."""
        raise NotImplementedError
