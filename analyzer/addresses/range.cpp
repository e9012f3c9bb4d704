#include "analyzer/addresses/range.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace nimble::analyzer {
namespace {

using Number = Range::Number;

Number power(unsigned bits) { return Number{1} << bits; }

// Rounds down.
Number divide(Number a, Number by) {
  const Number quotient = a / by;
  return quotient - (a % by != 0 && (a < 0) != (by < 0) ? 1 : 0);
}

// The smallest 2^n - 1 that is not below it.
Number ones(Number value) {
  Number result = 0;
  while (result < value) result = 2 * result + 1;
  return result;
}

bool is_plain(const Range& a) { return a.base == Range::kNoBase && !a.indexed; }

// Something that was computed from an index in ways that do not keep it apart.
Range weak(const Range& a, const Range& b, unsigned bits) {
  return a.base != Range::kNoBase || b.base != Range::kNoBase ? Range::full(bits) : Range::index();
}

Range add(const Range& a, const Range& b, unsigned bits) {
  if (a.base != Range::kNoBase && b.base != Range::kNoBase) return Range::full(bits);
  Range sum = Range::of(a.lo + b.lo, a.hi + b.hi, bits);
  if (sum.is_full(bits)) return sum;
  sum.base = std::min(a.base, b.base);
  sum.indexed = a.indexed || b.indexed;
  return sum;
}

// Of all numbers from one to the other with all of those; nothing where they are too large for that.
std::optional<std::pair<Number, Number>> products(const Range& x, Number p, Number q) {
  Number all[4];
  if (__builtin_mul_overflow(x.lo, p, &all[0]) || __builtin_mul_overflow(x.lo, q, &all[1]) ||
      __builtin_mul_overflow(x.hi, p, &all[2]) || __builtin_mul_overflow(x.hi, q, &all[3]))
    return std::nullopt;
  const auto [lo, hi] = std::ranges::minmax(all);
  constexpr Number kMost = Number{1} << 125;  // there is room for what is still done with them
  if (lo < -kMost || hi > kMost) return std::nullopt;
  return std::pair(lo, hi);
}

Range multiply(Range a, Range b, unsigned bits) {
  if (a.base != Range::kNoBase || b.base != Range::kNoBase) return Range::full(bits);
  // All readings are right; with a sign the numbers are smallest.
  const Range x = Range::of(a.lo, a.hi, bits), y = Range::of(b.lo, b.hi, bits);
  const auto ends = products(x, y.lo, y.hi);
  Range product = ends ? Range::of(ends->first, ends->second, bits) : Range::full(bits);
  product.indexed = a.indexed || b.indexed;
  return product;
}

Range multiply_high(const Range& a, const Range& b, bool is_signed, unsigned bits) {
  const Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits),
              y = is_signed ? b.as_signed(bits) : b.as_unsigned(bits);
  if (!is_signed) {
    using Unsigned = unsigned __int128;
    const auto upper = [&](Number p, Number q) {
      return static_cast<Number>(static_cast<Unsigned>(p) * static_cast<Unsigned>(q) >> bits);
    };
    return Range::of(upper(x.lo, y.lo), upper(x.hi, y.hi), bits);
  }
  const auto [lo, hi] = std::minmax({x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi});
  return Range::of(divide(lo, power(bits)), divide(hi, power(bits)), bits);
}

// How many places: from least to most, at most `bits`.
std::pair<unsigned, unsigned> places(const Range& by, unsigned bits) {
  const Range unsigned_by = by.as_unsigned(bits);
  const Number most = bits;
  return {static_cast<unsigned>(std::min(unsigned_by.lo, most)), static_cast<unsigned>(std::min(unsigned_by.hi, most))};
}

