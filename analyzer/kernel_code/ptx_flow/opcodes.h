// What is known about PTX's instructions (PTX ISA 9.0): how a result depends on its operands.
//
// Pure functions; any thread. Only instructions that are listed are understood.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "analyzer/kernel_code/ptx/module.h"

namespace nimble::code {

// An opcode, split at its dots.
struct PtxOpcode {
  explicit PtxOpcode(std::string_view spelled);

  std::string_view base;
  std::array<std::string_view, 16> parts{};
  std::size_t count = 0;
  bool complete = true;  // there was room for all parts

  bool has(std::string_view part) const;
  bool has_prefix(std::string_view prefix) const;  // among the parts
  std::string_view type(std::size_t which) const;  // the which-th part that is a type, or nothing
  std::string_view last_type() const;
  // The state space that it names; generic if it names none.
  PtxSpace space() const;
};

enum class PtxClass : std::uint8_t {
  unknown,
  nothing,  // neither memory nor values that an address could come from
  number,   // its first operand is a number computed from the others, not an address
  integer,  // likewise, except on 64-bit integers: then it may be an address
  chooses,  // its first operand is one of the others, of any type
  move,
  convert,
  to_generic,
  multiply,
  multiply_add,
  shift_left,
  shift_right,
  insert,
  load,
  store,
  atomic,
  call,
  async_copy,
  matrix_load,
  matrix_store,
  wmma,
  wgmma,
  barrier_object,
  discard,
};

PtxClass ptx_class(const PtxOpcode& opcode);

// Whether a name is a register that the hardware fills, and that is not an address.
bool is_special_register(std::string_view name);

}  // namespace nimble::code
