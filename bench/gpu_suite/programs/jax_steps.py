"""JAX: a jitted matrix product, and the gradient step of a small network."""

import jax
import jax.numpy as jnp
import numpy

import stepped


def make(seed):
    jax.config.update("jax_default_matmul_precision", "highest")
    if jax.default_backend() != "gpu":
        raise RuntimeError(f"jax runs on {jax.default_backend()}, not on a GPU")
    random = numpy.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(random.standard_normal(shape, dtype=numpy.float32) * 0.1)

    a, b = normal(512, 768), normal(768, 640)
    parameters = [(normal(64, 128), normal(128)), (normal(128, 128), normal(128)), (normal(128, 10), normal(10))]
    x, y = normal(32, 64), normal(32, 10)
    product = jax.jit(lambda a, b: jnp.tanh(a @ b))

    def loss(parameters, x, y):
        for weight, bias in parameters[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        weight, bias = parameters[-1]
        return jnp.mean((x @ weight + bias - y) ** 2)

    @jax.jit
    def update(parameters, x, y):
        gradients = jax.grad(loss)(parameters, x, y)
        return jax.tree.map(lambda value, gradient: value - 0.1 * gradient, parameters, gradients)

    state = {"parameters": parameters, "product": None}

    def step():
        state["product"] = product(a, b)
        state["parameters"] = update(state["parameters"], x, y)

    def outputs():
        return [numpy.asarray(leaf) for leaf in jax.tree.leaves(state)]

    return step, outputs, lambda: jax.block_until_ready(state)


def facts():
    return {"jax": jax.__version__, "devices": [str(device.device_kind) for device in jax.devices()]}


stepped.serve(make, facts)
