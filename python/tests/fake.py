"""Replaces CudaCapture, on the CPU: keeps its requests, and replays by running the work again.

As on a GPU, a replay leaves its results in the memory of the capture: outputs, and the tensors that autograd has saved
for their backward. """

import contextlib

import torch
from torch.utils import _python_dispatch, _pytree

from nimble.errors import CaptureError
from nimble.graphs.autograd_leaves import AutogradGraph, saved_by
from nimble.shim import GraphState, GraphStatus, Rehearsed


def leave(made, static):
    """Copies into the memory of `static`."""
    if made is not static and isinstance(static, torch.Tensor):
        static.data.copy_(made.data)


def tensors(tree):
    return [leaf for leaf in _pytree.tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def without_modes():
    """The program's modes, which do not see what the driver launches."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        if hasattr(_python_dispatch, "_disable_current_modes"):
            stack.enter_context(_python_dispatch._disable_current_modes())
        yield


class FakeGraph:
    def __init__(self, function, outputs, calls, number, grad=False, touches=list):
        self.outputs = outputs
        self._touches = touches  # what autograd is not to know of
        self._function = function
        self._grad = grad
        self._calls = calls
        self._number = number
        self.replays = 0
        self.closed = False
        self.owner = None  # the FakeCapture

    def follow(self):
        self._calls.append("follow")

    def replay(self):
        assert not self.closed
        self.replays += 1
        self._calls.append("replay")
        nodes = AutogradGraph(tensors(self.outputs)).nodes
        saved = [saved_by(node) or [] for node in nodes]
        with contextlib.ExitStack() as stack:
            # For autograd the function's in-place writes have happened before.
            for tensor in [*(t for each in saved for t in each), *self._touches()]:
                if hasattr(torch.autograd, "_unsafe_preserve_version_counter"):
                    stack.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
            with torch.set_grad_enabled(self._grad):
                made = self._function()
            for static, new in zip(tensors(self.outputs), tensors(made)):
                leave(new, static)
            for mine, new in zip(saved, AutogradGraph(tensors(made)).nodes):
                for static, its in zip(mine, saved_by(new) or []):
                    leave(its, static)

    def launch(self, ahead):
        if not ahead or self.owner.capturing:
            return False
        self._calls.append("launch")
        self.follow()
        with without_modes():
            self.replay()
        return True

    def writes_only(self, tensors):
        return self.owner.writes_are_known

    def on_its_stream(self):
        return contextlib.nullcontext()

    def wait(self):
        self._calls.append("wait")

    def close(self):
        self._calls.append("close")
        self.closed = True

    def status(self):
        return GraphStatus(self._number, GraphState.REWRITTEN, 9, 3, 20.0, 10.0, "")


class FakeCopies:
    """From capture_copies(): `replay` makes the copies."""

    def __init__(self, copies):
        self.replay, self.closed = copies, False

    def close(self):
        self.closed = True


class FakeWatch:
    there = True

    def __bool__(self):
        return self.there

    def close(self):
        self.there = False


class FakeCapture:
    device_type = "cpu"
    draws_on_host = True
    observes = True

    def __init__(self):
        self.calls = []
        self.asked = []  # (use_multi_stream, relaxed) of each capture
        self.graphs = []
        self.rehearsed, self.rehearsals = Rehearsed(), 0  # of eager runs
        self.ran = []  # whether it was learned from, of each eager run
        self.random_states = []  # that were set
        self.watches = []
        self.capturing = False
        self.writes_are_known = True
        self.to_do = []  # what streams that wait for nothing were given, as functions
        self.at_rest = lambda: None  # called when all have been waited for

    def check(self):
        self.calls.append("check")

    def is_capturing(self):
        return self.capturing

    def wait(self, device):
        while self.to_do:
            self.to_do.pop(0)()
        self.at_rest()

    def random_state(self, device):
        return torch.get_rng_state()

    def set_random_state(self, device, state):
        self.random_states.append(state)
        torch.set_rng_state(state)

    def watch_memory(self, tensors):
        self.watches.append(FakeWatch())
        self.watched = [t.data_ptr() for t in tensors]
        return self.watches[-1]

    def capture(self, work, device, multi_stream, relaxed, same_stream_as=None):
        assert not torch.is_grad_enabled()
        self.asked.append((multi_stream, relaxed))
        for _ in range(2):
            work.run()
            work.reset()
        work.before_capture()
        graph = self._graph_of(work.run)
        work.reset()  # a GPU executes nothing while it captures
        for _ in range(3):
            graph.replay()
            work.reset()
        self.calls.clear()
        return graph

    def capture_training(self, work, device, multi_stream, relaxed):
        assert torch.is_grad_enabled()
        self.asked.append((multi_stream, relaxed))
        for _ in range(2):
            work.backward(work.forward())
            work.reset()
        work.before_capture()
        forward = self._graph_of(work.forward, True)
        work.reset()
        backward = self._graph_of(lambda: work.backward(forward.outputs))
        for _ in range(3):
            forward.replay()
            backward.replay()
            work.reset()
        self.calls.clear()
        return forward, backward

    def capture_copies(self, copies, device, relaxed, same_stream_as):
        return FakeCopies(copies)

    def stream(self, device):
        return "stream"

    def run(self, function, stream, learns, rehearses):
        assert stream == "stream"
        self.ran.append(learns)
        self.rehearsals += rehearses
        return function(), self.rehearsed if rehearses else Rehearsed()

    def rehearse_part(self):
        pass

    def let_go(self, function):
        function()

    def hand_over(self, tensors):
        self.handed_over = tensors

    def is_idle(self, device):
        return True

    def record(self, work, stream, multi_stream, relaxed, is_split):
        """In one part: a run cannot be suspended. replaying.py has graphs that can."""
        assert stream == "stream"
        self.asked.append((multi_stream, relaxed))
        for _ in range(multi_stream):
            with self._nothing_runs(work):
                self._graph_of(lambda: work.run(None), True)
            self.graphs.pop()
            work.put_back()
        with self._nothing_runs(work):
            graph = self._graph_of(lambda: work.run(None), True, work.tensors)
        self.calls.clear()
        return [graph]

    @contextlib.contextmanager
    def _nothing_runs(self, work):
        """For the device only."""
        before = [(tensor, tensor.detach().clone()) for tensor in work.tensors()]
        random = torch.get_rng_state()
        try:
            yield
        finally:
            for tensor, value in before:
                tensor.data.copy_(value)
            if self.draws_on_host:
                torch.set_rng_state(random)

    def _graph_of(self, function, grad=False, touches=list):
        self.capturing = True
        try:
            outputs = function()
        except Exception as error:
            raise CaptureError(str(error)) from error
        finally:
            self.capturing = False
        self.graphs.append(FakeGraph(function, outputs, self.calls, len(self.graphs), grad, touches))
        self.graphs[-1].owner = self
        return self.graphs[-1]
