"""In the place of CudaCapture, on the CPU: keeps what it was asked for, and replays by running the work again."""

import torch
from torch.utils import _pytree

from nimble.errors import CaptureError
from nimble.shim import GraphState, GraphStatus


class FakeGraph:
    def __init__(self, work, outputs, calls, number):
        self.outputs = outputs
        self._work = work
        self._calls = calls
        self._number = number
        self.closed = False

    def follow(self):
        self._calls.append("follow")

    def replay(self):
        assert not self.closed
        self._calls.append("replay")
        with torch.no_grad():
            made = self._work.run()
        for static, new in zip(_pytree.tree_flatten(self.outputs)[0], _pytree.tree_flatten(made)[0]):
            if isinstance(static, torch.Tensor) and static is not new:
                static.copy_(new)

    def close(self):
        self._calls.append("close")
        self.closed = True

    def status(self):
        return GraphStatus(self._number, GraphState.REWRITTEN, 9, 3, 20.0, 10.0, "")


class FakeCapture:
    device_type = "cpu"
    draws_on_host = True

    def __init__(self):
        self.calls = []
        self.asked = []  # (use_multi_stream, relaxed) of each capture
        self.graphs = []
        self.random_states = []  # that were set
        self.capturing = False

    def check(self):
        self.calls.append("check")

    def random_state(self, device):
        return len(self.random_states)

    def set_random_state(self, device, state):
        self.random_states.append(state)

    def capture(self, work, device, multi_stream, relaxed):
        assert not torch.is_grad_enabled()
        self.asked.append((multi_stream, relaxed))
        for _ in range(2):
            work.run()
            work.reset()
        work.before_capture()
        self.capturing = True
        try:
            outputs = work.run()
        except Exception as error:
            raise CaptureError(str(error)) from error
        finally:
            self.capturing = False
        work.reset()  # a GPU executes nothing while it captures
        self.graphs.append(FakeGraph(work, outputs, self.calls, len(self.graphs)))
        for _ in range(3):
            self.graphs[-1].replay()
            work.reset()
        self.calls.clear()
        return self.graphs[-1]
