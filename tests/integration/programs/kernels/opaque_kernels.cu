// Kernels whose names say nothing about their parameters, and one whose name lies. Their image holds no PTX: what they
// write can only be observed.
#include "tests/simcuda/image/kernel.h"

extern "C" __global__ void fill(unsigned* out, int count, unsigned salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = (static_cast<unsigned>(i) + salt) * 2654435761u;
}
NIMBLE_KERNEL(fill)

extern "C" __global__ void blend(const unsigned* a, const unsigned* b, unsigned* out, int count, unsigned salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned value = a[i] ^ (b[(i * 7 + 3) % count] + salt);
  value = (value ^ (value >> 15)) * 2246822519u + 374761393u;
  out[i] = value;
}
NIMBLE_KERNEL(blend)

extern "C" __global__ void advance(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 1664525u + change[i] + 1013904223u;
}
NIMBLE_KERNEL(advance)

// Its signature says that it reads `in`. It changes it.
template <int kStep>
__global__ void sly(const unsigned* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = in[i] ^ 0x5bd1e995u;
  const_cast<unsigned*>(in)[i] += kStep;
}
NIMBLE_KERNEL(sly<5>)

// Its signature tells the truth.
template <int kRounds>
__global__ void honest(const unsigned* a, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned value = a[i];
  for (int round = 0; round < kRounds; ++round) value = (value ^ (value >> 13)) * 3266489917u + 668265263u;
  out[i] = value;
}
NIMBLE_KERNEL(honest<2>)
