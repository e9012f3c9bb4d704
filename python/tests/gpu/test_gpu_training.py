"""On a GPU, with PyTorch 2 and libnimble.so: training by graphs has, to the bit, the results of eager training.

    python -m nimble run -- python -m pytest -m gpu
"""

import contextlib
import copy
import gc
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
import nimble  # noqa: E402
from gpu_nets import (  # noqa: E402, F401
    Checkpointing, caches_of_its_own, deterministic, grads, images, labels, left, loss_of, nets, same, sgd, step_of, train, train_by)
from nimble import CaptureError, Nimble, NimbleError  # noqa: E402


pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("clear", [True, False])
def test_steps_equal_eager_ones_to_the_bit(nets, clear):
    net, twin = nets
    before = {k: v.clone() for k, v in net.state_dict().items()}
    model = Nimble(net).prepare(images(), training=True)
    assert same(net.state_dict(), before) and all(p.grad is None for p in net.parameters())
    results = [train(call, each, clear=clear, optimizer=sgd(each, lr=0.05 if clear else 1e-3, momentum=0.9 * clear))
               for call, each in ((model, net), (twin, twin))]
    assert same(*results) and results[0]["losses"].isfinite().all()
    forward, backward = model.report()
    assert (forward.kind, backward.kind) == ("forward", "backward")
    for each in (forward, backward):
        assert each.state in ("own", "rewritten") and each.streams >= 2 and each.own_us > 0 and each.rewritten_us > 0, each


def test_preparing_draws_nothing(nets):
    net, _ = nets
    x = images()
    state = torch.cuda.get_rng_state()
    model = Nimble(net).prepare(x, training=True)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    first = model(x)["classes"].detach()
    assert not torch.equal(model(x)["classes"], first)  # dropout


def test_one_stream(nets):
    net, twin = nets
    model = Nimble(net).prepare(images(), training=True, use_multi_stream=False, relaxed=True)
    assert same(train(model, net), train(twin, twin))


def test_over_torch_compile(nets, caches_of_its_own):
    config = pytest.importorskip("torch._functorch.config")
    net, _ = nets
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with config.patch(donated_buffer=False) if hasattr(config, "donated_buffer") else contextlib.nullcontext():
        net.compile(options={"allow_buffer_reuse": False, "inplace_buffers": False})
        results = [train(net, net)]
        net.load_state_dict(before)
        model = Nimble(net).prepare(images(), training=True)
        net.load_state_dict(before)
        results.append(train(model, net))
    assert same(*results) and [each.kind for each in model.report()][:2] == ["forward", "backward"]


def test_gradients_to_images_and_of_some_outputs(nets):
    net, twin = nets
    model = Nimble(net)
    for which in (["classes"], ["features"], ["classes", "features"], ["classes"], ["features"]):
        x = images().requires_grad_()
        results = []
        for call, each in ((model, net), (twin, twin)):
            each.zero_grad(set_to_none=True)
            torch.manual_seed(2)
            outputs = call(x * 2)
            sum(outputs[name].pow(2).sum() for name in which).backward()
            results.append({"x": x.grad, "best": outputs["best"], **grads(each)})
            x.grad = None
        assert same(*results)
        assert (results[0]["aside.weight"] is None) == ("features" not in which)
    assert [r.kind for r in model.report()] == ["forward"] + ["backward"] * 3


def test_gradients_that_are_kept(nets):
    net, twin = nets
    model, kept = Nimble(net), []
    for i in range(4):
        x = images()
        for call, each in ((model, net), (twin, twin)):
            each.zero_grad(set_to_none=True)
            torch.manual_seed(i)
            outputs = call(x)
            loss_of(outputs, torch.arange(8, device="cuda")).backward()
            kept.append([*(p.grad for p in each.parameters()), outputs["classes"]])
    for mine, other in zip(kept[::2], kept[1::2]):
        assert all(map(torch.equal, mine, other))


def test_checkpoints(nets):
    """Code that draws random numbers would draw others in a backward captured as a separate graph."""
    net = Checkpointing(0.5, use_reentrant=False).cuda()
    twin = copy.deepcopy(net)
    with pytest.raises(NimbleError, match="preserve_rng_state=False"):
        Nimble(net).prepare(images(), training=True)
    assert same(train(Nimble(net, fallback=True), net), train(twin, twin))
    net = Checkpointing(0, use_reentrant=False, preserve_rng_state=False).cuda()
    twin = copy.deepcopy(net)
    model = Nimble(net).prepare(images(), training=True)
    assert same(train(model, net), train(twin, twin)) and [each.kind for each in model.report()][:2] == ["forward", "backward"]


