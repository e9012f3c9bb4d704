"""The networks of bench/pytorch, and its measurements, on the CPU: with a fake GPU and a fake CudaCapture."""

import functools
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from torch import nn  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench" / "pytorch"), str(ROOT / "bench")]

import cells  # noqa: E402
import inference  # noqa: E402
import measure  # noqa: E402
import networks  # noqa: E402
import training  # noqa: E402
import ways  # noqa: E402

compiles = pytest.mark.skipif(not hasattr(nn.Module, "compile"), reason="this PyTorch has no Module.compile")


@pytest.fixture(autouse=True)
def settings():
    """networks.set_up() needs a separate process."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32 = True
    if hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = True


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


# The papers say 5.3 and 4.7 million.
@pytest.mark.parametrize("name, count", [("nasnetamobile", 5_289_978), ("darts", 4_718_752), ("encoder", 85_054_464)])
def test_networks_of_our_own(name, count):
    if name == "encoder" and not hasattr(nn.functional, "scaled_dot_product_attention"):
        pytest.skip("this PyTorch is too old for it")
    module, (data, *_) = networks.inference(name, "cpu")
    assert parameters(module) == count and not module.training
    with torch.no_grad():
        assert module(data).shape == ((1, 128, 768) if name == "encoder" else (1, 1000))


@pytest.mark.parametrize("name, count", [
    ("resnet50", 25_557_032), ("resnet101", 44_549_160), ("inception_v3", 27_161_264), ("googlenet", 13_004_888),
    ("mobilenet_v2", 3_504_872), ("efficientnet_b0", 5_288_548), ("efficientnet_b5", 30_389_784), ("nasnetalarge", 88_753_150)])
def test_networks_of_others(name, count):
    pytest.importorskip("timm" if name == "nasnetalarge" else "torchvision")
    with torch.device("meta"):
        module = networks.build(name).eval()
        assert parameters(module) == count
        assert module(torch.empty(networks.shape(name))).shape == (1, 1000)


def test_every_network_is_tested_here():
    marks = [test.pytestmark[0].args[1] for test in (test_networks_of_our_own, test_networks_of_others)]
    assert {row[0] for rows in marks for row in rows} == set(networks.INFERENCE) >= set(networks.TRAINING)


@pytest.mark.parametrize("name", networks.TRAINING)
def test_training_networks(name):
    pytest.importorskip("torchvision")
    module, batches = networks.training(name, 2, "cpu")
    assert module.training and len(batches) > 1
    images, labels = batches[0]
    assert images.shape == (2, 3, 32, 32) and module(images).shape == (2, networks.CLASSES) and labels.max() < networks.CLASSES


def test_cells_do_not_look_at_the_side():
    for module in (cells.Nasnet(1, 96, classes=3), cells.Darts(4, 3, classes=3)):
        assert module.eval()(torch.zeros(1, 3, 75, 75)).shape == (1, 3)


def test_batch_norms_see_images_and_are_as_before():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.Dropout()).eval()
    images = torch.randn(4, 3, 8, 8) * 5 + 2
    networks.see(module, images)
    norm, made = module[1], module[0](images)
    assert torch.allclose(norm.running_mean, made.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(norm.running_var, made.var((0, 2, 3)), rtol=1e-3)
    assert norm.momentum == 0.3 and not norm.training and not module[2].training


class Event:
    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Host(measure.Gpu):
    type = "cpu"

    def __init__(self):
        self.used, self.kept = [10.0, 12.0], [1.0, 4.0]  # of which 3 came from compiling

    def synchronize(self):
        pass

    def event(self):
        return Event()

    def used_mib(self):
        return self.used.pop(0)

    def kept_mib(self):
        return self.kept.pop(0)

    def settle(self):
        self.settled = True

    def let_go(self):
        pass


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(8 * 36, 10))


@pytest.fixture
def bench(monkeypatch, backend):
    """Small networks, few runs, and Nimble and torch.compile without a GPU."""
    monkeypatch.setattr(measure, "LEAST", 10)
    monkeypatch.setattr(measure, "MOST", 12)
    monkeypatch.setattr(training, "STEPS", 6)
    monkeypatch.setattr(networks, "inference", lambda *_, **__: (small().eval(), [torch.randn(1, 3, 8, 8) for _ in range(3)]))
    monkeypatch.setattr(networks, "training", lambda *_, **__: (small(), [(torch.randn(4, 3, 8, 8), torch.randint(10, (4,)))
                                                                   for _ in range(2)]))
    import nimble

    for name in ("Nimble", "step"):
        if hasattr(nimble, name):
            monkeypatch.setattr(nimble, name, functools.partial(getattr(nimble, name), backend=backend), raising=False)
    if hasattr(nn.Module, "compile"):
        eager = functools.partial(nn.Module.compile, backend="eager")
        monkeypatch.setattr(nn.Module, "compile", lambda self, mode=None, options=None: eager(self))
    return backend


INFERENCE = ["eager", "torchscript", "nimble-one", "nimble", pytest.param("compile", marks=compiles),
             pytest.param("autotune", marks=compiles), pytest.param("nimble-compile", marks=compiles)]


@pytest.mark.parametrize("name", INFERENCE)
def test_inference(bench, name):
    way = ways.way("inference", name)
    found = inference.run("small", way, Host())
    for field in ("gpu_us", "wall_us", "row_us"):
        assert 0 < found[field]["p10"] <= found[field]["median"] <= found[field]["p90"]
    assert found["gpu_us"]["runs"] >= 10 and 1 <= found["row_us"]["runs"] <= 12
    assert found["memory_mib"] == {"before": 7.0, "after": 12.0} and found["torch"] == torch.__version__
    assert found.get("same_bits") is (True if way.same in ("eager",) or way.nimble else None)
    assert found["relative_difference"] < 1e-5
    assert 0 <= found["compile_s"] <= found["prepare_s"]
    if way.nimble:
        assert bench.asked == [(name != "nimble-one", False)]
        (graph,) = found["graphs"]
        assert graph["state"] == "rewritten" and graph["streams"] == 3
    else:
        assert not bench.asked


@compiles
def test_only_preparing(bench):
    assert set(inference.run("small", ways.way("inference", "nimble-compile"), Host(), True)) == {"prepare_s"} and not bench.asked
    assert "gpu_us" not in training.run("small", 4, ways.way("training", "compile"), Host(), True)


def test_a_call_of_nimble_copies_nothing(bench):
    module, (data, *_) = networks.inference()
    prepared = inference.prepare(ways.way("inference", "nimble"), module, module, data)
    assert prepared.data is not data and prepared.result is not None
    assert prepared.call() is prepared.call()  # the graph's own output


def test_results_that_differ_are_found(bench):
    module, inputs = networks.inference()
    wrong = inference.Prepared(lambda: module(inputs[0]), inputs[0].clone(), base=module)  # as if the input were in the graph
    with torch.no_grad():
        found = inference.compare(module, wrong, inputs)
    assert found["same_bits"] is False and found["relative_difference"] > 1e-3 and found["digest"] != found["eager_digest"]


@pytest.mark.parametrize("bad", [float("nan"), 0.0])
def test_outputs_that_prove_nothing_raise(bench, bad):
    module, inputs = networks.inference()
    with torch.no_grad():
        module[-1].weight.fill_(bad)
        with pytest.raises(RuntimeError, match="prove nothing"):
            inference.compare(module, inference.prepare(ways.way("inference", "eager"), module, module, inputs[0].clone()), inputs)


@pytest.mark.parametrize("name", ["eager", "torchscript", pytest.param("compile", marks=compiles)])
def test_training(bench, name):
    found = training.run("small", 4, ways.way("training", name), Host())
    assert len(found["losses"]) == 6 and found["losses"][0] != found["losses"][-1]
    assert found["memory_mib"] == {"before": 7.0, "after": 12.0} and found["gpu_us"]["runs"] >= 10
    if name != "torchscript":  # which has kernels of its own
        assert found["losses"] == found["eager_losses"] and found["digest"] == found["eager_digest"]
    assert found.get("same_bits") is (True if name == "eager" else None)


@pytest.mark.parametrize("name", ["nimble-one", "nimble", "nimble-step", pytest.param("nimble-compile", marks=compiles),
                                  pytest.param("nimble-step-compile", marks=compiles)])
def test_training_with_nimble(bench, name):
    found = training.run("small", 4, ways.way("training", name), Host())
    assert found["same_bits"] is True and found["losses"] == found["eager_losses"]
    assert [graph["kind"] for graph in found["graphs"]] == (["step"] if "step" in name else ["forward", "backward"])


@compiles
def test_training_over_other_kernels_is_held_against_these(bench, monkeypatch):
    """As if torch.compile computed something different from eager."""
    def twice(module, way):
        forward = module.forward
        monkeypatch.setattr(module, "forward", lambda x: forward(x) * 2)

    monkeypatch.setattr(inference, "compile_in_place", twice)
    found = training.run("small", 4, ways.way("training", "nimble-compile"), Host())
    assert found["same_bits"] is True and found["losses"] != found["eager_losses"]


def test_trainings_that_differ_are_found(bench):
    trainer = training.Trainer(*networks.training())
    eager = trainer.curve(trainer.step)
    way = ways.way("training", "graph")
    assert training.compare(way, eager, trainer.curve(trainer.step))["same_bits"] is True

    def skips_buffers():
        loss = trainer.step()
        trainer.module[1].num_batches_tracked.sub_(1)
        return loss

    found = training.compare(way, eager, trainer.curve(skips_buffers))
    assert found["same_bits"] is False and found["difference"] == 0
    trainer.optimizer.param_groups[0]["lr"] = 0.02
    found = training.compare(way, eager, trainer.curve(trainer.step))
    assert found["same_bits"] is False and found["relative_difference"] > 0
    with pytest.raises(RuntimeError, match="prove nothing"):
        training.compare(way, ([eager[0][0]] * 2, {}), eager)


def test_a_curve_reads_the_loss_where_a_graph_leaves_it(bench):
    trainer = training.Trainer(*networks.training())
    place = torch.zeros(())
    losses, _ = trainer.curve(lambda: place.copy_(trainer.step()) and None, place)
    assert [float(loss) for loss in losses] == [float(loss) for loss in trainer.curve(trainer.step)[0]]


def test_the_worker_says_what_it_does_not_know():
    for main, words in ((inference.main, ["resnet50", "fast"]), (training.main, ["resnet50", "32", "fast"])):
        with pytest.raises(KeyError, match="fast"):
            main(words)


@compiles
def test_options_of_torch_compile_are_known():
    """Else torch.compile would raise, on a GPU."""
    inductor = pytest.importorskip("torch._inductor")
    from torch._inductor import config

    for way in ways.INFERENCE:
        if way.nimble and way.mode:
            assert isinstance(inductor.list_mode_options(way.mode), dict)
    assert all(getattr(config, option) is True and value is False for option, value in ways.MEMORY_OF_ITS_OWN.items())


def test_a_step_in_two_graphs_against_one(bench, monkeypatch):
    pytest.importorskip("torch", minversion="2.1")  # whose ops can be taken down in a backward
    import nimble
    import step_parts
    from replaying import ReplayingCapture

    backends = []

    def step(*arguments, **more):
        backends.append(ReplayingCapture())
        return nimble.steps.steps.step(*arguments, **more, backend=backends[-1])

    monkeypatch.setattr(nimble, "step", step)
    host = Host()
    host.used, host.kept = [7.0, 9.0, 9.0, 10.0], [0.0] * 4
    found = step_parts.run("any", 4, host)
    assert found["same_bits"] and [found[way]["parts"] for way in ("two graphs", "one graph")] == [[2], [1]]
    assert [found[way]["mib"] for way in ("two graphs", "one graph")] == [2, 1]
    assert found["two graphs"]["gpu_us"]["runs"] >= 10


def test_what_a_step_takes_of_the_host(bench, monkeypatch, capsys):
    import json

    import step_host

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda module, images, num_warmup_iters: module)
    monkeypatch.setattr(step_host, "STEPS", 3)
    for way in ("callables", "nimble"):
        step_host.take_turns("any", 4, way, Host(), ["go", "go", "profile"], decided=2)
        *said, profiled = capsys.readouterr().out.split("ready\n")[1].splitlines()
        assert len(said) == 2
        profiled = json.loads(profiled)["profile"]
        times = [us for _, _, us in profiled]
        assert 0 < len(times) <= step_host.MOST and times == sorted(times, reverse=True) and times[-1] > 0
        assert way == "callables" or next(times for name, times, _ in profiled if "_ReplayBackward" in name) == 1
        for line in said:
            found = json.loads(line)
            assert not found["library"] and len(found["steps"]) == 3
            times = step_host.medians(found["steps"])
            assert list(times) == [*step_host.PARTS, "all"] and 0 < max(times[part] for part in step_host.PARTS) <= times["all"]


def test_ways_take_turns(bench, monkeypatch, tmp_path, capsys):
    """Each in a separate process, on cores that all have; a message names one that ends before its turn, with its
    output."""
    import json
    import os

    import step_host

    turns = tmp_path / "turns"
    program = """
