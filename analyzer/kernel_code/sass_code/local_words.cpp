#include "analyzer/kernel_code/sass_code/local_words.h"

#include <optional>
#include <string_view>

#include "analyzer/kernel_code/sass_code/bank0.h"

namespace nimble::code::sass {
namespace {

constexpr std::int64_t kWord = 4;

// Whether it may have a part in making a generic address of local memory.
bool names_local(const Kernel& kernel, const Instruction& instruction, Word word) {
  constexpr unsigned kSpecialAt = 72, kSpecialBits = 8;
  const std::string_view name = instruction.name;
  if ((name == "S2R" || name == "S2UR") && word.bits(kSpecialAt, kSpecialBits) == kUpperHalfOfLocal) return true;
  if (!instruction.constant || instruction.constant->bank != 0) return false;
  constexpr std::int64_t kMost = 16;  // bytes that are loaded at once
  const std::int64_t at = instruction.constant->offset, local = bank0_of(kernel.arch).local;
  const bool is_param =
      at >= std::int64_t{kernel.params_at} && at < std::int64_t{kernel.params_at} + kernel.param_bytes;
  return instruction.constant->index ? !is_param : at < local + 8 && local < at + kMost;
}

}  // namespace

LocalWords::LocalWords(const Kernel& kernel, const ControlFlow& flow, const Values& values)
    : flow_(flow), values_(values), places_(kernel, flow, values) {
  bool is_known = true, is_named = false, is_generic = false;
  for (const std::uint32_t at : values.order()) {
    const Instruction& instruction = flow.instructions[at];
    is_named |= names_local(kernel, instruction, flow.word(at));
    for (const MemoryOperand& memory : instruction.memory) {
      if (!memory.writes) continue;
      is_generic |= memory.space == Space::generic;
      if (memory.space == Space::local) is_known &= add(at, memory);
    }
  }
  if (!is_known || (is_named && is_generic)) words_.clear();
}

// One register after the other, as it is stored.
bool LocalWords::add(std::uint32_t at, const MemoryOperand& to) {
  const Instruction& instruction = flow_.instructions[at];
  const auto place = places_.in_local(at, to);
  if (instruction.what != Class::store || !place || *place % kWord != 0 || to.bytes == 0 || to.bytes % kWord != 0)
    return false;
  std::optional<Registers> stored;  // none: the register of zeros
  for (const Registers& registers : instruction.read) {
    if (registers == *to.base) continue;
    if (stored || registers.file != File::r || registers.at != kAtB || registers.count * kWord != to.bytes)
      return false;
    stored = registers;
  }
  const auto all = stored ? values_.read(at, *stored) : std::span<const ValueId>();
  for (unsigned i = 0; i < to.bytes / kWord; ++i)
    words_[*place + kWord * i].push_back({at, i < all.size() ? all[i] : kNoValue});
  return !stored || all.size() == stored->count;
}

const std::vector<LocalWords::Stored>* LocalWords::loaded(std::uint32_t at, unsigned index) const {
  const Instruction& instruction = flow_.instructions[at];
  if (words_.empty() || instruction.what != Class::load || instruction.memory.size() != 1) return nullptr;
  const MemoryOperand& from = instruction.memory[0];
  const auto place = places_.in_local(at, from);
  if (!place || *place % kWord != 0 || from.bytes == 0 || from.bytes % kWord != 0) return nullptr;
  const auto found = words_.find(*place + kWord * index);
  return found == words_.end() ? nullptr : &found->second;
}

}  // namespace nimble::code::sass
