// Cubins: ELF files with machine code. What their section headers, symbols and relocations tell about each kernel,
// without looking at the instructions.
//
// Pure functions over memory; any thread. Bounds are checked: any input gives facts or an error.
#pragma once

#include <string>
#include <vector>

#include "analyzer/kernel_code/bytes.h"

namespace nimble::code {

struct CubinKernel {
  std::string name;
  bool self_contained = false;
  bool constants = false;  // it would be, except for constant variables that it may read
  std::string why;         // if it is not
};

struct Cubin {
  std::string error;                 // empty if it could be read
  std::vector<CubinKernel> kernels;  // by name, ascending
  unsigned virtual_arch = 0;         // the compute_XX that it was compiled through; 0 if it does not say

  const CubinKernel* find(std::string_view name) const;
};

// How many bytes an ELF file takes, from its header; 0 if these bytes are not those of an ELF file. The driver's
// callers pass no size, and the tables of sections and of program headers are at the end.
std::uint64_t elf_bytes(Bytes first);

// `bytes` is the whole file.
Cubin read_cubin(Bytes bytes);

}  // namespace nimble::code
