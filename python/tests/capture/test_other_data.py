"""Other values in learning runs: different, in the same range, and restored."""

import pytest

torch = pytest.importorskip("torch", minversion="1.13.0a0")
from nimble.capture.other_data import other_data  # noqa: E402
from nimble.graphs.prepared import Options, prepare  # noqa: E402
from nimble.guards.signatures import Call  # noqa: E402


def test_other_values_of_the_same_range():
    whole, words = torch.rand(1000), torch.arange(10)
    infinite, half = torch.tensor([0.0, float("-inf")]), torch.randn(100).half()
    before = [t.clone() for t in (whole, words, infinite, half)]
    versions, numbers = [t._version for t in (whole, half)], torch.get_rng_state()
    with other_data([whole, words, infinite, half]):
        assert ((whole < before[0]) & (whole >= before[0] * 0.5)).all()
        assert torch.equal(words, before[1]) and torch.equal(infinite, before[2])
        assert (half != before[3]).sum() > 90
    assert all(map(torch.equal, (whole, words, infinite, half), before))
    assert [t._version for t in (whole, half)] == versions and torch.equal(torch.get_rng_state(), numbers)


def test_put_back_in_any_case():
    value = torch.ones(4)
    with pytest.raises(KeyError):
        with other_data([value]):
            value.zero_()
            raise KeyError
    assert value.tolist() == [1, 1, 1, 1]


def test_it_is_the_graphs_own_memory(backend):
    """Never shared with the caller."""
    asked = []

    class Asks(type(backend)):
        def capture(self, work, *rest):
            captured = super().capture(work, *rest)
            asked.extend(work.data())
            return captured

    x = torch.rand(2, 3)
    graph = prepare(torch.nn.Linear(3, 3).eval(), Call((x,), {}, False), Asks(), Options())
    (args, _) = graph.static_arguments
    assert [t.data_ptr() for t in asked] == [args[0].data_ptr()] != [x.data_ptr()]
