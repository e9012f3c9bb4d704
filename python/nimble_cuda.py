"""The ways into the distribution nimble-cuda: its commands, and the backend of torch.compile.

Its package is `nimble`, and so is that of another project, which the distribution `nimble` installs. Where `import nimble` finds that one,
everything here raises an ImportError that says so, instead of an error about what the other package lacks. No PyTorch here."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

DISTRIBUTION = "nimble-cuda"


def ours(name: str) -> ModuleType:
    """A module of the package, by its name within it. Raises ImportError where `nimble` is another project's."""
    package = importlib.import_module("nimble")
    if getattr(package, "DISTRIBUTION", None) != DISTRIBUTION:
        where = getattr(package, "__file__", None) or ", ".join(getattr(package, "__path__", ["unknown"]))
        raise ImportError(f"`import nimble` finds another project's package ({where}), not that of {DISTRIBUTION}: "
                          f"pip uninstall nimble && pip install --force-reinstall {DISTRIBUTION}")
    return importlib.import_module("nimble." + name)


def nimble() -> int:
    return ours("launcher").nimble()


def nimble_analyze() -> int:
    return ours("launcher").nimble_analyze()


def nimble_replay() -> int:
    return ours("launcher").nimble_replay()


def __getattr__(name: str) -> Any:
    # Not before PyTorch asks for it, since it needs PyTorch.
    if name == "backend":
        return ours("compile.dynamo_backend").nimble
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
