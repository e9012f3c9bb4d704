// The kernels of random programs: one for each way in which a kernel uses its parameters. All of it is integer
// arithmetic in which every bit of the input reaches the output, so any wrong order shows.
//
// Built twice: with the PTX of this file beside the code, where PTX proves what they touch, and without, where only
// their names tell.
#include "tests/simcuda/image/kernel.h"

namespace {
__device__ __forceinline__ int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__device__ __forceinline__ unsigned stir(unsigned value) {
  value = (value ^ (value >> 15)) * 2246822519u + 374761393u;
  return value ^ (value >> 13);
}
}  // namespace

template <int kRounds>
__global__ void map(const unsigned* __restrict__ in, unsigned* __restrict__ out, int count, unsigned salt) {
  const int i = thread();
  if (i >= count) return;
  unsigned value = in[i] + salt;
  for (int round = 0; round < kRounds; ++round) value = stir(value + static_cast<unsigned>(i));
  out[i] = value;
}
NIMBLE_KERNEL(map<1>)
NIMBLE_KERNEL(map<3>)

__global__ void gather(const unsigned* a, const unsigned* b, unsigned* out, int count, unsigned salt) {
  const int i = thread();
  if (i < count) out[i] = stir(a[i] ^ (b[(i * 7 + 3) % count] + salt));
}
NIMBLE_KERNEL(gather)

__global__ void in_place(unsigned* state, int count, unsigned salt) {
  const int i = thread();
  if (i < count) state[i] = stir(state[i] + salt);
}
NIMBLE_KERNEL(in_place)

__global__ void accumulate(unsigned* state, const unsigned* change, int count) {
  const int i = thread();
  if (i < count) state[i] = state[i] * 1664525u + change[i] + 1013904223u;
}
NIMBLE_KERNEL(accumulate)

__global__ void reduce(const unsigned* in, unsigned* sum, int count) {
  const int i = thread();
  if (i < count) atomicAdd(sum, stir(in[i] + static_cast<unsigned>(i)));
}
NIMBLE_KERNEL(reduce)

__global__ void fill(unsigned* out, int count, unsigned value) {
  const int i = thread();
  if (i < count) out[i] = stir(value + static_cast<unsigned>(i));
}
NIMBLE_KERNEL(fill)

// Writes with gaps: what is between stays.
__global__ void strided(const unsigned* in, unsigned* out, int count, int stride) {
  const int i = thread();
  if (i < count) out[i * stride] = stir(in[i]);
}
NIMBLE_KERNEL(strided)

__global__ void scatter(const unsigned* index, unsigned* out, int count) {
  const int i = thread();
  if (i < count) atomicAdd(&out[index[i] % static_cast<unsigned>(count)], stir(static_cast<unsigned>(i)));
}
NIMBLE_KERNEL(scatter)

// Of bytes, so that ranges begin and end anywhere.
__global__ void bytes(const unsigned char* in, unsigned char* out, int count) {
  const int i = thread();
  if (i < count) out[i] = static_cast<unsigned char>(stir(in[i] + static_cast<unsigned>(i)));
}
NIMBLE_KERNEL(bytes)

// Its pointers are inside a structure. One of them is of no use, and may be stale.
struct Job {
  const unsigned* in;
  int count;
  unsigned salt;
  unsigned* out;
  const unsigned* unused;
};

__global__ void by_struct(Job job) {
  const int i = thread();
  if (i < job.count) job.out[i] = stir(job.in[i] ^ job.salt);
}
NIMBLE_KERNEL(by_struct)

// As frameworks pass them: the first is the output.
struct Pointers {
  char* data[3];
};

__global__ void by_array(int count, Pointers p) {
  const int i = thread();
  if (i >= count) return;
  reinterpret_cast<unsigned*>(p.data[0])[i] =
      stir(reinterpret_cast<const unsigned*>(p.data[1])[i] + reinterpret_cast<const unsigned*>(p.data[2])[i]);
}
NIMBLE_KERNEL(by_array)

// Places in one object, counted from a pointer.
__global__ void moved(unsigned* base, long to, long from, int count) {
  const int i = thread();
  if (i < count) base[to + i] = stir(base[from + i]);
}
NIMBLE_KERNEL(moved)

// Its pointer is to the last element.
__global__ void backwards(unsigned* last, int count, unsigned salt) {
  const int i = thread();
  if (i < count) last[-i] = stir(last[-i] ^ salt);
}
NIMBLE_KERNEL(backwards)

// Whether it writes depends on what is in memory.
__global__ void sometimes(const unsigned* flag, unsigned* out, int count, unsigned salt) {
  const int i = thread();
  if (i < count && (*flag & 1) != 0) out[i] = stir(out[i] + salt);
}
NIMBLE_KERNEL(sometimes)

// Pointers that lie in memory: the first element is the output.
__global__ void through_table(unsigned* const* table, int count) {
  const int i = thread();
  if (i < count) table[0][i] = stir(table[1][i] + table[0][i]);
}
NIMBLE_KERNEL(through_table)

// Names that tell nothing.
extern "C" __global__ void opaque_map(const unsigned* in, unsigned* out, int count, unsigned salt) {
  const int i = thread();
  if (i < count) out[i] = stir(in[i] + salt);
}
NIMBLE_KERNEL(opaque_map)

extern "C" __global__ void opaque_in_place(unsigned* state, int count, unsigned salt) {
  const int i = thread();
  if (i < count) state[i] = stir(state[i] ^ salt);
}
NIMBLE_KERNEL(opaque_in_place)
