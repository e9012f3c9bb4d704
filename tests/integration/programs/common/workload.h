// A small piece of GPU work, done through entry points that were found in whatever way a test is about: 2 allocations,
// 2 sets, 20 launches and 1 copy back, beside what sets the driver up. Header only: programs and libraries include it.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "tests/integration/programs/common/driver.h"

inline constexpr int kWorkCount = 64, kWorkLaunches = 20;

// Member, plain name, exported name.
// clang-format off
#define WORKLOAD_CALLS(X)                                             \
  X(init, cuInit, cuInit)                                             \
  X(device_get, cuDeviceGet, cuDeviceGet)                             \
  X(context_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) \
  X(context_set, cuCtxSetCurrent, cuCtxSetCurrent)                    \
  X(module_load, cuModuleLoad, cuModuleLoad)                          \
  X(module_function, cuModuleGetFunction, cuModuleGetFunction)        \
  X(mem_alloc, cuMemAlloc, cuMemAlloc_v2)                             \
  X(memset_d32, cuMemsetD32, cuMemsetD32_v2)                          \
  X(memcpy_dtoh, cuMemcpyDtoH, cuMemcpyDtoH_v2)                       \
  X(launch_kernel, cuLaunchKernel, cuLaunchKernel)
// clang-format on

// cuda.h maps plain names to the newest version: the types are those of the exported names.
struct Driver {
#define WORKLOAD_MEMBER(member, plain, exported) decltype(&::plain) member;
  WORKLOAD_CALLS(WORKLOAD_MEMBER)
#undef WORKLOAD_MEMBER
};

// Fills the table through `find`, which takes the plain name and the exported one. Ends the program where one is
// missing.
template <class Find>
Driver find_driver(Find find) {
  Driver driver{};
#define WORKLOAD_FIND(member, plain, exported)                                        \
  driver.member = reinterpret_cast<decltype(driver.member)>(find(#plain, #exported)); \
  if (!driver.member) {                                                               \
    std::fprintf(stderr, "not found: %s\n", #exported);                               \
    std::exit(1);                                                                     \
  }
  WORKLOAD_CALLS(WORKLOAD_FIND)
#undef WORKLOAD_FIND
  return driver;
}

// The entry points as the linker bound them.
inline Driver linked_driver() {
  return {&cuInit,          &cuDeviceGet,  &cuDevicePrimaryCtxRetain,
          &cuCtxSetCurrent, &cuModuleLoad, &cuModuleGetFunction,
          &cuMemAlloc,      &cuMemsetD32,  &cuMemcpyDtoH,
          &cuLaunchKernel};
}

struct Work {
  CUfunction update = nullptr;
  CUdeviceptr state = 0, change = 0;
};

// 2 allocations and 2 sets.
inline Work start_work(const Driver& driver) {
  Work work;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CHECK(driver.init(0));
  CHECK(driver.device_get(&device, 0));
  CHECK(driver.context_retain(&context, device));
  CHECK(driver.context_set(context));
  CHECK(driver.module_load(&module, image_path("programs.simcuda").c_str()));
  CHECK(driver.module_function(&work.update, module, "_Z6updateILi1EEvPjPKji"));
  CHECK(driver.mem_alloc(&work.state, kWorkCount * sizeof(unsigned)));
  CHECK(driver.mem_alloc(&work.change, kWorkCount * sizeof(unsigned)));
  CHECK(driver.memset_d32(work.state, 1, kWorkCount));
  CHECK(driver.memset_d32(work.change, 2, kWorkCount));
  return work;
}

inline void launch_work(const Driver& driver, Work& work, int launches, CUstream stream = nullptr) {
  int count = kWorkCount;
  void* arguments[] = {&work.state, &work.change, &count};
  for (int i = 0; i < launches; ++i)
    CHECK(driver.launch_kernel(work.update, 1, 1, 1, kWorkCount, 1, 1, 0, stream, arguments, nullptr));
}

// 1 copy; the sum of the result.
inline unsigned finish_work(const Driver& driver, const Work& work) {
  std::vector<unsigned> result(kWorkCount);
  CHECK(driver.memcpy_dtoh(result.data(), work.state, kWorkCount * sizeof(unsigned)));
  unsigned sum = 0;
  for (const unsigned value : result) sum += value;
  return sum;
}

inline unsigned run_workload(const Driver& driver) {
  Work work = start_work(driver);
  launch_work(driver, work, kWorkLaunches);
  return finish_work(driver, work);
}
