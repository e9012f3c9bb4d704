#include "analyzer/kernel_code/sass_code/local_words.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "analyzer/kernel_code/sass_code/bank0.h"

namespace nimble::code::sass {
namespace {

constexpr std::int64_t kWord = 4;
constexpr int kMostBlocks = 1024;  // that are looked through for the stores that reach one load

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
  if (words_.empty()) return;
  block_of_.resize(flow.instructions.size(), kNoBlock);
  for (std::uint32_t block = 0; block < flow.blocks.size(); ++block)
    for (std::uint32_t at = flow.blocks[block].begin; at < flow.blocks[block].end; ++at) block_of_[at] = block;
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

// From the load back along each way, up to what is stored whatever conditions hold. Not through calls, nor to where a
// function is called.
std::optional<std::vector<LocalWords::Stored>> LocalWords::reaching(std::uint32_t at, unsigned index) const {
  const auto* const all = loaded(at, index);
  if (all == nullptr) return std::nullopt;
  std::vector<Stored> found;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open{
      {block_of_[at], at}};  // block, and before which instruction
  std::vector<bool> seen(flow_.blocks.size());
  const auto is_in = [&](const Stored& each, std::uint32_t block, std::uint32_t before) {
    return block_of_[each.instruction] == block && each.instruction < before;
  };
  for (int blocks = 0; !open.empty(); ++blocks) {
    if (blocks == kMostBlocks) return std::nullopt;
    const auto [block, before] = open.back();
    open.pop_back();
    bool is_sure = false;
    for (auto each = all->rbegin(); each != all->rend() && !is_sure; ++each) {
      const Guard::When when = flow_.instructions[each->instruction].guard.when;
      if (!is_in(*each, block, before) || when == Guard::When::never) continue;
      const auto is_same = [&](const Stored& other) { return other.instruction == each->instruction; };
      if (std::ranges::none_of(found, is_same)) found.push_back(*each);
      is_sure = when == Guard::When::always;
    }
    if (is_sure) continue;
    const Block& here = flow_.blocks[block];
    if (block == flow_.functions[here.function].entry || here.from.empty()) return std::nullopt;
    for (const Block::From& from : here.from) {
      if (from.after_call) return std::nullopt;
      if (seen[from.block]) continue;
      seen[from.block] = true;
      open.emplace_back(from.block, flow_.blocks[from.block].end);
    }
  }
  return found.empty() ? std::nullopt : std::optional(std::move(found));
}

}  // namespace nimble::code::sass
