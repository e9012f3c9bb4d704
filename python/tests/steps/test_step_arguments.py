"""nimble.step: a step that changes more of its arguments than their values raises when it is captured."""

import pytest

torch = pytest.importorskip("torch", minversion="2.1")
from torch import nn  # noqa: E402
from step_programs import mlp, raises, sgd, update  # noqa: E402


def wants_gradients(x, y, net, optimizer):
    """As in adversarial training."""
    optimizer.zero_grad()
    x.requires_grad_()
    nn.functional.cross_entropy(net(x), y[:, 0]).backward()
    return update(net, optimizer, nn.functional.cross_entropy(net((x + 0.1 * x.grad.sign()).detach()), y[:, 0]))


def has_another_shape(x, y, net, optimizer):
    y.squeeze_(1)
    return update(net, optimizer, nn.functional.cross_entropy(net(x), y))


def has_other_strides(x, y, net, optimizer):
    x.data = x.data.t().contiguous().t()
    return update(net, optimizer, nn.functional.cross_entropy(net(x), y[:, 0]))


def has_other_memory(x, y, net, optimizer):
    x.data = x.data.clamp(-1, 1)
    return update(net, optimizer, nn.functional.cross_entropy(net(x), y[:, 0]))


def has_an_attribute(x, y, net, optimizer):
    x.was_seen = True
    return update(net, optimizer, nn.functional.cross_entropy(net(x), y[:, 0]))


@pytest.mark.parametrize("does, said", [(wants_gradients, "another requires_grad"), (has_another_shape, "another shape"),
                                        (has_other_strides, "strides"), (has_other_memory, "other memory"),
                                        (has_an_attribute, "attributes")])
def test_what_a_step_does_to_its_arguments_beside_their_values_raises(does, said):
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)
        step = wrap(lambda x, y: does(x, y, net, optimizer), [net], [optimizer])
        for _ in range(6):
            x, y = torch.randn(5, 4), torch.randint(3, (5, 1))
            yield step(x, y), net, x, y, x.stride(), x.requires_grad, x.grad, vars(x)

    assert raises(program, said)


@pytest.mark.parametrize("hooked", [True, False])
def test_gradients_and_hooks_that_a_step_gives_to_its_arguments_raise(hooked):
    """Where they may require gradients, since none are computed around the call."""
    def program(wrap):
        net = mlp()
        optimizer = sgd(net)

        def train(x):
            if hooked:
                x.register_hook(lambda grad: grad * 2)
            with torch.enable_grad():
                return update(net, optimizer, net(x.detach() if hooked else x).square().mean())

        step = wrap(train, [net], [optimizer])
        for _ in range(6):
            x = torch.randn(5, 4).requires_grad_()
            with torch.no_grad():
                loss = step(x)
            yield loss, net, x.grad, bool(x._backward_hooks)

    assert raises(program, "hooks" if hooked else "a gradient")
