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
    command: tuple = ()  # what runs; none: the part's

    @property
    def records(self):
        return self.shim == "record"


MODES = [
    Mode("bare", "no shim"),
    Mode("again", "no shim, a second process: the noise between two runs"),
    Mode("off", "the library loaded, doing nothing", "off"),
    Mode("record", "recording, with times and the cross-check, as by default", "record"),
    Mode("light", "recording without times and without the cross-check", "record",
         {"NIMBLE_TIMING": "none", "NIMBLE_COVERAGE": "off"}),
]
REFERENCE = MODES[0].name
RECORD = next(mode for mode in MODES if mode.records)
# The bounds of a step's time against no shim.
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
        """The values of the names in braces of parts.py."""
        return {"python": self.python, "nvcc": self.nvcc, "arch": self.arch, "root": str(self.root),
                "cuda": str(pathlib.Path(self.nvcc).parent.parent), "programs": str(self.root / "bench/gpu_suite/programs"),
                "bin": str(self.build / "bin"), "work": str(work), "run": str(run),
                # Arguments of digits for replay. On the simulated driver an epoch takes as long as hundreds on a GPU.
                "epochs": "1" if self.simulated else "20"}

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
            settings = {key: value.format_map(self.words(work, run)) for key, value in mode.settings.items()}
            environment |= {"LD_PRELOAD": str(self.library), "NIMBLE_MODE": mode.shim, "NIMBLE_LOG": "info", **settings}
        if mode.shim == "auto" and self.simulated:
            environment["NIMBLE_AUTO_WAIT"] = "60000"  # else it begins to replay at an unpredictable time
        if mode.records:
            # Child processes inherit this: each writes a separate file.
            environment["NIMBLE_TRACE"] = str(run / "trace.%p.json")
        return environment
