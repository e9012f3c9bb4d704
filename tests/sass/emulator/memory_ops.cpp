// Loads, stores and atomics, in every space.
#include <algorithm>
#include <bit>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr unsigned kSizes[] = {1, 1, 2,  2,
                               4, 8, 16, 16};  // by bits 73 to 75: of these the first four with and without sign

// The part of a word that a small load takes.
U32 part_of(U32 word, U64 address, unsigned size_code) {
  if (size_code >= 4) return word;
  word >>= 8 * (address & 3);
  switch (size_code) {
    case 0:
      return word & 0xff;
    case 1:
      return static_cast<U32>(static_cast<std::int32_t>(static_cast<std::int8_t>(word)));
    case 2:
      return word & 0xffff;
    default:
      return static_cast<U32>(static_cast<std::int32_t>(static_cast<std::int16_t>(word)));
  }
}

}  // namespace

std::uint64_t Machine::address(const Warp& warp, const Lane& lane, const sass::MemoryOperand& operand) const {
  // Another block's shared memory, and a barrier there. There is one block at a time, so it is this one's.
  if (operand.space == sass::Space::cluster && operand.base) return registers(warp, lane, *operand.base, 0);
  if (!operand.has_offset) give_up("an address of which the offset is not known");
  const bool is_narrow = operand.space == sass::Space::shared || operand.space == sass::Space::local;
  U64 sum = static_cast<U64>(operand.offset);
  for (const auto& from : {operand.base, operand.uniform}) {
    if (!from) continue;
    U64 value = registers(warp, lane, *from, 0);
    if (from->count > 1) value |= U64{registers(warp, lane, *from, 1)} << 32;
    if (from->file == sass::File::r) value *= operand.scale;
    sum += value;
  }
  return is_narrow ? sum & 0xffffffffu : sum;
}

// What a generic address means; the address becomes one of that space.
sass::Space Machine::space_of(sass::Space space, std::uint64_t& address) const {
  if (space == sass::Space::cluster) return sass::Space::shared;
  if (space != sass::Space::generic) return space;
  const U64 window = address >> 32 << 32;
  if (window != kSharedWindow && window != kLocalWindow && window != kParamWindow) return sass::Space::global;
  if (window == kParamWindow) return sass::Space::none;
  address &= 0xffffffffu;
  return window == kSharedWindow ? sass::Space::shared : sass::Space::local;
}

std::uint32_t Machine::load_word(Lane& lane, sass::Space space, std::uint64_t address) {
  switch (space) {
    case sass::Space::shared:
      return shared_[(address & 0xffffff) / 4 % shared_.size()];
    case sass::Space::local:
      if (address / 4 >= lane.local.size()) give_up("local memory that is not there");
      return lane.local[address / 4];
    case sass::Space::none:
      return constant(0, static_cast<std::int64_t>(program_.params_at + (address & 0xffffff) / 4 * 4));
    default:
      return memory_.load(address & ~U64{3});
  }
}

void Machine::store_word(Lane& lane, sass::Space space, std::uint64_t address, std::uint32_t value,
                         std::uint32_t mask) {
  const auto merged = [&](U32 before) { return (before & ~mask) | (value & mask); };
  switch (space) {
    case sass::Space::shared: {
      U32& word = shared_[(address & 0xffffff) / 4 % shared_.size()];
      word = merged(word);
      return;
    }
    case sass::Space::local:
      if (address / 4 >= lane.local.size()) give_up("local memory that is not there");
      lane.local[address / 4] = merged(lane.local[address / 4]);
      return;
    case sass::Space::none:
      give_up("it writes its parameters");
    default:
      memory_.store(address & ~U64{3}, merged(memory_.load(address & ~U64{3})));
  }
}

void Machine::note(sass::Space space, std::uint64_t address, std::uint32_t bytes, bool reads, bool writes,
                   const std::array<std::uint32_t, 4>& stored) {
  if (space == sass::Space::shared || space == sass::Space::local || space == sass::Space::none) return;
  seen_({at_, address, bytes, reads, writes, stored});
}

