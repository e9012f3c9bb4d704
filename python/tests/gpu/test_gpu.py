"""On a GPU, with PyTorch 2 and libnimble.so: graphs compute what the module computes.

    python -m nimble run -- python -m pytest -m gpu
"""

import copy
import ctypes
import random
import threading

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
from nimble import CaptureError, DiffersError, Nimble, NimbleError, accelerate  # noqa: E402


pytestmark = pytest.mark.gpu


class Branches(nn.Module):
    """Four branches of small convolutions, twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.Conv2d(32, 32, 1 + 2 * (i % 2), padding=i % 2), nn.BatchNorm2d(32), nn.ReLU(),
                                        nn.Conv2d(32, 8, 3, padding=1)) for i in range(4)) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = torch.cat([branch(x) for branch in block], 1)
        return {"out": x, "mean": x.mean((2, 3))}


@pytest.fixture(autouse=True)
def deterministic():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


@pytest.fixture
def module():
    return Branches().cuda().eval()


def x(size=1):
    return torch.randn(size, 3, 56, 56, device="cuda")


def check(model, module, batch):
    got = model(batch)
    with torch.no_grad():
        want = module(batch)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_bit_identical_and_rewritten(module):
    model = Nimble(module).prepare(x())
    for _ in range(50):
        check(model, module, x())
    (report,) = model.report()
    assert report.state in ("own", "rewritten") and report.streams >= 2, report
    assert report.own_us > 0 and report.rewritten_us > 0


class Beside(nn.Module):
    """While it is captured another thread allocates, which ends captures in CUDA's default mode."""

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            driver, context, memory, self.answers = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), []
            assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0

            def allocate():
                driver.cuCtxSetCurrent(context)
                self.answers.append(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)))

            other = threading.Thread(target=allocate)
            other.start()
            other.join()
        return x * 2 + 1


def test_what_other_threads_may_do_meanwhile():
    batch = torch.randn(8, device="cuda")
    module = Beside().eval()
    with pytest.raises(CaptureError):
        Nimble(module).prepare(batch)
    assert module.answers != [0]
    model = Nimble(module).prepare(batch, relaxed=True)
    assert module.answers == [0] and torch.equal(model(batch), batch * 2 + 1)


def test_memory_that_comes_after_it(module):
    """Numbers that look like addresses of the driver's pool are not addresses, although it grows over them."""
    model = Nimble(module).prepare(x())
    (before,) = model.report()
    kept = [torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(8)]
    check(model, module, x())
    (report,) = model.report()
    assert before.state in ("own", "rewritten") and report.state == before.state, (report, hex(kept[-1].data_ptr()))


def test_memory_that_was_there_before(module):
    """Whatever the size of the pool: none of it lies where numbers look like addresses, so as much is proven."""
    kept = [torch.empty(2**30, dtype=torch.uint8, device="cuda")]
    (before,) = Nimble(module).prepare(x()).report()
    kept += [torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(8)]
    (report,) = Nimble(module).prepare(x()).report()
    assert (report.nodes, report.streams) == (before.nodes, before.streams), (before, report)
    assert all(each.data_ptr() >= 16411 << 32 for each in kept), [hex(each.data_ptr()) for each in kept]


def test_one_stream(module):
    model = Nimble(module).prepare(x(), use_multi_stream=False, relaxed=True)
    for _ in range(50):
        check(model, module, x())


def test_shapes_and_streams(module):
    model = Nimble(module, max_graphs=2)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for i in range(30):
        batch = x(1 + i % 2)
        streams[i % 3].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(streams[i % 3]):
            check(model, module, batch)
        torch.cuda.current_stream().wait_stream(streams[i % 3])


def test_weights_in_place_and_new(module):
    model = Nimble(module).prepare(x())
    with torch.no_grad():
        module.stem.weight.mul_(2)
    check(model, module, x())
    assert model.is_prepared(x())
    module.stem.weight.data = torch.randn_like(module.stem.weight)
    assert not model.is_prepared(x())
    check(model, module, x())


def test_state_and_random_numbers(module):
    module.blocks[0][0][1].train()
    module.drop = nn.Dropout(0.5)
    module.register_forward_hook(lambda m, _, out: {name: nn.functional.dropout(value) for name, value in out.items()})
    batch = x()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(5)
    state = torch.cuda.get_rng_state()
    model = Nimble(module).prepare(batch)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with torch.no_grad():
        want = [module(batch)["out"] for _ in range(5)]
    after = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(before)
    torch.manual_seed(5)
    got = [model(batch)["out"] for _ in range(5)]
    assert all(map(torch.equal, got, want)) and not torch.equal(got[0], got[1])
    assert all(torch.equal(value, after[name]) for name, value in module.state_dict().items())


def test_autocast(module):
    batch = x()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        module(batch)  # fills autocast's cache, which no graph may use
        model = Nimble(module).prepare(batch)
    with torch.no_grad():
        module.stem.weight.mul_(2)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        check(model, module, batch)
    assert len(model.report()) == 1


