"""nimble.step: work on streams that wait for nothing, which a capture would do once more, is seen in eager steps, and then nothing is
captured. Here the backend says how much there was."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
import nimble  # noqa: E402
from nimble import CaptureError  # noqa: E402
from step_programs import sgd, update  # noqa: E402
from fake import FakeCapture  # noqa: E402


class Beside(FakeCapture):
    """`steps` of each eager run; a capture would count one more."""

    def __init__(self, strays):
        super().__init__()
        self.each, self.steps = iter(strays), 0

    def run(self, function, stream, learns):
        self.steps += 1
        self.strays = next(self.each)
        return super().run(function, stream, learns)


def made(strays, **how):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    optimizer = sgd(net)
    backend = Beside(strays)
    return nimble.step(lambda x: update(net, optimizer, net(x).sum()), modules=[net], optimizers=[optimizer], backend=backend, **how), backend


def test_nothing_is_captured():
    step, backend = made([0, 2, 2])
    for _ in range(3):
        step(torch.ones(2, 4))
    for _ in range(2):
        with pytest.raises(CaptureError, match="2 of the kernels and copies that it launches go to streams which wait for nothing"):
            step(torch.ones(2, 4))
    assert backend.steps == 3 and backend.asked == [] and step.report()[0].state == "eager"


def test_it_runs_eagerly_where_that_is_wanted():
    step, backend = made([1, 1, 1], fallback=True)
    with pytest.warns(UserWarning, match="runs eagerly.* wait for nothing"):
        for _ in range(6):
            step(torch.ones(2, 4))
    assert backend.asked == []


def test_what_only_a_first_step_does_counts_for_nothing():
    step, backend = made([3, 1, 0])
    for _ in range(6):
        step(torch.ones(2, 4))
    assert backend.steps == 3 and len(backend.graphs) == 1 and step.report()[0].state == "rewritten"
