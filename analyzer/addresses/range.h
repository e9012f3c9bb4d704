// Ranges of integers modulo 2^32 or 2^64, with the arithmetic of machine code.
//
// A value is in a range if it is one of its numbers modulo 2^bits. So sums, differences and products need no care for
// overflow; only what depends on how a number is read (comparisons, shifts to the right, widening) has to find the one
// reading that fits, and knows nothing where a range wraps around. A range may be relative to a pointer among the
// parameters, whose value is not looked at; and it may allow for an index that was loaded from memory, which is taken
// to stay within the object that it is an index of. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "nimble/internal/address_expressions.h"

namespace nimble::analyzer {

struct Range {
  using Number = __int128;
  static constexpr std::uint32_t kNoBase = 0xffffffffu;

  bool reached = false;          // false: no value at all
  bool indexed = false;          // and any index that was loaded may have been added
  std::uint32_t base = kNoBase;  // the word of the parameters that holds the pointer to which it is relative
  Number lo = 0, hi = 0;         // all from lo to hi
  bool operator==(const Range&) const = default;

  static Range full(unsigned bits);
  static Range of(Number lo, Number hi, unsigned bits);
  static Range number(Number value, unsigned bits) { return of(value, value, bits); }
  static Range pointer(std::uint32_t word) { return {true, false, word, 0, 0}; }
  static Range index() { return {true, true, kNoBase, 0, 0}; }

  bool is_full(unsigned bits) const;
  bool is_number() const { return reached && !indexed && base == kNoBase && lo == hi; }
  // Numbers that begin with the first are read without a sign, or with one; full where it wraps.
  Range as_unsigned(unsigned bits) const;
  Range as_signed(unsigned bits) const;
};

// One of the two. Of pointers it is the one to `focus`, where one of them is.
Range either(const Range& a, const Range& b, unsigned bits, std::uint32_t focus);

// What an operation with one or two operands makes of them. `bits` are those of the result.
Range computed(ExpressionOp op, std::int64_t value, const Range& a, const Range& b, unsigned bits);

}  // namespace nimble::analyzer
