"""The program around a bench that has figures for some networks at some batches: its command line, and its figures as JSON."""

import argparse
import json
import sys
import time
from pathlib import Path

import measure
import nimble
import torch
from nimble import shim

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import side_by_side  # noqa: E402


def program(doc, cells, run, lines, ways=()):
    """run(network, batch, gpu): a cell's figures, as JSON has them; lines(figures): what is printed of them. ways: those of which some
    can be asked for, and which run() is told of then."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=cells)
    parser.add_argument("--json", help="writes the figures to this file as well")
    if ways:
        parser.add_argument("--ways", default=",".join(ways), help=f"of {', '.join(ways)} (default: all)")
    words = parser.parse_args()
    chosen = [words.ways.split(",")] if ways else []
    if not set(*chosen) <= set(ways):
        parser.error(f"--ways {words.ways}: of {', '.join(ways)}")
    figures = {"date": time.strftime("%Y-%m-%d"), "device": side_by_side.device(), "torch": torch.__version__,
               "nimble": nimble.__version__, "library": "loaded" if shim.is_loaded() else "not loaded",
               "allocator": getattr(torch.cuda, "get_allocator_backend", lambda: "native")(), "cells": {}}
    for cell in words.cells:
        name, batch = cell.split(":")
        figures["cells"][cell] = found = run(name, int(batch), measure.Gpu(), *chosen)
        for line in lines(found):
            print(f"{cell:20} {line}", flush=True)
        if words.json:
            Path(words.json).write_text(json.dumps(figures, indent=1) + "\n")
