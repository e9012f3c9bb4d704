// A kernel's machine code, and what its file says of it: where the parameters lie, where indirect branches lead, which
// symbols relocations put where.
//
// Views into the cubin's bytes, which must outlive it. Nothing in a file is trusted: what does not fit is an error, and
// what the instructions do is for others to see.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/bytes.h"
#include "analyzer/kernel_code/elf.h"

namespace nimble::code::sass {

struct KernelParam {
  std::uint32_t offset = 0, bytes = 0;  // among the packed parameters
};

// A symbol whose address stands in the code or in a constant bank.
struct SymbolAt {
  enum class Kind : std::uint8_t { variable, function, outside, other };
  Kind kind = Kind::other;
  std::string_view name;
};

// A constant variable of the program, in bank 3.
struct ConstantVariable {
  std::uint64_t at = 0, bytes = 0;
  std::string_view name;
};

struct Kernel {
  std::string error;  // empty where all of it could be read
  unsigned arch = 0;
  Bytes text;                                    // instructions of the kernel, and of functions beside it
  std::uint32_t entry = 0;                       // where the kernel begins in it
  std::uint32_t params_at = 0, param_bytes = 0;  // in constant bank 0
  std::vector<KernelParam> params;               // ascending by offset
  std::map<std::uint32_t, std::vector<std::uint32_t>> indirect;  // targets of the branch at this offset
  std::map<std::uint32_t, SymbolAt> in_text, in_bank4;           // by the offset of what the loader fills in
  std::vector<std::string_view> managed;                         // variables that the host reaches, too
  std::vector<ConstantVariable> in_bank3;

  std::size_t instructions() const { return text.size() / 16; }
};

// `elf` must have no error.
Kernel read_kernel(const Elf& elf, std::string_view name);

}  // namespace nimble::code::sass
