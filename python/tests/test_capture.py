"""What of nimble.capture can be seen without a GPU."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", minversion="1.13.0a0")

PROGRAM = """\
import gc, sys, types, torch
from nimble.capture import CudaGraph
class Output:
    def __init__(self, name): self.name = name
    def __del__(self): print(self.name, "is gone", flush=True)
stream = types.SimpleNamespace(device=torch.device("cuda:0"))
made = [CudaGraph(None, [Output(name)], stream, None) for name in ("one", "another")]
also = made[1].outputs  # as whatever a call's outputs are made from has them
del made[0]
gc.collect()
print("the end", flush=True)
"""


def test_what_is_captured_stays_when_the_process_ends():
    """PyTorch's allocator warns of what goes then, for each tensor."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert (done.stderr, done.stdout.split("\n")) == ("", ["one is gone", "the end", ""])
