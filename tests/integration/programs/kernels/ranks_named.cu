// The same collectives as those of ranks_kernels.cu, as real libraries have them: no parameter shows where they meet,
// and their names tell nothing. A rules file says what they do (ranks_test.py).
#include "tests/integration/programs/kernels/collectives.h"
#include "tests/simcuda/image/kernel.h"

__device__ unsigned long long tiny_channels[kChannels];

extern "C" __global__ void tiny_all_reduce(unsigned* data, int channel, int rank, int count) {
  sum_ranks(reinterpret_cast<Channel*>(tiny_channels[channel]), data, rank, count);
}
NIMBLE_KERNEL(tiny_all_reduce)

extern "C" __global__ void tiny_all_gather(const unsigned* own, unsigned* all, int channel, int rank, int count) {
  gather_ranks(reinterpret_cast<Channel*>(tiny_channels[channel]), own, all, rank, count);
}
NIMBLE_KERNEL(tiny_all_gather)
