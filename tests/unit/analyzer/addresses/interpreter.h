// Computes expressions for one launch's numbers, step by step: what their ranges are held against.
//
// Shares nothing with analyzer/addresses. A loop's step takes all choices at its beginning to their alternatives of the
// same place at once, if these can be computed and all that is known of them holds; any loop may take one at any time.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "nimble/internal/address_expressions.h"

namespace nimble::analyzer::test {

class Interpreter {
 public:
  using Random = std::mt19937_64;

  struct Launch {
    std::vector<std::uint8_t> params;  // pointers among them as numbers
    std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  };

  Interpreter(const Expressions& expressions, const Launch& launch, std::uint64_t seed)
      : expressions_(expressions), launch_(launch), random_(seed) {
    for (std::uint32_t at = 0; at < expressions.size(); ++at)
      if (is_loop(at)) loops_[expressions[at].value].push_back(at);
  }

  bool has_loops() const { return !loops_.empty(); }

  // Some loop takes a step, if it can.
  void step() {
    auto loop = loops_.begin();
    std::advance(loop, random_() % loops_.size());
    const std::size_t place = random_() % alternatives(loop->second[0]).size();
    begin();
    std::map<std::uint32_t, std::uint64_t> next;
    for (const std::uint32_t choice : loop->second) {
      const auto value = of(alternatives(choice)[place]);
      if (!value) return;
      next[choice] = *value;
    }
    for (const auto& [choice, value] : next) state_[choice] = value;
  }

  // What it is now; nothing where it is not used.
  std::optional<std::uint64_t> value(std::uint32_t at) {
    begin();
    return of(at);
  }

 private:
  bool is_loop(std::uint32_t at) const {
    return expressions_[at].op == ExpressionOp::either && expressions_[at].value > 0;
  }

  std::vector<std::uint32_t> alternatives(std::uint32_t choice) const {
    std::vector<std::uint32_t> all{expressions_[choice].a};
    std::uint32_t rest = expressions_[choice].b;
    for (; expressions_[rest].op == ExpressionOp::either && expressions_[rest].value == kRestOfChoice;
         rest = expressions_[rest].b)
      all.push_back(expressions_[rest].a);
    all.push_back(rest);
    return all;
  }

  void begin() {
    now_.clear();
    open_.clear();
  }

  std::optional<std::uint64_t> of(std::uint32_t at) {
    const Expression& each = expressions_[at];
    if (is_loop(at)) {
      const auto found = state_.find(at);
      return found == state_.end() ? std::nullopt : std::optional(found->second);
    }
    using enum ExpressionOp;
    // What lies in memory, what is not known: each time it may be another.
    if (each.op == unknown || each.op == loaded) return cut(random_() >> (random_() % 64), each.bits);
    if (each.op == up_to)
      return random_() % 4 == 0 ? static_cast<std::uint64_t>(each.value)
                                : random_() % (static_cast<std::uint64_t>(each.value) + 1);
    if (const auto found = now_.find(at); found != now_.end()) return found->second;
    if (open_[at]) return std::nullopt;
    open_[at] = true;
    const auto result = computed(each);
    open_[at] = false;
    now_[at] = result;
    return result;
  }

  static std::uint64_t cut(std::uint64_t value, unsigned bits) { return bits == 32 ? value & 0xffffffffu : value; }
  static std::int64_t with_sign(std::uint64_t value, unsigned bits) {
    return bits == 32 ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
  }

  std::optional<std::uint64_t> computed(const Expression& each) {
    using enum ExpressionOp;
    const unsigned bits = each.bits;
    if (each.op == either) return of(random_() % 2 == 0 ? each.a : each.b);
    if (each.op == constant) return cut(static_cast<std::uint64_t>(each.value), bits);
    if (each.op == param) {
      std::uint64_t value = 0;
      for (std::uint32_t i = 0; i < each.a; ++i)
        value |= std::uint64_t{launch_.params[static_cast<std::size_t>(each.value) + i]} << (8 * i);
      return cut(value, bits);
    }
    if (each.op == launch) {
      const auto axis = each.value % 3;
      const std::uint32_t sizes[] = {launch_.block[axis], launch_.grid[axis]};
      if (each.value >= 6) return sizes[each.value >= 9];
      const std::uint32_t most = sizes[each.value >= 3] - 1;
      return random_() % 3 == 0 ? most : random_() % (std::uint64_t{most} + 1);
    }
    const auto a = of(each.a);
    if (!a) return std::nullopt;
    if (each.op == param_at) {
      const std::int64_t at = each.value + with_sign(*a, 32);
      if (at < 0 || at + 8 > static_cast<std::int64_t>(launch_.params.size())) return random_();
      std::uint64_t value = 0;
      std::memcpy(&value, launch_.params.data() + at, 8);
      return value;
    }
    if (each.op == number_at) {
      const std::int64_t at = each.value + with_sign(*a, 32), bytes = each.b;
      std::uint64_t value = 0;
      if (at % bytes != 0) return std::nullopt;  // the GPU ends such a kernel
      for (std::int64_t i = 0; i < bytes; ++i) {
        const bool is_there = at + i >= 0 && at + i < static_cast<std::int64_t>(launch_.params.size());
        value |= (is_there ? launch_.params[static_cast<std::size_t>(at + i)] : random_() & 255) << 8 * i;
      }
      return value;
    }
    if (operands_of(each.op) == 1) return alone(each.op, *a, bits);
    const auto b = of(each.b);
    if (!b) return std::nullopt;
    if (each.op == when) return a;
    if (each.op == divide || each.op == remainder || each.op == remainder_signed)
      return cut(divided(each.op, *a, *b, static_cast<std::uint64_t>(each.value), bits), bits);
    if (each.op == where) return holds(*a, each.value, *b, bits) ? a : std::nullopt;
    return cut(joined(each.op, *a, *b, bits), bits);
  }

