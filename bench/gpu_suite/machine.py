"""Describes what the results were measured on: device, driver and versions. No host names, no kernel versions, no
paths."""

import ctypes
import glob
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys


def said_by(*command, **options):
    """A command's output; empty where it cannot be run or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


# In a separate process: the suite holds no context while it measures.
ASK_DRIVER = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
device, version, major, minor = (ctypes.c_int() for _ in range(4))
name = ctypes.create_string_buffer(256)
for result in (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0), driver.cuDeviceGetName(name, 255, device),
               driver.cuDriverGetVersion(ctypes.byref(version)), driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device),
               driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)):
    assert result == 0, result
print(name.value.decode(), version.value, f"{major.value}.{minor.value}", sep="\\n")
"""


def device(environment=None):
    """The device that the driver names first; None where no driver answers."""
    lines = said_by(sys.executable, "-c", ASK_DRIVER, env=environment).splitlines()
    if len(lines) != 3:
        return None
    version = int(lines[1])
    return {"device": lines[0], "cuda_of_driver": f"{version // 1000}.{version % 1000 // 10}", "compute_capability": lines[2],
            "driver": driver_version()}


def driver_version():
    """The kernel driver's version, from the first source that has it."""
    said = said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        said += pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        pass
    found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", said)
    return found[0] if found else None


def find_nvcc():
    found = shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda*/bin/nvcc")), "")
    return str(pathlib.Path(found).resolve()) if found else ""


def versions(nimble, nvcc, parts):
    found = {"nimble": re.findall(r"^(?:nimble|built with) +(.*)", said_by(str(nimble), "--version"), re.MULTILINE),
             "python": platform.python_version(), "libc": " ".join(platform.libc_ver()), "cores": os.cpu_count()}
    release = re.search(r"release [\d.]+, V([\d.]+)", said_by(nvcc, "--version")) if nvcc else None
    found["nvcc"] = release[1] if release else None
    for package in sorted({package for part in parts for package in (*part.packages, "numpy")}):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def find_cupti():
    """A libcupti that can be loaded: the one beside Python's packages, else the toolkit's."""
    places = [str(pathlib.Path(folder) / "nvidia" / "*" / "lib") for folder in sys.path if folder]
    places += ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda*/extras/CUPTI/lib64", "/usr/local/cuda*/lib64"]
    for place in places:
        for path in sorted(glob.glob(place + "/libcupti.so.[0-9]*"), key=len):
            try:
                ctypes.CDLL(path)
            except OSError:
                continue
            return pathlib.Path(path)
    return None


def cupti_folder(work):
    """A folder with libcupti alone, for the library path: its own folder also holds other libraries, which must not
    replace those that programs would load."""
    library = find_cupti()
    if library is None:
        return ""
    folder = work / "cupti"
    folder.mkdir(parents=True)
    (folder / library.name).symlink_to(library.resolve())
    return str(folder)


def scrub(value, replacements):
    """The same result without this machine's paths."""
    if isinstance(value, str):
        for text, stand_in in replacements:
            value = value.replace(text, stand_in)
        return value
    if isinstance(value, list):
        return [scrub(item, replacements) for item in value]
    if isinstance(value, dict):
        return {key: scrub(item, replacements) for key, item in value.items()}
    return value
