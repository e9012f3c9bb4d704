// A PTX module's table of contents: its target, functions and variables. Bodies are found, not read.
//
// Plain data that refers to the text, which must outlive it. No input crashes the reader; what it does not understand
// is an error of the module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nimble::code {

enum class PtxSpace : std::uint8_t { generic, global, constant, shared, local, param, texture };

struct PtxVariable {
  std::string_view name;
  PtxSpace space = PtxSpace::global;
  bool managed = false;  // the host reaches it as well, without a call
};

// A parameter. For a kernel, `offset` is its place in the packed parameter buffer.
struct PtxParam {
  std::string_view name;
  std::uint32_t offset = 0, size = 0;
  bool in_register = false;  // of a function: declared as a register
};

struct PtxFunction {
  std::string_view name;
  bool entry = false, defined = false;
  std::vector<PtxParam> results, params;
  std::string_view body;  // without its braces
};

struct PtxModule {
  std::string error;
  unsigned arch = 0;         // 90 for sm_90a
  std::string_view variant;  // "a" or "f" of the target, or nothing
  std::vector<PtxFunction> functions;
  std::vector<PtxVariable> variables;
  std::unordered_map<std::string_view, std::uint32_t> function_of, variable_of;  // by name

  const PtxFunction* find(std::string_view name) const;
};

PtxModule read_ptx(std::string_view text);

// Bits of a type: 64 for ".u64" without the dot, 1 for "pred", 0 for anything that is not a type with bits.
unsigned ptx_type_bits(std::string_view type);

}  // namespace nimble::code
