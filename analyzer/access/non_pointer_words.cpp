#include "analyzer/access/non_pointer_words.h"

#include <algorithm>

#include "nimble/internal/schedule.h"

namespace nimble::analyzer {

std::vector<std::uint64_t> non_pointer_words(const Trace& trace, const ObjectTable& table, const Observations& seen,
                                             const StepAccesses& accesses, std::span<const std::uint32_t> calls) {
  std::vector<std::uint64_t> words;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const TraceCall& call = trace.calls[calls[op]];
    if (call.kind != CallKind::launch || call.params.empty() || accesses.ops[op].role != OpRole::accesses) continue;
    const auto pointers = table.pointers(calls[op]);
    const auto is_pointer = [&](std::uint32_t at) {
      return std::ranges::binary_search(pointers, at, {}, &PointerWord::at);
    };
    std::vector<std::uint32_t> numbers = accesses.no_pointers[op];
    // Words just past an object were only seen through if observations were looked at.
    if (accesses.ops[op].evidence == Evidence::observed) {
      const std::vector<std::uint32_t> past_ends = seen.past_ends(calls[op]);
      numbers.insert(numbers.end(), past_ends.begin(), past_ends.end());
      std::ranges::sort(numbers);
    }
    const auto is_number = [&](std::uint32_t at) { return std::ranges::binary_search(numbers, at); };
    for (const ParamLayout& param : *trace.functions[call.function].params)
      for (std::uint32_t at = param.offset; at + 8 <= param.offset + param.size; ++at) {
        const std::uint64_t word = word_at(call.params, at);
        if (!could_be_address(word)) continue;
        // It is in one word where pointers are aligned, or across two. If one of these is a pointer, there is no other.
        const std::uint32_t first = at & ~7u, second = (at + 7) & ~7u;
        if (is_pointer(first) || is_pointer(second) || (is_number(first) && is_number(second))) continue;
        words.push_back(word);
      }
  }
  std::ranges::sort(words);
  const auto rest = std::ranges::unique(words);
  words.erase(rest.begin(), rest.end());
  return words;
}

}  // namespace nimble::analyzer
