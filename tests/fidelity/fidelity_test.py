"""Runs a probe on the simulated driver and compares with what a GPU's driver answered, line by line.

Usage: fidelity_test.py BUILD PROBE. To ask a GPU again: bin/PROBE IMAGE > PROBE.txt, with any image that it can load.
"""

import difflib
import os
import pathlib
import subprocess
import sys


def main():
    build, probe = pathlib.Path(sys.argv[1]), sys.argv[2]
    lines = (pathlib.Path(__file__).parent / f"{probe}.txt").read_text(encoding="utf-8").splitlines()
    expected = [line for line in lines if not line.startswith("#")]
    done = subprocess.run([build / "bin" / probe, build / "bin" / "programs.simcuda"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(build / "simcuda")}, check=False)
    if done.returncode != 0:
        sys.exit(f"{probe}: exit status {done.returncode}: {done.stderr}")
    difference = list(difflib.unified_diff(expected, done.stdout.splitlines(), "hardware", "simulated", lineterm="", n=0))
    print("\n".join(difference) or f"{probe}: {len(expected)} lines as on hardware")
    sys.exit(1 if difference or not expected else 0)


if __name__ == "__main__":
    main()
