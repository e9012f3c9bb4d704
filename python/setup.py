"""What pyproject.toml cannot say: a wheel that carries libnimble.so is for one platform, but for any Python 3."""

from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        bdist_wheel = None

CARRIES_LIBRARY = (Path(__file__).resolve().parent / "nimble" / "lib" / "libnimble.so").is_file()


class Platform(Distribution):
    def has_ext_modules(self):
        return CARRIES_LIBRARY


commands = {}
if bdist_wheel is not None:

    class AnyPython(bdist_wheel):
        def get_tag(self):
            python, abi, platform = super().get_tag()
            return ("py3", "none", platform) if CARRIES_LIBRARY else (python, abi, platform)

    commands["bdist_wheel"] = AnyPython

setup(distclass=Platform, cmdclass=commands)
