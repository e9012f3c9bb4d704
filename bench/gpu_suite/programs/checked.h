// Checks calls of the CUDA runtime: where one fails, the program names it and ends.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    const cudaError_t check_result_ = (call);                                                                \
    if (check_result_ != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_result_)); \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (false)
