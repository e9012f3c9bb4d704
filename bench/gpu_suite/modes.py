"""The ways in which each part runs, and the environment of each."""

import dataclasses
import os
import pathlib


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    what: str
    shim: str = ""  # NIMBLE_MODE; none: the library is not loaded
    settings: dict = dataclasses.field(default_factory=dict)

    @property
    def records(self):
        return self.shim == "record"


MODES = [
    Mode("bare", "no shim"),
    Mode("again", "no shim, a second process: what differs between two runs by itself"),
    Mode("off", "the library loaded, doing nothing", "off"),
    Mode("record", "recording, with times and the cross-check, as by default", "record"),
    Mode("light", "recording without times and without the cross-check", "record",
         {"NIMBLE_TIMING": "none", "NIMBLE_COVERAGE": "off"}),
]
REFERENCE = MODES[0].name
# What a step may take against no shim.
BOUNDS = {"off": 1.01, "record": 1.25}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the programs and the build's files are."""
    root: pathlib.Path
    build: pathlib.Path
    python: str
    nvcc: str = ""
    arch: str = "native"
    simulated: bool = False
    cupti: str = ""  # folder that holds libcupti alone

    @property
    def library(self):
        return self.build / "lib" / "libnimble.so"

    def words(self, work, run):
        """What stands for the names in braces of parts.py."""
        return {"python": self.python, "nvcc": self.nvcc, "arch": self.arch, "root": str(self.root),
                "cuda": str(pathlib.Path(self.nvcc).parent.parent), "programs": str(self.root / "bench/gpu_suite/programs"),
                "bin": str(self.build / "bin"), "work": str(work), "run": str(run)}

    def fill(self, command, work, run):
        return [word.format_map(self.words(work, run)) for word in command]

    def environment(self, part, mode, work, run):
        """The environment of one run. What concerns only the shim is left out where it is not loaded."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("NIMBLE_", "SIMCUDA_"))}
        environment.pop("LD_PRELOAD", None)
        library_path = [self.cupti] if self.cupti else []
        if self.simulated:
            library_path = [str(self.build / "simcuda")]
        if environment.get("LD_LIBRARY_PATH"):
            library_path.append(environment["LD_LIBRARY_PATH"])
        if library_path:
            environment["LD_LIBRARY_PATH"] = ":".join(library_path)
        environment |= {key: value.format_map(self.words(work, run)) for key, value in part.settings.items()}
        if mode.shim:
            environment |= {"LD_PRELOAD": str(self.library), "NIMBLE_MODE": mode.shim, "NIMBLE_LOG": "info", **mode.settings}
        if mode.records:
            # Processes that the program starts inherit this: each writes a file of its own.
            environment["NIMBLE_TRACE"] = str(run / "trace.%p.json")
        return environment
