// A library that takes memory for itself, under two names: that of one of cuDNN's, and one of its own.
#include <cuda.h>

extern "C" CUdeviceptr own_memory(std::size_t bytes) {
  CUdeviceptr memory = 0;
  return cuMemAlloc(&memory, bytes) == CUDA_SUCCESS ? memory : 0;
}

// Of the host, which kernels reach.
extern "C" CUdeviceptr own_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  CUdeviceptr address = 0;
  return cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS &&
                 cuMemHostGetDevicePointer(&address, memory, 0) == CUDA_SUCCESS
             ? address
             : 0;
}
