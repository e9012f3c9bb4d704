// Every function that cuda.h declares, sorted by name. Generated at build time (generate_exports.cmake), together with
// a stand-in for each that this driver does not implement.
#pragma once

#include <cstddef>

extern "C" {

struct SimExport {
  const char* name;
  void (*function)();
};
extern const SimExport simcuda_exports[];
extern const std::size_t simcuda_export_count;

// What a stand-in does: names itself in the log and returns CUDA_ERROR_NOT_SUPPORTED.
int simcuda_not_implemented(const char* name);
}
