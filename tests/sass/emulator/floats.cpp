// Arithmetic on floats, as exact as addresses need it: quotients of integers go through them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class T>
bool compare(T a, T b, unsigned how) {
  const bool unordered = std::isnan(a) || std::isnan(b);
  const unsigned order = how & 7;
  const bool is = (order == 1 && a < b) || (order == 2 && a == b) || (order == 3 && a <= b) || (order == 4 && a > b) ||
                  (order == 5 && a < b) || (order == 5 && a > b) || (order == 6 && a >= b) ||
                  (order == 7 && !unordered);
  return how == 15 || is || (how >= 8 && unordered);
}

bool joined(bool a, bool b, unsigned how) { return how == 0 ? a && b : how == 1 ? a || b : a != b; }

// Bits 78 and 79: to the nearest, down, up, to zero.
double rounded(double value, unsigned how) {
  switch (how) {
    case 0:
      return std::nearbyint(value);
    case 1:
      return std::floor(value);
    case 2:
      return std::ceil(value);
    default:
      return std::trunc(value);
  }
}

U64 to_integer(double value, bool is_signed, unsigned bits) {
  if (std::isnan(value)) return 0;
  if (is_signed) {
    const double most = std::ldexp(1.0, static_cast<int>(bits) - 1);
    if (value >= most) return (U64{1} << (bits - 1)) - 1;
    if (value <= -most) return U64{0} - (U64{1} << (bits - 1));
    return static_cast<U64>(static_cast<std::int64_t>(value));
  }
  if (value <= 0) return 0;
  if (value >= std::ldexp(1.0, static_cast<int>(bits))) return bits == 64 ? ~U64{0} : (U64{1} << bits) - 1;
  return static_cast<U64>(value);
}

// An integer as a float, rounded as asked.
float to_float(long double value, unsigned how) {
  auto near = static_cast<float>(value);
  if (how == 1 && near > value) near = std::nextafter(near, -std::numeric_limits<float>::infinity());
  if (how == 2 && near < value) near = std::nextafter(near, std::numeric_limits<float>::infinity());
  if (how == 3 && std::fabs(static_cast<long double>(near)) > std::fabs(value)) near = std::nextafter(near, 0.0f);
  return near;
}

}  // namespace