Range shift_left(const Range& a, const Range& by, unsigned bits) {
  const auto [least, most] = places(by, bits);
  if (a.base != Range::kNoBase && most > 0) return Range::full(bits);
  if (a.base != Range::kNoBase) return a;
  const Range x = Range::of(a.lo, a.hi, bits);
  const auto ends = products(x, power(least), power(most));
  Range result = ends ? Range::of(ends->first, ends->second, bits) : Range::full(bits);
  result.indexed = a.indexed;
  return result;
}

Range shift_right(const Range& a, const Range& by, bool is_signed, unsigned bits) {
  const auto [least, most] = places(by, bits);
  const Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits);
  const Number p = power(least), q = power(most);
  const auto [lo, hi] = std::minmax({divide(x.lo, p), divide(x.lo, q), divide(x.hi, p), divide(x.hi, q)});
  return Range::of(lo, hi, bits);
}

Range bit_and(const Range& a, const Range& b, unsigned bits) {
  if (a.is_number() && b.is_number()) return Range::number(a.as_unsigned(bits).lo & b.as_unsigned(bits).lo, bits);
  const Range* value = &a;
  const Range* mask = &b;
  if (value->is_number()) std::swap(value, mask);
  if (mask->is_number()) {
    const Number bits_kept = mask->as_unsigned(bits).lo, all = power(bits) - 1;
    const Number cleared = all - bits_kept;
    if ((cleared & (cleared + 1)) == 0) {  // the lower bits are cleared: rounds down
      const Number unit = cleared + 1;
      return Range::of(divide(value->lo, unit) * unit, divide(value->hi, unit) * unit, bits);
    }
    if ((bits_kept & (bits_kept + 1)) == 0) {  // the remainder
      const Number unit = bits_kept + 1;
      const Number whole = divide(value->lo, unit);
      if (whole == divide(value->hi, unit)) return Range::of(value->lo - whole * unit, value->hi - whole * unit, bits);
      return Range::of(0, bits_kept, bits);
    }
  }
  return Range::of(0, std::min(a.as_unsigned(bits).hi, b.as_unsigned(bits).hi), bits);
}

// A pointer with its lower bits cleared.
Range rounded_down(const Range& pointer, const Range& mask, unsigned bits) {
  const Number cleared = mask.is_number() ? power(bits) - 1 - mask.as_unsigned(bits).lo : -1;
  if (cleared < 0 || (cleared & (cleared + 1)) != 0) return Range::full(bits);
  Range result = Range::of(pointer.lo - cleared, pointer.hi, bits);
  if (result.is_full(bits)) return result;
  result.base = pointer.base;
  result.indexed = pointer.indexed;
  return result;
}

Range bit_or(const Range& a, const Range& b, bool is_exclusive, unsigned bits) {
  const Range x = a.as_unsigned(bits), y = b.as_unsigned(bits);
  const Number all = power(bits) - 1;
  if (a.is_number() && b.is_number()) return Range::number(is_exclusive ? x.lo ^ y.lo : x.lo | y.lo, bits);
  if (is_exclusive && (x.is_number() ? x.lo : y.is_number() ? y.lo : 0) == all)  // the complement
    return x.is_number() ? Range::of(all - y.hi, all - y.lo, bits) : Range::of(all - x.hi, all - x.lo, bits);
  return Range::of(is_exclusive ? 0 : std::max(x.lo, y.lo), std::min(ones(std::max(x.hi, y.hi)), x.hi + y.hi), bits);
}

Range least_or_greatest(const Range& a, const Range& b, bool is_least, bool is_signed, unsigned bits) {
  const Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits),
              y = is_signed ? b.as_signed(bits) : b.as_unsigned(bits);
  return is_least ? Range::of(std::min(x.lo, y.lo), std::min(x.hi, y.hi), bits)
                  : Range::of(std::max(x.lo, y.lo), std::max(x.hi, y.hi), bits);
}

// Rounded down; by zero it may be anything that the quotient by one is not less than.
Range divide_by(const Range& a, const Range& by, Number less, unsigned bits) {
  const Range x = a.as_unsigned(bits), y = by.as_unsigned(bits);
  const Number lo = y.lo == 0 ? 0 : x.lo / y.hi - less, hi = y.lo == 0 ? x.hi : x.hi / y.lo;
  return Range::of(std::max<Number>(lo, 0), hi, bits);
}

