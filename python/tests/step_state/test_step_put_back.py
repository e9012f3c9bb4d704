"""nimble.step: a failed capture changes nothing, and a function that has run does not run again."""

import collections
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402

import nimble  # noqa: E402
from nimble import NimbleError  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402
from step_programs import mlp, raises, same, sgd, update  # noqa: E402


class World:
    """A step's state."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        self.net.extra = nn.Parameter(torch.ones(2))
        self.net.register_buffer("buffer", torch.ones(3))
        self.net.plain, self.scale = torch.ones(3), {"scale": torch.ones(3)}
        self.optimizer = sgd(self.net, momentum=0.9)

    def loss(self, x):
        made = (self.net(x) * self.scale["scale"] + self.net.plain + self.net.buffer).square().mean() + self.net.extra.sum() * 0
        return update(self.net, self.optimizer, made)

    def look(self):
        """Everything observable of it, by identity and by value."""
        net, states = self.net, list(self.optimizer.state.values())
        tensors = {**{name: t for m in net.modules() for name, t in (*m._parameters.items(), *m._buffers.items())},
                   "plain": net.plain, "scale": self.scale["scale"],
                   **{f"state {i}": state.get("momentum_buffer") for i, state in enumerate(states)},
                   **{f"grad {i}": p.grad for i, p in enumerate(net.parameters())}}
        return [{name: t if t is None else (id(t), t.data_ptr(), str(t.tolist()), t.requires_grad) for name, t in tensors.items()},
                [(key, id(child), type(child)) for key, child in net._modules.items()], list(net._forward_hooks),
                [len(p._backward_hooks or ()) for p in net.parameters()],
                id(self.optimizer.state), [list(map(id, group["params"])) for group in self.optimizer.param_groups]]


def other_memory(of):
    def change(world):
        for tensor in of(world):
            tensor.data = tensor.data * 0.5
    return change


def parameter(world):
    world.net.extra = nn.Parameter(world.net.extra.detach() * 0.5)


def requires_grad(world):
    world.net.extra.requires_grad_(not world.net.extra.requires_grad)


def group(world):
    world.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


def parameters_of_a_group(world):
    world.optimizer.param_groups[0]["params"].append(nn.Parameter(torch.ones(1)))


def state(world):
    world.optimizer.state = collections.defaultdict(
        dict, {p: {"momentum_buffer": s["momentum_buffer"] * 0.5} for p, s in world.optimizer.state.items()})


def hook(world):
    world.net.register_forward_hook(lambda *_: None)


def hook_of_a_parameter(world):
    world.net.extra.register_hook(lambda grad: grad)


def kind(world):
    world.net[1].__class__ = nn.Tanh if type(world.net[1]) is nn.ReLU else nn.ReLU


CHANGES = {
    "memory of parameters": other_memory(lambda world: world.net.parameters()),
    "memory of a buffer": other_memory(lambda world: [world.net.buffer]),
    "memory of an attribute": other_memory(lambda world: [world.net.plain]),
    "memory in a dictionary": other_memory(lambda world: world.scale.values()),
    "memory of states": other_memory(lambda world: [s["momentum_buffer"] for s in world.optimizer.state.values()]),
    **{each.__name__: each for each in (parameter, requires_grad, group, parameters_of_a_group, state, hook, hook_of_a_parameter, kind)},
}


@pytest.mark.parametrize("name", CHANGES)
def test_all_is_as_before(name):
    world = World()

    def train(x):
        loss = world.loss(x)
        CHANGES[name](world)
        return loss

    step = nimble.step(train, [world.net], [world.optimizer], backend=ReplayingCapture())
    for _ in range(3):
        step(torch.ones(2, 4))
    before = world.look()
    with pytest.raises(NimbleError):
        step(torch.ones(2, 4))
    assert world.look() == before


@pytest.mark.parametrize("name", CHANGES)
def test_and_what_runs_eagerly_instead_computes_the_same(name):
    def program(wrap):
        world = World()

        def train(x):
            loss = world.loss(x)
            CHANGES[name](world)
            return loss

        step = wrap(train, [world.net], [world.optimizer], fallback=True)
        for _ in range(6):
            yield step(torch.randn(2, 4)), world.net

    assert same(program)


@pytest.mark.parametrize("to_none", [False, None])
def test_gradients_that_get_other_memory(to_none):
    """None: they are added to."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            if to_none is not None:
                optimizer.zero_grad(set_to_none=to_none)
            net(x).square().mean().backward()
            for p in net.parameters():
                p.grad.data = p.grad.data.clamp(-0.05, 0.05)
            optimizer.step()

        step = wrap(train, [net], [optimizer])
        for _ in range(8):
            step(torch.randn(2, 4))
            yield net

    assert raises(program, "gives a gradient other memory")


