// Kernels that do more than can be seen of them, or go where no pointer of theirs points. Without PTX, but for their
// names nobody knows anything.
#include "tests/simcuda/image/kernel.h"

// As libraries split sums: `work` holds zeros before and behind it, and what nobody else may touch in between.
extern "C" __global__ void split_sum(unsigned* work, const unsigned* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  atomicAdd(&work[i], in[i] * 3u);
  atomicAdd(&work[i], in[(i + 1) % count]);
  out[i] = work[i];
  work[i] = 0;
}
NIMBLE_KERNEL(split_sum)

extern "C" __global__ void advance(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 1664525u + change[i] + 1013904223u;
}
NIMBLE_KERNEL(advance)

extern "C" __global__ void scale(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 2654435761u;
}
NIMBLE_KERNEL(scale)

// Follows pointers in memory.
extern "C" __global__ void batched(const unsigned* const* table, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = table[0][i] * 5u + table[1][i];
}
NIMBLE_KERNEL(batched)

// What it stores in `cache` was there, where it is called again with the same.
extern "C" __global__ void append(unsigned* out, unsigned* cache, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 9u, cache[i] = in[i] + 4u;
}
NIMBLE_KERNEL(append)

// Of these the signature tells.
template <int kFactor>
__global__ void fill(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * kFactor + 40503u;
}
NIMBLE_KERNEL(fill<3>)

// Given where its source ends, as an iterator that goes backwards holds it.
template <int kFactor>
__global__ void reversed(const unsigned* end, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = *(end - 1 - i) * kFactor;
}
NIMBLE_KERNEL(reversed<1>)