def test_recurrent_modules():
    """With dropout between its layers, cuDNN draws from a state that cannot be restored: a graph would not reset it
    with a seed."""
    class Recurrent(torch.nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.layers, self.last, self.aside = torch.nn.LSTM(24, 16, 2, dropout=dropout), torch.nn.Linear(16, 10), torch.nn.Linear(16, 4)

        def forward(self, x):
            x = self.layers(x.mean(1).transpose(0, 1))[0][-1]
            return {"classes": self.last(x), "features": self.aside(x)}

    with pytest.raises(CaptureError):
        Nimble(Recurrent(0.5).cuda()).prepare(images(), training=True)
    net = Recurrent(0.0).cuda()
    twin = copy.deepcopy(net)
    assert same(train(Nimble(net).prepare(images(), training=True), net), train(twin, twin))


def test_two_forwards_before_a_backward(nets):
    net, twin = nets
    model = Nimble(net).prepare(images(), training=True)
    a, b, y = images(), images(), labels()
    with pytest.warns(UserWarning, match="previous call's backward"):
        for _ in range(2):
            for call, each in ((model, net), (twin, twin)):
                each.zero_grad()
                torch.manual_seed(3)
                first, second = call(a), call(b)
                loss_of(first, y).backward()
                loss_of(second, y).backward()
            assert same(grads(net), grads(twin)) and same(net.state_dict(), twin.state_dict())


def test_a_backward_twice(nets):
    net, twin = nets
    model = Nimble(net).prepare(images(), training=True)
    x, y = images(), labels()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, each in ((model, net), (twin, twin)):
            torch.manual_seed(3)
            loss = loss_of(call(x), y)
            loss.backward(retain_graph=True)
            call(x * 2)
            loss.backward()
    assert same(grads(net), grads(twin))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_a_gradient_scaler(nets, dtype):
    net, twin = nets
    results = []
    for call, each in ((Nimble(net), net), (twin, twin)):
        optimizer, scaler, losses = sgd(each), torch.amp.GradScaler("cuda", init_scale=2.0**30, growth_interval=4), []
        torch.manual_seed(1)
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype):
                loss = loss_of(call(images()), labels())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        results.append({"scale": torch.tensor(scaler.get_scale()), **left(each, losses)})
    assert same(*results)


def test_channels_last(nets):
    net, twin = (each.to(memory_format=torch.channels_last) for each in nets)

    def data(size):
        return images(size).to(memory_format=torch.channels_last)

    assert same(train(Nimble(net), net, data=data), train(twin, twin, data=data))
    assert net.stem.weight.grad.stride() == twin.stem.weight.grad.stride() != net.stem.weight.contiguous().stride()


def test_shapes_modes_and_streams(nets):
    net, twin = nets
    model = Nimble(net)
    streams = [torch.cuda.Stream() for _ in range(2)]
    optimizers = sgd(net), sgd(twin)
    for i in range(24):
        size = 4 + i % 2 * 4
        torch.manual_seed(i)
        x, y = images(size), labels(size)
        for call, each, optimizer in ((model, net, optimizers[0]), (twin, twin, optimizers[1])):
            torch.manual_seed(i)
            stream = streams[i % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                optimizer.zero_grad()
                loss_of(call(x), y).backward()
                optimizer.step()
            torch.cuda.current_stream().wait_stream(stream)
        if i % 8 == 0:
            for each in nets:
                each.eval()
            with torch.no_grad():
                assert torch.equal(model(x)["classes"], twin(x)["classes"])
            for each in nets:
                each.train()
    assert same(net.state_dict(), twin.state_dict())
    assert sorted(r.kind for r in model.report()) == ["backward"] * 2 + ["forward"] * 2 + ["inference"]


def test_parameters_are_accumulated_on_the_stream_of_the_forward(nets):
    """PyTorch warns of others, and waits."""
    net, twin = nets
    model = Nimble(net).prepare(images(), training=True)
    x, y = images(), labels()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()):
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for call in (model, twin):
                        torch.manual_seed(1)
                        loss_of(call(x), y).backward()
                torch.cuda.current_stream().wait_stream(stream)
    finally:
        torch.set_warn_always(False)
    assert not [each for each in said if "AccumulateGrad" in str(each.message)]
    assert same(grads(net), grads(twin))


