// The kernels of driver_api.cpp. One source for nvcc and for the simulated driver.
#include "tests/simcuda/image/kernel.h"

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