import json, os, sys
print("warming up", flush=True); print("\\nready", flush=True)
for number, word in enumerate(sys.stdin):
    if word.strip() == "profile": print(json.dumps({"profile": [["aten::add", 2.0, 3.25]]}), flush=True); continue
    if number == int(sys.argv[3]): sys.exit("no memory")
    with open(sys.argv[1], "a") as file: print(sys.argv[2], file=file)
    found = {"library": sys.argv[2] == "nimble", "cores": len(os.sched_getaffinity(0)), "steps": [[1e-6] * 5, [3e-6] * 5]}
    print(json.dumps(found), flush=True)
"""

    def start(cell, condition, build):
        environment = step_host.side_by_side.environment()
        return step_host.side_by_side.start([sys.executable, "-c", program, turns, condition.way, last], environment, waits=True)

    monkeypatch.setattr(step_host, "start", start)
    monkeypatch.setattr(step_host.side_by_side, "device", lambda: "none")
    monkeypatch.setattr(step_host, "CONDITIONS", {"one": step_host.Condition("callables"), "other": step_host.Condition("nimble", True)})
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(step_host, "CORES", 1)
    try:
        last = 9
        step_host.main(["any:4", "--rounds", "2", "--profile", "--json", str(tmp_path / "figures.json")])
        text = capsys.readouterr().out
        assert "any:4                other                      zero_grad 2, forward 2" in text
        assert text.count("         3.2 us      2.0 times  aten::add\n") == 2
        assert turns.read_text().split() == ["callables", "nimble"] * 2
        found = json.loads((tmp_path / "figures.json").read_text())["cells"]["any:4"]
        assert found["other"]["library"] and not found["one"]["library"] and found["one"]["cores"] == 1
        assert found["one"]["us"]["all"] == pytest.approx(10)
        last = 1
        with pytest.raises(step_host.side_by_side.Failure, match="any:4, one: no memory"):
            step_host.main(["any:4", "--rounds", "2"])
        program = "import sys; sys.exit('no GPU')"  # before it is ready
        with pytest.raises(step_host.side_by_side.Failure, match="any:4, one: no GPU"):
            step_host.main(["any:4", "--rounds", "2"])
        for words in (["any"], ["any:"], ["any:4", "--rounds", "0"]):
            with pytest.raises(SystemExit):
                step_host.main(words)
    finally:
        os.sched_setaffinity(0, cores)


def test_the_program_around_cells(bench, monkeypatch, tmp_path, capsys):
    import json

    import step_parts

    monkeypatch.setattr(step_parts.side_by_side, "device", lambda: "none")
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native", raising=False)
    monkeypatch.setattr(measure, "Gpu", Host)
    times = {key: {"median": 2.4} for key in ("gpu_us", "row_us", "wall_us")}
    found = {**{way: {**times, "mib": 3, "parts": [2]} for way in step_parts.WAYS}, "same_bits": True}
    monkeypatch.setattr(step_parts, "run", lambda name, batch, gpu: found)
    step_parts.main(["any:4", "--json", str(tmp_path / "figures.json")])
    said = "any:4                one graph  idle 2, in a row 2, by the clock 2 us, 3 MiB, parts [2]\nany:4                the same"
    assert said in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["cells"] == {"any:4": found} and figures["device"] == "none"
    assert (figures["library"], figures["allocator"]) == ("not loaded", "native")
