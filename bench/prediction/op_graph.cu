// The kernel of op_graph.cpp: an op with another's duration, occupancy and bytes moved. One source for nvcc and for the
// simulated driver, where it only computes.
#include "tests/simcuda/image/kernel.h"

// Reads `reads` words, spread over the inputs, of which each has at least `words`, and writes `writes` words; then its
// blocks wait until they have run for `cycles` each. Its output depends on every input. Absent inputs are null.
__global__ void work(unsigned* out, const unsigned* a, const unsigned* b, const unsigned* c, const unsigned* d,
                     const unsigned* e, const unsigned* f, const unsigned* g, const unsigned* h, unsigned words,
                     unsigned reads, unsigned writes, unsigned salt, [[maybe_unused]] long long cycles) {
#ifdef __CUDACC__
  const long long begin = clock64();
#endif
  const unsigned* const inputs[] = {a, b, c, d, e, f, g, h};
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  unsigned sum = salt;
  for (unsigned i = first, which = 0; i < reads; i += step, which = (which + 1) % 8)
    if (inputs[which] != nullptr) sum = sum * 31 + inputs[which][i % words];
  for (unsigned which = 0; which < 8; ++which)
    if (inputs[which] != nullptr) sum = sum * 31 + inputs[which][first % words];
  for (unsigned i = first; i < writes; i += step) out[i] = sum + i;
#ifdef __CUDACC__
  while (clock64() - begin < cycles) {
  }
#endif
}
NIMBLE_KERNEL(work)
