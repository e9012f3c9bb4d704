"""nimble.auto: arguments and outputs of kinds that a graph's copies cannot stand for."""

import dataclasses
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.5")
from torch.utils import _pytree  # noqa: E402
from auto_tools import both_ways, module_with  # noqa: E402

TABLE = torch.zeros(3)


class Batch:
    def __init__(self, x, about):
        self.x, self.about = x, about


class Cache:
    def __init__(self, x):
        self.x, self.seen = x, 0


class Result:
    """As in model libraries: its description is created again each time."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


_pytree.register_pytree_node(Batch, lambda b: ([b.x], b.about), lambda children, about: Batch(list(children)[0], about))
_pytree.register_pytree_node(Cache, lambda c: ([c.x], None), lambda children, _: Cache(list(children)[0]))
_pytree.register_pytree_node(Result, lambda r: (list(vars(r).values()), list(vars(r))),
                             lambda values, names: Result(**dict(zip(names, values))))


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0
    more: dict = dataclasses.field(default_factory=dict, compare=False)


class Scale:
    def __init__(self, scale=2.0):
        self.scale = scale

    def __hash__(self):
        return id(self)

    def times(self, x):
        return x * self.scale


def results(module, call, times=12, change=None):
    made = []
    for i in range(times):
        if change is not None and i == 8:
            change()
        made += call(module, torch.full((2, 3), float(i)))
    return made


@pytest.mark.parametrize("forward, argument, change", [
    (lambda self, x, other: x * other.scale, Scale, lambda a: setattr(a, "scale", 3.0)),
    (lambda self, x, other: other(x), lambda: Scale().times, lambda a: setattr(a.__self__, "scale", 3.0)),
    (lambda self, x, other: x * other.more.get("scale", 2.0), Frozen, lambda a: a.more.update(scale=3.0)),
    (lambda self, x, other: x * other.about["scale"], lambda: Batch(torch.ones(2), {"scale": 2.0}),
     lambda a: a.about.update(scale=3.0)),
])
def test_objects_as_arguments(forward, argument, change):
    def program():
        other, module = argument(), module_with(forward)
        return results(module, lambda m, x: [m(x, other)], change=lambda: change(other))

    assert both_ways(program)[1] == 0


def test_a_method_that_takes_what_comes():
    def program():
        got = []
        module = module_with(lambda self, x, collect: collect(x * 2))
        return [*results(module, lambda m, x: [m(x, got.append)]), len(got), *got]

    assert both_ways(program)[1] == 0


def test_arguments_are_not_kept():
    references = []

    def program():
        module = module_with(lambda self, x, other: other(x))
        for _ in range(30):
            other = Scale()
            references.append(weakref.ref(other))
            module(torch.ones(2), other.times)
            del other
        gc.collect()
        return [sum(reference() is not None for reference in references)]

    both_ways(program)


def test_objects_that_count():
    def forward(self, x, cache):
        cache.x[0].copy_(x[0])
        cache.seen += 1
        return x * 2

    def program():
        cache, module = Cache(torch.zeros(2, 3)), module_with(forward)
        return results(module, lambda m, x: [m(x, cache), cache.seen, cache.x.clone()])

    both_ways(program)


def test_objects_that_pytree_knows_in_full():
    def program():
        module = module_with(lambda self, x, given: Result(y=x * 2 + given.z, name="a"))
        return [each for r in results(module, lambda m, x: [m(x, Result(z=x, text="b"))]) for each in (r.y, r.name)]

    assert both_ways(program)[1] == 9


def test_outputs_whose_description_changes():
    def program():
        made, module = [], module_with(lambda self, x: Batch(x * 2, {"calls": 0}))
        for _ in range(12):
            result = module(torch.ones(2))
            made.append(result.about["calls"])
            result.about["calls"] += 1
        return made

    assert "and its description by torch.utils._pytree may change" in both_ways(program)[0]


def test_attributes_of_tensors():
    def of_argument():
        module, made = module_with(lambda self, x: x * getattr(x, "scale", 2.0)), []
        for i in range(12):
            x = torch.ones(2)
            if i >= 8:
                x.scale = 3.0
            made.append(module(x))
        return made

    def forward(self, x):
        y = x * 2
        y.about = 5
        return y

    assert "args[0] has Python attributes ('scale')" in both_ways(of_argument)[0]
    assert "output has Python attributes ('about')" in both_ways(lambda: results(module_with(forward), lambda m, x: [m(x).about]))[0]


def test_outputs_that_are_kept_elsewhere():
    def of_list():
        module = module_with(lambda self, x: (x * 2, self.kept[0]), kept=[torch.zeros(3)])
        return [*results(module, lambda m, x: [m(x)[1].add_(1).clone()]), module.kept[0]]

    def of_global():
        TABLE.zero_()
        module = module_with(lambda self, x: (x * 2, TABLE))
        return [*results(module, lambda m, x: [m(x)[1].add_(1).clone()]), TABLE.clone()]

    for program in (of_list, of_global):
        assert "shares memory" in both_ways(program)[0]


def reads_argument(self, x, other):
    self.sums.mul_(0.5).add_(x.sum(0))
    return other + self.sums


def writes_argument(self, x, other):
    other.add_(x.sum(0))
    return self.sums.sum(0)


@pytest.mark.parametrize("forward, shape, taken", [
    (reads_argument, (3,), lambda m: m.sums), (writes_argument, (4, 3), lambda m: m.sums[0]),
])
def test_arguments_in_the_modules_memory(forward, shape, taken):
    def program(begin=8):
        module, made = module_with(forward), []
        module.register_buffer("sums", torch.zeros(shape))
        for i in range(16):
            made.append(module(torch.ones(2, 3), torch.zeros(3) if i < begin or i > 12 else taken(module)).clone())
        return made

    said, replays = both_ways(program)
    assert "5 an argument shares memory with the module" in said and replays > 5
    assert "an argument shares memory with the module" in both_ways(lambda: program(3))[0]


def test_memory_that_the_program_releases():
    def program():
        global BIG
        BIG = torch.zeros(3)
        reference = weakref.ref(BIG)
        module = module_with(lambda self, x: x + BIG)
        results(module, lambda m, x: [m(x)])
        del BIG
        gc.collect()
        return [reference() is None]

    both_ways(program)


def test_elements_that_are_one_in_memory():
    """A run's writes there could not be undone."""
    def program():
        def forward(self, x):
            x[0].add_(1)
            return x * 2

        module, made = module_with(forward), []
        for _ in range(8):
            x = torch.arange(5.).as_strided((2, 3), (1, 1))
            made += [module(x), x]
        return made

    assert "overlap" in both_ways(program)[0]


def test_where_in_memory_an_argument_is():
    def program():
        module, base = module_with(lambda self, x: x * 2 if x.storage_offset() == 0 else x * 3), torch.ones(4, 3)
        return [module(base[:2] if i < 8 else base[1:3]) for i in range(10)]

    assert "it asks where in memory" in both_ways(program)[0]
