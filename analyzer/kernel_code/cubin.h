// Cubins: ELF files with machine code. What their section headers, symbols and relocations tell of each kernel, without
// a look at the instructions.
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
  bool constants = false;  // it would be, but for constant variables that it may read
  std::string why;         // where it is not
};

struct Cubin {
  std::string error;                 // empty where it could be read
  std::vector<CubinKernel> kernels;  // by name, ascending
  unsigned virtual_arch = 0;         // the compute_XX that it was compiled through; 0 where it does not say

  const CubinKernel* find(std::string_view name) const;
};

// How many bytes an ELF file takes, from its header; 0 where these are not an ELF file's. The driver's callers pass no
// size, and the tables of sections and of program headers stand at the end.
std::uint64_t elf_bytes(Bytes first);

// `bytes` is the whole file.
Cubin read_cubin(Bytes bytes);

}  // namespace nimble::code
