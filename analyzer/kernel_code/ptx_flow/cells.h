// The names that a kernel's PTX uses, as cells: where values are kept, and where addresses lead. The basis for turning
// instructions into steps (analyzer/kernel_code/ptx_flow/value_moves.cpp).
//
// Belongs to one kernel and one thread. The first thing that is not understood is kept in result_.error.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/ptx/body.h"
#include "analyzer/kernel_code/ptx_flow/opcodes.h"
#include "analyzer/kernel_code/ptx_flow/value_moves.h"

namespace nimble::code {

class PtxCells {
 protected:
  using Op = PtxStep::Op;
  using Operand = PtxOperand;

  PtxCells(const PtxModule& module, const PtxFunction& kernel);

  struct Reached {
    const PtxFunction* function;
    PtxBody body;
    std::vector<std::uint32_t> cells;                          // by symbol: the first
    std::unordered_map<std::uint32_t, std::uint32_t> address;  // of symbols that are memory: cells of their addresses
    std::unordered_map<std::uint32_t, const PtxInstruction*> definition;  // of registers that have only one
  };

  // A place in a parameter or a local variable.
  struct Place {
    std::uint32_t symbol = kNoSymbol;
    std::int64_t offset = 0;
    explicit operator bool() const { return symbol != kNoSymbol; }
  };

  void fail(std::string_view why, std::string_view what = {});
  void hides(std::string_view why, std::string_view what);

  std::uint32_t new_cells(std::uint32_t count);

  const PtxBody& body() const { return reached_[current_].body; }
  const PtxSymbol& symbol(const Operand& operand) const { return body().symbols[operand.symbol]; }
  // A symbol's first cell.
  std::uint32_t cell(std::uint32_t symbol) const { return reached_[current_].cells[symbol]; }

  // Of a parameter or a local variable.
  static std::uint32_t words_of(const PtxSymbol& symbol);
  static bool is_memory(const PtxSymbol& symbol);
  bool is_kernel_parameter(std::uint32_t symbol) const { return current_ == 0 && symbol < kernel_.params.size(); }

  std::size_t reach(const PtxFunction& function);

  // ---- addresses that do not change ----

  void count_definitions();

  // Where an operand points to, if that is always the same place in a parameter or a local variable.
  Place place(const Operand& operand) const;

  // The cells of the word at a place; the second is the next one. kNoCell if it is not known or not inside.
  std::uint32_t cell_at(const Place& at, unsigned bits) const;

  // ---- steps ----

  // Nothing, if there is nothing to move.
  void step(Op op, std::uint32_t dst, std::uint32_t src);
  // For these a constant is a source as well.
  void combine(Op op, std::uint32_t dst, std::uint32_t src, std::uint32_t other);
  void number(std::uint32_t dst, std::uint32_t src = kNoCell);

  void load(std::uint32_t dst, std::uint32_t address, PtxSpace space, bool wide);

  void store(std::uint32_t src, std::uint32_t address, PtxSpace space, bool wide);

  void touch(std::uint32_t address, PtxSpace space, bool reads, bool writes);

  // ---- operands ----

  std::uint32_t extra_root(PtxExtraRoot root);

  // The cell with the address of something in memory.
  std::uint32_t address_of(std::uint32_t index);

  std::uint32_t outside(std::string_view name);

  // What an operand's value is computed from; kNoCell if no address can come from it.
  std::uint32_t value(const Operand& operand);

  // All that a vector or a single operand holds.
  std::vector<std::uint32_t> values(const Operand& operand);

  // Registers that an instruction writes.
  std::vector<std::uint32_t> targets(const Operand& operand);

  // The cell with the address of [a+4]; kNoCell, and an error, if there is more in the brackets.
  std::uint32_t address(const Operand& operand);

  static bool is_wide(std::string_view type) { return ptx_type_bits(type) == 64; }
  static bool is_wide_integer(std::string_view type) { return is_wide(type) && type[0] != 'f'; }

  const PtxModule& module_;
  const PtxFunction& kernel_;
  PtxSteps result_;
  std::uint32_t first_word_ = 0, first_half_ = 0;  // of the parameters
  std::uint32_t fixed_[kRootFixed] = {};
  std::deque<Reached> reached_;  // a deque does not move its elements
  std::size_t current_ = 0;      // the one whose instructions are being read
  std::uint32_t when_ = 0;       // the conditions of the instruction that is being read
  std::unordered_map<std::string_view, std::uint32_t> variables_;
};

}  // namespace nimble::code
