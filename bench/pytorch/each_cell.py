"""The program around a bench that has figures for some networks at some batches: its command line, and its figures as JSON."""

import argparse
import json
import time
from pathlib import Path

import measure
import nimble
import torch


def program(doc, cells, run, lines):
    """run(network, batch, gpu): a cell's figures, as JSON has them; lines(figures): what is printed of them."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=cells)
    parser.add_argument("--json", help="writes the figures to this file as well")
    words = parser.parse_args()
    figures = {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
               "nimble": nimble.__version__, "cells": {}}
    for cell in words.cells:
        name, batch = cell.split(":")
        figures["cells"][cell] = found = run(name, int(batch), measure.Gpu())
        for line in lines(found):
            print(f"{cell:20} {line}", flush=True)
        if words.json:
            Path(words.json).write_text(json.dumps(figures, indent=1) + "\n")
