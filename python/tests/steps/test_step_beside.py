"""nimble.step: work on unordered streams, which a capture would repeat, is detected in eager steps, and then nothing is captured.
Here the backend says how much there was."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
import nimble  # noqa: E402
from nimble import CaptureError  # noqa: E402
from nimble.shim import Rehearsed  # noqa: E402
from step_programs import mlp, sgd, update  # noqa: E402
from fake import FakeCapture  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


class Beside(FakeCapture):
    """`strays` of its eager runs, in order, and none after these."""

    def __init__(self, strays):
        super().__init__()
        self.strays = list(strays)

    def run(self, *how):
        self.rehearsed = Rehearsed(self.strays.pop(0) if self.strays else 0)
        return super().run(*how)


def made(strays, **how):
    torch.manual_seed(0)
    net, backend = torch.nn.Linear(4, 3), Beside(strays)
    optimizer = sgd(net)
    step = nimble.step(lambda x: update(net, optimizer, net(x).sum()), modules=[net], optimizers=[optimizer], backend=backend, **how)
    return step, backend, optimizer


def test_nothing_is_captured():
    step, backend, _ = made([0, 2, 2])
    for _ in range(3):
        step(torch.ones(2, 4))
    for _ in range(2):
        with pytest.raises(CaptureError, match="2 of the kernels and copies that it launches use streams that do not wait for the current one"):
            step(torch.ones(2, 4))
    assert len(backend.ran) == backend.rehearsals == 3 and backend.asked == [] and step.report()[0].state == "eager"


def test_it_runs_eagerly_where_that_is_wanted():
    step, backend, _ = made([1, 1, 1], fallback=True)
    with pytest.warns(UserWarning, match="runs eagerly.* do not wait for the current one"):
        for _ in range(6):
            step(torch.ones(2, 4))
    assert backend.asked == []


@pytest.mark.parametrize("strays, eager", [([3, 1, 0], 3), ([0, 0, 1], 4)])
def test_what_is_done_for_once_counts_for_nothing(strays, eager):
    step, backend, _ = made(strays)
    for _ in range(7):
        step(torch.ones(2, 4))
    assert len(backend.ran) == eager and len(backend.graphs) == 1 and step.report()[0].state == "rewritten"


@pytest.mark.parametrize("strays, is_captured", [([1], True), ([1, 1], False)])
def test_after_a_change(strays, is_captured):
    step, backend, optimizer = made([0, 0, 0, *strays], fallback=True)
    for _ in range(5):
        step(torch.ones(2, 4))
    optimizer.param_groups[0]["lr"] = 0.01
    with pytest.warns(UserWarning) if not is_captured else pytest.MonkeyPatch.context():
        for _ in range(4):
            step(torch.ones(2, 4))
    assert len(backend.graphs) == 1 + is_captured


def test_steps_whose_gradients_are_held_are_not_rehearsed():
    step, backend, _ = made([])
    for _ in range(4):
        step(torch.ones(2, 4))
    held = [p.grad for module in step._guard.state.modules for p in module.parameters()]
    with pytest.warns(UserWarning, match="gradients .* are still referenced"):
        step(torch.ones(2, 4))
    assert len(backend.ran) == 4 and backend.rehearsals == 3 and held


@pytest.mark.parametrize("after_split, parts", [(0, 2), (1, 1)])
def test_where_a_second_part_would_let_work_past_there_is_one(after_split, parts):
    torch.manual_seed(0)
    net, backend, seen = mlp(), ReplayingCapture(), []
    optimizer = sgd(net)
    backend.rehearsed = Rehearsed(0, after_split)
    backend.at_part = lambda: seen.append([p.grad is None for p in net.parameters()])
    step = nimble.step(lambda x: update(net, optimizer, net(x).sum()), modules=[net], optimizers=[optimizer], backend=backend)
    for _ in range(3):
        step(torch.ones(2, 4))
    assert seen == [[True] * 4] * 3  # after zero_grad(), before the backward
    for _ in range(2):
        step(torch.ones(2, 4))
    assert [len(graphs) for graphs in backend.recorded] == [parts] and step.report()[0].runs_ahead is (parts == 2)
