// Integer kernels for the integration programs: every input bit reaches the output, so that any wrong order shows.
#include "tests/simcuda/image/kernel.h"

// Declared by its types: reads a and b, writes out.
template <int kRounds>
__global__ void mix(const unsigned* a, const unsigned* b, unsigned* out, int count, unsigned salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned value = a[i] ^ (b[(i * 7 + 3) % count] + salt);
  for (int round = 0; round < kRounds; ++round) value = (value ^ (value >> 15)) * 2246822519u + 374761393u;
  out[i] = value;
}
NIMBLE_KERNEL(mix<1>)
NIMBLE_KERNEL(mix<3>)

template <int kRounds>
__global__ void update(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int round = 0; round < kRounds; ++round) state[i] = state[i] * 1664525u + change[i] + 1013904223u;
}
NIMBLE_KERNEL(update<1>)

// Two kernels: the second waits, in memory, for the first. They run concurrently, or the first one first.
template <int kOfOneThread>
__global__ void post(unsigned* mailbox, unsigned number) {
  *static_cast<volatile unsigned*>(mailbox) = number;
}
NIMBLE_KERNEL(post<1>)

// It gives up after a while, and says so: a wrong order must end, and show.
template <int kOfOneThread>
__global__ void await(const unsigned* mailbox, unsigned number, unsigned* out) {
  for (int looks = 0; looks < (1 << 22); ++looks) {
    if (*static_cast<const volatile unsigned*>(mailbox) < number) continue;
    *out = number;
    return;
  }
  *out = ~0u;
}
NIMBLE_KERNEL(await<1>)

// Told by two pointers where its memory begins and ends, but for `skip` elements at its begin and `pad` at its end.
template <int kFactor>
__global__ void span(unsigned* begin, unsigned* end, int skip, int pad, unsigned salt) {
  unsigned* at = begin + skip + blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; at < end - pad; at += gridDim.x * blockDim.x, ++i) *at = salt * 77u + threadIdx.x + i * kFactor;
}
NIMBLE_KERNEL(span<3>)

// Told where its memory ends by a table in memory.
template <int kFactor>
__global__ void span_to(unsigned* begin, unsigned* const* end, unsigned salt) {
  unsigned* at = begin + blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; at < *end; at += gridDim.x * blockDim.x, ++i) *at = salt * 77u + threadIdx.x + i * kFactor;
}
NIMBLE_KERNEL(span_to<3>)