// By zero it is what was to be divided.
Range remainder_by(const Range& a, const Range& by, Number divisors, bool is_signed, unsigned bits) {
  const Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits),
              y = is_signed ? by.as_signed(bits) : by.as_unsigned(bits);
  const Number most = std::max(y.hi, -y.lo) * divisors - 1;  // where it is not divided by zero
  const bool may_be_zero = y.lo <= 0 && y.hi >= 0;
  const Number hi = may_be_zero ? x.hi : std::min(x.hi, most), lo = may_be_zero ? x.lo : std::max(x.lo, -most);
  return Range::of(x.lo >= 0 ? 0 : lo, x.hi < 0 ? 0 : hi, bits);
}

// What is left of a where it is so related to b.
Range where(const Range& a, std::int64_t relation, const Range& b, unsigned bits) {
  using enum ExpressionRelation;
  if (!b.reached) return b;
  const bool is_signed = (relation & kSignedRelation) != 0;
  const auto how = static_cast<ExpressionRelation>(relation & ~kSignedRelation);
  // What points to memory is not null.
  const bool is_tested = a.base != Range::kNoBase && a.lo == 0 && a.hi == 0 && !a.indexed && b.is_number() && b.lo == 0;
  if (is_tested && how == equal) return {};
  if (a.base != Range::kNoBase || b.base != Range::kNoBase || a.indexed) return a;
  Range x = is_signed ? a.as_signed(bits) : a.as_unsigned(bits);
  if (b.indexed) {
    // Counts to a number that was loaded: an index itself.
    if (how == less || how == at_most || how == equal || how == not_equal)
      return {true, true, Range::kNoBase, x.lo, x.lo};
    return {true, true, Range::kNoBase, x.hi, x.hi};
  }
  const Range y = is_signed ? b.as_signed(bits) : b.as_unsigned(bits);
  if (how == less) x.hi = std::min(x.hi, y.hi - 1);
  if (how == at_most || how == equal) x.hi = std::min(x.hi, y.hi);
  if (how == greater) x.lo = std::max(x.lo, y.lo + 1);
  if (how == at_least || how == equal) x.lo = std::max(x.lo, y.lo);
  if (how == not_equal && y.lo == y.hi) {
    if (x.lo == y.lo) ++x.lo;
    if (x.hi == y.lo) --x.hi;
  }
  if (x.lo > x.hi) return {};
  return Range::of(x.lo, x.hi, bits);
}

}  // namespace

Range Range::full(unsigned bits) { return {true, false, kNoBase, -power(bits - 1), power(bits - 1) - 1}; }

Range Range::of(Number lo, Number hi, unsigned bits) {
  if (hi - lo >= power(bits) - 1) return full(bits);
  const Number shift = divide(lo + power(bits - 1), power(bits)) * power(bits);
  return {true, false, kNoBase, lo - shift, hi - shift};
}

bool Range::is_full(unsigned bits) const {
  return reached && base == kNoBase && !indexed && hi - lo >= power(bits) - 1;
}

Range Range::as_unsigned(unsigned bits) const {
  Range result = *this;
  if (hi < 0) result.lo += power(bits), result.hi += power(bits);
  if (result.lo >= 0 && result.hi < power(bits)) return result;
  return {true, indexed, base, 0, power(bits) - 1};
}

Range Range::as_signed(unsigned bits) const {
  const Number most = power(bits - 1);
  if (lo >= -most && hi < most) return *this;
  return {true, indexed, base, -most, most - 1};
}

