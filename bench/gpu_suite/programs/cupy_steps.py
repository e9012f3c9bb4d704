"""CuPy: elementwise kernels, a reduction, a matrix product, and a kernel compiled from source at run time."""

import cupy
import numpy

import stepped

SOURCE = r"""
extern "C" __global__ void wave(const float* in, float* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * in[(i + 1) % count] + 0.5f;
}
"""


def make(seed):
    random = numpy.random.default_rng(seed)
    a = cupy.asarray(random.standard_normal((256, 256), dtype=numpy.float32))
    b = cupy.asarray(random.standard_normal((256, 256), dtype=numpy.float32))
    out = cupy.empty_like(a)
    wave = cupy.RawKernel(SOURCE, "wave")
    results = []

    def step():
        c = cupy.tanh(a * 2 + b)
        d = c @ b
        wave(((a.size + 255) // 256,), (256,), (d, out, numpy.int32(a.size)))
        results[:] = [c, d, out, cupy.maximum(c, d).max(axis=0)]

    return step, lambda: [cupy.asnumpy(array) for array in results], cupy.cuda.Device().synchronize


def facts():
    return {"cupy": cupy.__version__, "runtime": cupy.cuda.runtime.runtimeGetVersion()}


stepped.serve(make, facts)
