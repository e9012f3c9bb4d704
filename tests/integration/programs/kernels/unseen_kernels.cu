// Kernels that do more than can be observed, or reach where none of their pointers points. Without PTX: only their
// names are known.
#include "tests/simcuda/image/kernel.h"

// As libraries split sums: `work` holds zeros before and after it, and in between what no one else may touch.
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

// The signature tells about these.
template <int kFactor>
__global__ void fill(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * kFactor + 40503u;
}
NIMBLE_KERNEL(fill<3>)

// A number that may look like an address, as two small ones side by side do.
template <int kFactor>
__global__ void numbered(unsigned* out, const unsigned* in, unsigned long number, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * kFactor + (number != 0 ? 11u : 12u);
}
NIMBLE_KERNEL(numbered<3>)

// Given where its source ends, as an iterator that goes backwards holds it.
template <int kFactor>
__global__ void reversed(const unsigned* end, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = *(end - 1 - i) * kFactor;
}
NIMBLE_KERNEL(reversed<1>)

// Its arrays begin with 1.
template <int kFactor>
__global__ void one_based(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
  if (i <= count) out[i] = in[i] * kFactor;
}
NIMBLE_KERNEL(one_based<5>)

// Pointers that do not stand where pointers are aligned.
struct __attribute__((packed, aligned(4))) Packed {
  int factor;
  unsigned* out;
  const unsigned* in;
};
template <int kAddend>
__global__ void packed(Packed all, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned* out = nullptr;
  const unsigned* in = nullptr;
  __builtin_memcpy(&out, &all.out, sizeof out);
  __builtin_memcpy(&in, &all.in, sizeof in);
  if (i < count) out[i] = in[i] * static_cast<unsigned>(all.factor) + kAddend;
}
NIMBLE_KERNEL(packed<9>)

// Stores pointers for others to follow, the same each time.
extern "C" __global__ void prepare(unsigned** table, unsigned* first, unsigned* second, const unsigned* in,
                                   unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) {
    table[0] = first;
    table[1] = second;
  }
  if (i < count) out[i] = in[i] * 3u;
}
NIMBLE_KERNEL(prepare)

// And follows them, from the first to the second.
struct Pair {
  unsigned* const* table;
  unsigned* nothing;
};
template <int kFactor>
__global__ void grouped(Pair pair, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) pair.table[1][i] = pair.table[0][i] * kFactor;
}
NIMBLE_KERNEL(grouped<5>)

// Follows pointers in memory, to which a class leads.
struct Batch {
  const unsigned* const* table;
  unsigned* out;
};
template <int kFactor>
__global__ void by_class(Batch batch, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) batch.out[i] = batch.table[0] ? batch.table[0][i] * kFactor : 5u;
}
NIMBLE_KERNEL(by_class<7>)
