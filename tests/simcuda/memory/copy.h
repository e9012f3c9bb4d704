// Copies, from the descriptions that the API knows. Under the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

Copy linear_copy(std::uint64_t to, std::uint64_t from, std::size_t bytes);
CUresult box_copy(const CUDA_MEMCPY3D& description, Copy& copy);
CUresult submit_copy(Call& call, CUstream handle, const Copy& copy, const char* name, bool synchronous);

// Says what this driver cannot do, and returns CUDA_ERROR_NOT_SUPPORTED.
CUresult not_supported(const char* what);

}  // namespace simcuda
