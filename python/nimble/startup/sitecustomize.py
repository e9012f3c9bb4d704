"""Python runs this at its start, where `nimble run` under NIMBLE_MODE=auto, or `python -m nimble run`, has prepended
this folder to PYTHONPATH.

It restores what the program would have without this folder: sys.path, and the sitecustomize that it hides. It only adds
a finder that waits for PyTorch to be loaded, and then imports nimble.auto, from the package that this folder lies in.
It runs in every Python program, of any version, so it does next to nothing, in old syntax, and lets no error escape.
"""
# mypy: ignore-errors

import os
import sys


def _chain():
    """Runs the sitecustomize that Python would have found without this folder. Python reports its errors."""
    own = sys.modules[__name__]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]
    del sys.modules[__name__]
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", None) != __name__:
            raise
        sys.modules[__name__] = own


def _wait_for_torch():
    is_auto = os.environ.get("NIMBLE_MODE") == "auto" and os.environ.get("NIMBLE_TORCH") != "off"
    in_stream_order = "cudaMallocAsync" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if sys.version_info < (3, 9) or not (is_auto or in_stream_order):
        return
    if any(getattr(finder, "waits_for_torch", False) for finder in sys.meta_path):
        return  # done by another folder like this one
    from importlib import util

    class Loading(object):
        """PyTorch's loader, with nimble.auto's work before and after."""

        def __init__(self, loader):
            self._loader = loader

        def __getattr__(self, name):
            return getattr(self._loader, name)

        def create_module(self, spec):
            return self._loader.create_module(spec)

        def exec_module(self, module):
            module.__loader__ = module.__spec__.loader = self._loader
            if Waiting in sys.meta_path:
                sys.meta_path.remove(Waiting)
            after_import = _guarded(lambda: _before_torch(util, module.__spec__))
            self._loader.exec_module(module)
            if after_import is not None:
                _guarded(after_import)

    class Waiting(object):
        """Called for each module to find. Programs may also check for PyTorch without loading it."""

        waits_for_torch = True
        looking = False

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if name != "torch" or cls.looking:
                return None
            cls.looking = True
            try:
                spec = util.find_spec(name)
            finally:
                cls.looking = False
            if spec is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = Loading(spec.loader)
            return spec

    sys.meta_path.insert(0, Waiting)


def _guarded(function):
    try:
        return function()
    except Exception as error:
        _say("%s: %s" % (type(error).__name__, error))
        return None


# Descriptor 2 at Python's start: lines go there, or nowhere. sys.stderr is the program's.
def _stderr():
    try:
        facts = os.fstat(2)
        return facts.st_dev, facts.st_ino, facts.st_mode & 0o170000
    except OSError:
        return None


_STDERR = _stderr()


def _say(why):
    line = "nimble: warning: PyTorch modules are left alone: %s\n" % why
    try:
        from nimble import log

        log.start = _STDERR
        log.say(line)
    except Exception:  # another package has that name
        if _STDERR is not None and _stderr() == _STDERR:
            os.write(2, line.encode())


def _before_torch(util, spec):
    """Returns what to call after the import, or None."""
    hook = _import_hook(util)
    return None if hook is None else hook.before_torch(spec)


def _import_hook(util):
    """nimble.auto.hook of this package. None where the program has another package of this name."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    init = os.path.join(package, "__init__.py")
    found = sys.modules.get("nimble") or util.find_spec("nimble")
    if found is None:
        spec = util.spec_from_file_location("nimble", init, submodule_search_locations=[package])
        module = util.module_from_spec(spec)
        sys.modules["nimble"] = module
        spec.loader.exec_module(module)
    else:
        origin = getattr(found, "origin", None) or getattr(found, "__file__", None)
        if not (origin and os.path.exists(origin) and os.path.samefile(origin, init)):
            where = origin or ", ".join(getattr(found, "submodule_search_locations", None) or getattr(found, "__path__", ()))
            _say("another package is called nimble, %s" % where)
            return None
    from nimble import log
    from nimble.auto import hook

    log.start = _STDERR
    return hook


try:
    _wait_for_torch()
except Exception:  # the program runs without Nimble
    pass
_chain()
