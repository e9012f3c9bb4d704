// Errors on demand: the nth call of a symbol fails. Guarded by the driver's mutex.
#pragma once

#include <string>

#include "tests/simcuda/engine/work.h"

namespace simcuda {

// From SIMCUDA_INJECT: symbol:nth call:CUresult, separated by commas. What is not understood is named on stderr.
void inject_from(const std::string& list);

// Sticky errors of a kernel.
inline bool is_fault(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
         result == CUDA_ERROR_MISALIGNED_ADDRESS || result == CUDA_ERROR_ILLEGAL_INSTRUCTION ||
         result == CUDA_ERROR_ASSERT;
}

}  // namespace simcuda