  static std::uint64_t alone(ExpressionOp op, std::uint64_t a, unsigned bits) {
    using enum ExpressionOp;
    if (op == negate) return cut(0 - a, bits);
    if (op == widen_signed) return static_cast<std::uint64_t>(with_sign(a, 32));
    if (op == low) return cut(a, 32);
    if (op == high) return a >> 32;
    return a;
  }

  // A quotient that may be too small, a remainder of which divisors may be left; by zero whatever.
  std::uint64_t divided(ExpressionOp op, std::uint64_t a, std::uint64_t b, std::uint64_t most, unsigned bits) {
    if (op == ExpressionOp::divide) {
      if (b == 0) return a == 0 ? 0 : random_() % a;
      const std::uint64_t less = random_() % (most + 1), quotient = a / b;
      return quotient < less ? 0 : quotient - less;
    }
    if (b == 0) return a;
    const bool is_signed = op == ExpressionOp::remainder_signed;
    const __int128 x = is_signed ? with_sign(a, bits) : static_cast<__int128>(a),
                   y = is_signed ? with_sign(b, bits) : static_cast<__int128>(b);
    const __int128 size = x < 0 ? -x : x, by = y < 0 ? -y : y;
    __int128 rest = size % by;
    for (std::uint64_t more = random_() % most; more > 0 && rest + by <= size; --more) rest += by;
    return static_cast<std::uint64_t>(x < 0 ? -rest : rest);
  }

  static std::uint64_t joined(ExpressionOp op, std::uint64_t a, std::uint64_t b, unsigned bits) {
    using enum ExpressionOp;
    const std::int64_t x = with_sign(a, bits), y = with_sign(b, bits);
    switch (op) {
      case add:
        return a + b;
      case multiply:
        return a * b;
      case multiply_high:
        return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b >> bits);
      case multiply_high_signed:
        return static_cast<std::uint64_t>(static_cast<__int128>(x) * y >> bits);
      case shift_left:
        return b >= bits ? 0 : a << b;
      case shift_right:
        return b >= bits ? 0 : a >> b;
      case shift_right_signed:
        return static_cast<std::uint64_t>(b >= bits ? (x < 0 ? -1 : 0) : x >> b);
      case bit_and:
        return a & b;
      case bit_or:
        return a | b;
      case bit_xor:
        return a ^ b;
      case least:
        return a < b ? a : b;
      case least_signed:
        return x < y ? a : b;
      case greatest:
        return a > b ? a : b;
      default:
        return x > y ? a : b;
    }
  }

  static bool holds(std::uint64_t a, std::int64_t relation, std::uint64_t b, unsigned bits) {
    const bool is_signed = (relation & kSignedRelation) != 0;
    const bool is_less = is_signed ? with_sign(a, bits) < with_sign(b, bits) : a < b;
    const bool is_greater = is_signed ? with_sign(a, bits) > with_sign(b, bits) : a > b;
    switch (static_cast<ExpressionRelation>(relation & ~kSignedRelation)) {
      case ExpressionRelation::less:
        return is_less;
      case ExpressionRelation::at_most:
        return !is_greater;
      case ExpressionRelation::greater:
        return is_greater;
      case ExpressionRelation::at_least:
        return !is_less;
      case ExpressionRelation::equal:
        return a == b;
      default:
        return a != b;
    }
  }

  const Expressions& expressions_;
  const Launch& launch_;
  Random random_;
  std::map<std::int64_t, std::vector<std::uint32_t>> loops_;
  std::map<std::uint32_t, std::uint64_t> state_;  // of choices at the beginning of loops
  std::map<std::uint32_t, std::optional<std::uint64_t>> now_;
  std::map<std::uint32_t, bool> open_;
};

}  // namespace nimble::analyzer::test
