#include "analyzer/kernel_code/sass/decode.h"

#include "analyzer/kernel_code/sass/opcode_table.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kFirstWideUniform = 100;  // sm_100 has 256 uniform registers, those before it 64
constexpr unsigned kTargetAt = 34;
constexpr unsigned kTrap = 3;               // BPT.TRAP
constexpr unsigned kFirstSplitTarget = 90;  // from there on the low eight bits of a target lie apart

constexpr unsigned kBra = 0x947, kCallRel = 0x944, kBssy = 0x945, kBraUniform = 0x1547, kWarpsync = 0x348,
                   kWarpsyncImmediate = 0x948, kBpt = 0x95c, kRet = 0x950, kBraDiv = 0x1947, kCallRelR = 0x344,
                   kBrx = 0x949, kBrxu = 0x1958, kLdcu = 0x17ac, kLdc = 0xb82, kUblkred = 0x13bb, kLdsm = 0x83b,
                   kStsm = 0x844, kLdgmcs = 0x19a, kIsetp = 0x20c, kPlop3 = 0x81c, kUplop3 = 0x189c, kRedg = 0x198e,
                   kRedgs = 0x19a6, kMov64 = 0x402, kUmov64 = 0x1482;

unsigned bits_of(File file, unsigned arch) {
  switch (file) {
    case File::r:
      return 8;
    case File::ur:
      return arch >= kFirstWideUniform ? 8 : 6;
    default:
      return 3;
  }
}

// The register that stands for none, zero or true, is the last one.
unsigned none_of(File file, unsigned arch) { return (1u << bits_of(file, arch)) - 1; }

class Decoder {
 public:
  Decoder(Word word, unsigned arch) : word_(word), arch_(arch) {
    out_.opcode = static_cast<std::uint16_t>(word.bits(0, 12) | word.bit(91) << 12);
  }

  Instruction run() {
    row_ = find_row(out_.opcode, arch_);
    if (!row_) return out_;
    out_.what = row_->what;
    out_.name = row_->name;
    out_.unknown_registers = false;
    guard();
    for (const Field& field : row_->writes) registers(field, /*writes=*/true);
    for (const Field& field : row_->reads) registers(field, /*writes=*/false);
    if (row_->has_constant) constant();
    // ISETP.NE.AND P, PT, R, RZ, PT
    out_.is_not_zero = out_.opcode == kIsetp && word_.bits(76, 3) == 5 && word_.bits(74, 2) == 0 &&
                       word_.bit(72) == 0 && word_.bits(87, 4) == 7;
    // PLOP3.LUT P, PT, PT, PT, P, 0x80, 0x0: all of three hold, of which two always do.
    out_.copies_predicate = (out_.opcode == kPlop3 || out_.opcode == kUplop3) && word_.bits(72, 5) == 0x10 &&
                            word_.bits(64, 3) == 0 && word_.bit(71) == 0 && word_.bit(80) == 0 && word_.bit(90) == 0 &&
                            out_.read.size() == 1;
    if (row_->has_immediate) immediate();
    memory();
    target();
    if (out_.unknown_registers) out_.what = Class::unknown;
    return out_;
  }

 private:
  void guard() {
    const auto predicate = static_cast<std::uint8_t>(word_.bits(kAtGuard, 3));
    const bool negated = word_.bit(15) != 0;
    out_.guard.file = row_->uniform_guard ? File::up : File::p;
    out_.guard.predicate = predicate;
    if (predicate == none_of(File::p, arch_))
      out_.guard.when = negated ? Guard::When::never : Guard::When::always;
    else
      out_.guard.when = negated ? Guard::When::if_false : Guard::When::if_true;
  }

  void registers(const Field& field, bool writes) {
    if (field.all) {
      // A bit of the immediate for each predicate.
      for (std::uint16_t i = 0; i < none_of(field.file, arch_); ++i)
        if (word_.bit(32 + i) != 0) add({field.file, 0, i, 1}, writes);
      return;
    }
    const std::int16_t count = field.count.in(word_, arch_);
    if (count == Count::kNotKnown) {
      out_.unknown_registers = true;
      return;
    }
    if (count == 0) return;
    const unsigned none = none_of(field.file, arch_);
    auto first = static_cast<unsigned>(word_.bits(field.at, bits_of(field.file, arch_)));
    if (field.complement) first = none - first;
    if (first == none) return;
    // A group that begins before the last register goes beyond it in no code that a compiler makes.
    if (first + static_cast<unsigned>(count) > none) {
      out_.unknown_registers = true;
      return;
    }
    add({field.file, field.at, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(count)}, writes);
  }

  void add(Registers registers, bool writes) {
    const bool fits = writes ? out_.written.push(registers) : out_.read.push(registers);
    if (!fits) out_.unknown_registers = true;
  }

