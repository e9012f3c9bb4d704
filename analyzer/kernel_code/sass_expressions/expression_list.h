// Makes the expressions of one kernel, each only once: where two are the same, so are the values. Of what is not
// computed (what was loaded, what is not known) each is another. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>

#include "nimble/internal/address_expressions.h"

namespace nimble::code::sass {

using ExpressionId = std::uint32_t;

class ExpressionList {
 public:
  ExpressionId number(std::int64_t value, unsigned bits);
  ExpressionId leaf(ExpressionOp op, std::int64_t value, unsigned bits, std::uint32_t a = 0);
  ExpressionId unknown(unsigned bits) { return leaf(ExpressionOp::unknown, 0, bits); }
  ExpressionId make(ExpressionOp op, ExpressionId a, ExpressionId b, std::int64_t value = 0);
  ExpressionId make(ExpressionOp op, ExpressionId a) { return make(op, a, a); }
  ExpressionId add(ExpressionId a, ExpressionId b) { return make(ExpressionOp::add, a, b); }
  ExpressionId negate(ExpressionId a) { return make(ExpressionOp::negate, a); }
  // Of 32 bits: -1 - a.
  ExpressionId complement(ExpressionId a);

  // Of 32 bits: so many bytes of the packed parameters, from byte offset + index on.
  ExpressionId number_at(ExpressionId index, std::int64_t offset, std::uint32_t bytes);

  // A choice without its alternatives, which fill() adds. They may lead back to it.
  ExpressionId choice(unsigned bits, std::int64_t loop);
  void fill(ExpressionId choice, std::span<const ExpressionId> alternatives);

  const Expression& operator[](ExpressionId id) const { return all_[id]; }
  bool is_number(ExpressionId id, std::int64_t value) const {
    return all_[id].op == ExpressionOp::constant && all_[id].value == value;
  }
  bool is_unknown(ExpressionId id) const { return all_[id].op == ExpressionOp::unknown; }
  std::size_t size() const { return all_.size(); }

  // Those that these uses and others need, in order; the uses and others are changed to their new places.
  Expressions needed(std::span<AddressUse> uses, std::span<ExpressionId> others) const;

 private:
  ExpressionId keep(const Expression& each);

  Expressions all_;
  std::map<std::tuple<ExpressionOp, std::uint8_t, std::uint32_t, std::uint32_t, std::int64_t>, ExpressionId> known_;
};

}  // namespace nimble::code::sass
