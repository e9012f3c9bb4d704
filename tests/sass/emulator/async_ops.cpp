// Matrices, barriers and bulk copies: instructions that move more than one thread's words through shared memory. Copies
// are done when they are asked for, so whoever waits for one goes on.
#include <algorithm>
#include <bit>

#include "tests/sass/emulator/machine.h"

namespace nimble::code::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr unsigned kUtmaldg = 0x15b4, kUtmaldgUniform = 0x13b4, kUtmastg = 0x13b5, kUtmaredg = 0x13b6,
                   kUblkred = 0x13bb, kExchange = 0x15b2, kPhaseCheck = 0x15a7;
constexpr U32 kPiece = 16, kMostPieces = 32;  // bytes that are moved at once, and how many pieces at most

}  // namespace

void Machine::async(Warp& warp, const Op& op, Mask doing) {
  switch (op.what) {
    case Do::ldsm:
    case Do::stsm:
      return matrices(warp, op, doing);
    case Do::syncs:
      return barriers(warp, op, doing);
    case Do::bulk:
      return bulk(warp, op, doing);
    case Do::work:
      return work(warp, op, doing);
    default:
      return tensor(warp, op, doing);
  }
}

// Matrices of 8 rows of 16 bytes, one row at the address of each thread: the first eight threads' are the first matrix.
// A thread has two neighbours of a row; with .T of a column.
void Machine::matrices(Warp& warp, const Op& op, Mask doing) {
  const bool is_load = op.what == Do::ldsm, is_transposed = op.word.bit(78) != 0;
  const unsigned kind = static_cast<unsigned>(op.word.bits(72, 2)), count = 1u << kind;
  if (kind > 2 || op.word.bit(75) != 0 || op.word.bit(79) != 0) give_up("a kind of matrix");
  std::array<U64, kLanes> rows{};
  for (U32 i = 0; i < kLanes; ++i) rows[i] = address(warp, warp.lanes[i], op.instruction.memory[0]);
  Lane& any = warp.lanes[0];
  const auto half_at = [](U64 where) { return static_cast<unsigned>(8 * (where & 2)); };
  for (unsigned matrix = 0; matrix < count; ++matrix) {
    for (Mask left = doing; left != 0; left &= left - 1) {
      const auto i = static_cast<U32>(std::countr_zero(left));
      U32 word = is_load ? 0 : stored_word(warp, warp.lanes[i], op, matrix);
      for (U32 half = 0; half < 2; ++half) {
        const U32 row = is_transposed ? 2 * (i % 4) + half : i / 4, column = is_transposed ? i / 4 : 2 * (i % 4) + half;
        const U64 where = rows[8 * matrix + row] + U64{2} * column;
        if (is_load)
          word |= (load_word(any, sass::Space::shared, where) >> half_at(where) & 0xffff) << 16 * half;
        else
          store_word(any, sass::Space::shared, where, (word >> 16 * half & 0xffff) << half_at(where),
                     0xffffu << half_at(where));
      }
      if (is_load) put(warp, warp.lanes[i], op, word, matrix);
    }
  }
}

std::uint32_t Machine::stored_word(const Warp& warp, const Lane& lane, const Op& op, unsigned index) const {
  for (const sass::Registers& from : op.instruction.read)
    if (from.file == sass::File::r && from.at == sass::kAtB) return registers(warp, lane, from, index);
  return 0;
}

// A barrier is 64 bits in shared memory. Nothing here depends on what it counts: each phase is over when it is asked
// for.
void Machine::barriers(Warp& warp, const Op& op, Mask doing) {
  const unsigned opcode = op.instruction.opcode;
  for (Mask left = doing; left != 0; left &= left - 1) {
    Lane& lane = warp.lanes[std::countr_zero(left)];
    U64 at = static_cast<U64>(op.word.signed_bits(40, 24));
    for (const sass::Registers& from : op.instruction.read) {
      const bool is_data =
          opcode == kExchange ? from.at == sass::kAtB : from.at == sass::kAtB && from.file == sass::File::r;
      if ((from.file == sass::File::r || from.file == sass::File::ur) && !is_data) at += registers(warp, lane, from, 0);
    }
    const U32 before[] = {load_word(lane, sass::Space::shared, at), load_word(lane, sass::Space::shared, at + 4)};
    if (opcode == kPhaseCheck) {
      put(warp, lane, op.p81, true);
      continue;
    }
    for (unsigned i = 0; i < 2; ++i) put(warp, lane, op, before[i], i);
    for (unsigned i = 0; i < 2; ++i) {
      U32 after = before[i] + 1;
      for (const sass::Registers& from : op.instruction.read)
        if (opcode == kExchange && from.at == sass::kAtB) after = registers(warp, lane, from, i);
      store_word(lane, sass::Space::shared, at + 4 * i, after, 0xffffffffu);
    }
    if (op.once) return;
  }
}