@pytest.mark.parametrize("way", ["torch.cuda.graph", "nimble.step"])
def test_the_whole_step_is_captured_after_training_by_graphs(way):
    """Of a module with one output. If a graph's forward left autograd's nodes of parameters alive, these would belong
    to that earlier stream, which no capture can use."""
    one = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 22 * 22, 10)).cuda()
    nets, x, y = (one, copy.deepcopy(one)), images(), labels()
    model = Nimble(one).prepare(x, training=True)
    for net, call in zip(nets, (model, nets[1])):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def step(call, x, y, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        for _ in range(3):
            step(call, x, y)
        if net is nets[1]:
            for _ in range(6):
                step(net, x, y)
        elif way == "nimble.step":
            whole = nimble.step(lambda x, y: step(net, x, y), modules=[net], optimizers=[optimizer])
            for _ in range(6):
                whole(x, y)
        else:
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step(net, x, y)
            torch.cuda.current_stream().wait_stream(stream)
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                step(net, x, y)
            for _ in range(5):
                graph.replay()
    torch.cuda.synchronize()
    assert same(nets[0].state_dict(), nets[1].state_dict())


def test_an_old_loss_that_lives_while_preparing(nets):
    """Autograd keeps the parameters' accumulators of an earlier run, which belong to that run's stream."""
    net, twin = nets
    x, y = images(), labels()
    for each in nets:
        torch.manual_seed(1)
        each.old = [loss_of(each(x), y)]
        each.old[0].backward()
    model = Nimble(net).prepare(x, training=True)
    for call, each in ((model, net), (twin, twin)):
        torch.manual_seed(2)
        loss_of(call(x), y).backward()
    assert same(grads(net), grads(twin)) and same(net.state_dict(), twin.state_dict())


def test_hooks_of_parameters(nets):
    net, twin = nets
    model = Nimble(net).prepare(images(), training=True)

    def clamp(parameter):
        parameter.grad.clamp_(-0.01, 0.01)

    for each in nets:
        each.last.weight.register_hook(lambda grad: grad * 2)
        each.stem.weight.register_post_accumulate_grad_hook(clamp)
    assert same(train(model, net, 10), train(twin, twin, 10))


def test_what_cannot_be_captured_raises(nets):
    net, _ = nets
    net.register_forward_hook(lambda _m, _a, out: {**out, "features": out["features"] * out["features"].mean().item()})
    before = {k: v.clone() for k, v in net.state_dict().items()}
    with pytest.raises(nimble.CaptureError, match="captur"):
        Nimble(net).prepare(images(), training=True)
    assert same(net.state_dict(), before)


def test_graphs_go_quietly(nets, capfd):
    """PyTorch's allocator warns of captures' memory that is freed while nothing is captured."""
    net, _ = nets
    model = Nimble(net).prepare(images(), training=True)
    train(model, net, 3)
    step = nimble.step(step_of(net, sgd(net)))
    train_by(step, net, 6)
    net.zero_grad(set_to_none=True)
    also = Nimble(net.eval()).prepare(images())
    also(images())
    gc.collect()  # what other tests have left
    torch.cuda.synchronize()
    capfd.readouterr()
    del model, step, also
    gc.collect()
    torch.cuda.synchronize()
    assert "captured" not in capfd.readouterr().err


def test_graphs_are_quiet_at_the_end():
    """Some remain when the process ends, in whatever order Python frees them then."""
    program = "import torch, nimble\nnet = torch.nn.Linear(8, 8).cuda()\nx = torch.ones(2, 8, device='cuda')\n" \
        "trains = nimble.Nimble(net).prepare(x, training=True)\nloss = trains(x).sum()\nloss.backward()\n" \
        "model = nimble.Nimble(net.eval(), static_outputs=True).prepare(x)\nwith torch.no_grad(): kept = model(x)\nprint('done')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "done\n") and "captured" not in done.stderr, done.stderr