Range either(const Range& a, const Range& b, unsigned bits, std::uint32_t focus) {
  if (!a.reached) return b;
  if (!b.reached) return a;
  if (a.base != b.base) {
    for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      // No memory is reached by a null pointer.
      if (one->base != Range::kNoBase && other->is_number() && other->lo == 0) return *one;
    }
    if (a.base == Range::kNoBase || b.base == Range::kNoBase) return Range::full(bits);
    return b.base == focus ? b : a;  // by the other pointer not this one's memory
  }
  Range best;
  for (const Number shift : {Number{0}, power(bits), -power(bits)}) {
    Range one = Range::of(std::min(a.lo, b.lo + shift), std::max(a.hi, b.hi + shift), bits);
    if (!best.reached || one.hi - one.lo < best.hi - best.lo) best = one;
  }
  if (best.hi - best.lo >= power(bits) - 1) return Range::full(bits);
  best.base = a.base;
  best.indexed = a.indexed || b.indexed;
  return best;
}

namespace {

// Of operands that are plain numbers: no addresses, and not computed from an index.
Range computed_of_plain(ExpressionOp op, std::int64_t value, const Range& a, const Range& b, unsigned bits) {
  using enum ExpressionOp;
  switch (op) {
    case multiply_high:
    case multiply_high_signed:
      return analyzer::multiply_high(a, b, op == multiply_high_signed, bits);
    case shift_right:
    case shift_right_signed:
      return analyzer::shift_right(a, b, op == shift_right_signed, bits);
    case divide:
      return divide_by(a, b, value, bits);
    case remainder:
    case remainder_signed:
      return remainder_by(a, b, value, op == remainder_signed, bits);
    case bit_and:
      return analyzer::bit_and(a, b, bits);
    case bit_or:
    case bit_xor:
      return analyzer::bit_or(a, b, op == bit_xor, bits);
    case least:
    case least_signed:
    case greatest:
    case greatest_signed:
      return least_or_greatest(a, b, op == least || op == least_signed, op == least_signed || op == greatest_signed,
                               bits);
    case high:
      return Range::of(analyzer::divide(a.as_unsigned(64).lo, power(32)),
                       analyzer::divide(a.as_unsigned(64).hi, power(32)), 32);
    default:
      return Range::full(bits);
  }
}

}  // namespace

Range computed(ExpressionOp op, std::int64_t value, const Range& a, const Range& b, unsigned bits) {
  using enum ExpressionOp;
  if (!a.reached || (operands_of(op) > 1 && !b.reached)) return {};
  switch (op) {
    case add:
      return analyzer::add(a, b, bits);
    case multiply:
      return analyzer::multiply(a, b, bits);
    case shift_left:
      if (!is_plain(b)) return weak(a, b, bits);
      return analyzer::shift_left(a, b, bits);
    case where:
      return analyzer::where(a, value, b, bits);
    case when:
      return a;
    case negate: {
      if (a.base != Range::kNoBase) return Range::full(bits);
      Range result = Range::of(-a.hi, -a.lo, bits);
      result.indexed = a.indexed;
      return result;
    }
    case widen:
    case widen_signed: {
      if (a.base != Range::kNoBase) return Range::full(bits);
      Range result = op == widen ? a.as_unsigned(32) : a.as_signed(32);
      if (a.indexed) return {true, true, Range::kNoBase, a.lo, a.hi};
      return result;
    }
    case low: {
      if (a.base != Range::kNoBase) return Range::full(bits);
      Range result = Range::of(a.lo, a.hi, bits);
      result.indexed = a.indexed;
      return result;
    }
    default:
      break;
  }
  if (op == bit_and && (a.base != Range::kNoBase) != (b.base != Range::kNoBase))
    return a.base != Range::kNoBase ? rounded_down(a, b, bits) : rounded_down(b, a, bits);
  if (a.base != Range::kNoBase || (operands_of(op) > 1 && b.base != Range::kNoBase)) return Range::full(bits);
  if (!is_plain(a) || (operands_of(op) > 1 && !is_plain(b))) return weak(a, b, bits);
  return computed_of_plain(op, value, a, b, bits);
}

}  // namespace nimble::analyzer
