"""Words of tensors' memory: all that may change an address, or metadata, shows in them, and otherwise tensors are asked."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import native  # noqa: E402
from nimble.guards import tensor_words  # noqa: E402
from nimble.auto.traced_guard import TracedModuleGuard  # noqa: E402
from nimble.guards.metadata import Metadata  # noqa: E402
from nimble.guards.module_guard import ModuleGuard  # noqa: E402
from nimble.objects.python_trace import TracedRun  # noqa: E402
from nimble.guards.tensor_words import Addresses, TensorWords, metadata_layout, place_layout, shape_layout, tells  # noqa: E402

needs_native = pytest.mark.skipif(native.module is None, reason="nimble_native is not built, or left out")


@pytest.fixture(params=["words", "asked"])
def way(request, monkeypatch):
    """With and without words, whatever this run has."""
    if request.param == "asked":
        monkeypatch.setattr(native, "watched", lambda *_: None)
    elif native.module is None:
        pytest.skip("nimble_native is not built, or left out")
    return request.param


@pytest.fixture
def asked(monkeypatch):
    """How many tensors were asked for their addresses."""
    numbers, original = [], Addresses.__init__

    def init(self, arguments, given):
        original(self, arguments, given)
        look, self._look = self._look, lambda tensors: numbers.append(len(given)) or look(tensors)

    monkeypatch.setattr(Addresses, "__init__", init)
    return numbers


def given_memory(t):
    t.data = t.data.clone()


def given_memory_of_another_dtype(t):
    t.data = torch.empty(0, dtype=torch.int16).set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())


def moved_on(t):
    t.as_strided_(t.shape, t.stride(), t.storage_offset() + 1)


def moved_within_its_storage(t):
    t.data = torch.as_strided(t.data, t.shape, t.stride(), t.storage_offset() + 1)


def set_to_another(t):
    t.set_(torch.ones(8))


def with_storage_that_moves(t):
    before, kept = t.data_ptr(), []
    while t.data_ptr() == before:
        kept.append(torch.empty(1 << 12))
        t.untyped_storage().resize_(t.untyped_storage().nbytes() + (1 << 20))


def resized(t):
    before = t.data_ptr()
    while t.data_ptr() == before:
        t.resize_(t.numel() + (1 << 18))


def emptied(t):
    t.resize_(0)


def swapped(t):
    torch.utils.swap_tensors(t, torch.ones_like(t))


def shared(t):
    return torch._lazy_clone(t)  # asking for the address gives it memory of its own


MOVES = [given_memory, given_memory_of_another_dtype, moved_on, moved_within_its_storage, set_to_another, with_storage_that_moves, resized,
         emptied, *([swapped] if hasattr(torch.utils, "swap_tensors") else []), *([shared] if hasattr(torch, "_lazy_clone") else [])]


@pytest.mark.parametrize("number", [0, 3, 11])
@pytest.mark.parametrize("move", MOVES)
def test_tensors_that_move(way, move, number):
    tensors = [torch.zeros(64)[5:13] for _ in range(12)]
    addresses = Addresses(tensors, range(12))
    for _ in range(3):
        assert addresses.are_same(tensors) and addresses.are_same(tuple(tensors))
    kept = move(tensors[number])  # noqa: F841
    assert not addresses.are_same(tensors)
    assert not addresses.are_same(tuple(tensors))


def test_other_tensors_at_the_place(way):
    one, other = torch.zeros(4), torch.zeros(4)
    addresses = Addresses([None, one], [1])
    assert addresses.are_same((None, one))
    assert not addresses.are_same((None, other))
    assert not addresses.are_same([one, other])
    assert addresses.are_same([5, one.detach()]) and addresses.are_same((5, one))


def test_tensors_that_come_back(way):
    tensor = torch.zeros(4)
    addresses, before = Addresses([tensor], [0]), tensor.data
    assert addresses.are_same([tensor])
    tensor.data = torch.ones(4)
    assert not addresses.are_same([tensor])
    tensor.data = before
    assert addresses.are_same([tensor])


def test_tensors_of_another_class(way):
    """The class says how a tensor tells its address."""
    class Other(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return 1

    tensor = torch.zeros(4)
    addresses = Addresses([tensor], [0])
    assert addresses.are_same([tensor])
    tensor.__class__ = Other
    assert not addresses.are_same([tensor])


@needs_native
def test_the_words_of_this_pytorch_are_known(asked):
    assert place_layout() is not None and metadata_layout() is not None
    tensors = tuple(nn.Parameter(torch.zeros(3)) for _ in range(5))
    addresses = Addresses(tensors, (1, 3))
    assert addresses.are_same(tensors) and asked == [2]
    for _ in range(9):
        assert addresses.are_same(tensors) and addresses.are_same(list(tensors))
    assert asked == [2]


@needs_native
def test_each_word_is_needed():
    """A layout without one of its words does not tell all."""
    for layout, changes in ((place_layout(), tensor_words._MOVES), (metadata_layout(), (*tensor_words._MOVES, *tensor_words._SHAPES, *tensor_words._GRADIENTS))):
        assert tells(layout, changes)
        in_object, (_, tensor, in_tensor), *others = layout
        storage = others[0][1]
        without = [tells((in_object, (0, tensor, tuple(each for each in in_tensor if each != word)), *others), changes)
                   for word in place_layout()[1][2] if word != storage]  # the way to others, so it has to be there
        assert sum(without) == (layout is metadata_layout())  # the number of elements follows from the shape
        parent, at, (address, deleter, _) = others[0]
        for word, change in ((deleter, tensor_words._in_other_memory), (address, getattr(torch, "_lazy_clone", None))):
            if change is not None:
                assert tells(layout, [change]) and not tells((in_object, layout[1], (parent, at, (word,)), *others[1:]), [change])
        for parent, at, in_autograd in others[1:]:
            assert not tells((*layout[:-1], (parent, at, in_autograd[:1])), changes)


@needs_native
@pytest.mark.parametrize("tensor", [
    torch.zeros([1] * 6), torch.zeros(2, 2).to_sparse(), torch.zeros(2).as_subclass(type("Own", (torch.Tensor,), {}))],
    ids=["dimensions", "sparse", "subclass"])
def test_tensors_without_such_words(tensor):
    looks = []
    words = TensorWords(metadata_layout, [0], lambda _: looks.append(0), [tensor])
    assert words.are_same([tensor]) and words.are_same([tensor]) and len(looks) == 3


@needs_native
def test_what_another_thread_changes_after_the_look():
    """It must not count as seen."""
    tensor, at_once = torch.zeros(4), []

    def look(tensors):
        found = tensors[0].data_ptr()
        for change in at_once:
            change(tensors[0])
        return found

    words = TensorWords(place_layout, [0], look, [tensor])
    at_once.append(given_memory)
    assert words.are_same([tensor])
    at_once.clear()
    assert not words.are_same([tensor])


@pytest.mark.parametrize("change", [lambda t: t[:3], lambda t: t.t(), lambda t: t.half(), lambda t: t[None], lambda t: t.unsqueeze(-1)])
def test_tensors_of_the_same_shape(way, change):
    """Others may be of it, too."""
    looks, numbers = [], [0, 2]

    def look(tensors):
        looks.append(0)
        return [(tensors[number].shape, tensors[number].stride(), tensors[number].dtype) for number in numbers]

    words = TensorWords(shape_layout, numbers, look, [torch.zeros(4, 4)] * 3)
    for _ in range(9):
        assert words.are_same([torch.ones(4, 4), None, torch.ones(4, 4)])
    assert len(looks) == (2 if way == "words" else 10)
    for wrong in ([change(torch.ones(4, 4)), None, torch.ones(4, 4)], [torch.ones(4, 4), None, change(torch.ones(4, 4))]):
        assert not words.are_same(wrong) and not words.are_same(tuple(wrong))


@needs_native
def test_words_that_change_all_the_time_are_given_up(asked):
    tensor = torch.zeros(4)
    addresses, others = Addresses([tensor], [0]), [tensor.detach() for _ in range(20)]
    for each in others:
        assert addresses.are_same([each])
    asked.clear()
    for _ in range(3):
        assert addresses.are_same([tensor])
    assert len(asked) == 3
    asked.clear()
    addresses = Addresses([tensor], [0])
    for each in others:  # what stays as it is for a while is not given up
        assert all(addresses.are_same([given]) for given in (each, each, tensor, tensor))
    assert len(asked) == 2 * 20


@needs_native
def test_nothing_is_held():
    tensors = [torch.zeros(100) for _ in range(50)]
    words = Addresses(tensors, range(50))
    assert words.are_same(tensors)
    storages = [t.untyped_storage()._weak_ref() for t in tensors]
    del tensors
    gc.collect()
    assert all(torch.UntypedStorage._expired(each) for each in storages)
    for each in storages:
        torch.UntypedStorage._free_weak_ref(each)
    for _ in range(20):
        assert not words.are_same([torch.ones(100) for _ in range(50)])


@pytest.mark.parametrize("made", [lambda net: ModuleGuard(net, "cpu"), lambda net: TracedModuleGuard(net, "cpu", TracedRun()),
                                  lambda net: Metadata(net.parameters()), lambda net: Addresses(tuple(net.parameters()), [0, 1])],
                         ids=["module", "traced", "metadata", "addresses"])
def test_guards_are_freed_at_once(way, made):
    """And with them the memory that they hold."""
    net = nn.Linear(4, 4)
    guard = made(net)
    if hasattr(guard, "difference"):
        assert guard.difference() is None and guard.difference() is None
    gone = weakref.ref(guard)
    gc.collect()
    gc.disable()
    try:
        del guard
        assert gone() is None
    finally:
        gc.enable()


@needs_native
@pytest.mark.parametrize("wrong", [(), ((0, 0, ()),), ((0, 0, (8,)), (0, 16, (8,))), ((0, 0, (8, 16)), (1, 16, (8,))), (7,), ((0, 0, (-1,)),)])
def test_layouts_that_cannot_be_read(wrong):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        native.module.Watched(wrong, [object()], [0])


@needs_native
def test_what_is_not_a_sequence_of_enough_objects():
    made = native.module.Watched(((0, 0, (8,)),), ["a", "b"], [1])
    assert made.are_same(("a", "b")) and not made.are_same(("a",)) and not made.are_same([])
    for wrong in (None, {1: "b"}, "ab"):
        with pytest.raises(TypeError):
            made.are_same(wrong)
    with pytest.raises(IndexError):
        native.module.Watched(((0, 0, (8,)),), [], [0])


@pytest.mark.parametrize("equal", [native.all_equal, native._all_equal], ids=["as loaded", "python"])
def test_functions_that_return_other_values(equal):
    values, got = [1, "two", [3], None], [1, "two", [3], None]
    functions = [lambda number=number: got[number] for number in range(4)]
    assert equal(functions, values) and equal([], [])
    for number in range(4):
        got[number], before = "other", got[number]
        assert not equal(functions, values)
        got[number] = before
    assert not equal(functions, values[:3]) and not equal([], values)
    with pytest.raises(ZeroDivisionError):
        equal([lambda: 1 / 0], [1])


def test_metadata_of_tensors_that_move(way):
    tensors = [nn.Parameter(torch.zeros(64)[5:13]) for _ in range(3)]
    for have_places in (True, False):
        metadata = Metadata(tensors, have_places=have_places)
        assert metadata.difference() is None and metadata.difference() is None
        given_memory(tensors[1])
        assert (metadata.difference() is None) != have_places


def test_metadata_that_changes(way):
    for change, text in ((lambda t: t.unsqueeze_(0), "strides"), (lambda t: t.resize_(3, 4), "shape"), (lambda t: t.t_(), "strides"),
                         (lambda t: setattr(t, "data", t.data.half()), "dtype"), (lambda t: t.requires_grad_(), "now requires"),
                         (lambda t: t.mul_(torch.ones((), requires_grad=True)), "now requires")):
        tensors = [torch.zeros(4, 4) for _ in range(3)]
        metadata = Metadata(tensors)
        assert metadata.difference() is None and metadata.difference() is None
        change(tensors[2])
        assert text in metadata.difference()
    (wanting,) = tensors = [torch.zeros(4, requires_grad=True)]
    metadata = Metadata(tensors)
    assert metadata.difference() is None and metadata.difference() is None
    wanting.requires_grad_(False)
    assert "no longer requires" in metadata.difference()
