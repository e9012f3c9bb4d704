// Under which conditions an address has an origin that proves nothing, such as memory: the conditions, decided by the
// launch's parameters, under which values that lead to it are made, chosen and passed on.
//
// From each value back to those that it is computed from, by what the flow says may be in them: so what is looked at is
// all that the flow has found. Expressions as in sass_expressions/occurrence.h. One thread; refers to what it is made
// of.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analyzer/kernel_code/sass_expressions/occurrence.h"
#include "analyzer/kernel_code/sass_flow/contents_flow.h"

namespace nimble::code::sass {

class Provenance {
 public:
  Provenance(const ControlFlow& flow, const Values& values, ContentsFlow& contents, Addresses& addresses,
             Occurrence& occurrence)
      : flow_(flow), values_(values), contents_(contents), addresses_(addresses), occurrence_(occurrence) {}

  // That the address which an instruction names by this operand comes from that root: both its halves.
  ExpressionId from(std::uint32_t instruction, const MemoryOperand& operand, Root root);
  // That one of its halves is just a number.
  ExpressionId number(std::uint32_t instruction, const MemoryOperand& operand);

 private:
  // What is asked of a value: whether it comes from a root, or, with kIsNumber, is no part of an address.
  using Question = std::uint32_t;
  static constexpr Question kIsNumber = 0xffffffffu;

  ExpressionId of(ValueId value, Question question);
  ExpressionId begin(ValueId value, Question question);
  ExpressionId of_choice(ValueId choice, Question question);
  ExpressionId of_result(ValueId value, Question question);
  std::optional<ExpressionId> loaded_back(ValueId value, Question question);
  bool may_be(ValueId value, Question question);
  bool is_address(ValueId value);
  std::vector<ValueId> addends(ValueId result);

  const ControlFlow& flow_;
  const Values& values_;
  ContentsFlow& contents_;
  Addresses& addresses_;
  Occurrence& occurrence_;
  std::unordered_map<std::uint64_t, ExpressionId> known_;
  struct Open {
    ValueId value = kNoValue;
    Question question = 0;
    ExpressionId id = 0;  // the choice that is to be filled
  };
  std::vector<Open> open_;
};

}  // namespace nimble::code::sass
