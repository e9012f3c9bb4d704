#!/usr/bin/env python3
"""Makes the plots of README.md and docs/performance.md from bench/results. Usage: bench/plots/plot.py [NAME...]

Needs matplotlib; if it is missing, pip installs it into build/plots. """

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ROOT / "build/plots"

try:
    import matplotlib  # noqa: F401
except ImportError:
    python = OWN / "bin/python3"
    if pathlib.Path(sys.prefix) == OWN:
        raise
    subprocess.run([sys.executable, "-m", "venv", str(OWN)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "matplotlib"], check=True)
    os.execv(python, [str(python), *sys.argv])

import costs  # noqa: E402  (they need matplotlib)
import life  # noqa: E402
import programs  # noqa: E402
import pytorch  # noqa: E402


def main():
    plots = {plot.__name__: plot for room in (life, pytorch, programs, costs) for plot in room.PLOTS}
    names = sys.argv[1:] or list(plots)
    if unknown := [name for name in names if name not in plots]:
        sys.exit(f"plot.py: {unknown[0]} is none of {', '.join(plots)}")
    for name in names:
        plots[name]()


if __name__ == "__main__":
    main()
