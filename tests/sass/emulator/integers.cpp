// Arithmetic on integers, comparisons, logic and shifts.
#include <algorithm>
#include <bit>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr unsigned kMov64 = 0x402, kUmov64 = 0x1482;  // with a number of 64 bits

// An operand as it goes into a sum: what is negated adds its complement and one, so that no borrow is a carry.
struct Addend {
  U64 value = 0, one = 0;
};
Addend addend(U32 value, bool negated, bool is_extended) {
  if (!negated) return {value, 0};
  return {static_cast<U32>(~value), is_extended ? 0u : 1u};
}

template <class T>
bool compare(T a, T b, unsigned how) {
  switch (how) {
    case 1:
      return a < b;
    case 2:
      return a == b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a != b;
    case 6:
      return a >= b;
    default:
      return how == 7;
  }
}

bool joined(bool a, bool b, unsigned how) { return how == 0 ? a && b : how == 1 ? a || b : a != b; }

}  // namespace

bool Machine::integers(Warp& warp, Lane& lane, const Op& op) {
  const sass::Word word = op.word;
  const auto value = [&](const Source& source) { return raw(warp, lane, source, op); };
  const auto value64 = [&](const Source& source) { return raw64(warp, lane, source, op); };
  const bool is_extended = word.bit(74) != 0;  // .X
  switch (op.what) {
    case Do::iadd3: {
      if (op.to_count == 2 || op.a.count == 2 || op.c.count == 2) {  // .64
        if (is_extended) give_up("UIADD3.64.X");
        U64 sum = 0;
        for (const Source* source : {&op.a, &op.b, &op.c}) {
          const U64 each = value64(*source);
          sum += source->negated ? 0 - each : each;
        }
        if (op.p81.number != 7 || op.p84.number != 7) give_up("UIADD3.64 with carries");
        put64(warp, lane, op, sum);
        return true;
      }
      U64 sum = 0;
      for (const Source* source : {&op.a, &op.b, &op.c}) {
        const Addend each = addend(value(*source), source->negated, is_extended);
        sum += each.value + each.one;
      }
      if (is_extended) sum += U64{holds(warp, lane, op.p87)} + U64{holds(warp, lane, op.p77)};
      put(warp, lane, op, static_cast<U32>(sum));
      put(warp, lane, op.p81, sum >> 32 >= 1);
      put(warp, lane, op.p84, sum >> 32 >= 2);
      return true;
    }
    case Do::iadd: {
      if (word.bit(73) != 0) {  // .64
        using Wide = unsigned __int128;
        Wide sum = 0;
        for (const Source* source : {&op.a, &op.b}) {
          const U64 each = value64(*source);
          sum += source->negated ? Wide{~each} + (is_extended ? 0 : 1) : Wide{each};
        }
        if (is_extended) sum += holds(warp, lane, op.p87) ? 1 : 0;
        put64(warp, lane, op, static_cast<U64>(sum));
        put(warp, lane, op.p81, sum >> 64 != 0);
        return true;
      }
      U64 sum = is_extended && holds(warp, lane, op.p87) ? 1 : 0;
      for (const Source* source : {&op.a, &op.b}) {
        const Addend each = addend(value(*source), source->negated, is_extended);
        sum += each.value + each.one;
      }
      put(warp, lane, op, static_cast<U32>(sum));
      put(warp, lane, op.p81, sum >> 32 != 0);
      return true;
    }
    case Do::viadd: {
      const U32 a = value(op.a), b = value(op.b);
      put(warp, lane, op, (op.a.negated ? 0 - a : a) + (op.b.negated ? 0 - b : b));
      return true;
    }
    case Do::imad: {
      const unsigned kind = op.instruction.opcode & 0x7f;
      const bool is_signed = word.bit(73) != 0;
      const U32 a = value(op.a), b = value(op.b);
      U64 product = is_signed
                        ? static_cast<U64>(std::int64_t{static_cast<std::int32_t>(a)} * static_cast<std::int32_t>(b))
                        : U64{a} * b;
      const U64 carry = is_extended && holds(warp, lane, op.p87) ? 1 : 0;
      if (kind == 0x24) {
        const U32 c = value(op.c);
        put(warp, lane, op, static_cast<U32>(product + carry) + (!op.c.negated ? c : is_extended ? ~c : 0 - c));
        return true;
      }
      const U64 c = value64(op.c);
      using Wide = unsigned __int128;
      const Wide sum = Wide{product} + (!op.c.negated ? c : is_extended ? ~c : 0 - c) + carry;
      if (kind == 0x25)
        put64(warp, lane, op, static_cast<U64>(sum));
      else
        put(warp, lane, op, static_cast<U32>(static_cast<U64>(sum) >> 32));
      put(warp, lane, op.p81, sum >> 64 != 0);
      return true;
    }
    case Do::lea: {
      const auto shift = static_cast<unsigned>(word.bits(75, 5));
      const bool is_upper = word.bit(80) != 0, extends_sign = word.bit(73) != 0 && is_upper;
      const unsigned form = op.instruction.opcode >> 9 & 7;
      const bool is_immediate = form == 2 || form == 4;
      U32 a = value(op.a);
      if (is_upper) {
        const U32 upper = extends_sign ? 0 - (a >> 31) : value(op.c);
        a = static_cast<U32>((U64{upper} << 32 | a) << shift >> 32);
      } else {
        a <<= shift;
      }
      const Addend first = addend(a, word.bit(72) != 0, is_extended),
                   second = addend(value(op.b), word.bit(63) != 0 && !is_immediate, is_extended);
      const U64 sum =
          first.value + first.one + second.value + second.one + (is_extended && holds(warp, lane, op.p87) ? 1 : 0);
      put(warp, lane, op, static_cast<U32>(sum));
      put(warp, lane, op.p81, sum >> 32 != 0);
      return true;
    }
    case Do::isetp: {
      const auto how = static_cast<unsigned>(word.bits(76, 3)), with = static_cast<unsigned>(word.bits(74, 2));
      const bool is_signed = word.bit(73) != 0;
      bool is = false, equal = false;
      if (word.bit(80) != 0) {
        const U64 a = value64(op.a), b = value64(op.b);
        equal = a == b;
        is = is_signed ? compare(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b), how) : compare(a, b, how);
      } else {
        const U32 a = value(op.a), b = value(op.b);
        equal = a == b;
        is = is_signed ? compare(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b), how) : compare(a, b, how);
      }
      if (word.bit(72) != 0 && equal) is = holds(warp, lane, op.p68);  // .EX: the lower halves decide
      const bool also = holds(warp, lane, op.p87);
      put(warp, lane, op.p81, joined(is, also, with));
      put(warp, lane, op.p84, joined(!is, also, with));
      return true;
    }
    case Do::mnmx: {
      const bool is_vector = (op.instruction.opcode & 0x7f) == 0x48 || (op.instruction.opcode & 0x7f) == 0x4a;
      const bool is_signed = word.bit(is_vector ? 72 : 73) != 0, least = holds(warp, lane, op.p87);
      if (op.p81.number != 7 || op.p84.number != 7 || (is_vector && word.bits(73, 4) != 0)) give_up("a kind of VIMNMX");
      if (op.to_count == 2) {
        const U64 a = value64(op.a), b = value64(op.b);
        const bool is_less = is_signed ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
        put64(warp, lane, op, is_less == least ? a : b);
        return true;
      }
      const U32 a = value(op.a), b = value(op.b);
      const bool is_less = is_signed ? static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b) : a < b;
      put(warp, lane, op, is_less == least ? a : b);
      return true;
    }
    case Do::viaddmnmx: {
      if (word.bits(73, 2) != 0 || word.bit(76) != 0) give_up("a kind of VIADDMNMX");
      const U32 b = value(op.b), sum = value(op.a) + (op.b.negated ? 0 - b : b), c = value(op.c);
      const bool is_less = word.bit(72) != 0 ? static_cast<std::int32_t>(sum) < static_cast<std::int32_t>(c) : sum < c;
      put(warp, lane, op, is_less == holds(warp, lane, op.p87) ? sum : c);
      return true;
    }
    case Do::iabs: {
      const U32 b = value(op.b);
      put(warp, lane, op, b >> 31 != 0 ? 0 - b : b);
      return true;
    }
    default:
      return false;
  }
}

