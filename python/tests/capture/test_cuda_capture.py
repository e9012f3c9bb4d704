"""The parts of nimble.capture.cuda_capture that can be tested without a GPU."""

import contextlib
import subprocess
import sys
import types

import pytest

pytest.importorskip("torch", minversion="1.13.0a0")

PROGRAM = """\
import gc, sys, types, torch
from nimble.capture.cuda_capture import CudaGraph
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
    """PyTorch's allocator warns of each tensor freed then."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert (done.stderr, done.stdout.split("\n")) == ("", ["one is gone", "the end", ""])


class Generator:
    """PyTorch 2.11's random numbers on a GPU (aten/src/ATen/cuda/CUDAGeneratorImpl.cpp): while it captures, places count from the
    graph's beginning, and the seed can only be set to what it is."""

    def __init__(self):
        self.seed, self.place, self.graph_place, self.captures = 7, 40, None, False

    def get_state(self):
        return self.seed, self.graph_place if self.captures else self.place

    def manual_seed(self, seed):
        if self.captures and seed != self.seed:
            raise RuntimeError("CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as "
                               "the original seed.")
        self.seed, self.place = seed, self.place if self.captures else 0

    def set_state(self, state):
        self.manual_seed(state[0])
        if self.captures:
            self.graph_place = state[1]
        else:
            self.place = state[1]

    def begin(self, *_, **__):
        self.captures, self.graph_place = True, 0

    def end(self):
        self.captures = False


@pytest.fixture
def generator(monkeypatch):
    """The parts of CUDA that CudaCapture needs, all fake except the random numbers."""
    import torch
    from nimble import shim
    from nimble.capture import cuda_capture as capture

    made = Generator()

    class Graph:
        capture_begin, capture_end = staticmethod(made.begin), staticmethod(made.end)

        def replay(self):
            pass

        def reset(self):
            pass

    class Capturing:
        def __init__(self, graph, pool, *_):
            self.cuda_graph, self.pool = graph, (pool,)

        def __enter__(self):
            made.begin()

        def __exit__(self, *_):
            made.end()

    stream = types.SimpleNamespace(device=torch.device("cuda:0"), wait_stream=lambda _: None)
    nothing, inside = (lambda *_: None), (lambda *_: contextlib.nullcontext())
    for name, value in {"CUDAGraph": Graph, "graph": Capturing, "graph_pool_handle": nothing, "stream": inside, "device": inside,
                        "Stream": lambda: stream, "current_stream": lambda *_: stream, "synchronize": nothing, "default_generators": [made],
                        "is_current_stream_capturing": lambda: False, "get_allocator_backend": lambda: "cudaMallocAsync"}.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    monkeypatch.setattr("nimble.capture.cuda_graph.raw_stream", lambda _: 0)
    for name, value in {"learning": contextlib.nullcontext, "capture_again": nothing, "get_graph": nothing, "settle": nothing}.items():
        monkeypatch.setattr(shim, name, value)
    monkeypatch.setattr(capture, "_recover", nothing)
    monkeypatch.setattr(capture.CudaGraph, "writes_only", lambda *_: True)  # so that a step may be in parts
    return made


class Checkpointed:
    """As in torch.utils.checkpoint: the forward keeps the position, and the backward draws from there again, if it restores
    it."""

    def __init__(self, generator, puts_back=True):
        self.generator, self.puts_back, self.seeds = generator, puts_back, []

    def forward(self):
        self.seeds.append(self.generator.seed)
        self.kept = self.generator.get_state()
        return self.kept

    def backward(self, kept):
        self.seeds.append(self.generator.seed)
        now = self.generator.get_state()
        if self.puts_back:
            self.generator.set_state(kept)
            self.generator.set_state(now)
        return now

    def run(self, part=None):
        kept = self.forward()
        if part is not None:
            part([])
        return self.backward(kept)

    def nothing(self):
        return []

    reset = before_capture = put_back = data = may_write = nothing


@pytest.mark.parametrize("puts_back", [True, False])
def test_a_backward_that_draws_the_forwards_random_numbers_again(generator, puts_back):
    """In a separate graph it would count from its own beginning."""
    import torch
    from nimble.errors import CaptureError
    from nimble.capture.cuda_capture import CudaCapture

    work, device = Checkpointed(generator, puts_back), torch.device("cuda:0")
    if puts_back:
        with pytest.raises(CaptureError, match="preserve_rng_state=False"):
            CudaCapture().capture_training(work, device, True, False)
    else:
        CudaCapture().capture_training(work, device, True, False)
    seeds = work.seeds[-2:] if puts_back else work.seeds[-4:]
    assert generator.get_state() == (7, 40) and len(set(seeds)) == len(seeds) and 7 not in seeds


@pytest.mark.parametrize("is_split", [True, False])
def test_a_step_that_does_so_is_one_graph(generator, is_split):
    import torch
    from nimble.capture.cuda_capture import CudaCapture

    work = Checkpointed(generator)
    graphs = CudaCapture().record(work, torch.cuda.Stream(), True, False, is_split)
    assert len(graphs) == 1 and work.seeds[-1] == work.seeds[-2] and generator.get_state() == (7, 40)
    whole = CudaCapture().capture(work, torch.device("cuda:0"), True, False)
    assert whole.outputs[1] == 0 and generator.get_state() == (7, 40)


@pytest.mark.parametrize("trust,eager,learned", [("observed", 3, 3), ("declared", 2, 1), ("proven", 2, 1), ("exact", 2, 1)])
def test_eager_runs_are_seen_only_where_that_is_believed(generator, monkeypatch, trust, eager, learned):
    """The first capture is learned from in any case: it tells what memory the second one gets."""
    import torch
    from nimble import shim
    from nimble.capture.cuda_capture import CudaCapture

    began = []
    monkeypatch.setattr(shim, "learning", lambda: contextlib.nullcontext(began.append(True)))
    monkeypatch.setenv("NIMBLE_TRUST", trust)
    work = Checkpointed(generator, False)
    CudaCapture().capture(work, torch.device("cuda:0"), True, False)
    assert len(work.seeds) // 2 == eager + 2 and len(began) == learned
