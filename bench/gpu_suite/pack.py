"""Collects the files of a build that the suite needs in a small folder, without debugging information."""

import pathlib
import shutil
import subprocess

import disorder

FILES = ("lib/libnimble.so", "bin/nimble", "bin/nimble-analyze", "bin/nimble-replay", "bin/digits", "bin/digits.fatbin", "bin/optdigits.csv",
         "bin/digits_graph", "bin/digits_region", "bin/inception", "bin/op_graph", "bin/op_graph.fatbin",
         *(f"bin/{name}" for name in disorder.NAMES))
OPTIONAL = ("bin/digits.fatbin", "bin/op_graph.fatbin")  # only if nvcc existed at build time; without it the part `digits` fails
STRIPPED = ("lib/libnimble.so", "bin/nimble", "bin/nimble-analyze", "bin/nimble-replay", "bin/digits", "bin/digits_graph",
            "bin/digits_region", "bin/inception", "bin/op_graph", *(f"bin/{name}" for name in disorder.NAMES))


def missing_from(build):
    return [name for name in FILES if name not in OPTIONAL and not (build / name).exists()]


def pack(build, folder):
    """Returns the bytes gathered."""
    whole = 0
    for name in FILES:
        source, target = build / name, folder / name
        if name in OPTIONAL and not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in STRIPPED:
            # Keeps the dynamic symbols, the only ones that programs see of the library.
            subprocess.run(["strip", "--strip-unneeded", "-o", str(target), str(source)], check=True)
        else:
            shutil.copyfile(source, target)
        whole += pathlib.Path(target).stat().st_size
    return whole
