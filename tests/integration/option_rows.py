"""The rows of Nimble's table of options, as scripts/options reads them."""

import importlib.machinery
import importlib.util
import os
import sys


def option_rows(source):
    """The rows, in their order, for a source folder."""
    loader = importlib.machinery.SourceFileLoader("scripts_options", os.path.join(source, "scripts", "options"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    keeps, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # no cache beside the scripts
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = keeps
    return module.options()
