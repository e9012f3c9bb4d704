// One instruction of machine code, as the decoder tells it: what kind it is, which registers and constants it reads,
// which registers it writes, with their widths, and the memory that it names.
//
// Plain data of a fixed size; nothing is allocated. Registers that are always zero, and predicates that are always
// true, are in no list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace nimble::code::sass {

// An instruction's 128 bits; the low half comes first in memory.
struct Word {
  std::uint64_t low = 0, high = 0;

  constexpr unsigned bit(unsigned at) const {
    return static_cast<unsigned>((at < 64 ? low >> at : high >> (at - 64)) & 1);
  }
  // At most 64 bits, from `at` on; zeros past the end.
  constexpr std::uint64_t bits(unsigned at, unsigned count) const {
    std::uint64_t value = at < 64 ? low >> at : at < 128 ? high >> (at - 64) : 0;
    if (at > 0 && at < 64) value |= high << (64 - at);
    return count < 64 ? value & ((std::uint64_t{1} << count) - 1) : value;
  }
  constexpr std::int64_t signed_bits(unsigned at, unsigned count) const {
    const std::uint64_t value = bits(at, count), sign = std::uint64_t{1} << (count - 1);
    return static_cast<std::int64_t>((value ^ sign) - sign);
  }
};

inline constexpr std::size_t kInstructionBytes = 16;

// What an instruction is to a data-flow. What the table does not know is `unknown`: it may read and write everything.
enum class Class : std::uint8_t {
  unknown,
  number,       // computes something that is no address: floats, conversions, counts
  integer,      // computes something that may be an address, or a part of one
  predicate,    // writes predicates alone
  nothing,      // has no part in any data-flow
  barrier,      // orders threads or memory
  convergence,  // which threads of a warp run together
  branch,
  call,
  return_,
  exit,
  trap,
  constant_load,  // from a constant bank
  load,
  store,
  atomic,      // reads and writes
  async_copy,  // from global to shared memory
  bulk_copy,   // of many bytes, between global and shared memory
  tensor_map,  // a copy that a tensor map describes
  texture,
  surface,
  barrier_object,  // a barrier in shared memory
  matrix_shared,   // a matrix product whose operands lie in shared memory
  tensor_memory,
  cache,        // tells caches something; nothing is read that anybody sees
  space_query,  // of which space a generic address is
  work_id,      // the next block's, into shared memory
};

enum class Space : std::uint8_t { none, generic, global, shared, local, cluster };

enum class File : std::uint8_t { r, ur, p, up };  // general registers, uniform ones, predicates, uniform predicates

// So many registers, one after the other.
struct Registers {
  File file = File::r;
  std::uint8_t at = 0;  // the bit at which the instruction names the first: what role they have
  std::uint16_t first = 0, count = 0;
  bool operator==(const Registers&) const = default;
};

// Bits of an instruction in which operands stand.
inline constexpr unsigned kAtResult = 16, kAtA = 24, kAtB = 32, kAtC = 64, kAtGuard = 12;

// A list within the instruction. What does not fit makes the instruction unknown.
template <class T, std::size_t kMost>
class Few {
 public:
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return values_[i]; }
  bool push(const T& value) {
    if (size_ == kMost) return false;
    values_[size_++] = value;
    return true;
  }

 private:
  std::array<T, kMost> values_{};
  std::size_t size_ = 0;
};

// Runs only where that predicate has this value.
struct Guard {
  enum class When : std::uint8_t { always, never, if_true, if_false };
  When when = When::always;
  File file = File::p;
  std::uint8_t predicate = 0;
};

// A word of a constant bank, or several. With an index: the register's value is added to the offset.
struct ConstantOperand {
  std::uint8_t bank = 0;
  std::uint8_t bytes = 4;  // that are read
  std::int32_t offset = 0;
  std::optional<Registers> index;
};

// Memory at base * scale + uniform + offset.
struct MemoryOperand {
  Space space = Space::none;
  bool reads = false, writes = false;
  bool has_offset = true;  // false: it is not known how large `offset` is
  std::uint8_t scale = 1;
  std::uint16_t bytes = 0;  // at most so many; 0: not known
  std::int64_t offset = 0;
  std::optional<Registers> base;     // two registers are a 64-bit address, one is 32 bits
  std::optional<Registers> uniform;  // that is added, or may be
};

struct Instruction {
  Class what = Class::unknown;
  const char* name = "";          // of the opcode, without modifiers; for people
  std::uint16_t opcode = 0;       // bits 0-11, and bit 91 as bit 12
  bool unknown_registers = true;  // it may write registers that are not in the list, and read such
  Guard guard;
  Few<Registers, 8> written;
  Few<Registers, 12> read;  // without the guard
  std::optional<ConstantOperand> constant;
  std::optional<std::uint32_t> immediate;  // of arithmetic, in operand B or C; not one of more than 32 bits
  bool is_not_zero = false;                // tests whether what it reads is not zero, and nothing else
  bool copies_predicate = false;           // what it writes first is the one predicate that it reads
  Few<MemoryOperand, 2> memory;
  std::optional<std::int64_t> target;  // of a branch or call: from the instruction's own first byte
};

}  // namespace nimble::code::sass