// What lies at one address goes to another. Only one of them is in shared memory, or both.
void Machine::move_piece(Lane& lane, sass::Space to_space, U64 to, sass::Space from_space, U64 from, bool adds) {
  note(from_space, from, kPiece, true, false);
  std::array<U32, 4> words{};
  for (U32 i = 0; i < 4; ++i) words[i] = load_word(lane, from_space, from + 4 * i);
  note(to_space, to, kPiece, adds, true, words);
  for (U32 i = 0; i < 4; ++i) {
    if (adds) words[i] += load_word(lane, to_space, to + 4 * i);
    store_word(lane, to_space, to + 4 * i, words[i], 0xffffffffu);
  }
}

std::uint64_t Machine::uniform_at(const Warp& warp, const Op& op, unsigned at, bool is_wide) const {
  const auto first = op.word.bits(at, program_.arch >= 100 ? 8 : 6);
  if (first == (program_.arch >= 100 ? 255u : 63u)) return 0;
  return warp.ur[first] | (is_wide ? U64{warp.ur[first + 1]} << 32 : 0);
}

// From UR@24 to UR@32, in units of 16 bytes.
void Machine::bulk(Warp& warp, const Op& op, Mask doing) {
  Lane& lane = warp.lanes[std::countr_zero(doing)];
  const bool to_shared = op.word.bit(73) != 0, from_shared = op.word.bit(74) != 0;
  const sass::Space to_space = to_shared ? sass::Space::shared : sass::Space::global,
                    from_space = from_shared ? sass::Space::shared : sass::Space::global;
  const U64 to = uniform_at(warp, op, 32, !to_shared), from = uniform_at(warp, op, 24, !from_shared);
  const U64 pieces = std::min<U64>(uniform_at(warp, op, 64, false) & 0xffff, kMostPieces);
  for (U64 i = 0; i < pieces; ++i)
    move_piece(lane, to_space, to + kPiece * i, from_space, from + kPiece * i, op.instruction.opcode == kUblkred);
}

// The map is at UR@24; its first 8 bytes are where the tensor is. Of its extents nothing is known here: some of it is
// moved, where the coordinates say. At UR@32 are the place in shared memory, a barrier, and coordinates.
void Machine::tensor(Warp& warp, const Op& op, Mask doing) {
  const unsigned opcode = op.instruction.opcode;
  const bool is_load = opcode == kUtmaldg || opcode == kUtmaldgUniform, is_store = opcode == kUtmastg;
  if (!is_load && !is_store && opcode != kUtmaredg) give_up("a kind of tensor copy");
  Lane& lane = warp.lanes[std::countr_zero(doing)];
  U64 map = uniform_at(warp, op, 24, true);
  const sass::Space space = space_of(sass::Space::generic, map);
  note(space, map, 128, true, false);
  const U64 base = load_word(lane, space, map) | U64{load_word(lane, space, map + 4)} << 32;
  U32 place = 0;
  for (const sass::Registers& from : op.instruction.read)
    if (from.at == sass::kAtB)
      for (unsigned i = is_load ? 2 : 1; i < from.count; ++i) place += registers(warp, lane, from, i);
  const U64 in_tensor = base + U64{place % 256} * kPiece, in_shared = uniform_at(warp, op, 32, false) & ~U64{15};
  for (U32 i = 0; i < 4; ++i) {
    const U64 far = in_tensor + kPiece * i, near = in_shared + kPiece * i;
    if (is_load)
      move_piece(lane, sass::Space::shared, near, sass::Space::global, far, false);
    else
      move_piece(lane, sass::Space::global, far, sass::Space::shared, near, !is_store);
  }
}

// At times another block's index, and that it is one: it is run here as well, which changes nothing of what is touched.
void Machine::work(Warp& warp, const Op& op, Mask doing) {
  Lane& lane = warp.lanes[std::countr_zero(doing)];
  const U64 at = uniform_at(warp, op, 24, false);
  clock_ += 7;
  const U32 answer[] = {clock_ % 4, 0, clock_ % 3 == 0 ? 1u : 0u, 0};
  for (U32 i = 0; i < 4; ++i) store_word(lane, sass::Space::shared, at + 4 * i, answer[i], 0xffffffffu);
}

}  // namespace nimble::code::emulator
