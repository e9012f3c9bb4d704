"""A JAX training loop whose steps become command buffers, which are CUDA graphs that XLA makes, updates and drops. Prints
"RESULT digest"."""

import hashlib
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
    " --xla_gpu_graph_min_graph_size=1 --xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

assert jax.default_backend() == "gpu", jax.default_backend()
random = numpy.random.default_rng(1)
sizes = (64, 256, 256, 10)
parameters = [(jnp.asarray(random.standard_normal((i, o), dtype=numpy.float32) * 0.1), jnp.zeros(o)) for i, o in zip(sizes, sizes[1:])]


def loss(parameters, x, y):
    for weight, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    return jnp.mean((x @ weight + bias - y) ** 2)


@jax.jit
def update(parameters, x, y):
    gradients = jax.grad(loss)(parameters, x, y)
    return jax.tree.map(lambda value, gradient: value - 0.05 * gradient, parameters, gradients)


@jax.jit
def rolled(x):
    return jax.lax.fori_loop(0, 5, lambda _, v: jnp.tanh(v @ v.T @ v) + 0.1, x)


found = hashlib.sha256()
for number in range(200):
    rows = 32 if number % 50 < 40 else 48
    x = jnp.asarray(random.standard_normal((rows, 64), dtype=numpy.float32))
    y = jnp.asarray(random.standard_normal((rows, 10), dtype=numpy.float32))
    parameters = update(parameters, x, y)
    if number % 10 == 9:
        found.update(numpy.asarray(rolled(x)).tobytes())
for leaf in jax.tree.leaves(parameters):
    found.update(numpy.asarray(leaf).tobytes())
print("RESULT", found.hexdigest())