bool Machine::floats(Warp& warp, Lane& lane, const Op& op) {
  const sass::Word word = op.word;
  const unsigned form = op.instruction.opcode >> 9 & 7;
  const Source& at32 = form == 2 || form == 3 || form == 7 ? op.c : op.b;
  const auto value = [&](const Source& source) { return real(warp, lane, source, op); };
  const auto put_real = [&](float result) { put(warp, lane, op, std::bit_cast<U32>(result)); };
  switch (op.what) {
    case Do::fadd:
      put_real(value(op.a) + value(at32));
      return true;
    case Do::fmul:
      put_real(value(op.a) * value(op.b));
      return true;
    case Do::ffma:
      put_real(std::fma(value(op.a), value(op.b), value(op.c)));
      return true;
    case Do::fsel:
      put_real(holds(warp, lane, op.p87) ? value(op.a) : value(op.b));
      return true;
    case Do::fmnmx: {
      const float a = value(op.a), b = value(op.b);
      put_real(holds(warp, lane, op.p87) ? std::fmin(a, b) : std::fmax(a, b));
      return true;
    }
    case Do::fsetp: {
      const bool is = compare(value(op.a), value(op.b), static_cast<unsigned>(word.bits(76, 4)));
      const auto with = static_cast<unsigned>(word.bits(74, 2));
      const bool also = holds(warp, lane, op.p87);
      put(warp, lane, op.p81, joined(is, also, with));
      put(warp, lane, op.p84, joined(!is, also, with));
      return true;
    }
    case Do::mufu: {
      const float x = value(op.b);
      const auto half = [](double whole) { return static_cast<U32>(std::bit_cast<U64>(whole) >> 32); };
      const double wide = std::bit_cast<double>(U64{raw(warp, lane, op.b, op)} << 32);
      switch (word.bits(74, 4)) {
        case 0:
          return put_real(std::cos(x)), true;
        case 1:
          return put_real(std::sin(x)), true;
        case 2:
          return put_real(std::exp2(x)), true;
        case 3:
          return put_real(std::log2(x)), true;
        case 4:
          return put_real(1.0f / x), true;
        case 5:
          return put_real(1.0f / std::sqrt(x)), true;
        case 6:
          return put(warp, lane, op, half(1.0 / wide)), true;
        case 7:
          return put(warp, lane, op, half(1.0 / std::sqrt(wide))), true;
        case 8:
          return put_real(std::sqrt(x)), true;
        default:
          return put_real(std::tanh(x)), true;
      }
    }
    case Do::fchk: {
      const float a = value(op.a), b = value(op.b);
      put(warp, lane, op.p81, !std::isnormal(b) || (a != 0 && !std::isnormal(a)) || std::fabs(b) > 1e37f);
      return true;
    }
    case Do::i2f: {
      const auto size = static_cast<unsigned>(word.bits(84, 2));  // 8, 16, 32, 64 bits
      const bool is_signed = word.bit(74) != 0, is_packed = std::string_view(op.instruction.name).ends_with("FP");
      if (word.bits(75, 2) == 1) return false;  // halves
      U64 from = raw64(warp, lane, op.b, op);
      if (size < 2 && !is_packed) from >>= 8 * word.bits(60, 2);
      const unsigned bits = is_packed ? 32 : 8u << size;
      if (bits < 64) from &= (U64{1} << bits) - 1;
      if (is_signed && bits < 64 && (from >> (bits - 1) & 1) != 0) from |= ~U64{0} << bits;
      const long double exact =
          is_signed ? static_cast<long double>(static_cast<std::int64_t>(from)) : static_cast<long double>(from);
      if (op.to_count == 2)
        put64(warp, lane, op, std::bit_cast<U64>(static_cast<double>(exact)));
      else
        put_real(to_float(exact, static_cast<unsigned>(word.bits(78, 2))));
      return true;
    }
    case Do::f2i: {
      const auto type = static_cast<unsigned>(word.bits(84, 2));  // halves, floats, doubles
      if (type < 2) return false;
      const double from = type == 3 ? real64(warp, lane, op.b, op) : value(op.b);
      const auto bits = 8u << word.bits(75, 2);
      const U64 result = to_integer(rounded(from, static_cast<unsigned>(word.bits(78, 2))), word.bit(72) != 0, bits);
      put64(warp, lane, op, result);
      return true;
    }
    case Do::hfma2:
      // How constants are made: zero times zero and the constant.
      if (op.a.kind != Source::Kind::zero || op.b.kind != Source::Kind::zero || op.c.kind != Source::Kind::immediate)
        return false;
      put(warp, lane, op, op.c.immediate);
      return true;
    default:
      return false;
  }
}

bool Machine::doubles(Warp& warp, Lane& lane, const Op& op) {
  const unsigned form = op.instruction.opcode >> 9 & 7;
  const Source& at32 = form == 2 || form == 3 || form == 7 ? op.c : op.b;
  const auto value = [&](const Source& source) { return real64(warp, lane, source, op); };
  const auto put_real = [&](double result) { put64(warp, lane, op, std::bit_cast<U64>(result)); };
  switch (op.what) {
    case Do::f2f:
      if (op.to_count == 2 && op.b.count == 1)
        put_real(real(warp, lane, op.b, op));
      else if (op.to_count == 1 && op.b.count == 2)
        put(warp, lane, op, std::bit_cast<U32>(static_cast<float>(value(op.b))));
      else
        return false;
      return true;
    case Do::dadd:
      put_real(value(op.a) + value(op.c));
      return true;
    case Do::dmul:
      put_real(value(op.a) * value(op.b));
      return true;
    case Do::dfma:
      put_real(std::fma(value(op.a), value(op.b), value(op.c)));
      return true;
    case Do::dsetp: {
      const bool is = compare(value(op.a), value(at32), static_cast<unsigned>(op.word.bits(76, 4)));
      const auto with = static_cast<unsigned>(op.word.bits(74, 2));
      const bool also = holds(warp, lane, op.p87);
      put(warp, lane, op.p81, joined(is, also, with));
      put(warp, lane, op.p84, joined(!is, also, with));
      return true;
    }
    default:
      return false;
  }
}

}  // namespace nimble::code::emulator
