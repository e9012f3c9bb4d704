// What a simcuda module image is: the contract between the code in an image (kernel.h, image_runtime.cpp) and the
// simulated driver that loads it. C layout, so that either side may be built with other flags.
//
// An image file is a container: a header, then one or two ELF shared objects of the same kernels: `plain`, and
// `instrumented`, built with -fsanitize=thread and image_runtime.cpp's own __tsan_* callbacks, which report every load
// and store of a kernel. The simulated driver loads the one it needs. Kernels stand under their own symbols, mangled
// just as nvcc mangles them. There may also be the PTX that nvcc makes of the same kernels: no simulated driver looks
// at it, but who asks what the kernels do may.
#pragma once

#include <cstdint>

extern "C" {

#define SIMCUDA_IMAGE_MAGIC "SIMCUDA1"  // 8 bytes, no terminator

struct SimImageHeader {
  char magic[8];
  std::uint64_t plain_offset, plain_size;                // from the start of the file
  std::uint64_t instrumented_offset, instrumented_size;  // size 0 where there is none
  std::uint64_t ptx_offset, ptx_size;                    // the same
};

struct SimParam {
  std::uint32_t offset, size;
};

struct SimDim {
  std::uint32_t x, y, z;
};

// One kernel. `run` executes blocks [first, last) of the grid, counted x fastest, one thread after another.
struct SimKernel {
  const void* symbol;  // address of the kernel's function; its name is looked up with dladdr
  void (*run)(const void* params, SimDim grid, SimDim block, std::uint64_t first, std::uint64_t last);
  const SimParam* params;
  std::uint32_t param_count, param_bytes;
};

// Called by instrumented code for every access of a kernel while it runs.
struct SimHooks {
  void (*access)(const void* address, std::uint64_t bytes, bool write);
};

struct SimImage {
  const SimKernel* kernels;
  std::uint32_t kernel_count;
  void (*set_hooks)(const SimHooks* hooks);  // null in a plain build; hooks must outlive the image
};

// The one symbol that each shared object exports besides its kernels and __device__ variables.
const SimImage* simcuda_image();
}
