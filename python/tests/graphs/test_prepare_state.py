"""Changes of a module by its runs: detected while a graph is prepared, and undone, wherever they are."""

import contextlib
import random
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.guards.state_keeper import StateKeeper  # noqa: E402
from replaying import ReplayingCapture  # noqa: E402


@pytest.fixture
def prepared():
    return lambda module, *args, **how: Nimble(module, backend=ReplayingCapture()).prepare(*args, relaxed=True, **how)


def module_with(forward, **members):
    made = type("Given", (nn.Module,), {"forward": forward})()
    for name, value in members.items():
        setattr(made, name, value)
    return made.eval()


class Box:
    def __init__(self, tensor):
        self.tensor = tensor


def tuple_of_states(self, x):
    self.hidden = (x + (0 if self.hidden is None else self.hidden[0]), x)
    return self.hidden[0] * 1


def list_of_states(self, x):
    self.hidden[0] = self.hidden[0] + x
    return self.hidden[0] * 1


def dictionary_of_states(self, x):
    self.hidden["a"]["b"] = self.hidden["a"]["b"] + x
    return x * 1


def object_with_a_state(self, x):
    self.hidden.tensor = self.hidden.tensor + x
    return x * 1


def grows(self, x):
    self.hidden.append(x * 2)
    return x * 1


def shrinks(self, x):
    self.hidden.pop()
    return x * 1


def turns_round(self, x):
    self.hidden = self.hidden[::-1]
    return self.hidden[0] * x


def keeps_an_argument(self, x):
    made, self.hidden = x - self.hidden, x
    return made


def keeps_the_first_argument(self, x):
    self.hidden = x if self.hidden is None else self.hidden
    return x - self.hidden


def keeps_a_view_of_an_argument(self, x):
    self.hidden = [x[:1]] if not self.hidden else self.hidden
    return x - self.hidden[0]


STATES = [
    (tuple_of_states, lambda: None, r"assigns a tensor to its attribute 'inner.hidden\[0\]' at each run"),
    (list_of_states, lambda: [torch.zeros(2)], r"attribute 'inner.hidden\[0\]' at each run"),
    (dictionary_of_states, lambda: {"a": {"b": torch.zeros(2)}}, r"attribute \"inner.hidden\['a'\]\['b'\]\" at each run"),
    (object_with_a_state, lambda: Box(torch.zeros(2)), "attribute 'inner.hidden.tensor' at each run"),
    (object_with_a_state, lambda: SimpleNamespace(tensor=torch.zeros(2)), "attribute 'inner.hidden.tensor' at each run"),
    (grows, lambda: [], r"attribute 'inner.hidden\[2\]' at each run"),
    (shrinks, lambda: [torch.zeros(2) for _ in range(9)], r"attribute 'inner.hidden\[6\]' at each run"),
    (turns_round, lambda: (torch.zeros(2), torch.ones(2)), r"attribute 'inner.hidden\[0\]' at each run"),
    (keeps_an_argument, lambda: torch.zeros(2), "keeps an argument in its attribute 'inner.hidden'"),
    (keeps_the_first_argument, lambda: None, "keeps an argument in its attribute 'inner.hidden'"),
    (keeps_a_view_of_an_argument, lambda: [], r"keeps an argument in its attribute 'inner.hidden\[0\]'"),
]


def tensors_in(value):
    if isinstance(value, (Box, SimpleNamespace)):
        value = vars(value)
    if isinstance(value, dict):
        return [t for each in value.values() for t in tensors_in(each)]
    if isinstance(value, (list, tuple)):
        return [t for each in value for t in tensors_in(each)]
    return [value]


