// What the integration programs share: checked driver calls, and the module beside the executable.
#pragma once

#include <cuda.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

// Prints the call and its error, and ends the program: its test then fails with that line.
#define CHECK(call)                                                                            \
  do {                                                                                         \
    const CUresult check_result_ = (call);                                                     \
    if (check_result_ != CUDA_SUCCESS) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, check_result_); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (false)

// The image file that the build puts beside the executable.
inline std::string image_path(const char* name) {
  char path[PATH_MAX];
  const std::string self = realpath("/proc/self/exe", path) ? path : "";
  return self.substr(0, self.rfind('/') + 1) + name;
}

// Initialises the driver and makes device 0's primary context current.
inline CUcontext start_driver() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  return context;
}