class Capturing(ReplayingCapture):
    """Says whether a step runs to be captured."""

    def refuses(self):
        if self.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")


class Wrapped(torch.optim.Optimizer):
    """Like those that combine optimizers: it makes its state on access."""

    def __init__(self, inner):
        self.inner = inner

    state = property(lambda self: {**self.inner.state})
    param_groups = property(lambda self: list(self.inner.param_groups))
    defaults = property(lambda self: self.inner.defaults)

    def step(self, closure=None):
        return self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


def history_in_a_buffer(world, backend, x):
    world.net.buffer.mul_(0.9).add_(world.net(x)[0] * 0.1)


def other_shape_meanwhile(world, backend, x):
    weight = world.net[0].weight
    saved = weight.data
    weight.data = weight.data.reshape(-1)
    backend.refuses()
    weight.data = saved


def refused(world, backend, x):
    backend.refuses()


@pytest.mark.parametrize("body, wrap", [(history_in_a_buffer, None), (other_shape_meanwhile, None), (refused, Wrapped)],
                         ids=lambda each: each.__name__ if each else "")
def test_what_cannot_be_captured_runs_eagerly(body, wrap):
    """Whatever must be restored for that."""
    results = []
    for mode in ("eager", "step"):
        world, backend = World(), Capturing()
        if wrap:
            world.optimizer = wrap(world.optimizer)

        def train(x):
            loss = world.loss(x)
            body(world, backend, x)
            return loss.detach()

        step = train if mode == "eager" else nimble.step(train, [world.net], [world.optimizer], fallback=True, backend=backend)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = []
            for _ in range(6):
                losses.append(float(step(torch.ones(2, 4))))
                world.net.buffer.detach_()
        results.append((losses, {name: value.tolist() for name, value in world.net.state_dict().items()}))
    assert results[0] == results[1]


def steps_taken(train_of, fallback, calls=3):
    """How often the function was called, and its results."""
    net = mlp()
    optimizer, count = sgd(net), []
    train = train_of(net, optimizer, count)
    step = nimble.step(train, [net], [optimizer], fallback=fallback, backend=ReplayingCapture())
    for _ in range(calls):
        try:
            step(torch.ones(2, 4))
        except NimbleError as error:
            assert "the function's own" in str(error)
    return len(count)


def jagged(net, optimizer, count):
    def train(x):
        count.append(1)
        y = net(x)
        update(net, optimizer, y.square().mean())
        return torch.nested.nested_tensor([y.detach()[0], y.detach()[1, :2]], layout=torch.jagged)
    return train


def raising(net, optimizer, count):
    def train(x):
        count.append(1)
        update(net, optimizer, net(x).square().mean())
        raise NimbleError("the function's own")
    return train


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("train_of", [jagged, raising])
def test_a_function_that_has_run_does_not_run_again(train_of, fallback):
    if train_of is jagged and not hasattr(torch, "jagged"):
        pytest.skip("this PyTorch has no such tensors")
    assert steps_taken(train_of, fallback) == 3


@pytest.mark.parametrize("change", [
    lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", not torch.backends.cuda.matmul.allow_tf32),
    lambda: torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled()),
    lambda: torch.set_default_dtype(torch.float32 if torch.get_default_dtype() is torch.float64 else torch.float64)])
def test_switches_that_a_step_leaves_changed(change):
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            loss = update(net, optimizer, net(x).square().mean())
            change()
            return loss

        step = wrap(train, [net], [optimizer])
        for _ in range(12):
            yield step(torch.ones(2, 4, dtype=torch.float32))

    switches = torch.backends.cuda.matmul.allow_tf32, torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()
    torch.backends.cuda.matmul.allow_tf32 = switches[0]  # else it is a third value at first: neither
    try:
        assert raises(program, "changes a switch of PyTorch", calls=6)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = switches[0]
        torch.use_deterministic_algorithms(switches[1])
        torch.set_default_dtype(switches[2])
