"""A call's copies of a graph's outputs: the same values, strides, and sharing of memory."""

import random

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.graphs.outputs import OutputCopies  # noqa: E402

VIEWS = (
    lambda x: x, lambda x: x.t(), lambda x: x[1:], lambda x: x[:, 0], lambda x: x[::2], lambda x: x.reshape(-1), lambda x: x[:, 1:3],
    lambda x: x[:1].expand(3, -1), lambda x: x.diagonal(), lambda x: x.view(torch.uint8), lambda x: x[2, 2], lambda x: x[:0],
    lambda x: x.unfold(1, 2, 1), lambda x: x[None], lambda x: x.view(torch.int32),
)


def memory_of(tensors):
    """Which elements share memory, as a program can observe by writing to them."""
    first = {}
    return [(first.setdefault(t.untyped_storage().data_ptr(), (number, t.data_ptr()))[0],
             t.data_ptr() - first[t.untyped_storage().data_ptr()][1]) for number, t in enumerate(tensors) if t.numel() > 0]


@pytest.mark.parametrize("seed", range(200))
def test_copies_are_as_the_outputs_are(seed):
    choose = random.Random(seed)
    bases = [torch.arange(24.0).reshape(6, 4) + 100 * i for i in range(2)]
    outputs = [choose.choice(VIEWS)(choose.choice(bases)) for _ in range(choose.randint(1, 5))]
    take = OutputCopies(outputs)
    for _ in range(2):
        copies = take()
        for one, copy in zip(outputs, copies):
            assert torch.equal(one, copy) and one.dtype == copy.dtype
            assert one.stride() == copy.stride() or torch._debug_has_internal_overlap(one) != 0 and copy.is_contiguous()
            assert one.untyped_storage().data_ptr() != copy.untyped_storage().data_ptr() or one.numel() == 0
        if all(one.stride() == copy.stride() for one, copy in zip(outputs, copies)) and not too_far(outputs):
            assert memory_of(outputs) == memory_of(copies)
        for base in bases:
            base += 1
        assert all(one.numel() == 0 or not torch.equal(one, copy) for one, copy in zip(outputs, copies) if one.dtype == torch.float32)


def too_far(outputs):
    """Whether outputs on one storage lie so far apart that each is copied separately."""
    by_storage = {}
    for each in outputs:
        if each.numel():
            by_storage.setdefault(each.untyped_storage().data_ptr(), []).append(each)
    for group in by_storage.values():
        ends = [(t.data_ptr(), t.data_ptr() + t.element_size() * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())))) for t in group]
        if max(e for _, e in ends) - min(b for b, _ in ends) > 4 * sum(t.numel() * t.element_size() for t in group):
            return True
    return False


def test_a_row_of_much_is_copied_alone():
    logits = torch.zeros(8, 64, 16)
    copy, = OutputCopies([logits[:, -1]])()
    assert copy.stride() == (64 * 16, 1) and torch.equal(copy, logits[:, -1])
    first, last = OutputCopies([logits[0, 0], logits[7, 63]])()
    assert first.untyped_storage().data_ptr() != last.untyped_storage().data_ptr()


def test_what_is_written_to_one_is_seen_in_the_others():
    x = torch.arange(6.0).reshape(2, 3)
    one, other, alone = OutputCopies([x, x.t(), torch.ones(2)])()
    one[0, 1] = 9
    assert other[1, 0] == 9 and x[0, 1] == 1 and alone.tolist() == [1, 1]
    with torch.inference_mode():
        inside = OutputCopies([x, x[0]])()
    assert all(t.is_inference() for t in inside)


def test_views_that_are_conjugated():
    x = torch.tensor([1 + 2j, 3 - 1j])
    copies = OutputCopies([x, x.conj(), x.conj().imag])()
    assert all(torch.equal(a, b) for a, b in zip([x, x.conj(), x.conj().imag], copies))


@pytest.mark.parametrize("training", [False, True])
def test_outputs_with_python_attributes(backend, training):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)
            self.a.weight.decays = False
            self.marks = True

        def forward(self, x):
            y = self.a(x)
            if self.marks:
                y.lengths = (1, 2)
            return {"y": y, "weight": self.a.weight}

    module, x = Net(), torch.randn(3, 4)
    model = Nimble(module, backend=backend)
    with pytest.raises(NimbleError, match=r"output\['y'\] has Python attributes \('lengths'\)"):
        model.prepare(x, training=training)
    module.marks = False
    assert model.prepare(x, training=training)(x)["weight"] is module.a.weight  # with its own
