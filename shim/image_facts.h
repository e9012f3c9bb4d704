// Whether a loaded image's kernels can reach memory that none of their parameters points to: global variables, or calls
// out of the image (printf, device malloc, dynamic parallelism). Reads cubins and PTX, alone or in a fatbin,
// uncompressed. Pure functions over memory; what is not understood is not self-contained.
#pragma once

#include <cstddef>
#include <string>

namespace nimble::shim {

struct ImageFacts {
  bool self_contained = false;
  std::string why;  // where it is not: the first reason found
};

// `image` is what cuModuleLoadData and its relatives take: ELF, PTX text, a fatbin, or a fatbin's wrapper. Its size is
// not known; only what its own headers announce is read.
ImageFacts image_facts(const void* image);

// The same for a file; reads it.
ImageFacts image_facts_of_file(const char* path);

}  // namespace nimble::shim
