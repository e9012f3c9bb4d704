"""Graphs and versions of tensors: autograd or Nimble reports writes to a tensor that a backward has yet to read."""

import copy

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from training_nets import grads, only, same  # noqa: E402

WRITTEN = "modified by an inplace operation|was written to since its forward"


def scaled(is_part=False):
    def forward(self, x):
        h = self.a(x)
        with torch.no_grad():
            self.scale.mul_(0.5).add_(h.abs().mean() * 0.5)
        return h * self.scale

    torch.manual_seed(0)
    module = only(forward, a=nn.Linear(4, 2))
    module.register_buffer("whole", torch.ones(2))
    module.register_buffer("scale", module.whole[0] if is_part else torch.ones(()))
    return module


def prepared(module, *given, training=True):
    model = Nimble(module, backend=ReplayingCapture())
    for x in given:
        model.prepare(x, training=training, relaxed=True)
    return model


def both(make, *given, training=True):
    module, twin = make(), make()
    return (twin, twin), (module, prepared(module, *given, training=training))


@pytest.mark.parametrize("training", [False, True])
def test_buffers_that_others_have_saved(training):
    """Replays write to them, and autograd must know."""
    for module, call in both(scaled, torch.randn(3, 4), training=training):
        with torch.set_grad_enabled(training):
            call(torch.ones(3, 4))
        outside = module.a.weight.sum() * module.scale
        with torch.set_grad_enabled(training):
            call(torch.ones(3, 4))
        with pytest.raises(RuntimeError, match=WRITTEN):
            outside.backward()


def test_buffers_that_share_memory_and_graphs():
    for module, call in both(lambda: scaled(True), torch.randn(3, 4), torch.randn(5, 4)):
        one, other = call(torch.ones(3, 4)).square().sum(), call(torch.ones(5, 4)).square().sum()
        with pytest.raises(RuntimeError, match=WRITTEN):
            (one + other).backward()


def test_buffers_whose_versions_do_not_rise():
    """Like batch norm's: a backward that has saved them stays valid."""
    for module, call in both(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4), torch.randn(5, 4)):
        outside = module[0].weight.sum() * module[1].running_mean.sum()
        before = [b._version for b in module.buffers()]
        (call(torch.randn(3, 4)).square().sum() + call(torch.randn(5, 4)).square().sum()).backward()
        outside.backward()
        assert [b._version - version for b, version in zip(module.buffers(), before)] == [0, 0, 2]


def tempered():
    torch.manual_seed(0)
    return only(lambda self, x: self.a(x) * self.temperature, a=nn.Linear(4, 2), temperature=torch.tensor(2.0))


def test_plain_tensors_that_are_written_between_steps():
    """The first backward along another path uses the tensors that the capture has saved."""
    results = []
    for module, call in both(tempered, torch.randn(3, 4)):
        torch.manual_seed(1)
        found = []
        for i in range(6):
            module.zero_grad()
            y = call(torch.randn(3, 4))
            (y.square() if i % 4 < 2 else y).sum().backward()
            found += [y.detach(), *grads(module).values()]
            with torch.no_grad():
                module.temperature.mul_(0.9)
        results.append(found)
    assert all(map(torch.equal, *results))


def test_plain_tensors_that_are_written_between_forward_and_backward():
    for module, call in both(tempered, torch.randn(3, 4)):
        loss = call(torch.randn(3, 4)).square().sum()
        with torch.no_grad():
            module.temperature.mul_(0.5)
        with pytest.raises(RuntimeError, match=WRITTEN):
            loss.backward()


def test_plain_tensors_are_the_modules_own_after_preparing():
    def forward(self, x):
        if self.size != 4:
            self.size, self.table, self.alias, self.weights = 4, torch.arange(4.0), self.kept, [self.a.weight]
        return self.a(x * self.table + self.alias) * self.kept.mean(), self.kept

    module = only(forward, a=nn.Linear(4, 2), kept=torch.ones(4), table=torch.ones(2), size=2)
    twin, kept, x = copy.deepcopy(module), module.kept, torch.randn(3, 4)
    model = prepared(module, x)
    y, returned = model(x)
    assert torch.equal(y, twin(x)[0]) and returned is kept
    assert module.kept is kept and module.alias is kept and module.weights[0] is module.a.weight and module.table.shape == (4,)
    y.sum().backward()
    twin(x)[0].sum().backward()
    assert same(grads(module), grads(twin))
    assert torch.equal(module(x)[0], twin(x)[0])


def test_static_inputs_that_are_filled_before_the_backward():
    module = nn.Linear(4, 2)
    twin = copy.deepcopy(module)
    model = prepared(module, torch.randn(3, 4))
    (static,), _ = model.static_inputs(torch.randn(3, 4))
    for given in (static, torch.randn(3, 4)):  # its memory is the graph's, whatever a call is given
        static.copy_(torch.ones(3, 4))
        loss = model(given).square().sum()
        static.copy_(torch.zeros(3, 4))
        with pytest.raises(NimbleError, match="one of static_inputs.. that this backward needs was written to"):
            loss.backward()
        del loss
    for _ in range(3):
        x = torch.randn(3, 4)
        static.copy_(x)
        for net, y in ((module, model(static)), (twin, twin(x))):
            net.zero_grad()
            y.square().sum().backward()
        assert same(grads(module), grads(twin))


def test_static_inputs_that_no_backward_needs():
    module = only(lambda self, x: self.a.weight * 2 + x, a=nn.Linear(4, 2))
    model = prepared(module, torch.randn(2, 4))
    (static,), _ = model.static_inputs(torch.randn(2, 4))
    loss = model(static).square().sum()
    static.zero_()
    loss.backward()
    assert module.a.weight.grad is not None
