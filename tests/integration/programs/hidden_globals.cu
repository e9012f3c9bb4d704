// Kernels that reach memory by names, by textures, and by calls (programs/hidden_state.cpp). Their image comes with
// PTX, which proves what most of them touch.
#include "tests/simcuda/image/kernel.h"

__device__ unsigned scratch[256];
__constant__ unsigned coefficients[256];

extern "C" __global__ void plain_fill(unsigned* out, const unsigned* in, unsigned salt, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 3 + salt * 2654435761u;
}
NIMBLE_KERNEL(plain_fill)

extern "C" __global__ void plain_add(unsigned* sum, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = sum[i] * 5 + in[i];
}
NIMBLE_KERNEL(plain_add)

extern "C" __global__ void to_scratch(const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) scratch[i] = in[i] ^ 0x5a5a5a5au;
}
NIMBLE_KERNEL(to_scratch)

extern "C" __global__ void from_scratch(unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = scratch[i] + 1;
}
NIMBLE_KERNEL(from_scratch)

extern "C" __global__ void weigh(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * coefficients[i];
}
NIMBLE_KERNEL(weigh)

#if defined(__CUDACC__)
using Texture = unsigned long long;
__device__ unsigned fetch(Texture texture, int i) { return tex1Dfetch<unsigned>(texture, i); }

#include <cstdio>
__device__ void say(unsigned value) { printf("%u\n", value); }
#else
using Texture = unsigned long long;
static unsigned fetch(Texture texture, int i) {
  return static_cast<const unsigned*>(nimble_simcuda::texture_memory(texture))[i];
}

// What is said, in the order in which it is said: a line at a time is folded into one number.
__device__ unsigned said;
static void say(unsigned value) { said = said * 31 + value; }
#endif

extern "C" __global__ void sum_texture(Texture texture, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = fetch(texture, i) * 13;
}
NIMBLE_KERNEL(sum_texture)

extern "C" __global__ void speak(const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && i % 64 == 0) say(in[i]);
}
NIMBLE_KERNEL(speak)
