// Kernels that reach memory by names, by textures and surfaces, and by what they print (programs/hidden_state.cpp).
// Their image comes with PTX, which proves what most of them touch.
#include "tests/integration/programs/kernels/plain_kernels.h"

__device__ unsigned scratch[256];
__constant__ unsigned coefficients[256];

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
using Surface = unsigned long long;
__device__ unsigned fetch(Texture texture, int i) { return tex1Dfetch<unsigned>(texture, i); }
__device__ void put(Surface surface, int i, unsigned value) { surf1Dwrite(value, surface, i * 4); }
__device__ unsigned get(Surface surface, int i) { return surf1Dread<unsigned>(surface, i * 4); }

#include <cstdio>
__device__ void say(unsigned value) { printf("%u\n", value); }
#else
using Texture = unsigned long long;
using Surface = unsigned long long;
static void put(Surface surface, int i, unsigned value) {
  static_cast<unsigned*>(nimble_simcuda::surface_memory(surface))[i] = value;
}
static unsigned get(Surface surface, int i) {
  return static_cast<const unsigned*>(nimble_simcuda::surface_memory(surface))[i];
}
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

extern "C" __global__ void to_surface(Surface surface, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) put(surface, i, in[i] ^ 0xa5a5a5a5u);
}
NIMBLE_KERNEL(to_surface)

extern "C" __global__ void from_surface(Surface surface, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = get(surface, i) * 17;
}
NIMBLE_KERNEL(from_surface)

extern "C" __global__ void speak(const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && i % 64 == 0) say(in[i]);
}
NIMBLE_KERNEL(speak)
