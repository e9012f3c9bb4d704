// Kernels of which a signature, or a look at what they write, tells less than the truth. There is an image with their
// PTX, and one without.
#include "tests/simcuda/image/kernel.h"

// Scales; and sets a flag if it meets a number that stands for an overflow. Its name tells no types.
extern "C" __global__ void scale_and_check(const unsigned* in, unsigned* out, unsigned* flag, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = in[i] * 3u + 1u;
  if (in[i] == 0xdeadbeefu) *flag = 1;
}
NIMBLE_KERNEL(scale_and_check)

// As an optimizer that skips a step.
extern "C" __global__ void apply_unless(const unsigned* flag, const unsigned* change, unsigned* state, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 5u + (*flag ? 0u : change[i] + 7u);
}
NIMBLE_KERNEL(apply_unless)

// Its signature says that it only reads `in`.
template <int kStep>
__global__ void clip(const unsigned* in, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  if (in[i] & 1u) const_cast<unsigned*>(in)[i] = in[i] + kStep;
  out[i] = in[i] * 3u;
}
NIMBLE_KERNEL(clip<5>)

// Finds its pointers in a block of bytes, as interpreters do.
struct Pointers {
  const unsigned* in;
  unsigned* out;
};
template <int kFactor>
__global__ void interpret(const unsigned char* block, int count) {
  Pointers at;
  __builtin_memcpy(&at, block, sizeof at);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) at.out[i] = at.in[i] * kFactor + 1u;
}
NIMBLE_KERNEL(interpret<7>)

// A batch of two arrays, by the distance between them. They need not be of one allocation.
template <int kFactor>
__global__ void strided(unsigned* base, long stride, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int k = 0; k < 2; ++k) base[k * stride + i] = in[i] * kFactor + k;
}
NIMBLE_KERNEL(strided<9>)

// An array of two dimensions that both count from one: what it is given is the address of its element (0, 0).
template <int kFactor>
__global__ void from_one(unsigned* matrix, int rows, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) matrix[rows + 1 + i] = in[i] * kFactor;
}
NIMBLE_KERNEL(from_one<11>)

template <int kAddend>
__global__ void follow(unsigned* state, const unsigned* change, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[i] = state[i] * 1664525u + change[i] + kAddend;
}
NIMBLE_KERNEL(follow<1013904223>)
