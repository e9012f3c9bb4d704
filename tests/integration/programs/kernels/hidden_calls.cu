// Kernels that reach memory by calls out of their code: what they launch themselves, and what they got from the
// device's heap (programs/hidden_state.cpp). Their image comes with PTX, made with -rdc=true, without which no kernel
// launches any.
#include "tests/integration/programs/kernels/plain_kernels.h"

// Launched by a kernel.
extern "C" __global__ void child(unsigned* out, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 19;
}
NIMBLE_KERNEL(child)

#if defined(__CUDACC__)
__device__ void launch_child(unsigned* out, const unsigned* in, int count) {
  child<<<count / 64, 64>>>(out, in, count);
}
__device__ unsigned* heap_block(int count) { return static_cast<unsigned*>(malloc(count * sizeof(unsigned))); }
#else
// A grid launched by another is done when that one is: here it runs at once.
static void launch_child(unsigned* out, const unsigned* in, int count) {
  for (int i = 0; i < count; ++i) out[i] = in[i] * 19;
}
// Launches that no driver call shows.
__device__ unsigned heap[256];
static unsigned* heap_block(int) { return heap; }
#endif

extern "C" __global__ void parent(unsigned* out, const unsigned* in, int count) {
  if (blockIdx.x == 0 && threadIdx.x == 0) launch_child(out, in, count);
}
NIMBLE_KERNEL(parent)

// Takes memory from the heap; `cell` holds where it is.
extern "C" __global__ void take(unsigned** cell, int count) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *cell = heap_block(count);
}
NIMBLE_KERNEL(take)

extern "C" __global__ void to_heap(unsigned* const* cell, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) (*cell)[i] = in[i] ^ 0x3c3c3c3cu;
}
NIMBLE_KERNEL(to_heap)

extern "C" __global__ void from_heap(const unsigned* const* cell, unsigned* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = (*cell)[i] * 23;
}
NIMBLE_KERNEL(from_heap)
