// Variables of code, so large that pages can be mapped to where they were.
#include "tests/simcuda/image/kernel.h"

__device__ unsigned scratch[1 << 21];
__device__ unsigned another[1 << 21];
extern "C" __global__ void nothing(unsigned* out) { out[0] = scratch[0] + another[0]; }
NIMBLE_KERNEL(nothing)
