// The functions of the null driver: those of the images that the simulated driver loads, by their names and parameters.
//
// Modules and functions live as long as the process. Any thread: a lock guards the loaded modules, and no timed call
// takes it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tests/simcuda/image/image_abi.h"

struct CUfunc_st {
  const char* name;
  const SimParam* params;
  std::uint32_t param_count;
};

namespace null_driver {

// CUDA_ERROR_INVALID_IMAGE unless the file holds such an image.
CUresult load_module(CUmodule* module, const char* file);

// Null where the module has no such function.
CUfunction find_function(CUmodule module, const char* name);

}  // namespace null_driver
