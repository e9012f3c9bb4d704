// A library that takes device memory for itself, under two names: that of one of cuDNN's, and one of its own.
#include <cuda.h>

extern "C" CUdeviceptr own_memory(std::size_t bytes) {
  CUdeviceptr memory = 0;
  return cuMemAlloc(&memory, bytes) == CUDA_SUCCESS ? memory : 0;
}
