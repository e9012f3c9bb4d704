// Kernels that are told where memory ends, or that reach it by a table (programs/bundled.cpp).
#include "tests/simcuda/image/kernel.h"

// Writes all from begin to end.
template <int kFactor>
__global__ void span(unsigned* begin, const unsigned* end, unsigned salt) {
  unsigned* at = begin + blockIdx.x * blockDim.x + threadIdx.x;
  for (; at < end; at += gridDim.x * blockDim.x) *at = salt * 77u + static_cast<unsigned>(at - begin) * kFactor;
}
NIMBLE_KERNEL(span<3>)

// Fills a table of two.
template <int kEntries>
__global__ void enter(unsigned** table, unsigned* first, unsigned* second) {
  table[0] = first;
  table[kEntries - 1] = second;
}
NIMBLE_KERNEL(enter<2>)

// Reads what a table leads to.
template <int kFactor>
__global__ void gather(const unsigned* const* table, unsigned* out, int entries, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned sum = 0;
  for (int k = 0; k < entries; ++k) sum = sum * kFactor + table[k][i];
  out[i] = sum;
}
NIMBLE_KERNEL(gather<7>)
