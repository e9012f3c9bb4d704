"""A graph's own memory for arguments: several are copied by one call, whatever they are like."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble.graphs.graph_io import Input, InputCopier, Results  # noqa: E402


@pytest.fixture
def calls(monkeypatch):
    """The calls that copy several tensors."""
    found, original = [], getattr(torch, "_foreach_copy_", None)
    if original is None:
        pytest.skip("this PyTorch has none")
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *given, **more: found.append(given) or original(*given, **more))
    return found


def copier(*like):
    inputs = [Input(number, each) for number, each in enumerate(like)]
    return inputs, InputCopier(inputs)


GIVEN = [lambda: torch.randn(3, 4), lambda: torch.randn(4, 3).t(), lambda: torch.randn(6, 8)[::2, ::2],
         lambda: torch.randn(3, 4, requires_grad=True), lambda: torch.randn(3, 4, requires_grad=True) * 2, lambda: torch.randn(3, 4).double(), lambda: torch.arange(12).view(3, 4),
         lambda: torch.randn(3, 4, dtype=torch.complex64).conj(), lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
         lambda: torch.empty(3, 0), lambda: torch.randn(1).expand(3, 4)]


@pytest.mark.parametrize("gradients", [True, False])
def test_arguments_of_each_kind_are_copied(calls, gradients):
    """By one call unless one of them repeats elements."""
    for of_kinds, together in ((GIVEN[:-1], 1), (GIVEN, 0)):
        like = [make() for make in of_kinds]
        inputs, take = copier(*like)
        given = [make() for make in of_kinds]
        values = [each.detach().clone() for each in given]
        with torch.set_grad_enabled(gradients):
            take(given)
        for each, value in zip(inputs, values):
            assert torch.equal(each.tensor.resolve_conj().resolve_neg(), value.resolve_conj().resolve_neg())
            assert each.memory.grad_fn is None and each.memory.is_leaf
        assert len(calls) == together
        calls.clear()


def test_inputs_that_are_the_graphs_own(calls):
    inputs, take = copier(torch.zeros(3), torch.ones(3), torch.ones(3) * 2)
    take([inputs[0].tensor, torch.full((3,), 5.0), inputs[2].tensor])
    assert [each.tensor[0].item() for each in inputs] == [0, 5, 2]
    calls.clear()
    take([inputs[1].tensor, inputs[0].tensor, torch.full((3,), 7.0)])
    assert [each.tensor[0].item() for each in inputs] == [5, 0, 7] and len(calls) == 1
    take([inputs[2].tensor[:], inputs[0].tensor[:], inputs[1].tensor[:]])
    assert [each.tensor[0].item() for each in inputs] == [7, 5, 0]


@pytest.mark.parametrize("outputs", [
    lambda one, other: one, lambda one, other: [one, other], lambda one, other: (one, other), lambda one, other: [one],
    lambda one, other: (one,), lambda one, other: [one, one], lambda one, other: {"a": one, "b": [other]}, lambda one, other: (one, None, 3, other), lambda one, other: [],
    lambda one, other: None, lambda one, other: ((one,), [other, (one,)]), lambda one, other: [(), one]])
def test_what_is_returned_has_the_structure_of_the_outputs(outputs):
    one, other = torch.ones(2), torch.zeros(3)
    results = Results(outputs(one, other), [], [])
    assert str(results.returned(results.copied(), [])) == str(outputs(one, other))
    again = results.returned(results.made, [])
    assert str(again) == str(outputs(one, other)) and again is not results.made


def test_what_is_returned_of_arguments():
    given = Input(0, torch.ones(2))
    made = torch.zeros(3)
    for outputs in ([given.tensor, made], [made, given.tensor], (given.tensor,), given.tensor):
        results = Results(outputs, [given], [])
        mine = torch.full((2,), 4.0)
        found = results.returned(results.copied(), [mine])
        found = found if isinstance(found, (list, tuple)) else [found]
        assert any(each is mine for each in found) and all(each is mine or torch.equal(each, made) for each in found)
