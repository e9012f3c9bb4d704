"""On a GPU, with PyTorch 2 and libnimble.so: steps by one graph have, to the bit, the results of eager steps.

    python -m nimble run -- python -m pytest -m gpu
"""

import copy
import gc
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402
import nimble  # noqa: E402
from gpu_nets import (  # noqa: E402, F401
    Checkpointing, Net, caches_of_its_own, deterministic, images, labels, loss_of, nets, same, sgd, step_of, train_by)
from nimble import NimbleError, settings  # noqa: E402
from nimble.capture.backend import EAGER_RUNS  # noqa: E402


pytestmark = pytest.mark.gpu
EAGER = 1 + EAGER_RUNS if settings.observes() else 2  # calls of a step before it is captured


@pytest.mark.parametrize("clear", ["inside", "outside", "never"])
def test_whole_steps_equal_eager_ones_to_the_bit(nets, clear):
    net, twin = nets
    results, reports = [], []
    for each in nets:
        optimizer = sgd(each, lr=0.05, momentum=0.9) if clear != "never" else sgd(each, lr=1e-3, momentum=0)
        call = step_of(each, optimizer, clear == "inside")
        step = nimble.step(call, modules=[each], optimizers=[optimizer]) if each is net else call

        def before(_, optimizer=optimizer):
            if clear == "outside":
                optimizer.zero_grad(set_to_none=True)

        results.append(train_by(step, each, before=before))
        reports += step.report() if each is net else []
    assert same(*results)
    (report,) = reports
    assert report.kind == "step" and report.state in ("trying", "own", "rewritten") and report.streams >= 2, report


@pytest.mark.parametrize("is_compiled", [True, False])
def test_over_torch_compile(nets, is_compiled, caches_of_its_own):
    """Before, or in the step's first call, by what the caches of torch.compile have by then."""
    dynamo = pytest.importorskip("torch._dynamo")
    net, _ = nets
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.compile(options={"allow_buffer_reuse": False, "inplace_buffers": False})
    results = [train_by(step_of(net, sgd(net)), net)]
    net.zero_grad(set_to_none=True)
    net.load_state_dict(before)
    if not is_compiled:
        dynamo.reset()
    optimizer = sgd(net)
    step = nimble.step(step_of(net, optimizer), modules=[net], optimizers=[optimizer])
    results.append(train_by(step, net))
    (report,) = step.report()
    assert same(*results) and report.kind == "step" and report.state in ("trying", "own", "rewritten"), report


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    """With the random numbers that the forward has drawn, which is possible in one graph."""
    net = Checkpointing(0.5, use_reentrant=reentrant).cuda()
    nets, results, reports = (net, copy.deepcopy(net)), [], []
    for each in nets:
        call = step_of(each, sgd(each))
        step = nimble.step(call, fallback=True) if each is net else call
        results.append(train_by(step, each))
        reports = step.report() if each is net else reports
    assert same(*results) and [each.kind for each in reports] == ["step"], reports


def test_a_step_that_sets_a_seed(nets):
    """Restores it: PyTorch lets a capture do that, and a replay would not."""
    net, _ = nets
    optimizer = sgd(net)

    def train(x):
        torch.cuda.manual_seed(3)
        optimizer.zero_grad()
        loss = loss_of(net(x + torch.rand_like(x)), torch.arange(8, device="cuda"))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = nimble.step(train, modules=[net], optimizers=[optimizer])
    for _ in range(EAGER):
        step(images())
    x, numbers = images(), torch.cuda.get_rng_state()
    with pytest.raises(NimbleError, match="seed"):
        step(x)
    assert torch.equal(torch.cuda.get_rng_state(), numbers)


def test_adam(nets):
    net, twin = nets
    results = []
    for each in nets:
        optimizer = torch.optim.Adam(each.parameters(), lr=1e-3, capturable=True)
        call = step_of(each, optimizer)
        results.append(train_by(nimble.step(call) if each is net else call, each))
    assert same(*results)


def test_an_optimizer_that_counts_on_the_host(nets):
    net, twin = nets
    for make, said in ((torch.optim.Adam, "Adam counts its steps on the host.*capturable=True"),
                       (torch.optim.Adagrad, "state of an optimizer")):
        results = []
        for each in nets:
            optimizer = make(each.parameters(), lr=1e-3)
            call = step_of(each, optimizer)
            step = nimble.step(call)
            if each is net:
                train_by(step, each, EAGER)
                for _ in range(2):
                    with pytest.raises(NimbleError, match=said):
                        step(images(), labels())
            else:
                train_by(call, each, EAGER)
            results.append({**{k: v.clone() for k, v in each.state_dict().items()},
                            "count": next(iter(optimizer.state.values()))["step"].clone()})
        assert same(*results)


