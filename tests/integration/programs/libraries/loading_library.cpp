// A library that allocates memory of the device while it is loaded, LOADING_CALLS times (300): the dynamic loader holds
// its lock meanwhile.
#include <cuda.h>

#include <cstdlib>

namespace {

struct Table {
  Table() {
    const char* const calls = std::getenv("LOADING_CALLS");
    for (int i = 0, count = calls ? std::atoi(calls) : 300; i < count; ++i) {
      CUdeviceptr memory = 0;
      if (cuMemAlloc(&memory, 256) == CUDA_SUCCESS) cuMemFree(memory);
    }
  }
} g_table;

}  // namespace