@pytest.mark.parametrize("forward, hidden, said", STATES)
def test_states_in_attributes_and_what_these_hold(prepared, forward, hidden, said):
    inner = module_with(forward, hidden=hidden())
    module = module_with(lambda self, x: self.inner(x), inner=inner)
    before, held = inner.hidden, tensors_in(inner.hidden)
    values = [None if t is None else t.clone() for t in held]
    with pytest.raises(NimbleError, match=said):
        prepared(module, torch.ones(2))
    assert inner.hidden is before and len(tensors_in(before)) == len(held)
    assert all(one is other for one, other in zip(tensors_in(before), held))
    assert all(v is None or torch.equal(t, v) for t, v in zip(held, values))


def test_fallback_goes_on_from_the_state_before():
    module = module_with(tuple_of_states, hidden=None)
    with pytest.warns(UserWarning, match="running eagerly"):
        model = Nimble(module, fallback=True, backend=ReplayingCapture()).prepare(torch.ones(1), relaxed=True)
        assert [model(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]


def test_keys_that_are_tensors_are_not_read(prepared):
    """That would invalidate a capture."""
    class Key(torch.Tensor):
        def __repr__(self, **_):
            raise AssertionError

    key = torch.ones(1).as_subclass(Key)
    module = module_with(lambda self, x: x + self.state[key]["of"], state={key: {"of": torch.ones(2)}})
    assert prepared(module, torch.ones(2))(torch.ones(2)).tolist() == [2, 2]


def test_containers_that_stay_as_they_are(prepared):
    def forward(self, x):
        if not self.tables:
            self.tables.append(torch.arange(2.0))
        return x + self.tables[0] + self.box["table"] + self.itself.box["table"]

    module = module_with(forward, tables=[], box={"table": torch.ones(2)})
    module.__dict__["itself"] = module
    assert prepared(module, torch.zeros(2))(torch.ones(2)).tolist() == [3, 4]


def accumulates(self, x):
    self.stats["n"].add_(x)
    return self.stats["n"] * 1


def accumulates_in_an_object(self, x):
    self.stats.tensor.add_(x)
    return self.stats.tensor * 1


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("forward, stats", [(accumulates, lambda: {"n": torch.zeros(2)}),
                                            (accumulates_in_an_object, lambda: Box(torch.zeros(2)))])
def test_accumulators_in_containers_are_put_back(prepared, forward, stats, training):
    module = module_with(lambda self, x: (forward(self, x.detach()), x * self.weight)[0] + 0 * self.weight * x, stats=stats(),
                         weight=nn.Parameter(torch.ones(2)))
    model = prepared(module, torch.ones(2), training=training)
    assert tensors_in(module.stats)[0].tolist() == [0, 0]
    assert [model(torch.ones(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("training", [False, True])
def test_modules_that_are_not_registered_are_put_back(prepared, training):
    module = module_with(lambda self, x: self.layer(x) + self.teacher[0](x).detach(), layer=nn.Linear(2, 2),
                         teacher=(nn.Sequential(nn.BatchNorm1d(2)).train(),))
    norm = module.teacher[0][0]
    prepared(module, torch.randn(4, 2), training=training)
    assert norm.num_batches_tracked.item() == 0 and norm.running_mean.tolist() == [0, 0] and norm.running_var.tolist() == [1, 1]


def test_parameters_of_modules_that_are_not_registered(prepared):
    def forward(self, x):
        self.teacher[0].weight.data.mul_(0.5)
        return self.teacher[0](x)

    module = module_with(forward, teacher=[nn.Linear(2, 2)])
    before = module.teacher[0].weight.detach().clone()
    with pytest.raises(NimbleError, match=r"writes to its parameter 'teacher\[0\].weight'"):
        prepared(module, torch.ones(1, 2))
    assert torch.equal(module.teacher[0].weight, before)


@pytest.mark.parametrize("training", [False, True])
def test_what_the_first_run_makes_and_each_run_writes(prepared, training):
    def forward(self, x):
        if self.stat is None:
            self.stat = torch.zeros(2)
        self.stat.add_(x.detach())
        return self.stat + 0 * self.weight * x

    module = module_with(forward, stat=None, weight=nn.Parameter(torch.ones(2)))
    with pytest.raises(NimbleError, match="makes a tensor in its first run, 'stat'.*run the module once before"):
        prepared(module, torch.ones(2), training=training)
    assert module.stat is None
    module(torch.ones(2))
    model = prepared(module, torch.ones(2), training=training)
    assert [model(torch.ones(2)).tolist() for _ in range(2)] == [[2, 2], [3, 3]]


def momentum_encoder(self, x):
    with torch.no_grad():
        for mine, other in zip(self.key.parameters(), self.query.parameters()):
            mine.data.mul_(0.5).add_(other.data, alpha=0.5)
    return self.query(x) * self.key(x)


def decays_all_at_once(self, x):
    torch._foreach_mul_([p.data for p in self.key.parameters()], 0.5)
    return self.query(x) * self.key(x)


def writes_past_the_dispatcher(self, x):
    self.key.weight.data.numpy()[0] = 7
    return self.query(x) * self.key(x)


@pytest.mark.parametrize("forward, is_put_back", [(momentum_encoder, True), (decays_all_at_once, True),
                                                  (writes_past_the_dispatcher, False)])
def test_parameters_written_without_autograds_knowledge(forward, is_put_back):
    if not is_put_back:
        pytest.importorskip("numpy")
    module = module_with(forward, query=nn.Linear(2, 2), key=nn.Linear(2, 2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    backend = ReplayingCapture()
    with pytest.raises(NimbleError, match="writes to its parameter 'key.weight'"):
        Nimble(module, backend=backend).prepare(torch.ones(1, 2), relaxed=True)
    assert backend.replays == 0
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items()) == is_put_back


def test_training_sees_parameters_that_are_written(prepared):
    module = module_with(momentum_encoder, query=nn.Linear(2, 2), key=nn.Linear(2, 2))
    with pytest.raises(NimbleError, match="writes to its parameter 'key.weight'"):
        prepared(module, torch.ones(1, 2), training=True)


def test_parameters_that_stay_the_same_may_be_written(prepared):
    """A graph writes them, too."""
    def forward(self, x):
        self.weight.data.clamp_(-1, 1)
        return x * self.weight

    module = module_with(forward, weight=nn.Parameter(torch.ones(2)))
    model = prepared(module, torch.ones(2))
    module.weight.data.mul_(5)
    assert model(torch.ones(2)).tolist() == [1, 1] and module.weight.tolist() == [1, 1]


def gives_parameter_other_memory(self, x):
    self.weight.data = torch.renorm(self.weight.data, 2, 0, 1.0)
    return x @ self.weight


def gives_parameter_other_strides(self, x):
    self.weight.data = self.weight.data.t()
    return x @ self.weight


def gives_buffer_other_memory(self, x):
    self.table.data = self.table.data * 0.5 + x
    return x + self.table


def gives_attribute_other_memory(self, x):
    made = x + self.plain
    self.plain.data = self.plain.data * 0.5
    return made


def gives_tensor_in_a_list_other_memory(self, x):
    made = x + self.held[0]
    self.held[0].data = self.held[0].data * 0.5
    return made


def replaces_parameter(self, x):
    self.weight = nn.Parameter(self.weight * 0.5)
    return x @ self.weight


@pytest.mark.parametrize("forward, said", [
    (gives_parameter_other_memory, "gives 'weight' other memory"),
    (gives_parameter_other_strides, "gives 'weight' other memory"),
    (gives_buffer_other_memory, "gives 'table' other memory"),
    (gives_attribute_other_memory, "gives 'plain' other memory"),
    (gives_tensor_in_a_list_other_memory, "gives 'held.*' other memory"),
    (replaces_parameter, "replaces its parameter 'weight'"),
])
def test_parameters_and_buffers_elsewhere(prepared, forward, said):
    module = module_with(forward, weight=nn.Parameter(torch.randn(2, 2) * 5))
    module.register_buffer("table", torch.ones(2))
    module.plain, module.held = torch.ones(2), [torch.ones(2)]
    tensors = weight, table, plain, held = module.weight, module.table, module.plain, module.held[0]
    where = [(t.data_ptr(), t.stride(), t.detach().clone()) for t in tensors]
    with pytest.raises(NimbleError, match=said):
        prepared(module, torch.ones(2))
    assert module.weight is weight and module.table is table and module.plain is plain and module.held[0] is held
    for tensor, (pointer, stride, value) in zip(tensors, where):
        assert tensor.data_ptr() == pointer and tensor.stride() == stride and torch.equal(tensor, value)


@pytest.mark.parametrize("before", [None, 3.0])
def test_a_backward_inside_the_forward(prepared, before):
    def forward(self, x):
        with torch.enable_grad():
            made = self.layer(x)
            made.sum().backward()
        return made.detach()

    module = module_with(forward, layer=nn.Linear(2, 2))
    if before is not None:
        module.layer.weight.grad = torch.full((2, 2), before)
    grad = module.layer.weight.grad
    with pytest.raises(NimbleError, match="gradients of its own when it runs: 'layer.weight' gets another .grad"):
        prepared(module, torch.ones(1, 2))
    assert module.layer.weight.grad is grad and module.layer.bias.grad is None
    assert grad is None or grad.eq(before).all()


def test_gradients_that_another_thread_accumulates_meanwhile_stay(prepared):
    def forward(self, x):
        if not self.ran:
            self.ran.append(True)
            other = threading.Thread(target=lambda: self.layer(torch.ones(1, 2)).sum().backward())
            other.start()
            other.join()
        return self.layer(x)

    module = module_with(forward, layer=nn.Linear(2, 2), ran=[])
    prepared(module, torch.ones(1, 2))
    assert module.layer.weight.grad.eq(1).all()


def numpys():
    return pytest.importorskip("numpy").random.default_rng(0)


@pytest.mark.parametrize("where", [lambda generator: generator, lambda generator: [generator], lambda generator: {"of": (generator,)}])
@pytest.mark.parametrize("make, draw", [
    (numpys, lambda g: float(g.random())), (lambda: random.Random(0), lambda g: g.random()),
    (lambda: torch.Generator().manual_seed(0), lambda g: torch.rand((), generator=g).item()),
])
def test_generators_of_its_own(prepared, make, draw, where):
    def forward(self, x):
        found = self.generator
        while isinstance(found, (list, tuple, dict)):
            found = next(iter(found.values() if isinstance(found, dict) else found))
        return x * draw(found)

    generator = make()
    with pytest.raises(NimbleError, match="draws random numbers by .* a generator of its own"):
        prepared(module_with(forward, generator=where(generator)), torch.ones(2))
    assert draw(generator) == draw(make())


@pytest.mark.parametrize("name", ["mask", "late"])
def test_an_attribute_that_was_none(name):
    module = module_with(lambda self, x: x if getattr(self.inner, name) is None else x * getattr(self.inner, name),
                         inner=module_with(None, mask=None, late=None))
    model = Nimble(module, backend=ReplayingCapture()).prepare(torch.ones(2), relaxed=True)
    assert model(torch.ones(2)).tolist() == [1, 1]
    setattr(module.inner, name, torch.zeros(2))
    assert model(torch.ones(2)).tolist() == [0, 0]


def test_what_no_replay_would_write_to():
    """Buffers and tensors in attributes on another device than the graph."""
    class Counts(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.once, self.name = torch.ones(3), name
            self.register_buffer("table", torch.ones(3))

        def forward(self, x):
            if self.name is not None:
                getattr(self, self.name).data.add_(1)  # no version tells
            return x + self.table

    for name in ("calls", "once", None):
        module = Counts(name)
        keeper = StateKeeper(module)
        with keeper.watch_writes().on():
            module(torch.ones(3))
        keeper.restore_buffers()
        keeper.check_elsewhere("cpu")
        with pytest.raises(NimbleError, match=f"writes to its buffer '{name}', which is on cpu") if name else contextlib.nullcontext():
            keeper.check_elsewhere("cuda")
