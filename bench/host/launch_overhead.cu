// The kernels of launch_overhead, thread_overhead and replay_overhead: they compute next to nothing, so that the calls
// dominate. Their C++ names tell the analyzer what they read and write; one for each layer makes the step the shortest
// repetition. The second set is for threads whose step must not be mistaken for the replayed one.
#include "tests/simcuda/image/kernel.h"

template <int kLayer>
__global__ void layer(float* out, const float* in, float factor) {
  out[threadIdx.x] = in[threadIdx.x] * factor + kLayer;
}
template <int kLayer>
__global__ void other(float* out, const float* in, float factor) {
  out[threadIdx.x] = in[threadIdx.x] * factor - kLayer;
}
NIMBLE_KERNEL(layer<0>)
NIMBLE_KERNEL(layer<1>)
NIMBLE_KERNEL(layer<2>)
NIMBLE_KERNEL(layer<3>)
NIMBLE_KERNEL(layer<4>)
NIMBLE_KERNEL(layer<5>)
NIMBLE_KERNEL(layer<6>)
NIMBLE_KERNEL(layer<7>)
NIMBLE_KERNEL(layer<8>)
NIMBLE_KERNEL(layer<9>)
NIMBLE_KERNEL(layer<10>)
NIMBLE_KERNEL(layer<11>)
NIMBLE_KERNEL(layer<12>)
NIMBLE_KERNEL(layer<13>)
NIMBLE_KERNEL(layer<14>)
NIMBLE_KERNEL(layer<15>)
NIMBLE_KERNEL(other<0>)
NIMBLE_KERNEL(other<1>)
NIMBLE_KERNEL(other<2>)
NIMBLE_KERNEL(other<3>)
NIMBLE_KERNEL(other<4>)
NIMBLE_KERNEL(other<5>)
NIMBLE_KERNEL(other<6>)
NIMBLE_KERNEL(other<7>)
NIMBLE_KERNEL(other<8>)
NIMBLE_KERNEL(other<9>)
NIMBLE_KERNEL(other<10>)
NIMBLE_KERNEL(other<11>)
NIMBLE_KERNEL(other<12>)
NIMBLE_KERNEL(other<13>)
NIMBLE_KERNEL(other<14>)
NIMBLE_KERNEL(other<15>)
