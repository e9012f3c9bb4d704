#include "analyzer/kernel_code/sass_expressions/expression_list.h"

#include <utility>

namespace nimble::code::sass {

ExpressionId ExpressionList::keep(const Expression& each) {
  const auto [found, is_new] = known_.emplace(std::tuple{each.op, each.bits, each.a, each.b, each.value},
                                              static_cast<ExpressionId>(all_.size()));
  if (is_new) all_.push_back(each);
  return found->second;
}

ExpressionId ExpressionList::leaf(ExpressionOp op, std::int64_t value, unsigned bits, std::uint32_t a) {
  if (op == ExpressionOp::unknown || op == ExpressionOp::loaded || op == ExpressionOp::up_to) {
    all_.push_back({op, static_cast<std::uint8_t>(bits), a, 0, value});
    return static_cast<ExpressionId>(all_.size() - 1);
  }
  const Expression each{op, static_cast<std::uint8_t>(bits), a, 0, value};
  // Two numbers that are not known are not the same number.
  if (op != ExpressionOp::unknown && op != ExpressionOp::up_to) return keep(each);
  all_.push_back(each);
  return static_cast<ExpressionId>(all_.size() - 1);
}

ExpressionId ExpressionList::number(std::int64_t value, unsigned bits) {
  if (bits == 32) value = static_cast<std::int32_t>(value);
  return leaf(ExpressionOp::constant, value, bits);
}

ExpressionId ExpressionList::complement(ExpressionId a) { return add(negate(a), number(-1, all_[a].bits)); }

// What is plain to see is made plain, so that halves of the same value are found to be that.
ExpressionId ExpressionList::make(ExpressionOp op, ExpressionId a, ExpressionId b, std::int64_t value) {
  using enum ExpressionOp;
  const bool halves = op == low || op == high, widens = op == ExpressionOp::widen || op == widen_signed;
  const unsigned bits = widens || op == param_at ? 64 : halves ? 32 : all_[a].bits;
  if (op == add && is_number(a, 0)) return b;
  if (op == add && is_number(b, 0)) return a;
  if (op == multiply && (is_number(a, 0) || is_number(b, 1))) return a;
  if (op == multiply && (is_number(b, 0) || is_number(a, 1))) return b;
  const bool is_shift = op == shift_left || op == shift_right || op == shift_right_signed;
  if (is_shift && is_number(b, 0)) return a;
  if (op == negate && is_number(a, 0)) return a;
  if (op == low && (all_[a].op == ExpressionOp::widen || all_[a].op == widen_signed)) return all_[a].a;
  if (widens && all_[a].op == constant)
    return number(op == widen_signed ? all_[a].value : static_cast<std::uint32_t>(all_[a].value), 64);
  // Whatever is made of anything is anything.
  const bool is_one = operands_of(op) == 1;
  if (all_[a].op == ExpressionOp::unknown && (is_one ? !widens && op != param_at : op == add || op == bit_xor))
    return this->unknown(bits);
  if (!is_one && all_[b].op == ExpressionOp::unknown && (op == add || op == bit_xor)) return this->unknown(bits);
  return keep({op, static_cast<std::uint8_t>(bits), a, is_one ? 0 : b, value});
}

ExpressionId ExpressionList::number_at(ExpressionId index, std::int64_t offset, std::uint32_t bytes) {
  return keep({ExpressionOp::number_at, 32, index, bytes, offset});
}

ExpressionId ExpressionList::choice(unsigned bits, std::int64_t loop) {
  all_.push_back({ExpressionOp::either, static_cast<std::uint8_t>(bits), 0, 0, loop});
  return static_cast<ExpressionId>(all_.size() - 1);
}

void ExpressionList::fill(ExpressionId choice, std::span<const ExpressionId> alternatives) {
  ExpressionId rest = alternatives.back();
  for (std::size_t i = alternatives.size() - 1; i-- > 1;) {
    const ExpressionId next = this->choice(all_[choice].bits, kRestOfChoice);
    all_[next].a = alternatives[i];
    all_[next].b = rest;
    rest = next;
  }
  all_[choice].a = alternatives.front();
  all_[choice].b = rest;
}

Expressions ExpressionList::needed(std::span<AddressUse> uses, std::span<ExpressionId> others) const {
  std::vector<std::uint8_t> is_needed(all_.size());
  std::vector<ExpressionId> open;
  const auto need = [&](ExpressionId id) {
    if (!std::exchange(is_needed[id], 1)) open.push_back(id);
  };
  for (const AddressUse& use : uses) need(use.address);
  for (const ExpressionId other : others) need(other);
  while (!open.empty()) {
    const Expression& each = all_[open.back()];
    open.pop_back();
    if (operands_of(each.op) > 0) need(each.a);
    if (operands_of(each.op) > 1) need(each.b);
  }
  std::vector<std::uint32_t> place(all_.size());
  Expressions result;
  for (ExpressionId id = 0; id < all_.size(); ++id) {
    place[id] = static_cast<std::uint32_t>(result.size());
    if (is_needed[id] != 0) result.push_back(all_[id]);
  }
  for (Expression& each : result) {
    if (operands_of(each.op) > 0) each.a = place[each.a];
    if (operands_of(each.op) > 1) each.b = place[each.b];
  }
  for (AddressUse& use : uses) use.address = place[use.address];
  for (ExpressionId& other : others) other = place[other];
  return result;
}

}  // namespace nimble::code::sass
