// Whether control reaches a place in the code, and whether a predicate may have a value, given a launch's parameters.
//
// As expressions of 32 bits that have a value only if that can be: joined by `when`, which needs both, and `either`.
// What they rest on are comparisons of what is computed from parameters and the launch's sizes alone; whatever depends
// on memory, or is not understood, may be. Such an expression says what may be at some time, not what is at the same
// time. One thread; refers to what it is made of.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/sass_expressions/addresses.h"

namespace nimble::code::sass {

class Occurrence {
 public:
  Occurrence(const ControlFlow& flow, const Values& values, Addresses& addresses);

  ExpressionId always() const { return always_; }
  ExpressionId never() const { return never_; }
  // That control gets to the block of an instruction; and that the instruction runs there, or where it is an
  // asynchronous copy to shared memory, that it reads.
  ExpressionId of_block(std::uint32_t instruction) const;
  ExpressionId of(std::uint32_t instruction);
  // That a predicate has this value at some time.
  ExpressionId of(const Fact& fact) { return of(fact, 0); }
  // That a choice takes what comes from there.
  ExpressionId of(ValueId choice, const Addresses::Source& source) { return of(choice, source, 0); }

  ExpressionId both(ExpressionId a, ExpressionId b);
  ExpressionId any(std::vector<ExpressionId> alternatives);
  // Whether there may be launches of another kind that exclude it: not only such as have nothing to do.
  bool can_be_excluded(ExpressionId id) const;

 private:
  ExpressionId of(const Fact& fact, int depth);
  ExpressionId find(const Fact& fact, int depth);
  ExpressionId of(ValueId choice, const Addresses::Source& source, int depth);
  ExpressionId by_table(const Fact& fact, unsigned table, unsigned input, std::uint32_t at, int depth);
  ExpressionId input(std::uint32_t at, unsigned bit, unsigned negated, bool is_true, int depth);
  ExpressionId compared(std::uint32_t at, bool holds);
  ExpressionId along(std::uint32_t from, std::uint32_t to, int depth);
  ExpressionId by_two(std::uint32_t from, std::uint32_t to, int depth);
  bool is_by_launch(ExpressionId id) const;
  bool tells_kinds(const Expression& comparison) const;
  bool implies(ExpressionId a, ExpressionId b) const;
  bool are_opposite(ExpressionId a, ExpressionId b) const;
  void find_blocks();
  std::vector<std::uint32_t> in_order(std::uint32_t entry) const;

  const ControlFlow& flow_;
  const Values& values_;
  Addresses& addresses_;
  ExpressionList& list_;
  const ExpressionId always_, never_;
  std::vector<std::vector<std::uint32_t>> to_;  // by block: those that come after it, calls left out
  std::vector<ExpressionId> blocks_;            // that control gets there; always_ until that is known
  std::unordered_map<std::uint64_t, ExpressionId> predicates_;
};

}  // namespace nimble::code::sass
