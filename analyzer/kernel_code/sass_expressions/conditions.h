// What is known about values at a place in the code, because branches and predicates lead there only if it holds.
//
// Refers to the kernel's flow and values, which must outlive it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/values.h"
#include "analyzer/kernel_code/sass_expressions/dominators.h"
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
  // What has to hold for control to go from the end of one block to another, as the branch there says; kNoValue:
  // nothing is known.
  Fact branch(std::uint32_t from, std::uint32_t to) const;
  // A comparison that an instruction makes, with this outcome; where that is not one that is understood, nothing.
  std::optional<Comparison> comparison(std::uint32_t instruction, bool holds) const;
  // The value of the predicate that is read at that bit; kNoValue where it is the one that always holds.
  ValueId predicate_at(std::uint32_t instruction, unsigned bit) const;
  // At which bit an instruction names the predicate that it writes as this value; 0: it does not.
  unsigned result_at(std::uint32_t instruction, ValueId value) const;
  std::uint32_t block_of(std::uint32_t instruction) const { return block_of_[instruction]; }
  const Dominators& dominators() const { return dominators_; }

 private:
  std::vector<Fact> in_block(std::uint32_t block) const;
  void follow(const Fact& fact, int depth, std::vector<Comparison>& found) const;

  const ControlFlow& flow_;
  const Values& values_;
  const Dominators dominators_;
  std::vector<std::uint32_t> block_of_;
  std::unordered_map<std::uint32_t, std::vector<Comparison>> known_;
};

}  // namespace nimble::code::sass
