// What the programs share that measure launches through the driver API: checked calls, the way to their kernels,
// clocks. Any thread.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

namespace nimble::bench {

// Ends the program unless the driver did what it was asked.
inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed with CUresult %d\n", what, static_cast<int>(result));
  std::exit(1);
}

// Device 0 with its primary context, current from now on, and the kernels of launch_overhead.cu.
inline void begin(CUcontext& context, CUmodule& module) {
  CUdevice device = 0;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  const std::string image = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "launch_overhead.simcuda";
  check(cuModuleLoad(&module, image.c_str()), "cuModuleLoad");
}

inline double nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace nimble::bench
