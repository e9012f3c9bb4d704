// Looks up opcodes in their table. Made once from opcodes.def, then constant; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/sass/instruction.h"

namespace nimble::code::sass {

// How many registers are read or written, by bits of the instruction.
struct Count {
  static constexpr unsigned kMostBits = 6;
  static constexpr std::int16_t kNotKnown = -1;

  std::uint8_t bits = 0;                     // how many decide
  std::array<std::uint8_t, kMostBits> at{};  // which; from 128 on: whether the architecture is that or later
  std::array<std::int16_t, std::size_t{1} << kMostBits> of{};  // by their value, the first bit lowest
  bool gmma = false;                                           // (bits 53-57 + 1) * (bit 75 ? 4 : 2)

  std::int16_t in(Word word, unsigned arch) const;
};

struct Field {
  File file = File::r;
  std::uint8_t at = 0;
  bool complement = false;  // the predicate's number stands as 7 minus it
  bool all = false;         // any of the file's predicates, by a mask
  Count count;
};

// Which bits name the memory, and how.
enum class Address : std::uint8_t {
  none,
  wide,  // 64 bits: R@24 (a pair, or one where bit 90 is clear) + UR, which is a descriptor where bit 76 is set
  wide_offset32,  // R@24 a pair, offset 32:32
  wide_256,       // as wide, the offset elsewhere
  narrow,         // 32 bits: R@24 * scale (78:2) + UR
  ldgsts,         // to narrow R@16, offset 44:20, from wide R@24, offset 32:12
  bulk,           // UR@32, UR@24: which is which by bits 72-74
  map,            // UR@24: the address of a tensor map; UR@32: in shared memory
  pair,           // R@24 a pair: shared memory of the cluster, and a barrier there
  uniform,        // UR@24, 32 bits
};

struct Row {
  std::uint16_t opcode = 0;
  const char* name = "";
  Class what = Class::unknown;
  Space space = Space::none;
  Address address = Address::none;
  bool uniform_guard = false;
  bool has_constant = false, has_immediate = false;
  std::uint16_t archs = 0;  // a bit for each of kArchs
  std::vector<Field> writes, reads;
};

inline constexpr unsigned kArchs[] = {75, 80, 86, 89, 90, 100, 103, 110, 120, 121};

// The row for that opcode on that architecture; null where there is none.
const Row* find_row(std::uint16_t opcode, unsigned arch);
// All of them, by opcode.
std::span<const Row> all_rows();

}  // namespace nimble::code::sass
