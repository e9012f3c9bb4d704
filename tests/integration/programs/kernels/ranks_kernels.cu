// The kernels of programs/ranks.cpp: a small network's, and collectives that are given their channel as a parameter.
// Their names tell what they do with each.
#include "tests/integration/programs/kernels/collectives.h"
#include "tests/simcuda/image/kernel.h"

template <int kFactor>
__global__ void layer(const unsigned* in, const unsigned* weights, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = (in[(i * 5 + 1) % count] ^ weights[i]) * kFactor + 12345u;
}
NIMBLE_KERNEL(layer<7>)

template <int kFactor>
__global__ void gradient(const unsigned* in, const unsigned* out, unsigned* gradients, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) gradients[i] = (out[i] + in[(i * 3 + 2) % count]) * kFactor;
}
NIMBLE_KERNEL(gradient<11>)

template <int kFactor>
__global__ void update(unsigned* weights, const unsigned* gradients, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) weights[i] = weights[i] * kFactor + gradients[i];
}
NIMBLE_KERNEL(update<5>)

template <int kOfRanks>
__global__ void all_reduce(unsigned* data, unsigned* channel, int rank, int count) {
  sum_ranks(reinterpret_cast<Channel*>(channel), data, rank, count);
}
NIMBLE_KERNEL(all_reduce<kRanks>)

template <int kOfRanks>
__global__ void all_gather(const unsigned* own, unsigned* all, unsigned* channel, int rank, int count) {
  gather_ranks(reinterpret_cast<Channel*>(channel), own, all, rank, count);
}
NIMBLE_KERNEL(all_gather<kRanks>)
