// What is known of numbers at a place of the code, since branches and predicates lead there only where it holds.
//
// Refers to the kernel's flow and values, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/sass_addresses/dominators.h"
#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/values.h"
#include "nimble/internal/address_expressions.h"

namespace nimble::code::sass {

using Fact = Values::Fact;  // a predicate has this value

// The comparison that this instruction makes has this outcome: its first operand is so related to its second.
struct Comparison {
  std::uint32_t instruction = 0;
  std::uint32_t lower = kNoInstruction;  // of 64 bits: the instruction that compares the lower halves
  ExpressionRelation relation = ExpressionRelation::equal;
  bool is_signed = false;
  static constexpr std::uint32_t kNoInstruction = 0xffffffffu;
};

class Conditions {
 public:
  Conditions(const ControlFlow& flow, const Values& values);

  // Where this instruction runs.
  const std::vector<Comparison>& at(std::uint32_t instruction);
  // Where control goes from the end of one block to another.
  std::vector<Comparison> along(std::uint32_t from, std::uint32_t to);
  // Where a predicate has this value.
  std::vector<Comparison> of(const Fact& fact) const;
  std::uint32_t block_of(std::uint32_t instruction) const { return block_of_[instruction]; }
  const Dominators& dominators() const { return dominators_; }

 private:
  void add_branch(std::uint32_t from, std::uint32_t to, std::vector<Fact>& facts) const;
  std::vector<Fact> in_block(std::uint32_t block) const;
  void follow(const Fact& fact, int depth, std::vector<Comparison>& found) const;
  ValueId predicate_at(std::uint32_t instruction, unsigned bit) const;

  const ControlFlow& flow_;
  const Values& values_;
  const Dominators dominators_;
  std::vector<std::uint32_t> block_of_;
  std::unordered_map<std::uint32_t, std::vector<Comparison>> known_;
};

}  // namespace nimble::code::sass
