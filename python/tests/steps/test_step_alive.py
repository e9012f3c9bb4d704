"""Steps in two parts: concurrent threads, and the tensors that are alive where the second part begins."""

import threading

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from nimble.steps.split_step import alive_now, at_first_backward  # noqa: E402
from test_step_ahead import EAGER, backend, both, learning_rate, pair, replays  # noqa: E402, F401


def test_other_threads_go_on_meanwhile():
    """Their backwards do not end a part."""
    ends, failures = [], []

    def other():
        try:
            x = torch.ones(2, requires_grad=True)
            x.sum().backward()
            assert torch.equal(x.grad, torch.ones(2))
        except BaseException as error:
            failures.append(error)

    originals = torch.autograd.backward, torch.autograd.grad
    with at_first_backward(lambda: ends.append(1)):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not ends and not failures
        other()
        other()
    assert ends == [1] and not failures and (torch.autograd.backward, torch.autograd.grad) == originals


def test_what_is_alive():
    x = torch.ones(3, requires_grad=True)
    loss = (x * 2).exp().sum()  # holds what nothing else has
    alive = alive_now("cpu")
    assert any(each is x for each in alive) and any(each is loss for each in alive)
    assert any(each.shape == (3,) and torch.equal(each.detach(), torch.full((3,), 2.0).exp()) for each in alive)
    loss.backward()  # whose graph has let go of all
    assert alive_now("cpu") is not None

    class Odd(torch.Tensor):
        @property
        def device(self):
            raise RuntimeError("none")

    odd = torch.ones(1).as_subclass(Odd)
    assert alive_now("cpu") is not None and odd is not None

    class CppFunction:  # as PyTorch names those of extensions, which do not tell
        next_functions = ()

    class Loss(torch.Tensor):
        grad_fn = CppFunction()

    other = torch.ones(3).as_subclass(Loss)
    assert alive_now("cpu") is None and other is not None


def test_what_others_have_saved_is_not_the_steps(pair, backend):
    """The search for live tensors runs ops on outputs that their own nodes have saved."""
    hidden = torch.ones(3, requires_grad=True).exp()  # saves its output
    memory = hidden.untyped_storage()._weak_ref()
    loss = hidden.sum()
    assert both(pair, backend) and replays(backend) == [[14 - EAGER, 14 - EAGER]]
    del hidden, loss
    assert torch.UntypedStorage._new_with_weak_ptr(memory) is None  # nothing keeps it
    torch.UntypedStorage._free_weak_ref(memory)


def test_a_view_of_unknown_history():
    """Another library's tensor, anywhere in the process: reading its grad_fn raises."""
    base = torch.ones(3)
    with torch.no_grad():
        view = base[1:]
    base.mul_(torch.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="no_grad mode"):
        view.grad_fn
    assert alive_now("cpu") is None
    del view
    assert alive_now("cpu") is not None


def test_what_torch_compile_only_describes_is_not_alive():
    """Graphs of such tensors are left for Python's collector by some releases."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        described = torch.ones(3, requires_grad=True)
        loss = (described * 2).exp().sum()
    alive = alive_now("cpu")
    assert alive and not any(isinstance(each, FakeTensor) for each in alive) and loss is not None


def test_graphs_go_at_once(pair, backend):
    """Freed before the next capture: none waits for the garbage collector."""
    import gc
    import weakref

    seen, gone = [], []

    def before(i, net, optimizer):
        if net is pair[0] and i in (6, 8):
            graphs = [graph for kind in both.step._kinds for graph in kind.graphs] if i == 6 else []
            seen.extend(map(weakref.ref, graphs))
            gone.extend(graph() is None for graph in seen if i == 8)
        learning_rate(i, net, optimizer)

    gc.collect()
    gc.disable()
    try:
        assert both(pair, backend, before)
    finally:
        gc.enable()
    assert gone == [True]
