"""A fake of CudaCapture whose graphs are like CUDA's: they keep the captured ops, with the memory that these used, and
replay runs them again, whatever Python would do by now."""

import contextlib

import torch
from torch.utils import _python_dispatch, _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fake import FakeWatch
from nimble.errors import CaptureError
from nimble.shim import GraphState, GraphStatus, Rehearsed


def unseen(value):
    return value.data if isinstance(value, torch.Tensor) else value


def as_it_lies(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


class Elsewhere:
    """A tensor on memory that no op of a graph has made, and that a graph does not keep: it may contain anything once
    freed."""

    def __init__(self, tensor):
        self._memory = tensor.untyped_storage()._weak_ref()
        self._place = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype = tensor.dtype

    def tensor(self):
        memory = torch.UntypedStorage._new_with_weak_ptr(self._memory)
        with torch.inference_mode(False):
            if memory is None:
                return torch.empty_strided(*self._place[1:], dtype=self._dtype).fill_(float("nan") if self._dtype.is_floating_point else 1)
            return torch.empty(0, dtype=self._dtype).set_(memory, *self._place)

    def __del__(self):
        torch.UntypedStorage._free_weak_ref(self._memory)


def elsewhere(tapes):
    """The addresses of the memory that the ops use, but have not made."""
    found, made = {0}, set()
    for _, args, kwargs, result in (op for tape in tapes for op in tape):
        found |= {storage_address(t) for t in tensors_of((args, kwargs))} - made
        made |= {storage_address(t) for t in tensors_of(result)} - found
    return found


def tensors_of(value):
    return [leaf for leaf in _pytree.tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def storage_address(tensor):
    if tensor.layout is not torch.strided:
        tensor = tensor.detach()._values()
    return tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage") else tensor.storage().data_ptr()


READS = ("aten._local_scalar_dense", "aten.equal", "aten.nonzero")  # which wait for a device


class Ops(TorchDispatchMode):
    def __init__(self, refuses_reads=False):
        super().__init__()
        self.made = []
        self._refuses_reads = refuses_reads

    # Several threads are in one each, of which PyTorch's own way leaves the process with torch.compile switched off: whether any
    # thread is in a mode is one variable, which each puts back as it found it.
    def __enter__(self):
        _python_dispatch._push_mode(self)
        return self

    def __exit__(self, *_):
        _python_dispatch._pop_mode()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self._refuses_reads and str(function).startswith(READS):
            raise RuntimeError("operation not permitted when stream is capturing")
        # With their current memory: the program may give them other memory later.
        before = _pytree.tree_map(as_it_lies, (args, kwargs or {}))
        result = function(*args, **(kwargs or {}))
        self.made.append((function, *before, _pytree.tree_map(as_it_lies, result)))
        return result


def spoil(ops, known):
    """Memory that a capture has made has no values yet. `known`: where that begins which was there."""
    made = set()
    for _, args, kwargs, result in ops:
        known |= {storage_address(t) for t in tensors_of((args, kwargs))} - made
        made |= {storage_address(t) for t in tensors_of(result)} - known
        for each in tensors_of(result):
            if each.layout is torch.strided and storage_address(each) in made and each.is_floating_point():
                each.data.fill_(float("nan"))


class ReplayedGraph:
    def __init__(self, ops, outputs, backend, elsewhere=frozenset()):
        # With the memory that they used, whatever tensors come to lie elsewhere. Nothing of it is for autograd to know: what it has
        # saved is written again, and is as valid as before.
        def kept(value):
            is_elsewhere = isinstance(value, torch.Tensor) and value.layout is torch.strided and storage_address(value) in elsewhere
            return Elsewhere(value) if is_elsewhere and hasattr(torch.UntypedStorage, "_new_with_weak_ptr") else unseen(value)

        with torch.inference_mode(False):
            self._ops = _pytree.tree_map(kept, ops)
        self.outputs = outputs
        self._backend = backend
        self.replays = 0
        self.closed = False

    def follow(self):
        pass

    def launch(self, ahead):
        if ahead:
            self.replay()
        return bool(ahead)

    def replay(self):
        assert not self.closed
        self.replays += 1
        self._backend.replays += 1
        with torch.no_grad():
            for op in self._ops:
                function, args, kwargs, result = _pytree.tree_map(lambda each: each.tensor() if isinstance(each, Elsewhere) else each, op)
                taken = {storage_address(t) for t in tensors_of((args, kwargs))}
                kept = tensors_of(result)
                if kept and all(storage_address(t) in taken for t in kept) and not function._schema.is_mutable:
                    continue  # a view, of the same memory as ever
                for one, other in zip(kept, tensors_of(function(*args, **kwargs))):
                    if one is not other:
                        one.copy_(other)
        if self._backend.spoil is not None:
            self._backend.spoil(self)

    def writes_only(self, tensors):
        return True  # its ops have told

    def on_its_stream(self):
        return contextlib.nullcontext()

    def status(self):
        return GraphStatus(self.replays, GraphState.REWRITTEN, 9, 3, 20.0, 10.0, "")

    def wait(self):
        self._backend.waits += 1

    def close(self):
        self.closed = True
        self._backend.closed += 1


class ReplayingCapture:
    device_type = "cpu"
    draws_on_host = True
    observes = True

    def __init__(self):
        self.captures = 0
        self.replays = 0
        self.closed = 0
        self.waits = 0
        self.capturing = False
        self.spoil = None  # called after each replay
        self.at_capture = None
        self.idle = True
        self.refuses_parts = False
        self.refuses_reads = False  # while it captures, as a GPU does
        self.rehearsed = Rehearsed()  # of eager runs
        self.at_part = lambda: None  # called where a second capture would begin
        self.recorded = []  # of each record(), its graphs
        self.watches = []

    def check(self):
        pass

    def is_capturing(self):
        return self.capturing

    def wait(self, device):
        pass

    def random_state(self, device):
        return torch.get_rng_state()

    def set_random_state(self, device, state):
        torch.set_rng_state(state)

    def watch_memory(self, tensors):
        self.watches.append(FakeWatch())
        return self.watches[-1]

    def is_idle(self, device):
        return self.idle

    def stream(self, device):
        return "stream"

    def run(self, function, stream, learns, rehearses):
        return function(), self.rehearsed if rehearses else Rehearsed()

    def rehearse_part(self):
        self.at_part()

    def let_go(self, function):
        function()

    def hand_over(self, tensors):
        pass

    def record(self, work, stream, multi_stream, relaxed, is_split):
        self.captures += 1
        before = [(tensor.detach(), tensor.detach().clone()) for tensor in work.tensors()]
        random = torch.get_rng_state()
        ops = Ops()
        tapes = [ops.made]

        def part(alive):
            assert all(isinstance(tensor, torch.Tensor) for tensor in alive)
            ops.made = []
            tapes.append(ops.made)

        is_split = is_split and not self.refuses_parts
        self.capturing = True
        try:
            with ops:
                outputs = work.run(part if is_split else None)
        except Exception as error:
            raise CaptureError(str(error)) from error
        finally:
            self.capturing = False
        for memory, value in before:
            memory.data.copy_(value)
        spoil([op for tape in tapes for op in tape], {storage_address(memory) for memory, _ in before})
        torch.set_rng_state(random)
        graphs = [ReplayedGraph(tape, outputs if tape is tapes[-1] else None, self, elsewhere(tapes)) for tape in tapes]
        self.recorded.append(graphs)
        return graphs

    def capture(self, work, device, multi_stream, relaxed, same_stream_as=None):
        assert multi_stream and relaxed and not torch.is_grad_enabled()
        self.captures += 1
        for _ in range(2):
            work.run()
            work.reset()
        work.before_capture()
        if self.at_capture is not None:
            self.at_capture()
        ops = Ops(self.refuses_reads)
        self.capturing = True
        try:
            with ops:
                outputs = work.run()
        except Exception as error:
            raise CaptureError(str(error)) from error
        finally:
            self.capturing = False
        work.reset()  # a GPU executes nothing while it captures
        return ReplayedGraph(ops.made, outputs, self)

    def capture_training(self, work, device, multi_stream, relaxed):
        assert multi_stream and relaxed and torch.is_grad_enabled()
        self.captures += 1
        for _ in range(2):
            work.backward(work.forward())
            work.reset()
        work.before_capture()
        forward, backward, outputs = Ops(self.refuses_reads), Ops(self.refuses_reads), None
        self.capturing = True
        try:
            with forward:
                outputs = work.forward()
            work.reset()
            with backward:
                gradients = work.backward(outputs)
        finally:
            self.capturing = False
        work.reset()  # a GPU executes nothing while it captures
        return ReplayedGraph(forward.made, outputs, self), ReplayedGraph(backward.made, gradients, self)

    def capture_copies(self, copies, device, relaxed, same_stream_as):
        assert relaxed and not self.capturing
        ops = Ops()
        with ops:
            copies()
        return ReplayedGraph(ops.made, None, self)
