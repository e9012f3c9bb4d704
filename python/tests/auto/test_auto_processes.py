"""nimble.auto: other ranks, a state of random numbers that cuDNN keeps, and forked children."""

import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from nimble.capture import cudnn_dropout  # noqa: E402
from nimble.guards import switches  # noqa: E402
from auto_tools import (COMPARED, EAGER_FIRST, Net, auto, backend, graphs, module_with, net, prepared, run,  # noqa: E402, F401
                        said, served)


def test_other_ranks(auto, backend, net, monkeypatch):
    prepared(auto, backend, net)
    monkeypatch.setattr(switches, "has_other_ranks", lambda: True)
    other = Net().eval()
    run(other, 9)
    assert graphs(auto, other) == 0
    run(net, 9)
    assert graphs(auto, net) == 0


def test_dropout_of_recurrent_modules(auto, backend, net):
    """Restoring random numbers resets cuDNN's dropout state, and preparing and comparing restore them. Even another
    module's in the process: `net` has none."""
    prepared(auto, backend, net)
    kinds = torch.nn
    half_made = [kinds.LSTM.__new__(kinds.LSTM)]
    others = [kinds.LSTM(3, 3, 2), kinds.GRU(3, 3, dropout=0.0), kinds.LSTM(3, 3, 2, dropout=0.5, device="meta")]
    other = Net().eval()
    run(other, 9)
    assert graphs(auto, other) == 1
    recurrent = kinds.GRU(3, 3, 2, dropout=0.5)
    last = Net().eval()
    run(last, 9)
    assert graphs(auto, last) == 0 and "cuDNN" in str(served(auto, last).reasons())
    run(net, 9)  # until it would be compared again
    assert graphs(auto, net) == 0 and others and recurrent and half_made


def test_who_may_have_dropout():
    def has():
        gc.collect()
        return cudnn_dropout.may_have_cudnn_dropout("cpu")

    class Unhashable(type):
        def __eq__(cls, other):
            return cls is other

    unhashable = Unhashable("OfAnUnhashableType", (), {})()
    assert not has()
    assert any(each is unhashable for each in gc.get_objects())
    gru = torch.nn.GRU(3, 3, 2, dropout=0.5)
    assert has() and not cudnn_dropout.may_have_cudnn_dropout("cuda")
    scripted = torch.jit.script(gru)
    del gru
    assert has()
    del scripted
    assert not has()


def test_what_is_frozen():
    """Python 3.12 has frozen some hundred objects before a program begins, none of them modules."""
    program = """\
import gc
gc.freeze()
assert gc.get_freeze_count() > 0
from nimble.auto import hook  # what Python's start imports, before PyTorch
import torch
from nimble.capture.cudnn_dropout import may_have_cudnn_dropout
assert not may_have_cudnn_dropout("cpu")
gru = torch.nn.GRU(3, 3, 2, dropout=0.5)
gc.freeze()
assert not any(each is gru for each in gc.get_objects()) and may_have_cudnn_dropout("cpu")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_collectives_are_seen(auto, backend, tmp_path):
    import torch.distributed as distributed
    if not distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")

    def forward(self, x):
        distributed.all_reduce(x)
        return x * 2

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        module = module_with(forward)
        for _ in range(9):
            module(torch.ones(2))
    finally:
        distributed.destroy_process_group()
    assert backend.captures == 0
    assert any("it talks to other processes" in reason for reason, _ in served(auto, module).reasons())


def test_a_forked_child_runs_as_it_is(auto, backend, net):
    prepared(auto, backend, net)
    replays = backend.replays
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with torch.no_grad():
                same = torch.equal(net(torch.ones(2, 3)), Net.forward(net, torch.ones(2, 3)))
            os.write(write, b"fine" if same and backend.replays == replays and not auto.enabled else b"served")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"fine" and auto.enabled
    run(net, 1)
    assert backend.replays == replays + 1


def test_a_child_that_is_forked_within_a_call(auto, backend):
    """Forks while a thread, which the child does not have, has exclusive access and is about to announce it."""
    children, process = [], os.getpid()

    def forward(self, x):
        holds, may_end = threading.Event(), threading.Event()

        def hold():
            with auto.threads._changed:
                auto.threads._alone = object()
                holds.set()
                may_end.wait(20)
                auto.threads._alone = None

        thread = threading.Thread(target=hold)
        thread.start()
        holds.wait(20)
        children.append(os.fork())
        if os.getpid() != process:
            signal.alarm(10)  # rather than wait for ever
            return x
        may_end.set()
        thread.join()
        return x

    module_with(forward)(torch.ones(2))
    if os.getpid() != process:
        os._exit(5)
    assert os.WEXITSTATUS(os.waitpid(children[0], 0)[1]) == 5
