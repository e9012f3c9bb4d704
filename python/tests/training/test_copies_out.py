"""Gradients that a backward returns: copies with the strides that autograd wants, by as few kernels as possible."""

import random

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble.training import copies_out  # noqa: E402
from nimble.training.copies_out import Copies  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.complex64]


def a_tensor(choose, shape, dtype):
    """With dimensions in random order, or with gaps."""
    order = choose.sample(range(len(shape)), len(shape))
    strides, step = [0] * len(shape), choose.choice([1, 1, 2])
    for place in order:
        strides[place], step = step, step * shape[place]
    tensor = torch.empty_strided(shape, strides, dtype=dtype)
    return tensor.copy_(torch.randn(shape).to(dtype))


@pytest.fixture
def lists(monkeypatch):
    """The arguments of the function that copies many at once, as pairs of lists."""
    given, copy = [], copies_out._copy_many

    def noted(targets, sources):
        given.append((list(targets), list(sources)))
        return copy(targets, sources)

    monkeypatch.setattr(copies_out, "_copy_many", noted)
    return given


def is_quick(targets, sources):
    """Where PyTorch has one kernel for all of them, instead of one for each (ATen/native/ForeachUtils.h): one dtype, dense, with the
    source's strides."""
    def places(tensor):
        return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size != 1]

    def is_dense(tensor):
        return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 == tensor.numel()

    return len({t.dtype for t in (*targets, *sources)}) == 1 and all(
        places(one) == places(other) and is_dense(one) and is_dense(other) for one, other in zip(targets, sources))


@pytest.mark.parametrize("seed", range(40))
def test_all_lie_as_their_parameters_do(seed, lists):
    choose = random.Random(seed)
    torch.manual_seed(seed)
    made, likes = [], []
    for _ in range(choose.randrange(1, 12)):
        shape = [choose.choice([1, 1, 2, 3, 5]) for _ in range(choose.randrange(5))]
        dtype = choose.choice(DTYPES)
        made.append(choose.choice([None, *[a_tensor(choose, shape, dtype)] * 4]))
        likes.append(choose.choice([None, *[a_tensor(choose, shape, dtype)] * 3]))
    copies = Copies(made, likes)
    for again in range(2):
        if not any(each is not None for each in made):
            continue
        found = copies(made)
        for copy, grad, like in zip(found, made, likes):
            assert (copy is None) == (grad is None)
            if grad is None:
                continue
            assert copy.dtype == grad.dtype and torch.equal(copy, grad)
            want = torch.empty_like(grad if like is None else like)
            dense = want.stride() == (grad if like is None else like).stride()
            assert copy.stride() == (want.stride() if dense else torch.empty(grad.shape).stride())
            assert copy.data_ptr() % 64 == 0 and not copy._is_view()
            grad.mul_(2)
    assert all(is_quick(*pair) for pair in lists)


def test_one_with_another_order_leaves_the_others_quick(lists):
    """As in a network compiled by torch.compile, whose convolutions' gradients are channels-last: 158 kernels for one of these."""
    made = [torch.randn(8), torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last), torch.randn(8, 1, 3, 3), torch.randn(5, 4)]
    found = Copies(made, [torch.empty_like(each).contiguous() for each in made])(made)
    assert all(map(torch.equal, found, made)) and found[1].is_contiguous()
    ((targets, sources),) = lists
    assert [id(each) for each in sources] == [id(made[number]) for number in (0, 2, 3)]
    assert is_quick(targets, sources) and not is_quick(found, made)


def test_nothing_is_shared():
    made = [torch.randn(3), torch.randn(2, 2)]
    first, second = Copies(made, [None, None])(made), Copies(made, [None, None])(made)
    first[0].zero_()
    assert not second[0].eq(0).any() and not made[0].eq(0).any() and torch.equal(first[1], made[1])
