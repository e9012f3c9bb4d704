// Kernels of the simulated driver's own tests: one of each kind that an image may hold.
#include "tests/simcuda/image/kernel.h"

namespace {
constexpr int kTableSize = 16;
}

__device__ int counter;
__constant__ float table[kTableSize];

extern "C" __global__ void fill(int* out, int value, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = value;
}
NIMBLE_KERNEL(fill)

// Reads and writes what it is given, and nothing beside it.
extern "C" __global__ void add_one(int* out, const int* __restrict__ in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = in[i] + 1;
}
NIMBLE_KERNEL(add_one)

// No two of these commute, so that the order in which they ran shows in the result.
extern "C" __global__ void append(unsigned long long* digits, int digit) { *digits = *digits * 10 + digit; }
NIMBLE_KERNEL(append)

extern "C" __global__ void count_up() { atomicAdd(&counter, 1); }
NIMBLE_KERNEL(count_up)

extern "C" __global__ void read_table(float* out) { out[threadIdx.x] = table[threadIdx.x % kTableSize]; }
NIMBLE_KERNEL(read_table)

// Where each thread stands, as blocks and threads of three dimensions.
extern "C" __global__ void where(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
}
NIMBLE_KERNEL(where)

namespace shapes {

struct View {
  char tag;
  double* data;
  short rows, columns;
};

template <typename T, int kFactor>
__global__ void __launch_bounds__(256) scale(T* out, const T* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = in[i] * kFactor;
}

__global__ void set_view(char first, View view, double value) {
  for (int i = 0; i < view.rows * view.columns; ++i) view.data[i] = value + first + view.tag;
}

__global__ void copy_block(View to, View from) {
  const std::size_t bytes =
      sizeof(double) * static_cast<std::size_t>(from.rows) * static_cast<std::size_t>(from.columns);
  memcpy(to.data, from.data, bytes);
}

}  // namespace shapes

NIMBLE_KERNEL(shapes::scale<float, 3>)
NIMBLE_KERNEL(shapes::scale<int, 5>)
NIMBLE_KERNEL(shapes::set_view)
NIMBLE_KERNEL(shapes::copy_block)
