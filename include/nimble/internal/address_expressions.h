// The addresses that a kernel computes, as expressions over what a launch gives it: parameters, the thread's and the
// block's numbers. From them and a launch's values follows how far from a pointer the kernel can get
// (analyzer/addresses/evaluate.h).
//
// Plain data. Arithmetic is modulo 2^32 or 2^64, as machine code does it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nimble {

// name in traces, operands that are expressions
#define NIMBLE_EXPRESSION_OPS(X)                                                                                  \
  X(constant, "const", 0)  /* value */                                                                            \
  X(param, "param", 0)     /* so many bytes, a, of the packed parameters from byte `value` on; zeros above */     \
  X(launch, "launch", 0)   /* value: an ExpressionLaunch */                                                       \
  X(up_to, "up_to", 0)     /* anything from 0 to value */                                                         \
  X(loaded, "loaded", 0)   /* was in memory: global, shared, or the thread's own */                               \
  X(unknown, "unknown", 0) /* anything */                                                                         \
  X(add, "+", 2)                                                                                                  \
  X(negate, "neg", 1)                                                                                             \
  X(multiply, "*", 2)                                                                                             \
  X(multiply_high, "mulhi", 2)         /* the upper half of the product of numbers without sign */                \
  X(multiply_high_signed, "smulhi", 2) /* of numbers with a sign */                                               \
  X(shift_left, "<<", 2)                                                                                          \
  X(shift_right, ">>", 2)                                                                                         \
  X(shift_right_signed, "s>>", 2)                                                                                 \
  X(bit_and, "&", 2)                                                                                              \
  X(bit_or, "|", 2)                                                                                               \
  X(bit_xor, "^", 2)                                                                                              \
  X(least, "min", 2)                                                                                              \
  X(least_signed, "smin", 2)                                                                                      \
  X(greatest, "max", 2)                                                                                           \
  X(greatest_signed, "smax", 2)                                                                                   \
  X(widen, "zext", 1) /* from 32 bits to 64 */                                                                    \
  X(widen_signed, "sext", 1)                                                                                      \
  X(low, "low", 1) /* the lower half of 64 bits */                                                                \
  X(high, "high", 1)                                                                                              \
  X(either, "either", 2) /* one or the other; the only one that may lead to itself. `value`: which loop begins */ \
                         /* there, more than zero; all at its beginning have their alternatives in one order. */  \
                         /* 0: none does; kRestOfChoice */                                                        \
  X(divide, "/", 2)      /* without a sign; up to `value` less than that */                                       \
  X(remainder, "%", 2)   /* without a sign; less than `value` divisors, by whole divisors too much */             \
  X(remainder_signed, "s%", 2) /* with the sign of the first */                                                   \
  X(param_at, "param_at", 1)   /* 8 bytes of the packed parameters, from byte `value` + a on */                   \
  X(number_at, "number_at", 1) /* so many bytes, b, 1, 2 or 4, of them; zeros above */                            \
  X(when, "when", 2)           /* a, where b has any value at all; else it is not used */                         \
  X(where, "where", 2)         /* a, known to be in the ExpressionRelation `value` to b; else it is not used */

enum class ExpressionOp : std::uint8_t {
#define X(op, name, operands) op,
  NIMBLE_EXPRESSION_OPS(X)
#undef X
};

inline constexpr std::string_view kExpressionNames[] = {
#define X(op, name, operands) name,
    NIMBLE_EXPRESSION_OPS(X)
#undef X
};

inline constexpr unsigned operands_of(ExpressionOp op) {
  constexpr unsigned kOperands[] = {
#define X(op, name, operands) operands,
      NIMBLE_EXPRESSION_OPS(X)
#undef X
  };
  return kOperands[static_cast<unsigned>(op)];
}

// Whether it takes something of the parameters by an index.
inline constexpr bool is_lookup(ExpressionOp op) {
  return op == ExpressionOp::param_at || op == ExpressionOp::number_at;
}

enum class ExpressionLaunch : std::uint8_t {
  thread_x,
  thread_y,
  thread_z,  // the thread's place in its block
  block_x,
  block_y,
  block_z,  // the block's place in the grid
  threads_x,
  threads_y,
  threads_z,
  blocks_x,
  blocks_y,
  blocks_z,
  count,
};

enum class ExpressionRelation : std::uint8_t { less, at_most, greater, at_least, equal, not_equal, count };
inline constexpr std::int64_t kSignedRelation = 8;  // added to a relation of numbers with a sign
// Of `either`: further alternatives of the one whose second operand it is.
inline constexpr std::int64_t kRestOfChoice = -1;

struct Expression {
  ExpressionOp op = ExpressionOp::unknown;
  std::uint8_t bits = 64;      // 32 or 64: of its value
  std::uint32_t a = 0, b = 0;  // operands, by their place in the list, but for what the table says
  std::int64_t value = 0;
  bool operator==(const Expression&) const = default;
};

// An access: so many bytes from the address on.
struct AddressUse {
  std::uint32_t address = 0;  // an expression of 64 bits
  std::uint32_t bytes = 0;    // 0: it is not known how many
  bool operator==(const AddressUse&) const = default;
};

using Expressions = std::vector<Expression>;

// Accesses of a kernel by a pointer in one of these words of its packed parameters (byte offsets, ascending).
struct AddressGroup {
  std::vector<std::uint32_t> at;
  bool reads = false, writes = false;
  std::vector<AddressUse> uses;
  bool complete = false;  // they are all; else some are not known
  std::vector<std::uint32_t>
      numbers;  // 4-byte words of the parameters that were added to the pointer, or may have been
  bool operator==(const AddressGroup&) const = default;
};

// Something a kernel may do that leaves nothing proven of a launch: unless the launch's values exclude it.
struct AddressDoubt {
  std::uint32_t happens = 0;    // an expression of 32 bits: it has a value only if that can be
  std::string why;              // what it may do, for people
  bool follows_memory = false;  // that is to follow an address that it loads from memory
  bool operator==(const AddressDoubt&) const = default;
};

// How far from its pointers a kernel gets, as its code tells.
struct AddressExtents {
  Expressions expressions;
  std::vector<std::uint32_t> counters;  // choices at the beginning of loops, by which these count
  std::vector<AddressGroup> groups;
  bool of_accesses = false;  // they are the proof's accesses, one for one; else its PTX told these
  std::vector<AddressDoubt> doubts;
  bool operator==(const AddressExtents&) const = default;
};

// Of what the doubts of a kernel say, and when they arise, and which words it takes by an index; 0 where there is
// neither. FNV-1a.
inline std::uint64_t digest_of_doubts(const AddressExtents& extents) {
  const bool has_index = std::any_of(extents.expressions.begin(), extents.expressions.end(),
                                     [](const Expression& each) { return is_lookup(each.op); });
  if (extents.doubts.empty() && !has_index) return 0;
  std::uint64_t digest = 0xcbf29ce484222325u;
  const auto add = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) digest = (digest ^ (value >> 8 * i & 0xff)) * 0x100000001b3u;
  };
  for (const Expression& each : extents.expressions) {
    add(static_cast<std::uint64_t>(each.op) << 8 | each.bits);
    add(std::uint64_t{each.a} << 32 | each.b);
    add(static_cast<std::uint64_t>(each.value));
  }
  for (const AddressDoubt& doubt : extents.doubts) add(doubt.happens);
  for (const AddressGroup& group : extents.groups)
    for (const AddressUse& use : group.uses)
      if (has_index) add(use.address);
  return digest == 0 ? 1 : digest;
}

}  // namespace nimble