bool Machine::bits(Warp& warp, Lane& lane, const Op& op) {
  const sass::Word word = op.word;
  const auto value = [&](const Source& source) { return raw(warp, lane, source, op); };
  switch (op.what) {
    case Do::mov: {
      if (op.instruction.opcode == kMov64 || op.instruction.opcode == kUmov64)
        return put64(warp, lane, op, word.bits(24, 64)), true;
      for (unsigned i = 0; i < op.to_count; ++i) put(warp, lane, op, raw(warp, lane, op.b, op, i), i);
      return true;
    }
    case Do::sel: {
      const Source& from = holds(warp, lane, op.p87) ? op.a : op.b;
      for (unsigned i = 0; i < op.to_count; ++i) put(warp, lane, op, raw(warp, lane, from, op, i), i);
      return true;
    }
    case Do::lop3: {
      const U32 a = value(op.a), b = value(op.b), c = value(op.c);
      const auto table = static_cast<unsigned>(word.bits(72, 8));
      U32 result = 0;
      for (unsigned i = 0; i < 8; ++i)
        if (table >> i & 1) result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
      put(warp, lane, op, result);
      const bool also = holds(warp, lane, op.p87);
      put(warp, lane, op.p81, word.bit(80) != 0 ? result != 0 && also : result != 0 || also);
      return true;
    }
    case Do::plop3: {
      const unsigned index =
          holds(warp, lane, op.p87) * 4u + holds(warp, lane, op.p77) * 2u + holds(warp, lane, op.p68);
      const auto first = static_cast<unsigned>(word.bits(64, 3) | word.bits(72, 5) << 3),
                 second = static_cast<unsigned>(word.bits(16, 8));
      put(warp, lane, op.p81, (first >> index & 1) != 0);
      put(warp, lane, op.p84, (second >> index & 1) != 0);
      return true;
    }
    case Do::shf: {
      const bool is_32 = word.bit(74) != 0, is_signed = word.bit(73) == 0;
      const U32 most = is_32 ? 32 : 64;
      U32 by = value(op.b);
      by = word.bit(75) != 0 ? by % most : std::min(by, most);
      const U64 from = U64{value(op.c)} << 32 | value(op.a);
      U64 result = 0;
      if (word.bit(76) == 0)
        result = by > 63 ? 0 : from << by;
      else if (is_signed)
        result = static_cast<U64>(static_cast<std::int64_t>(from) >> std::min(by, 63u));
      else
        result = by > 63 ? 0 : from >> by;
      put(warp, lane, op, static_cast<U32>(word.bit(80) != 0 ? result >> 32 : result));
      return true;
    }
    case Do::prmt: {
      if (word.bits(72, 3) != 0) return false;
      const U64 bytes = U64{value(op.c)} << 32 | value(op.a);
      const U32 selector = value(op.b);
      U32 result = 0;
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned nibble = selector >> 4 * i & 15;
        U32 byte = static_cast<U32>(bytes >> 8 * (nibble & 7) & 0xff);
        if ((nibble & 8) != 0) byte = byte >> 7 != 0 ? 0xff : 0;
        result |= byte << 8 * i;
      }
      put(warp, lane, op, result);
      return true;
    }
    case Do::popc:
      put(warp, lane, op, static_cast<U32>(std::popcount(op.b.negated ? ~value(op.b) : value(op.b))));
      return true;
    case Do::flo: {
      U32 b = op.b.negated ? ~value(op.b) : value(op.b);
      if (word.bit(73) != 0 && b >> 31 != 0) b = ~b;
      const auto before = static_cast<U32>(std::countl_zero(b));
      put(warp, lane, op, b == 0 ? 0xffffffffu : word.bit(74) != 0 ? before : 31 - before);
      put(warp, lane, op.p81, b != 0);
      return true;
    }
    case Do::brev: {
      U32 result = 0;
      for (U32 i = 0, from = value(op.b); i < 32; ++i) result |= (from >> i & 1) << (31 - i);
      put(warp, lane, op, result);
      return true;
    }
    case Do::sgxt: {
      const U32 a = value(op.a);
      U32 count = value(op.b);
      count = word.bit(75) != 0 ? count % 32 : std::min(count, 32u);
      if (count == 32) return put(warp, lane, op, a), true;
      const U32 kept = a & ((1u << count) - 1);
      const bool is_negative = word.bit(73) != 0 && count > 0 && (a >> (count - 1) & 1) != 0;
      put(warp, lane, op, is_negative ? kept | ~((1u << count) - 1) : kept);
      return true;
    }
    case Do::bmsk: {
      const bool wraps = word.bit(75) != 0;
      const U32 at = wraps ? value(op.a) % 32 : value(op.a), count = wraps ? value(op.b) % 32 : value(op.b);
      const U64 ones = count >= 32 ? 0xffffffffu : (U64{1} << count) - 1;
      put(warp, lane, op, at >= 32 ? 0 : static_cast<U32>(ones << at));
      return true;
    }
    case Do::p2r: {
      const auto mask = static_cast<U32>(word.bits(32, 32)), shift = static_cast<U32>(8 * word.bits(76, 2));
      put(warp, lane, op, (value(op.a) & ~(mask << shift)) | ((lane.p | 0x80u) & mask) << shift);
      return true;
    }
    case Do::r2p: {
      const auto mask = static_cast<U32>(word.bits(32, 32)) & 0x7f, shift = static_cast<U32>(8 * word.bits(76, 2));
      lane.p = (lane.p & ~mask) | (value(op.a) >> shift & mask);
      return true;
    }
    case Do::cs2r:
      put64(warp, lane, op, special(lane, static_cast<unsigned>(word.bits(72, 8))));
      return true;
    case Do::lepc:
      put64(warp, lane, op, kCodeWindow + std::uint64_t{at_} * sass::kInstructionBytes);
      return true;
    case Do::s2r:
      put(warp, lane, op, special(lane, static_cast<unsigned>(word.bits(72, 8))));
      return true;
    default:
      return false;
  }
}

}  // namespace nimble::code::emulator
