// What instructions read and write: registers, constants, predicates, special registers.
#include <bit>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {
namespace {

template <class T>
T bits_as(std::uint64_t bits) {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
  else
    return std::bit_cast<T>(bits);
}

}  // namespace

std::uint32_t Machine::constant(unsigned bank, std::int64_t offset) const {
  if (offset < 0) give_up("a constant before its bank");
  const auto at = static_cast<std::uint64_t>(offset);
  if (bank == 4) {
    const auto found = program_.bank4.find(static_cast<std::uint32_t>(at / 8 * 8));
    if (found == program_.bank4.end()) give_up("a constant that the driver gives");
    return static_cast<std::uint32_t>(launch_.variables[found->second] >> (at % 8 == 0 ? 0 : 32));
  }
  if (bank == 3) return static_cast<std::uint32_t>(mixed(at / 4) % 64);
  const std::vector<std::uint8_t>* bytes = bank == 0 ? &bank0_ : bank == 2 ? &program_.bank2 : nullptr;
  if (!bytes) give_up("a constant bank that is not known");
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i)
    if (at + i < bytes->size()) value |= std::uint32_t{(*bytes)[at + i]} << 8 * i;
  return value;
}

std::uint32_t Machine::raw(const Warp& warp, const Lane& lane, const Source& source, const Op& op,
                           unsigned index) const {
  switch (source.kind) {
    case Source::Kind::zero:
      return 0;
    case Source::Kind::r:
      return index < source.count ? lane.r[source.first + index] : 0;
    case Source::Kind::ur:
      return index < source.count ? warp.ur[source.first + index] : 0;
    case Source::Kind::immediate:
      return index == 0 ? source.immediate : 0u - (source.immediate >> 31);
    case Source::Kind::constant:
      break;
  }
  if (!op.instruction.constant || op.instruction.constant->index) give_up("a constant that is not known");
  return constant(op.instruction.constant->bank, std::int64_t{op.instruction.constant->offset} + 4 * index);
}

std::uint64_t Machine::raw64(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const {
  return raw(warp, lane, source, op) | std::uint64_t{raw(warp, lane, source, op, 1)} << 32;
}

float Machine::real(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const {
  auto value = bits_as<float>(raw(warp, lane, source, op));
  if (source.absolute) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  return source.negated ? -value : value;
}

double Machine::real64(const Warp& warp, const Lane& lane, const Source& source, const Op& op) const {
  // A constant in the instruction is the upper half.
  const std::uint64_t bits =
      source.kind == Source::Kind::immediate ? std::uint64_t{source.immediate} << 32 : raw64(warp, lane, source, op);
  auto value = bits_as<double>(source.absolute ? bits & ~(std::uint64_t{1} << 63) : bits);
  return source.negated ? -value : value;
}

bool Machine::holds(const Warp& warp, const Lane& lane, const Predicate& predicate) const {
  const std::uint32_t bits = predicate.uniform ? warp.up : lane.p;
  return (predicate.number == 7 || (bits >> predicate.number & 1) != 0) != predicate.negated;
}

void Machine::put(Warp& warp, Lane& lane, const Op& op, std::uint32_t value, unsigned index) const {
  if (op.to == 0xffff || index >= op.to_count) return;
  (op.to_uniform ? warp.ur[op.to + index] : lane.r[op.to + index]) = value;
}

void Machine::put64(Warp& warp, Lane& lane, const Op& op, std::uint64_t value) const {
  put(warp, lane, op, static_cast<std::uint32_t>(value));
  put(warp, lane, op, static_cast<std::uint32_t>(value >> 32), 1);
}

void Machine::put(Warp& warp, Lane& lane, const Predicate& predicate, bool value) const {
  if (predicate.number == 7) return;
  std::uint32_t& bits = predicate.uniform ? warp.up : lane.p;
  bits = (bits & ~(1u << predicate.number)) | static_cast<std::uint32_t>(value) << predicate.number;
}

std::uint32_t Machine::registers(const Warp& warp, const Lane& lane, const sass::Registers& from,
                                 unsigned index) const {
  if (index >= from.count) return 0;
  return from.file == sass::File::ur ? warp.ur[from.first + index] : lane.r[from.first + index];
}

std::uint32_t Machine::special(const Lane& lane, unsigned number) {
  const std::uint32_t in_warp = lane.thread % kLanes, bit = 1u << in_warp;
  switch (number) {
    case 0x00:  // LANEID
      return in_warp;
    case 0x01:  // clocks
    case 0x50:
    case 0x52:
      return clock_ += 7;
    case 0x20:  // TID, packed
    case 0x21:  // TID.X
      return lane.thread;
    case 0x25:  // CTAID.X
      return block_;
    case 0x2e:  // LWINHI
      return static_cast<std::uint32_t>(kLocalWindow >> 32);
    case 0x2f:  // SWINHI
      return static_cast<std::uint32_t>(kSharedWindow >> 32);
    case 0x38:  // EQMASK and so on
      return bit;
    case 0x39:
      return bit - 1;
    case 0x3a:
      return (bit - 1) | bit;
    case 0x3b:
      return ~((bit - 1) | bit);
    case 0x3c:
      return ~(bit - 1);
    default:
      return 0;
  }
}

}  // namespace nimble::code::emulator