def test_garbage_of_earlier_captures(nets):
    """Cycles that hold a graph and its memory, and are freed while another is captured if the collector runs."""
    net, twin = nets

    def garbage():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = images() * 2
        cycle = [graph, made]
        cycle.append(cycle)

    results = []
    for each in nets:
        call = step_of(each, sgd(each))

        def with_collector(x, y, call=call):
            if gc.isenabled():
                gc.collect()
            return call(x, y)

        step = nimble.step(with_collector, modules=[each]) if each is net else with_collector
        results.append(train_by(step, each, 8, before=lambda i: garbage() if i == 3 else None))
    assert same(*results)


class Averaging(nn.Module):
    """Its forward writes only to its own buffer."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(3, 16, 3) for _ in range(4))
        self.norm = nn.GroupNorm(4, 64)
        self.last, self.aside = nn.Linear(64, 10), nn.Linear(64, 100)  # as of gpu_nets.Net
        self.register_buffer("average", torch.zeros(64))

    def forward(self, x):
        x = torch.relu(self.norm(torch.cat([branch(x) for branch in self.branches], 1))).mean((2, 3))
        with torch.no_grad():
            self.average.lerp_(x.mean(0), 0.1)
        x = x - self.average
        return {"classes": self.last(x), "features": self.aside(x)}


@pytest.mark.parametrize("make", [Averaging, Net])
def test_what_is_launched_before_the_look(make):
    """As on an idle GPU, and taken back where the learning rate, a parameter's memory or the statistics have changed. cuDNN's batch norm
    writes to memory of cuDNN's, too."""
    from nimble.capture.cuda_capture import CudaCapture
    from nimble.steps.split_step import Ahead

    net = make().cuda()
    nets = net, copy.deepcopy(net)
    results, begun, taken_back, now = [], set(), set(), [0]
    with pytest.MonkeyPatch.context() as patch:
        begin, take_back = Ahead.begin, Ahead.take_back
        patch.setattr(CudaCapture, "is_idle", lambda self, device: True)  # or it goes by what else uses the GPU
        patch.setattr(Ahead, "begin", lambda self: (begin(self), begun.add(now[0]))[0])
        patch.setattr(Ahead, "take_back", lambda self: (self.has_begun and taken_back.add(now[0]), take_back(self))[1])
        for each in nets:
            optimizer = sgd(each)
            call = step_of(each, optimizer)
            step = nimble.step(call) if each is net else call

            def on_an_idle_gpu(x, y, step=step):
                torch.cuda.synchronize()
                return step(x, y)

            def before(i, each=each, optimizer=optimizer):
                now[0] = i
                if i in (8, 20):
                    optimizer.param_groups[0]["lr"] *= 0.5
                if i == 12:
                    p = next(each.parameters())
                    p.data = p.data * 0.5
                if i == 16:
                    next(b for b in each.buffers() if b.is_floating_point()).add_(0.25)

            results.append(train_by(on_an_idle_gpu, each, 24, before=before))
    assert same(*results)
    # A graph is in parts unless something among its kernels' arguments looks like an address of other memory, what is left there
    # perhaps of other tests.
    assert len(begun) > 8 and taken_back == begun & {8, 12, 20} and len(taken_back) > 1, (begun, taken_back)


def test_a_learning_rate_that_changes(nets):
    net, twin = nets
    results = []
    for each in nets:
        optimizer = sgd(each)
        call = step_of(each, optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def before(i, scheduler=scheduler):
            if i % 12 == 11:
                scheduler.step()

        results.append(train_by(nimble.step(call) if each is net else call, each, 36, before=before))
    assert same(*results)


def test_shapes_of_steps(nets):
    net, twin = nets
    results = []
    for each in nets:
        call = step_of(each, sgd(each))
        step = nimble.step(call) if each is net else call
        results.append(train_by(step, each, 24, sizes=(8, 4)))
    assert same(*results)


def test_accumulation_over_steps(nets):
    net, twin = nets
    results = []
    for each in nets:
        optimizer = sgd(each)

        def call(x, y, each=each):
            loss = loss_of(each(x), y) / 2
            loss.backward()
            return loss

        def before(i, optimizer=optimizer):
            if i % 2 == 0 and i > 0:
                optimizer.step()
                optimizer.zero_grad()

        results.append(train_by(nimble.step(call, [each]) if each is net else call, each, 20, before=before))
    assert same(*results)


def test_autocast_and_a_scaler_within_a_step(nets):
    net, twin = nets
    results = []
    for each in nets:
        optimizer = torch.optim.Adam(each.parameters(), lr=1e-3, fused=True, capturable=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30, growth_interval=4)

        def call(x, y, each=each, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_of(each(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        result = train_by(nimble.step(call) if each is net else call, each, 30)
        results.append({"scale": torch.tensor(scaler.get_scale()), **result})
    assert same(*results)


def test_gradients_that_are_held(nets):
    net, twin = nets
    kept = []
    for each in nets:
        call = step_of(each, sgd(each))
        mine = []

        def before(i, each=each, mine=mine):
            if i in (6, 8):
                mine.append(each.stem.weight.grad)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train_by(nimble.step(call) if each is net else call, each, 12, before=before)
        kept.append(mine)
    assert all(map(torch.equal, *kept)) and same(net.state_dict(), twin.state_dict())
