// What a kernel source includes so that one text builds under nvcc and as a simcuda image with the host compiler.
//
//   #include "tests/simcuda/image/kernel.h"
//
//   extern "C" __global__ void scale(float* out, const float* in, float factor, int count) {
//     const int i = blockIdx.x * blockDim.x + threadIdx.x;
//     if (i < count) out[i] = in[i] * factor;
//   }
//   NIMBLE_KERNEL(scale)
//
//   template <typename T, int kWidth> __global__ void reduce(Pair<T> io, int count) { ... }
//   NIMBLE_KERNEL(reduce<float, 4>)
//
// NIMBLE_KERNEL stands once per kernel, or per instance of a kernel template, at namespace scope. Under nvcc it makes
// the instance be emitted; under the host compiler it also registers the kernel with the image, with the layout of its
// parameters and a loop over the threads of a grid.
//
// The threads of a block run one after another, so __syncthreads and __shared__ do not exist here: a kernel that needs
// them does not compile, rather than compute something else. Kernels have external linkage (no static, no unnamed
// namespace), for they are found by name. Not thread-safe: a grid runs on one host thread at a time, which the
// simulated driver sees to.
#pragma once

#define NIMBLE_KERNEL_JOIN_(a, b) a##b
#define NIMBLE_KERNEL_JOIN(a, b) NIMBLE_KERNEL_JOIN_(a, b)

#if defined(__CUDACC__)

// Naming an instance of a kernel template in host code is what makes nvcc emit it. Never called.
#define NIMBLE_KERNEL(...)                                                                     \
  __attribute__((used)) static const void* NIMBLE_KERNEL_JOIN(nimble_kernel_, __COUNTER__)() { \
    return reinterpret_cast<const void*>(&__VA_ARGS__);                                        \
  }

#else

#include <dlfcn.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tests/simcuda/image/image_abi.h"

// Visible, because kernels and module globals are looked up by name; everything else in an image is hidden.
#define __global__ __attribute__((visibility("default")))
#define __device__ __attribute__((visibility("default")))
#define __constant__ __attribute__((visibility("default")))
#define __host__
#define __managed__ __attribute__((visibility("default"), section("simcuda_managed")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Set by the loop over the threads. Internal to the one source of an image, so that the loop can keep them in
// registers.
[[maybe_unused]] static uint3 threadIdx, blockIdx;
[[maybe_unused]] static dim3 blockDim, gridDim;

// Threads run one after another, so a plain read and write is atomic.
template <typename T>
inline T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long> ||
                    std::is_same_v<T, float> || std::is_same_v<T, double>,
                "atomicAdd is defined for int, unsigned, unsigned long long, float and double");
  const T old = *address;
  *address = old + value;
  return old;
}

namespace nimble_simcuda {

// The linear memory of a texture object: for kernels that under nvcc would fetch from it. What they read there they
// read as any memory.
inline const void* texture_memory(unsigned long long texture) {
  using Find = const void* (*)(unsigned long long);
  static const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "simcuda_texture_memory"));
  return find(texture);
}

// The same for a surface object, which kernels may write to as well.
inline void* surface_memory(unsigned long long surface) {
  using Find = void* (*)(unsigned long long);
  static const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "simcuda_surface_memory"));
  return find(surface);
}

// Defined in image_runtime.cpp, which every image links.
__attribute__((visibility("hidden"))) void register_kernel(const SimKernel& kernel);

template <typename... Parameters>
struct Layout {
  static constexpr std::size_t kCount = sizeof...(Parameters);
  SimParam params[kCount + 1] = {};  // the last is no parameter: arrays of none are not allowed
  std::uint32_t bytes = 0;

  // The rules of a C struct, which are those of a kernel's parameter buffer.
  constexpr Layout() {
    std::size_t index = 0;
    (place(index++, sizeof(Parameters), alignof(Parameters)), ...);
  }

 private:
  constexpr void place(std::size_t index, std::size_t size, std::size_t alignment) {
    const std::size_t offset = (bytes + alignment - 1) / alignment * alignment;
    params[index] = {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)};
    bytes = static_cast<std::uint32_t>(offset + size);
  }
};

template <auto kFunction>
struct Kernel;

template <typename... Parameters, void (*kFunction)(Parameters...)>
struct Kernel<kFunction> {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "kernel parameters are passed as bytes");

  static constexpr Layout<Parameters...> kLayout{};

  static void run(const void* params, SimDim grid, SimDim block, std::uint64_t first, std::uint64_t last) {
    run_with(params, grid, block, first, last, std::index_sequence_for<Parameters...>{});
  }

  static bool add() {
    register_kernel({reinterpret_cast<const void*>(kFunction), &run, kLayout.params,
                     static_cast<std::uint32_t>(sizeof...(Parameters)), kLayout.bytes});
    return true;
  }

 private:
  template <std::size_t... kIndex>
  static void run_with(const void* params, SimDim grid, SimDim block, std::uint64_t first, std::uint64_t last,
                       std::index_sequence<kIndex...>) {
    [[maybe_unused]] const char* bytes = static_cast<const char*>(params);
    run_blocks(grid, block, first, last,
               *reinterpret_cast<const Parameters*>(bytes + kLayout.params[kIndex].offset)...);
  }

  static void run_blocks(SimDim grid, SimDim block, std::uint64_t first, std::uint64_t last, Parameters... arguments) {
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {block.x, block.y, block.z};
    for (std::uint64_t index = first; index < last; ++index) {
      blockIdx = {static_cast<unsigned>(index % grid.x), static_cast<unsigned>(index / grid.x % grid.y),
                  static_cast<unsigned>(index / grid.x / grid.y)};
      for (unsigned z = 0; z < block.z; ++z) {
        for (unsigned y = 0; y < block.y; ++y) {
          for (unsigned x = 0; x < block.x; ++x) {
            threadIdx = {x, y, z};
            kFunction(arguments...);
          }
        }
      }
    }
  }
};

}  // namespace nimble_simcuda

#define NIMBLE_KERNEL(...)                                                             \
  [[maybe_unused]] static const bool NIMBLE_KERNEL_JOIN(nimble_kernel_, __COUNTER__) = \
      ::nimble_simcuda::Kernel<&__VA_ARGS__>::add();

#endif
