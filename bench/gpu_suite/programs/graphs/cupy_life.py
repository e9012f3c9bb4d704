"""CUDA graphs of CuPy from creation to destruction: captured with branches on two streams, launched in turns beside
eager work and memory of its pool, uploaded, dropped, and made again. Prints "RESULT digest"."""

import hashlib

import cupy
import numpy

SIZE = 1 << 18
random = numpy.random.default_rng(1)
a, b, out_a, out_b, joined = (cupy.asarray(random.standard_normal(SIZE, dtype=numpy.float32)) for _ in range(5))
least, most = cupy.zeros((), numpy.float32), cupy.zeros((), numpy.float32)
heavy = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x; for (int k = 0; k < 300; ++k) z = z * 0.999f + y * 0.001f;", "heavy")
minimum = cupy.ReductionKernel("float32 x", "float32 y", "x", "min(a, b)", "y = a", "3.4e38", "minimum")
maximum = cupy.ReductionKernel("float32 x", "float32 y", "x", "max(a, b)", "y = a", "-3.4e38", "maximum")
main, side = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
forked, ended = cupy.cuda.Event(disable_timing=True), cupy.cuda.Event(disable_timing=True)


def branches():
    forked.record(main)
    side.wait_event(forked)
    with side:
        heavy(b, a, out_b)
        maximum(out_b, most)
        ended.record(side)
    with main:
        heavy(a, b, out_a)
        minimum(out_a, least)
        main.wait_event(ended)
        cupy.add(out_a, out_b, out=joined)
        cupy.multiply(joined, numpy.float32(0.5), out=a)


def turn():
    with main:
        cupy.subtract(b, joined, out=b)
        cupy.multiply(b, numpy.float32(0.25), out=b)
        minimum(b, least)


def capture(work):
    with main:
        main.begin_capture()
        work()
        return main.end_capture()


cupy.cuda.Device().synchronize()
branches()
turn()
main.synchronize()
side.synchronize()
found = hashlib.sha256()
kept = [capture(branches), capture(turn)]
for number in range(150):
    kept[0].launch(main)
    if number % 3:
        kept[1].launch(main)
    if number % 10 == 9:
        graph = capture(turn)
        graph.upload(main)
        graph.launch(main)
        with main:
            other = cupy.full(SIZE, numpy.float32(-1))
            total = other * joined
            ends = cupy.stack([least, most])
        found.update(total.get(stream=main).tobytes())
        found.update(ends.get(stream=main).tobytes())
        del other, total, ends, graph
main.synchronize()
for array in (a, b, out_a, out_b, joined):
    found.update(cupy.asnumpy(array).tobytes())
print("RESULT", found.hexdigest())
