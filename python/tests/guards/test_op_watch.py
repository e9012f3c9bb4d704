"""Runs whose ops are watched: what they read, and what must be kept for a graph of them."""

import collections
import gc
from random import Random

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from fake import FakeCapture  # noqa: E402
from nimble import Nimble, NimbleError  # noqa: E402
from nimble.guards import op_watch  # noqa: E402
from nimble.guards.op_watch import OpReads  # noqa: E402
from nimble.objects.memory import storage_address  # noqa: E402

# The device is a meta one, which has no memory; this test watches the host's memory, which is copied there.


def test_what_is_copied_from_the_host_stays():
    reads, there = OpReads([], "meta"), torch.ones(3)
    with reads.on():
        made = torch.arange(5.0)
        where = storage_address(made)
        on_device = made.to("meta") + 1
        on_device[:3].copy_(there, non_blocking=True)
        there + 1
        torch.ones(7) * 2
    del made
    gc.collect()
    kept = reads.still_there(but=[])
    assert set(kept) == {where, storage_address(there)}
    others = [torch.zeros(5) for _ in range(100)]  # none comes to lie there
    assert where not in map(storage_address, others)
    again = torch.empty(0).set_(kept[where])
    assert torch.equal(again, torch.arange(5.0))


def test_numbers_are_taken_at_once():
    """Not where one is copied."""
    reads, on_device = OpReads([], "meta"), torch.empty(3, device="meta")
    with reads.on():
        rate = torch.tensor(1.0)
        for _ in range(3):
            on_device = on_device * rate
            rate *= 0.9
    assert reads.still_there(but=[]) == {}
    with reads.on():
        torch.empty((), device="meta").copy_(rate, non_blocking=True)
    assert set(reads.still_there(but=[])) == {storage_address(rate)}


def test_what_stays_on_the_host_goes():
    reads = OpReads([], "meta")
    with reads.on():
        torch.arange(5.0) + torch.ones(5)
    assert reads.still_there(but=[]) == {}


def test_what_the_device_itself_has_made_goes():
    reads, there = OpReads([], "cpu"), torch.ones(3)
    with reads.on():
        made = torch.arange(3.0) + there
    assert set(reads.still_there(but=[made])) == {storage_address(there)}


@pytest.mark.parametrize("copy", [lambda one, other: torch._foreach_copy_([one], [other]), lambda one, other: one.copy_(other)])
def test_ops_that_return_nothing_copy_as_well(copy):
    reads, there, on_device = OpReads([], "meta"), torch.ones(3), torch.empty(3, device="meta")
    with reads.on():
        copy(on_device, there)
    assert set(reads.still_there(but=[])) == {storage_address(there)}


@pytest.mark.parametrize("change", [lambda made: made.add_(1), lambda made: made[:2].zero_(), lambda made: made.detach().mul_(2)])
def test_what_is_changed_after_its_copy(change):
    """Eagerly the copy has the earlier value."""
    reads = OpReads([], "meta")
    with reads.on():
        made = torch.arange(5.0)
        change(made)
        made.to("meta", non_blocking=True)
    assert set(reads.still_there(but=[])) == {storage_address(made)}
    with reads.on():
        change(made)
    with pytest.raises(NimbleError, match="changes on the host"):
        reads.still_there(but=[])


@pytest.mark.parametrize("op", [lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.cumprod(0)])
def test_ops_whose_gradients_go_by_who_looks(op):
    """Values computed while ops are watched would differ."""
    with torch.no_grad(), OpReads([], "cpu").on():
        op(torch.ones(2, 3))
    with pytest.raises(NotImplementedError, match="the gradients of .*prod"), OpReads([], "cpu").on():
        op(torch.ones(2, 3, requires_grad=True))
    for trains in (True, False):
        looked = []

        class Module(torch.nn.Module):
            def forward(self, x):
                looked.append(torch._C._len_torch_dispatch_stack())
                return op(self.weight * x)

        module = Module().train(trains)
        module.weight = torch.nn.Parameter(torch.ones(2, 3))
        backend = FakeCapture()
        Nimble(module, backend=backend).prepare(torch.ones(2, 3), training=trains)
        assert len(backend.graphs) == (2 if trains else 1) and (looked[-2] == 0) == trains  # the last one is compared, and not watched


Pair = collections.namedtuple("Pair", "first second")


def nested(random, depth, made):
    kind = random.randrange(12 if depth else 6)
    if kind < 3:
        made.append(torch.nn.Parameter(torch.ones(1)) if kind == 0 else torch.ones(1))
        return made[-1]
    if kind < 6:
        return random.choice([None, 1, 2.5, True, "text", torch.float32, torch.Size([2]), torch.device("cpu"), object(), slice(1)])
    inner = [nested(random, depth - 1, made) for _ in range(random.randrange(4))]
    if kind == 6:
        return Pair(inner, nested(random, depth - 1, made))
    if kind == 7:
        return collections.OrderedDict(enumerate(inner))
    return {8: tuple, 9: list, 10: lambda each: dict(enumerate(each)), 11: collections.deque}[kind](inner)


def test_all_tensors_are_found_wherever_they_are():
    random = Random(5)
    most = 0
    for _ in range(300):
        made = []
        value = nested(random, 4, made)
        assert sorted(map(id, op_watch.tensors_in(value))) == sorted(map(id, made))
        most = max(most, len(made))
    assert most > 10
