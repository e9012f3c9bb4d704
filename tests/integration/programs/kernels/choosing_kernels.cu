// A kernel that takes what it reads from a buffer, or from an array of buffers, as its parameters say.
#include "tests/simcuda/image/kernel.h"

template <int kFactor>
__global__ void taken(unsigned* out, const unsigned* base, long stride, const unsigned* const* array, int mode,
                      int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned* from = mode == 1 ? array[1] : base + stride;
  out[i] = out[i] * 3 + from[i] * kFactor;
}
NIMBLE_KERNEL(taken<7>)

template <int kFactor>
__global__ void moved(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 1664525u + change[i] + 1013904223u * kFactor;
}
NIMBLE_KERNEL(moved<1>)
