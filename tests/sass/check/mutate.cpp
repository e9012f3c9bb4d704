#include "tests/sass/check/mutate.h"

#include <cstring>
#include <vector>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/sass/decode.h"
#include "tests/sass/emulator/memory.h"

namespace nimble::code::oracle {
namespace {

constexpr std::size_t kBytes = sass::kInstructionBytes;

class Mutator {
 public:
  Mutator(std::string& bytes, std::size_t at, std::size_t size, unsigned arch, std::uint64_t seed)
      : bytes_(bytes), at_(at), count_(size / kBytes), arch_(arch), state_(seed) {}

  void run() {
    const std::uint32_t changes = 1 + below(3);
    for (std::uint32_t i = 0, tries = 0; i < changes && tries < 50; ++tries)
      if (change(below(static_cast<std::uint32_t>(count_)))) ++i;
  }

 private:
  std::uint32_t below(std::uint32_t most) {
    state_ = emulator::mixed(state_);
    return static_cast<std::uint32_t>(state_ >> 33) % most;
  }

  sass::Word word(std::size_t i) const {
    sass::Word word;
    std::memcpy(&word.low, &bytes_[at_ + i * kBytes], 8);
    std::memcpy(&word.high, &bytes_[at_ + i * kBytes + 8], 8);
    return word;
  }
  void put(std::size_t i, sass::Word word) {
    std::memcpy(&bytes_[at_ + i * kBytes], &word.low, 8);
    std::memcpy(&bytes_[at_ + i * kBytes + 8], &word.high, 8);
  }
  static void set(sass::Word& word, unsigned at, unsigned count, std::uint64_t value) {
    for (unsigned i = 0; i < count; ++i) {
      std::uint64_t& half = at + i < 64 ? word.low : word.high;
      const std::uint64_t bit = std::uint64_t{1} << (at + i) % 64;
      half = (half & ~bit) | ((value >> i & 1) != 0 ? bit : 0);
    }
  }

  // Another number, shift, table, choice of bytes, sign, word of a parameter.
  bool change_number(const sass::Instruction& instruction, sass::Word& changed) {
    const std::string_view name = instruction.name;
    if (instruction.constant && instruction.constant->bank == 0 && !instruction.constant->index) {
      // Words of 17 bits' offset stand one bit lower.
      const bool is_ldcu = name == "LDCU";
      const auto offset = static_cast<std::uint64_t>(instruction.constant->offset);
      const std::uint64_t moved = offset + 8 * below(4) - 8 * below(4);
      set(changed, is_ldcu ? 37 : 38, is_ldcu ? 17 : 16, moved);
      return true;
    }
    if (name.ends_with("LEA")) return set(changed, 75, 5, below(3)), true;
    if (name.ends_with("LOP3")) return set(changed, 72, 8, below(2) == 0 ? below(256) : 0xf0u >> 4 * below(2)), true;
    if (name.ends_with("SEL")) return set(changed, 90, 1, below(2)), true;
    if (!instruction.immediate) return false;
    if (name.ends_with("PRMT"))
      return set(changed, 32, 32, below(2) == 0 ? 0x3210 : below(2) == 0 ? 0x7654 : below(0x10000)), true;
    if (name.ends_with("SHF")) return set(changed, 32, 32, 16 * below(4)), true;
    if (name.ends_with("IMAD")) return set(changed, 32, 32, below(3)), true;
    if (name.ends_with("IADD3") || name.ends_with("VIADD") || name.ends_with("IADD"))
      return set(changed, 32, 32, below(2) == 0 ? 0 : 4 * below(20)), true;
    return false;
  }

  // A register that stands in the same file in some other instruction near by.
  bool change(std::size_t i) {
    sass::Word changed = word(i);
    const sass::Instruction instruction = sass::decode(changed, arch_);
    if (instruction.what == sass::Class::unknown || instruction.what == sass::Class::convergence) return false;
    switch (below(10)) {
      case 0:  // under another condition, or the opposite one
        if (instruction.what == sass::Class::exit || instruction.what == sass::Class::return_ ||
            instruction.what == sass::Class::call)
          return false;
        if (below(2) == 0)
          set(changed, 15, 1, changed.bit(15) ^ 1);
        else
          set(changed, 12, 3, below(8));
        break;
      case 1: {  // another instruction's place is taken
        const std::size_t other = below(static_cast<std::uint32_t>(count_));
        const sass::Instruction from = sass::decode(word(other), arch_);
        const bool moves = from.what == sass::Class::integer || from.what == sass::Class::number ||
                           from.what == sass::Class::predicate || from.what == sass::Class::constant_load ||
                           from.what == sass::Class::load || from.what == sass::Class::store;
        const bool gives = instruction.what == sass::Class::integer || instruction.what == sass::Class::number ||
                           instruction.what == sass::Class::predicate ||
                           instruction.what == sass::Class::constant_load || instruction.what == sass::Class::load ||
                           instruction.what == sass::Class::store;
        if (!moves || !gives) return false;
        changed = word(other);
        break;
      }
      case 2:
      case 3:
        if (!change_number(instruction, changed)) return false;
        break;
      default: {
        std::vector<sass::Registers> fields;
        for (const auto& registers : instruction.read) fields.push_back(registers);
        for (const auto& registers : instruction.written) fields.push_back(registers);
        if (fields.empty()) return false;
        const sass::Registers field = fields[below(static_cast<std::uint32_t>(fields.size()))];
        if (field.at == 0) return false;
        std::vector<std::uint32_t> others;
        for (std::size_t near = i > 40 ? i - 40 : 0; near < count_ && near < i + 40; ++near) {
          const sass::Instruction other = sass::decode(word(near), arch_);
          for (const auto& registers : other.read)
            if (registers.file == field.file && registers.count >= field.count) others.push_back(registers.first);
          for (const auto& registers : other.written)
            if (registers.file == field.file && registers.count >= field.count) others.push_back(registers.first);
        }
        if (others.empty()) return false;
        const bool is_predicate = field.file == sass::File::p || field.file == sass::File::up;
        set(changed, field.at,
            is_predicate                                  ? 3
            : field.file == sass::File::ur && arch_ < 100 ? 6
                                                          : 8,
            others[below(static_cast<std::uint32_t>(others.size()))]);
        break;
      }
    }
    put(i, changed);
    return true;
  }

  std::string& bytes_;
  const std::size_t at_, count_;
  const unsigned arch_;
  std::uint64_t state_;
};

}  // namespace

std::string mutated(const std::string& cubin, std::string_view kernel, std::uint64_t seed) {
  std::string changed = cubin;
  const Elf elf(cubin);
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (!symbol.kernel || symbol.name != kernel) continue;
    const Bytes text = elf.sections()[symbol.section].bytes;
    const auto at = static_cast<std::size_t>(text.data() - cubin.data());
    Mutator(changed, at, text.size(), elf.arch(), emulator::mixed(seed)).run();
    return changed;
  }
  return {};
}

}  // namespace nimble::code::oracle
