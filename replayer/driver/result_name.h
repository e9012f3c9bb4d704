// The driver's names of its results, for messages.
//
// Pure, any thread: the names are those of cuda.h, since a driver that has just failed is not asked. Allocates, so it
// is for the paths of errors.
#pragma once

#include <cuda.h>

#include <string>

namespace nimble {

// CUDA_ERROR_INVALID_VALUE and its like; "error 4242" for a value that the headers of the build do not have.
std::string result_name(CUresult result);

}  // namespace nimble
