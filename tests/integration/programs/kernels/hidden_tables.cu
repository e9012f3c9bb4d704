// Kernels that reach memory by pointers that none of their parameters shows (programs/hidden_state.cpp). Their names
// tell types, and the image holds no variables: what they touch is declared.
#include "tests/simcuda/image/kernel.h"

// Plain work beside: a buffer that others read, and the sum of what they made.
template <int kFactor>
__global__ void fill(unsigned* out, const unsigned* in, unsigned salt, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * kFactor + salt * 2654435761u;
}
NIMBLE_KERNEL(fill<3>)

template <int kFactor>
__global__ void add(unsigned* sum, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = sum[i] * kFactor + in[i];
}
NIMBLE_KERNEL(add<5>)

// Reads what a table leads to.
template <int kFactor>
__global__ void sum_tables(const unsigned* const* tables, unsigned* out, int tables_count, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  if (i >= count) return;
  for (int k = 0; k < tables_count; ++k) sum = sum * kFactor + tables[k][i];
  out[i] = sum;
}
NIMBLE_KERNEL(sum_tables<7>)

// Writes there.
template <int kFactor>
__global__ void spread(unsigned* const* tables, const unsigned* in, int tables_count, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int k = 0; k < tables_count; ++k) tables[k][i] = in[i] * kFactor + static_cast<unsigned>(k);
}
NIMBLE_KERNEL(spread<9>)

// Fills a table.
template <int kEntries>
__global__ void prepare(unsigned** table, unsigned* first, unsigned* second) {
  table[0] = first;
  table[kEntries - 1] = second;
}
NIMBLE_KERNEL(prepare<2>)

// Reaches the table through a class by value.
struct Batch {
  const unsigned* const* tables;
  unsigned* out;
};

template <int kFactor>
__global__ void sum_batch(Batch batch, int tables_count, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  if (i >= count) return;
  for (int k = 0; k < tables_count; ++k) sum = sum * kFactor + batch.tables[k][i];
  batch.out[i] = sum;
}
NIMBLE_KERNEL(sum_batch<7>)

// Reads a tensor by a map, whose first word is the address. The class is named as in cuda.h.
struct CUtensorMap_st {
  unsigned long long words[16];
};

template <int kFactor>
__global__ void sum_map(CUtensorMap_st map, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = reinterpret_cast<const unsigned*>(map.words[0])[i] * kFactor;
}
NIMBLE_KERNEL(sum_map<11>)
