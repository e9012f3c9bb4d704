// Kernels that leave the object that their pointer points into, by numbers that they are given.
#include "tests/simcuda/image/kernel.h"

// One array, of which the second half is in another allocation.
template <int kFactor>
__global__ void strided(unsigned* base, long stride, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int part = 0; part < 2; ++part) base[part * stride + i] = in[i] * kFactor + part;
}
NIMBLE_KERNEL(strided<9>)

// A matrix whose rows and columns are counted from one.
template <int kFactor>
__global__ void counted(unsigned* matrix, int row, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) matrix[row + 1 + i] = in[i] * kFactor;
}
NIMBLE_KERNEL(counted<11>)

// From one pointer to where another one points.
template <int kFactor>
__global__ void apart(unsigned* base, const unsigned* other, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) base[other - base + i] = in[i] * kFactor;
}
NIMBLE_KERNEL(apart<13>)

template <int kFactor>
__global__ void advance(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 1664525u + change[i] + 1013904223u * kFactor;
}
NIMBLE_KERNEL(advance<1>)
