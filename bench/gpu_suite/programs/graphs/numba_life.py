"""Kernels of numba in CUDA graphs that are captured by the driver's own calls, launched, updated, and destroyed. Prints
"RESULT digest"."""

import ctypes
import hashlib

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # numpy 2.5 removed it; releases of numba before 0.63 use it

from numba import cuda  # noqa: E402

SIZE = 1 << 16
driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, (name, result)


@cuda.jit
def mix(to, source, salt):
    i = cuda.grid(1)
    if i < to.size:
        value = to[i]
        for _ in range(50):
            value = value * 0.999 + source[i] * 0.001 + salt
        to[i] = value


random = numpy.random.default_rng(1)
stream, second = cuda.stream(), cuda.stream()
a, b = (cuda.to_device(random.standard_normal(SIZE)) for _ in range(2))
mix[SIZE // 256, 256, stream](a, b, 0.0)
cuda.synchronize()


def handle_of(stream):
    value = getattr(stream.handle, "value", stream.handle)
    return ctypes.c_void_p(int(value))


def capture(salt):
    graph = ctypes.c_void_p()
    call("cuStreamBeginCapture_v2", handle_of(stream), 1)  # thread-local
    mix[SIZE // 256, 256, stream](a, b, salt)
    mix[SIZE // 256, 256, stream](b, a, salt)
    call("cuStreamEndCapture", handle_of(stream), ctypes.byref(graph))
    return graph


def make(graph):
    graph_exec = ctypes.c_void_p()
    call("cuGraphInstantiateWithFlags", ctypes.byref(graph_exec), graph, ctypes.c_ulonglong(0))
    return graph_exec


found = hashlib.sha256()
kept = make(capture(0.5))
for number in range(100):
    graph = capture(number * 0.001)
    made = make(graph)
    for graph_exec in (made, kept, made):
        call("cuGraphLaunch", graph_exec, handle_of(stream))
    call("cuGraphExecUpdate_v2", kept, graph, ctypes.create_string_buffer(64))
    call("cuGraphLaunch", kept, handle_of(stream))
    call("cuGraphExecDestroy", made)
    call("cuGraphDestroy", graph)
    if number % 20 == 19:
        found.update(a.copy_to_host(stream=stream).tobytes())
stream.synchronize()
found.update(b.copy_to_host().tobytes())
print("RESULT", found.hexdigest())
