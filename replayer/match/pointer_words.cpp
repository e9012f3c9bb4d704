#include "replayer/match/pointer_words.h"

#include <algorithm>

#include "nimble/internal/launch_params.h"

namespace nimble {

namespace {

constexpr unsigned kNowhereBits = 12;

}  // namespace

PointerWords::PointerWords(const MemoryMap& memory, const ObjectMap& objects, Reach reach)
    : memory_(memory), objects_(objects), reach_(reach), nowhere_(std::size_t{1} << kNowhereBits) {}

// Caches answers: frameworks' steps have thousands of words for which we would have to ask the driver.
bool PointerWords::leads_nowhere(std::uint64_t word) {
  Nowhere& known = nowhere_[(word * 0x9E3779B97F4A7C15u) >> (64 - kNowhereBits)];
  const std::uint64_t state = memory_.nearby().state(word);
  if (known.word == word && known.state == state) return true;
  if (!reach_.nowhere(word)) return false;
  if (reach_.lasts()) known = {word, state};
  return true;
}

// Into the program's live memory.
bool PointerWords::leads_to_memory(std::uint64_t word) const {
  const Allocation* const memory = memory_.find(word);
  return memory && (!memory->arena || objects_.has_in_arena(memory->base, word));
}

// For a word that points nowhere: whether the analyzer would have distrusted it in a recording
// (analyzer/memory/objects.cpp).
bool PointerWords::stands_for_memory(const ScheduleOp& op, const std::uint8_t* live, std::uint64_t word) const {
  if (!could_be_address(word)) return false;
  const std::uint64_t bare = word & kAddressBits;
  if (bare != word && is_packed_pointer(bare)) return true;
  const Allocation* const next = memory_.begins_after(word, kJustBefore - 1);
  if (next && !next->arena) return true;
  const Allocation* const arena = next ? next : memory_.find(word);
  if (arena && arena->arena && objects_.begins_in_arena(arena->base, word, kJustBefore - 1)) return true;
  // The end of memory that no other word points into. In the arena, at another object's place, it is a stale pointer to
  // that.
  if (leads_to_memory(word) || !leads_to_memory(word - 1)) return false;
  const Allocation& ends = *memory_.find(word - 1);
  if (ends.arena && objects_.is_a_place(ends.base, word)) return false;
  return std::none_of(op.pointers.begin(), op.pointers.end(),
                      [&](const ScheduleParam& param) { return word_at(live + param.at) - ends.base < ends.size; });
}

// A stale pointer to released memory in the arena points nowhere, as when recorded, until the program allocates there
// again: so check it each time.
const char* PointerWords::look_at(const ScheduleOp& op, const std::uint8_t* live, std::uint64_t word, bool& lasts) {
  if (leads_to_memory(word)) return "a pointer where there was none";
  if (stands_for_memory(op, live, word)) return "a word that may mean a pointer where there was none";
  if (memory_.find(word)) {  // in the arena
    lasts = false;
    return nullptr;
  }
  if (!could_be_address(word)) return nullptr;
  if (!leads_nowhere(word)) return "a word that could be a pointer where there was none";
  lasts = lasts && reach_.lasts();
  return nullptr;
}

PointerWords::Found PointerWords::look(const ScheduleOp& op, const ScheduleFunction& function,
                                       const std::uint8_t* live) {
  Found found;
  const auto is_told = [&](std::uint32_t at) {
    return std::binary_search(op.numbers.begin(), op.numbers.end(), at) ||
           std::ranges::binary_search(op.pointers, at, {}, &ScheduleParam::at);
  };
  auto known = op.pointers.begin();
  for (const ParamLayout& param : function.params) {
    bool between_told = false;  // the current word straddles two that the schedule knows
    for (std::uint32_t at = param.offset; at + 8 <= param.offset + param.size; ++at) {
      found.at = at;
      if (at % 8 != 0) {
        // Packed structures may have pointers at any byte.
        if (!between_told && is_packed_pointer(word_at(live + at))) found.reason = "a pointer where there was none";
      } else {
        if (param.size > 8) between_told = is_told(at) && is_told(at + 8);
        while (known != op.pointers.end() && known->at < at) ++known;
        if (known != op.pointers.end() && known->at == at) continue;
        if (std::binary_search(op.numbers.begin(), op.numbers.end(), at)) continue;
        found.reason = look_at(op, live, word_at(live + at), found.lasts);
      }
      if (found.reason) return found;
    }
  }
  return found;
}

}  // namespace nimble
