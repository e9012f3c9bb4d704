// A library that allocates memory of the device while it is loaded: the dynamic loader holds its lock meanwhile.
#include <cuda.h>

namespace {

struct Table {
  Table() {
    for (int i = 0; i < 300; ++i) {
      CUdeviceptr memory = 0;
      if (cuMemAlloc(&memory, 256) == CUDA_SUCCESS) cuMemFree(memory);
    }
  }
} g_table;

}  // namespace