void Machine::memory(Warp& warp, const Op& op, Mask doing) {
  const sass::Word word = op.word;
  const auto size_code = static_cast<unsigned>(word.bits(73, 3));
  const unsigned size = kSizes[size_code], words = std::max(1u, size / 4);
  for (Mask left = doing; left != 0; left &= left - 1) {
    Lane& lane = warp.lanes[std::countr_zero(left)];
    switch (op.what) {
      case Do::ldc: {
        const sass::ConstantOperand& from = *op.instruction.constant;
        std::int64_t offset = from.offset;
        if (from.index) offset += static_cast<std::int32_t>(registers(warp, lane, *from.index, 0));
        for (unsigned i = 0; i < std::max<unsigned>(op.to_count, 1); ++i) {
          const U32 value = constant(from.bank, (offset & ~std::int64_t{3}) + 4 * i);
          put(warp, lane, op, part_of(value, static_cast<U64>(offset), size_code), i);
        }
        if (op.once) return;
        break;
      }
      case Do::load: {
        if (size_code == 7 || op.instruction.memory[0].bytes == 0) give_up("a kind of load");
        U64 from = address(warp, lane, op.instruction.memory[0]);
        const sass::Space space = space_of(op.instruction.memory[0].space, from);
        note(space, from, size, true, false);
        for (unsigned i = 0; i < words; ++i)
          put(warp, lane, op, part_of(load_word(lane, space, from + 4 * i), from, size_code), i);
        break;
      }
      case Do::store: {
        if (op.instruction.memory[0].bytes == 0) give_up("a kind of store");
        U64 to = address(warp, lane, op.instruction.memory[0]);
        const sass::Space space = space_of(op.instruction.memory[0].space, to);
        // Data stand where no address does.
        const unsigned data_at = op.instruction.opcode == 0x385 ? sass::kAtC : sass::kAtB;
        std::array<U32, 4> stored{};
        for (const sass::Registers& from : op.instruction.read)
          if (from.file == sass::File::r && from.at == data_at)
            for (unsigned i = 0; i < words; ++i) stored[i] = registers(warp, lane, from, i);
        note(space, to, size, false, true, stored);
        const U32 mask = size == 1 ? 0xffu : size == 2 ? 0xffffu : 0xffffffffu;
        const auto shift = static_cast<unsigned>(size < 4 ? 8 * (to & 3) : 0);
        for (unsigned i = 0; i < words; ++i) store_word(lane, space, to + 4 * i, stored[i] << shift, mask << shift);
        break;
      }
      case Do::atomic:
        atomic(warp, lane, op);
        break;
      case Do::ldgsts: {
        const sass::MemoryOperand &to = op.instruction.memory[0], &from = op.instruction.memory[1];
        const U64 target = address(warp, lane, to), source = address(warp, lane, from);
        const bool reads = holds(warp, lane, op.p87);  // else it stores zeros
        if (reads) note(sass::Space::global, source, size, true, false);
        for (unsigned i = 0; i < words; ++i)
          store_word(lane, sass::Space::shared, target + 4 * i, reads ? memory_.load((source + 4 * i) & ~U64{3}) : 0,
                     0xffffffffu);
        break;
      }
      default:
        give_up("it asks of which space an address is");
    }
  }
}

void Machine::atomic(Warp& warp, Lane& lane, const Op& op) {
  const sass::Word word = op.word;
  const sass::MemoryOperand& operand = op.instruction.memory[0];
  const std::string_view name = op.instruction.name;
  U64 at = address(warp, lane, operand);
  const sass::Space space = space_of(operand.space, at);
  U64 first = 0, second = 0;
  unsigned registers_read = 1;
  const auto take = [&](const sass::Registers& from) {
    U64 value = registers(warp, lane, from, 0);
    if (from.count > 1) value |= U64{registers(warp, lane, from, 1)} << 32;
    registers_read = std::max<unsigned>(registers_read, std::min<unsigned>(from.count, 2));
    if (from.count > 2) give_up("a wide atomic");
    return value;
  };
  for (const sass::Registers& from : op.instruction.read) {
    if (from.file != sass::File::r) continue;
    if (from.at == sass::kAtB) first = take(from);
    if (from.at == sass::kAtC) second = take(from);
  }
  if (op.to_count == 2) registers_read = 2;
  const unsigned opcode = op.instruction.opcode & 0xfff;
  const bool is_swap = opcode == 0x38b || opcode == 0x38d || opcode == 0x3a9 || opcode == 0x58d,
             is_float = opcode == 0x3a2 || opcode == 0x3a3 || opcode == 0x9a6 || opcode == 0x9a2 || opcode == 0x9a3 ||
                        name.starts_with("FA"),
             is_count = opcode == 0xf8c;
  const bool is_64 = registers_read == 2;
  U64 before = load_word(lane, space, at);
  if (is_64) before |= U64{load_word(lane, space, at + 4)} << 32;
  const bool is_signed = word.bit(73) != 0;
  const auto less = [&](U64 a, U64 b) {
    if (!is_signed) return a < b;
    return is_64 ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b)
                 : static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
  };
  U64 after = before + first;
  if (is_swap) {
    after = before == first ? second : before;
  } else if (is_count) {
    after = before + 1;
  } else if (is_float) {
    after = first;
  } else {
    switch (word.bits(87, opcode == 0x98e ? 3 : 4)) {
      case 0:
        break;
      case 1:
        after = less(first, before) ? first : before;
        break;
      case 2:
        after = less(before, first) ? first : before;
        break;
      case 3:
        after = before >= first ? 0 : before + 1;
        break;
      case 4:
        after = before == 0 || before > first ? first : before - 1;
        break;
      case 5:
        after = before & first;
        break;
      case 6:
        after = before | first;
        break;
      case 7:
        after = before ^ first;
        break;
      default:
        after = first;
        break;
    }
  }
  // What may be stored, stored or not.
  const U64 put_there = is_swap ? second : first;
  note(space, at, is_64 ? 8 : 4, true, true,
       {static_cast<U32>(put_there), static_cast<U32>(is_64 ? put_there >> 32 : 0)});
  store_word(lane, space, at, static_cast<U32>(after), 0xffffffffu);
  if (is_64) store_word(lane, space, at + 4, static_cast<U32>(after >> 32), 0xffffffffu);
  put(warp, lane, op, static_cast<U32>(before));
  if (is_64) put(warp, lane, op, static_cast<U32>(before >> 32), 1);
  put(warp, lane, op.p81, !is_swap || before == first);
}

}  // namespace nimble::code::emulator