  // What is read at that bit, as an operand.
  std::optional<Registers> read_at(File file, unsigned at) const {
    for (const Registers& registers : out_.read)
      if (registers.file == file && registers.at == at) return registers;
    return std::nullopt;
  }

  void constant() {
    ConstantOperand operand;
    operand.bank = static_cast<std::uint8_t>(word_.bits(54, 5));
    const bool is_load = row_->what == Class::constant_load;
    operand.index = is_load ? read_at(File::r, kAtA) : std::nullopt;
    if (is_load && !operand.index) operand.index = read_at(File::ur, kAtA);
    const bool is_ldcu = is_load && out_.opcode == kLdcu;
    const unsigned at = is_ldcu ? 37 : 38, bits = is_ldcu ? 17 : 16;
    operand.offset = static_cast<std::int32_t>(operand.index ? word_.signed_bits(at, bits)
                                                             : static_cast<std::int64_t>(word_.bits(at, bits)));
    operand.bytes = 4;
    if (is_load) {
      operand.bytes = static_cast<std::uint8_t>(written_registers() * 4);
      // .IL, .IS and .ISL: the index names a bank as well.
      if (out_.opcode == kLdc && word_.bits(78, 2) != 0) out_.unknown_registers = true;
    } else if (is_wide_arithmetic()) {
      operand.bytes = 8;
    }
    out_.constant = operand;
  }

  // That of a MOV of 64 bits has 64 bits itself, from bit 24 on: told where it is no more than 32.
  void immediate() {
    if (out_.opcode != kMov64 && out_.opcode != kUmov64)
      out_.immediate = static_cast<std::uint32_t>(word_.bits(32, 32));
    else if (word_.bits(56, 32) == 0)
      out_.immediate = static_cast<std::uint32_t>(word_.bits(24, 32));
  }

  // Arithmetic of 64 bits takes two words of a bank.
  bool is_wide_arithmetic() const {
    for (const Registers& registers : out_.read)
      if (registers.file == File::r && registers.count > 1) return true;
    return written_registers() > 1;
  }

  unsigned written_registers() const {
    unsigned count = 0;
    for (const Registers& registers : out_.written)
      if (registers.file == File::r || registers.file == File::ur) count += registers.count;
    // To nowhere.
    return count == 0 ? 4 : count;
  }

  // How many bytes a load or a store moves; the size in bits 73 to 75.
  std::uint16_t moved_bytes() const {
    constexpr std::uint16_t kBytes[] = {1, 1, 2, 2, 4, 8, 16, 16};
    return kBytes[word_.bits(73, 3)];
  }

  // A 64-bit address: the base, and a uniform pair that is added or is a descriptor. Plain loads and stores tell which
  // by bit 76; of atomics it is not known, and what is no address does no harm.
  MemoryOperand wide(unsigned uniform_at) const {
    MemoryOperand operand;
    operand.base = read_at(File::r, kAtA);
    const bool tells = (row_->what == Class::load && out_.opcode >> 4 != kLdgmcs) || row_->what == Class::store;
    if (!tells || word_.bit(76) == 0) operand.uniform = read_at(File::ur, uniform_at);
    // From sm_100 on bit 63 of an atomic that returns something says that there is a descriptor.
    const bool is_shorter = arch_ >= kFirstWideUniform && row_->what == Class::atomic &&
                            (out_.opcode & 0xfff) >= 0x98a && (out_.opcode & 0xfff) != (kRedg & 0xfff) &&
                            out_.opcode != kRedgs;
    operand.offset = word_.signed_bits(40, is_shorter ? 23 : 24);
    return operand;
  }

  // Long, as it has a case for each way in which instructions say where the address is.
  void memory() {
    if (row_->address == Address::none) return;
    const bool is_load = row_->what == Class::load;
    MemoryOperand first, second;
    first.space = row_->space;
    first.reads = is_load || row_->what == Class::atomic;
    first.writes = row_->what == Class::store || row_->what == Class::atomic;
    const auto as_given = [&](MemoryOperand operand) {
      operand.space = first.space;
      operand.reads = first.reads;
      operand.writes = first.writes;
      first = operand;
    };
    switch (row_->address) {
      case Address::none:
        break;
      case Address::wide:
        as_given(wide(read_at(File::ur, kAtB) ? kAtB : kAtC));
        break;
      case Address::wide_offset32:
        as_given(wide(kAtB));
        first.uniform.reset();
        first.offset = word_.signed_bits(32, 32);
        break;
      case Address::wide_256:
        as_given(wide(read_at(File::ur, kAtB) ? kAtB : kAtC));
        first.has_offset = false;
        first.bytes = 32;
        break;
      case Address::narrow:
        first.base = read_at(File::r, kAtA);
        first.uniform = read_at(File::ur, kAtB);
        if (!first.uniform) first.uniform = read_at(File::ur, kAtC);
        first.offset = word_.signed_bits(40, 24);
        if (first.space == Space::shared && !is_of_matrices()) first.scale = kScales[word_.bits(78, 2)];
        break;
      case Address::ldgsts:
        ldgsts(first, second);
        break;
      case Address::bulk:
        bulk(first, second);
        break;
      case Address::map:
        map(first, second);
        break;
      case Address::pair:
        first.base = read_at(File::r, kAtA);
        first.has_offset = false;
        break;
      case Address::uniform:
        first.uniform = read_at(File::ur, kAtA);
        first.has_offset = false;
        first.writes = true;
        break;
    }
    const bool is_plain = row_->what == Class::load || row_->what == Class::store;
    if (first.bytes == 0 && is_plain &&
        (row_->address == Address::wide || row_->address == Address::wide_offset32 ||
         row_->address == Address::narrow || row_->address == Address::pair))
      first.bytes = is_of_matrices() ? kRowBytes : moved_bytes();
    if (first.space != Space::none) out_.memory.push(first);
    if (second.space != Space::none) out_.memory.push(second);
  }