def test_what_waits_for_the_gpu_raises_with_its_place():
    class Asks(nn.Module):
        def forward(self, batch):
            return batch * batch.sum().item()

    module = nn.Sequential(nn.ReLU(), Asks()).cuda().eval()
    with pytest.raises(CaptureError, match="in module '1': .*captur"):
        Nimble(module).prepare(x())
    model = Nimble(module, fallback=True)
    with pytest.warns(UserWarning, match="running eagerly"):
        batch = x()
        assert torch.equal(model(batch), module(batch))
    module = Branches().cuda().eval()  # a capture that failed leaves the next one as it was
    check(Nimble(module).prepare(x()), module, x())


@pytest.mark.parametrize("trains", [False, True])
def test_a_forward_that_sets_a_seed(trains):
    class Seeds(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            torch.cuda.manual_seed(3)
            return self.linear(x) + torch.rand_like(x)

    net, numbers = Seeds().cuda().train(trains), torch.cuda.get_rng_state()
    with pytest.raises(CaptureError, match="seed"):
        Nimble(net).prepare(torch.ones(2, 4, device="cuda"), training=trains)
    assert torch.equal(torch.cuda.get_rng_state(), numbers)


@pytest.mark.parametrize("trains", [False, True])
def test_a_buffer_on_the_host_that_is_written(trains):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4).cuda()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.data.add_(1)  # no version tells
            return self.linear(x)

    net = Counts().train(trains)
    with pytest.raises(NimbleError, match="writes to its buffer 'calls', which is on cpu"):
        Nimble(net).prepare(torch.ones(2, 4, device="cuda"), training=trains)
    assert net.calls == 0


class Asks(nn.Module):
    def __init__(self, question):
        super().__init__()
        self.first, self.norm, self.question = nn.Linear(4, 3), nn.BatchNorm1d(3), question

    def forward(self, x):
        y, count = self.norm(self.first(x)), torch.arange(4, device="cuda").unsqueeze(0)
        if self.question():
            return {"state": y + 1}
        return {"state": y * 1 if (torch.diff(count) == 1).all() and (count.float()[:, -1] == 3).tolist() == [True] else y + 2}


@pytest.mark.parametrize("trains", [False, True])
def test_what_sees_that_a_stream_captures(trains):
    net = Asks(lambda: torch._C._cuda_isCurrentStreamCapturing()).cuda().train(trains)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(DiffersError, match=r"output\['state'\] \(float32\[2, 3\]\) differs at \[0, 0\]"):
        Nimble(net).prepare(torch.randn(2, 4, device="cuda"), training=trains)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("trains", [False, True])
def test_what_asks_whether_a_stream_captures(trains):
    """It reads constants on the host where none does."""
    net = Asks(torch.cuda.is_current_stream_capturing).cuda().train(trains)
    twin = copy.deepcopy(net)
    model = Nimble(net).prepare(torch.randn(2, 4, device="cuda"), training=trains)
    for _ in range(3):
        x = torch.randn(2, 4, device="cuda")
        with torch.set_grad_enabled(trains):
            mine, its = model(x)["state"], twin(x)["state"]
        assert torch.equal(mine, its) and (not trains or mine.sum().backward() is its.sum().backward())
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    assert all(one.grad is other.grad or torch.equal(one.grad, other.grad) for one, other in zip(net.parameters(), twin.parameters()))
    reports = model.report()
    assert reports[0].as_eager and all(report.as_eager for report in reports if report.kind in ("inference", "forward"))


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_what_it_makes_on_the_host(pinned, trains):
    """And copies to the GPU, without waiting for it. A graph may repeat the copy, from the old address: no other data
    may be there."""
    class FromHost(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1000))

        def forward(self, x):
            steps = torch.arange(1000.0) + 3
            steps = steps.pin_memory() if pinned else steps
            return x * self.weight + steps.to(x.device, non_blocking=True)

    module = FromHost().cuda()
    data = torch.randn(1000, device="cuda")
    try:
        model = Nimble(module).prepare(data, training=trains)
    except NimbleError as error:  # PyTorch captures no copy that the host would wait for
        assert not pinned and "unless the CPU tensor is pinned" in str(error)
        return
    for _ in range(20):
        others = [torch.full((1000,), float("nan")) for _ in range(50)]
        others += [each.pin_memory() for each in others[:10]]
        with torch.set_grad_enabled(trains):
            assert torch.equal(model(data), module(data))
        del others


def test_a_nimble_within_a_module(module):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Nimble(module)

        def forward(self, batch):
            return {name: value + 1 for name, value in self.inner(batch).items()}

    outer = Outer().cuda().eval()
    check(Nimble(outer).prepare(x()), outer, x())


def test_accelerate(module):
    model = accelerate(module, after=2)
    with torch.no_grad():
        for _ in range(6):
            check(model, module, x())
    assert len(model.report()) == 1


def test_graphs_come_and_go(module):
    random.seed(1)
    model = Nimble(module, max_graphs=2)
    with pytest.warns(UserWarning, match="max_graphs"):
        for _ in range(12):
            check(model, module, x(random.randrange(1, 5)))

