// Instructions by which the threads of a warp know of each other.
#include <bit>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {

void Machine::among_lanes(Warp& warp, const Op& op, Mask doing) {
  const sass::Word word = op.word;
  const auto for_each = [&](const auto& act) {
    for (Mask left = doing; left != 0; left &= left - 1) {
      const auto i = static_cast<std::uint32_t>(std::countr_zero(left));
      act(i, warp.lanes[i]);
    }
  };
  Lane& first = warp.lanes[std::countr_zero(doing)];
  switch (op.what) {
    case Do::shfl: {
      std::array<std::uint32_t, kLanes> before{};
      for (std::uint32_t i = 0; i < kLanes; ++i) before[i] = raw(warp, warp.lanes[i], op.a, op);
      // Opcodes of which bits 9 and 10 say which of the two is a number.
      const unsigned opcode = op.instruction.opcode;
      const bool lane_given = opcode == 0x989 || opcode == 0xf89, clamp_given = opcode == 0x589 || opcode == 0xf89;
      for_each([&](std::uint32_t i, Lane& lane) {
        const std::uint32_t b = lane_given ? static_cast<std::uint32_t>(word.bits(53, 5)) : at_bit(warp, lane, op, 32);
        const std::uint32_t c =
            clamp_given ? static_cast<std::uint32_t>(word.bits(40, 13)) : at_bit(warp, lane, op, 64);
        const std::uint32_t segment = c >> 8 & 31, clamp = c & 31;
        const std::uint32_t most = (i & segment) | (clamp & ~segment), least = i & segment;
        std::uint32_t from = 0;
        bool good = false;
        switch (word.bits(58, 2)) {
          case 0:
            from = least | (b & ~segment & 31);
            good = from <= most;
            break;
          case 1:
            from = i - (b & 31);
            good = static_cast<std::int32_t>(from) >= static_cast<std::int32_t>(most);
            break;
          case 2:
            from = i + (b & 31);
            good = from <= most;
            break;
          default:
            from = i ^ (b & 31);
            good = from <= most;
            break;
        }
        // What a thread that is not here would give is not said; a program does not ask.
        const bool is_here = good && (doing >> (from & 31) & 1) != 0;
        put(warp, lane, op, before[is_here ? from & 31 : i]);
        put(warp, lane, op.p81, good);
      });
      return;
    }
    case Do::vote: {
      Mask those = 0;
      for_each([&](std::uint32_t i, Lane& lane) { those |= static_cast<Mask>(holds(warp, lane, op.p87)) << i; });
      const auto how = word.bits(72, 2);
      const bool is = how == 0 ? those == doing : how == 1 ? those != 0 : those == 0 || those == doing;
      for_each([&](std::uint32_t, Lane& lane) {
        put(warp, lane, op, those);
        put(warp, lane, op.p81, is);
      });
      return;
    }
    case Do::match: {
      std::array<std::uint64_t, kLanes> keys{};
      for_each([&](std::uint32_t i, Lane& lane) { keys[i] = raw64(warp, lane, op.a, op); });
      for_each([&](std::uint32_t i, Lane& lane) {
        Mask same = 0;
        for_each([&](std::uint32_t j, Lane&) { same |= static_cast<Mask>(keys[i] == keys[j]) << j; });
        const bool any = word.bit(79) != 0;
        put(warp, lane, op, any || same == doing ? same : 0);
        put(warp, lane, op.p81, same == doing);
      });
      return;
    }
    case Do::redux: {
      const auto how = std::string_view(op.instruction.name) == "REDUX" ? word.bits(78, 3) : 4;
      const bool is_signed = word.bit(73) != 0;
      std::uint32_t all = raw(warp, first, op.a, op);
      bool is_first = true;
      for_each([&](std::uint32_t, Lane& lane) {
        const std::uint32_t each = raw(warp, lane, op.a, op);
        const bool less = is_signed ? static_cast<std::int32_t>(each) < static_cast<std::int32_t>(all) : each < all;
        if (!is_first) {
          all = how == 0   ? all & each
                : how == 1 ? all | each
                : how == 2 ? all ^ each
                : how == 3 ? all + each
                           : (less == (how == 4) ? each : all);
        }
        is_first = false;
      });
      return put(warp, first, op, all);
    }
    case Do::r2ur:
      put(warp, first, op, raw(warp, first, op.a, op));
      put(warp, first, op.p81, true);
      return;
    case Do::elect:
      put(warp, first, op, static_cast<std::uint32_t>(std::countr_zero(doing)));
      for_each([&](std::uint32_t, Lane& lane) { put(warp, lane, op.p81, &lane == &first); });
      return;
    default:
      return;
  }
}

std::uint32_t Machine::at_bit(const Warp& warp, const Lane& lane, const Op& op, unsigned at) const {
  for (const sass::Registers& registers : op.instruction.read)
    if (registers.at == at && registers.file == sass::File::r) return this->registers(warp, lane, registers, 0);
  return 0;
}

}  // namespace nimble::code::emulator