  // LDSM, STSM: the bits of a scale and of a size say something else. Each thread names a row.
  static constexpr std::uint16_t kRowBytes = 16;
  bool is_of_matrices() const { return (out_.opcode & 0xfff) == kLdsm || (out_.opcode & 0xfff) == kStsm; }

  // The first is where it goes, the second where it comes from.
  void ldgsts(MemoryOperand& to, MemoryOperand& from) const {
    to.space = Space::shared;
    to.reads = false;
    to.writes = true;
    to.base = read_at(File::r, kAtResult);
    to.offset = word_.signed_bits(44, 20);
    from.space = Space::global;
    from.reads = true;
    from.base = read_at(File::r, kAtA);
    from.offset = word_.signed_bits(32, 12);
    from.bytes = to.bytes = moved_bytes();
    const std::optional<Registers> uniform = read_at(File::ur, kAtC);
    if (uniform && uniform->count == 1) to.uniform = uniform;  // 0x1dae
    if (uniform && uniform->count == 2 && word_.bit(76) == 0) from.uniform = uniform;
  }

  // UBLKCP and UBLKRED, from UR@24 to UR@32: either is in shared memory, an address of 32 bits, or in global memory.
  // Beside a shared address stands a barrier's.
  void bulk(MemoryOperand& to, MemoryOperand& from) const {
    const bool to_shared = word_.bit(73) != 0, from_shared = word_.bit(74) != 0;
    to.space = to_shared ? Space::shared : Space::global;
    from.space = from_shared ? Space::shared : Space::global;
    to.uniform = read_at(File::ur, kAtB);
    from.uniform = read_at(File::ur, kAtA);
    if (to_shared && to.uniform) to.uniform->count = 1;
    to.reads = out_.opcode == kUblkred;
    to.writes = true;
    from.reads = true;
  }

  // What the map leads to is what it says: its address is in global memory, and so is the tensor.
  void map(MemoryOperand& first, MemoryOperand& second) const {
    first.space = Space::generic;
    first.reads = true;
    first.uniform = read_at(File::ur, kAtA);
    first.bytes = 128;
    second.space = Space::shared;
    second.reads = second.writes = true;
    second.uniform = read_at(File::ur, kAtB);
    second.has_offset = false;
  }

  std::int64_t branch_words() const {
    const std::int64_t words = word_.signed_bits(kTargetAt, 48);
    return arch_ < kFirstSplitTarget
               ? words
               : static_cast<std::int64_t>(static_cast<std::uint64_t>(words) << 8 | word_.bits(16, 8));
  }

  void target() {
    std::int64_t words = 0;
    switch (out_.opcode) {
      case kBssy:
        words = word_.signed_bits(kTargetAt, 32);
        break;
      // With a target where bit 86 says so (.COLLECTIVE).
      case kWarpsync:
      case kWarpsyncImmediate:
        if (word_.bit(86) == 0) return;
        words = branch_words();
        break;
      case kBpt:
        if (word_.bits(84, 3) != kTrap) out_.unknown_registers = true;
        return;
      case kBra:
      case kCallRel:
      case kBraUniform:
      case kRet:
      case kBraDiv:
      case kCallRelR:
      case kBrx:
      case kBrxu:
        words = branch_words();
        break;
      default:
        return;
    }
    // In units of four bytes, from the next instruction on.
    out_.target =
        static_cast<std::int64_t>(kInstructionBytes) + static_cast<std::int64_t>(static_cast<std::uint64_t>(words) * 4);
  }

  static constexpr std::uint8_t kScales[] = {1, 4, 8, 16};

  const Word word_;
  const unsigned arch_;
  const Row* row_ = nullptr;
  Instruction out_;
};

}  // namespace

Instruction decode(Word word, unsigned arch) { return Decoder(word, arch).run(); }

}  // namespace nimble::code::sass
